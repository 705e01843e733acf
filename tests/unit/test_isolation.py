"""Work in worker processes: every limit ends it with a reason, and nothing is left of it."""

import asyncio
import multiprocessing
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from massmem.core.errors import BusyError, ConfigError, InputError
from massmem.isolation import MAX_RESULT, MAX_WAITING, call_isolated, run_isolated, run_program

SLOW = 60.0
"""A deadline for what takes a second on a quiet machine."""


def backtrack() -> bool:
    """Holds the interpreter: neither a signal's handler nor another thread runs."""
    return re.match("^(a+)+$", "a" * 60 + "b") is not None


def sleep(seconds: float) -> str:
    time.sleep(seconds)
    return "slept"


def write_pid(path: str, then: float) -> None:
    Path(path).write_text(str(os.getpid()))
    backtrack() if then < 0 else time.sleep(then)


PROGRAM = "import os, pathlib, sys, time; pathlib.Path(sys.argv[1]).write_text(str(os.getpid())); time.sleep(600)"


def start_program(path: str) -> None:
    subprocess.run([sys.executable, "-c", PROGRAM, path], check=True)


def print_much() -> str:
    print("x" * 100_000)
    subprocess.run([sys.executable, "-c", "import sys; print(sys.stdin.read())"], check=True)
    return "printed"


def hog() -> int:
    return len([bytes(10_000_000) for _ in range(1_000)])


def nest() -> None:
    nest()


def refuse() -> None:
    raise ConfigError(["one", "two"], "a hint")


def list_listeners() -> list[int]:
    return [c.laddr[1] for c in psutil.Process().net_connections() if c.status == psutil.CONN_LISTEN]


@pytest.mark.parametrize(
    ("function", "args", "message"),
    [
        (backtrack, (), "it takes longer than 0.5 s"),
        (hog, (), "it needs more than 1 GB of memory"),
        (nest, (), "it is nested too deeply"),
        (bytes, (MAX_RESULT,), f"it has too large a result: more than {MAX_RESULT:,} bytes"),
        (os._exit, (0,), "it cannot be read: it ended the program for it"),
        (os.abort, (), "it needs more than 1 GB of memory"),
        (int, ("no number",), "it cannot be read: the program for it failed"),
    ],
    ids=["loop", "memory", "recursion", "result", "exit", "allocator", "bug"],
)
async def test_a_limit_that_is_passed_is_an_error_of_the_input(
    function: Callable[..., Any], args: tuple[Any, ...], message: str
):
    seconds = 0.5 if function is backtrack else SLOW
    with pytest.raises(InputError) as error:
        await run_isolated(function, *args, what="it", seconds=seconds)
    assert error.value.message == message
    assert await run_isolated(sleep, 0, what="it") == "slept"


async def test_errors_of_massmem_come_through():
    with pytest.raises(ConfigError) as error:
        await run_isolated(refuse, what="it")
    assert (str(error.value), error.value.problems, error.value.hint) == ("one\ntwo", ["one", "two"], "a hint")


async def test_call_that_cannot_be_sent_is_an_error_of_the_caller():
    with pytest.raises(AttributeError):
        await run_isolated(lambda: None, what="it")


async def test_deep_nesting_cannot_be_sent_and_is_refused():
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]
    with pytest.raises(InputError, match="it is nested too deeply"):
        await run_isolated(len, value, what="it")
    while value:
        value = value[0]


def test_a_library_may_print_and_start_programs():
    assert call_isolated(print_much, what="it") == "printed"


def test_sockets_are_not_inherited():
    import socket

    with socket.create_server(("127.0.0.1", 0)):
        assert call_isolated(list_listeners, what="it") == []


async def test_the_loop_goes_on_while_a_worker_holds_its_interpreter():
    work = asyncio.create_task(run_isolated(backtrack, what="it", seconds=1))
    turns = 0
    while not work.done():
        await asyncio.sleep(0.01)
        turns += 1
    assert isinstance(work.exception(), InputError)
    assert turns > 10


async def test_one_caller_does_not_make_others_wait():
    first = [asyncio.create_task(run_isolated(sleep, 0.4, what="it", caller="first")) for _ in range(8)]
    await asyncio.sleep(0.1)
    assert await run_isolated(sleep, 0, what="it", caller="second") == "slept"
    assert sum(task.done() for task in first) < 4
    assert await asyncio.gather(*first) == ["slept"] * 8


async def test_too_many_tasks_are_refused():
    tasks = [asyncio.create_task(run_isolated(sleep, 1, what="it", caller="first")) for _ in range(MAX_WAITING + 2)]
    await asyncio.sleep(0.1)
    assert any(task.done() and isinstance(task.exception(), BusyError) for task in tasks)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert await run_isolated(sleep, 0, what="it", caller="first") == "slept"


def test_many_threads_at_once():
    with ThreadPoolExecutor(8) as threads:
        results = list(threads.map(lambda n: call_isolated(abs, -n, what="it"), range(200)))
    assert results == list(range(200))


def wait_for_pid(path: Path) -> int:
    deadline = time.monotonic() + SLOW
    while not (path.exists() and path.read_text()):
        assert time.monotonic() < deadline, "the work does not begin"
        time.sleep(0.01)
    return int(path.read_text())


def wait_for_end(pid: int) -> None:
    deadline = time.monotonic() + SLOW / 2
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline, "the process goes on"
        time.sleep(0.01)


async def test_work_of_a_cancelled_caller_ends(tmp_path: Path):
    task = asyncio.create_task(run_isolated(write_pid, str(tmp_path / "pid"), -1, what="it", seconds=SLOW))
    pid = await asyncio.to_thread(wait_for_pid, tmp_path / "pid")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.to_thread(wait_for_end, pid)
    assert await run_isolated(sleep, 0, what="it") == "slept"


async def test_a_program_that_the_work_has_started_ends_with_it(tmp_path: Path):
    task = asyncio.create_task(run_isolated(start_program, str(tmp_path / "pid"), what="it", seconds=SLOW))
    pid = await asyncio.to_thread(wait_for_pid, tmp_path / "pid")
    task.cancel()
    await asyncio.to_thread(wait_for_end, pid)


async def test_a_program_ends_with_the_process_that_has_started_it(tmp_path: Path):
    task = asyncio.create_task(run_isolated(start_program, str(tmp_path / "pid"), what="it", seconds=SLOW))
    pid = await asyncio.to_thread(wait_for_pid, tmp_path / "pid")
    psutil.Process(pid).parent().kill()  # pyright: ignore[reportOptionalMemberAccess]
    with pytest.raises(InputError):
        await task
    await asyncio.to_thread(wait_for_end, pid)


@pytest.mark.parametrize("start", ["call_isolated(start_program, sys.argv[1], what='it')", "run_program(COMMAND, 60)"])
def test_a_program_ends_when_the_parent_of_all_is_killed(tmp_path: Path, start: str):
    code = f"""
import sys
from massmem.isolation import call_isolated, run_program
from tests.unit.test_isolation import PROGRAM, start_program
COMMAND = [sys.executable, "-c", PROGRAM, sys.argv[1]]
{start}"""
    root = str(Path(__file__).parents[2])
    arguments = [sys.executable, "-c", code, str(tmp_path / "pid")]
    with subprocess.Popen(arguments, env={**os.environ, "PYTHONPATH": root}) as parent:
        try:
            pid = wait_for_pid(tmp_path / "pid")
        finally:
            parent.kill()
    wait_for_end(pid)


def test_a_program_that_is_run_has_an_exit_code_words_and_a_limit(tmp_path: Path):
    code = "import sys; print(sys.stdin.read() or 'nothing'); print('wrong', file=sys.stderr); sys.exit(3)"
    done = run_program([sys.executable, "-c", code], SLOW)
    assert (done.returncode, done.stdout, done.stderr) == (3, "nothing\n", "wrong\n")
    with pytest.raises(InputError, match="takes longer than 2 s"):
        run_program([sys.executable, "-c", PROGRAM, str(tmp_path / "pid")], 2)
    wait_for_end(wait_for_pid(tmp_path / "pid"))


PARENT = """
import asyncio, sys
from massmem.isolation import run_isolated
from tests.unit.test_isolation import write_pid
assert __name__ == "__main__", "a worker runs the main program"
async def main():
    work = asyncio.create_task(run_isolated(write_pid, sys.argv[1], float(sys.argv[2]), what="it", seconds=60))
    await (asyncio.sleep(2) if sys.argv[3] == "leave" else work)
asyncio.run(main())
"""


@pytest.mark.parametrize("then", [-1, 60], ids=["computes", "sleeps"])
@pytest.mark.parametrize("end", ["kill", "terminate", "interrupt", "leave"])
def test_workers_end_with_their_parent(tmp_path: Path, end: str, then: float):
    program = tmp_path / "program.py"
    program.write_text(PARENT)
    arguments = [sys.executable, str(program), str(tmp_path / "pid"), str(then), end]
    root = str(Path(__file__).parents[2])
    parent = subprocess.Popen(arguments, env={**os.environ, "PYTHONPATH": root}, stderr=subprocess.PIPE)
    try:
        pid = wait_for_pid(tmp_path / "pid")
        if end == "interrupt":
            parent.send_signal(2)
        elif end != "leave":
            getattr(parent, end)()
        _, errors = parent.communicate(timeout=SLOW / 2)
        wait_for_end(pid)
    finally:
        parent.kill()
        parent.wait()
    assert errors == b"" or end == "interrupt"


def call_in_child(results: Any) -> None:
    results.put(call_isolated(abs, -3, what="it"))


def test_a_daemonic_process_has_workers_too():
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    child = context.Process(target=call_in_child, args=(results,), daemon=True)
    child.start()
    assert results.get(timeout=SLOW) == 3
    child.join(SLOW)
