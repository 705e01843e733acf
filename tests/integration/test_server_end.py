"""A process that is told to end does, even while it cannot run any Python; a worker that is stuck is replaced."""

import signal
import subprocess
import sys
import time

import psutil
import pytest

from tests.support.child_process import tie_to_parent
from tests.support.service import StartService, make_config, wait_until

STUCK = """
import asyncio, re, signal, sys
from massmem.isolation import end_in_time
loop = asyncio.new_event_loop()
stopping = asyncio.Event()
loop.add_signal_handler(signal.SIGTERM, stopping.set)
end_in_time(float(sys.argv[1]))
print("ready", flush=True)
if sys.argv[2] == "stuck":
    re.match("(a+)+$", "a" * 60 + "!")
loop.run_until_complete(stopping.wait())
print("ended", flush=True)
"""
"""Takes the signals as `massmem worker` does; the expression would need years, and holds the interpreter."""


def start(seconds: float, how: str) -> subprocess.Popen[str]:
    command = tie_to_parent([sys.executable, "-c", STUCK, str(seconds), how])
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def test_a_process_that_is_stuck_in_c_ends_after_sigterm():
    with start(1, "stuck") as process:
        process.terminate()
        assert process.wait(60) == -signal.SIGKILL


def test_a_process_that_is_stuck_goes_on_without_sigterm_and_its_watcher_ends_with_it():
    with start(0, "stuck") as process:
        watchers = psutil.Process(process.pid).children(recursive=True)
        time.sleep(0.5)
        assert process.poll() is None
        process.kill()
        process.wait()
        assert watchers
        assert not psutil.wait_procs(watchers, 60)[1]


def test_a_process_that_ends_by_itself_is_not_killed():
    with start(30, "free") as process:
        process.terminate()
        assert process.communicate(timeout=60)[0] == "ended\n"
        assert process.returncode == 0


def list_workers(pid: int) -> list[psutil.Process]:
    return [child for child in psutil.Process(pid).children() if "spawn_main" in " ".join(child.cmdline())]


@pytest.mark.slow
def test_a_worker_that_is_stuck_is_replaced_and_the_service_ends_in_time(start_service: StartService):
    service = start_service(make_config(server={"grace": 0}), "--workers", "2")
    first = list_workers(service.pid)
    assert len(first) == 2
    first[0].send_signal(signal.SIGSTOP)
    try:
        wait_until(lambda: "was stuck and was replaced" in service.log.read_text())
        assert not first[0].is_running()
        wait_until(lambda: len(list_workers(service.pid)) == 2)
        assert first[1] in list_workers(service.pid)
        wait_until(lambda: service.get_status("/readyz") == 200)
        first[1].send_signal(signal.SIGSTOP)
        service.terminate()
        assert service.wait_for_exit() == 0
        assert not first[1].is_running()
    finally:
        for worker in first:
            if worker.is_running():
                worker.kill()
