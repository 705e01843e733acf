"""SIGKILL of each process of a service while it works: what it has started ends soon.

A service is its parent, workers, and what these start: processes for strangers' files, tool servers and the shells that
guard them.
"""

import contextlib
import json
import os
import random
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import psutil
import pytest
import requests

from scripts.benches.hostile import make_cases
from tests.support.service import Service, make_config, make_token, wait_until
from tests.support.tools import server

SECONDS = 10.0
"""Two on a quiet machine; without what ends them they go on for ever."""
ENDS_ALL = ("parent", "worker", "reader", "tool server")
"""Without a guard of a tool server the others go on until the server is closed."""
KINDS = {
    "spawn_main": "worker",
    "resource_tracker": "tracker",
    "_serve_calls": "reader",
    "kill -KILL 0": "guard",
    "tests.support.tool_server": "tool server",
    "massmem serve": "parent",
}


def list_tree(home: Path) -> dict[int, str]:
    """Return the processes with this home that are alive, and what each is."""
    tree: dict[int, str] = {}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get("HOME") == str(home) and process.status() != psutil.STATUS_ZOMBIE:
                words = " ".join(process.cmdline())
                tree[process.pid] = next((kind for mark, kind in KINDS.items() if mark in words), words)
    return tree


def find_left(home: Path, known: set[int]) -> list[str]:
    """Return which of these processes are alive after `SECONDS`."""
    began = time.monotonic()
    while left := [kind for pid, kind in list_tree(home).items() if pid in known]:
        if time.monotonic() > began + SECONDS:
            return left
        time.sleep(0.02)
    print(f"gone after {time.monotonic() - began:.2f} s")
    return []


def list_below(pid: int) -> set[int]:
    return {child.pid for child in psutil.Process(pid).children(recursive=True)}


def start(folder: Path) -> Service:
    """A service with two workers, whose agent waits for a tool."""
    script = {"answer": [{"call": {"tool": "slow", "arguments": {"seconds": 60, "text": "x"}}}, "so"], "latency": 0}
    backend = {"type": "scripted", "script": script}
    agent = {"id": "ann", "backend": backend, "mcp_servers": [server(folder / "calls")]}
    return Service(folder, make_config(agent)).start("--workers", "2")


def keep_busy(service: Service) -> None:
    """Have the service wait for tools, and read files for half a minute."""
    case = next(case for case in make_cases() if case.name == "pdf: 4 million operators")
    plain, with_file = json.dumps({"message": "Why?"}).encode(), case.make_body()

    def send(number: int) -> None:
        token = make_token(f"user{random.random()}")
        headers = {"Authorization": f"Bearer {token}", "Connection": "close", "Content-Type": "application/json"}
        with contextlib.suppress(requests.RequestException):
            body = with_file if number % 2 else plain
            requests.post(f"{service.url}/api/v1/chat", body, headers=headers, timeout=30)

    for number in range(6):
        threading.Thread(target=send, args=(number,), daemon=True).start()


def kill_one(service: Service, kind: str) -> list[str]:
    """Kill a process of this kind; return what is left of what it had started."""
    pid = random.choice([pid for pid, one in list_tree(service.home).items() if one == kind])
    known = {pid, *list_below(pid)}
    os.kill(pid, 9)
    return find_left(service.home, known)


def run_round(folder: Path, kind: str) -> Counter[str]:
    """Kill a process of this kind, then the parent; count what is left, by what was killed."""
    counts: Counter[str] = Counter()
    service = start(folder)
    try:
        keep_busy(service)
        wait_until(lambda: {"worker", "reader", kind} <= set(list_tree(service.home).values()), 30)
        time.sleep(random.random())
        for victim in dict.fromkeys((kind, "parent")):
            left = kill_one(service, victim)
            counts["kills"] += 1
            if victim in ENDS_ALL:
                counts.update(f"{one} left by {victim}" for one in left)
        counts.update(f"{one} left" for one in list_tree(service.home).values())
        with socket.socket() as probe:
            counts["address in use"] += probe.connect_ex(("127.0.0.1", service.port)) == 0
    finally:
        for pid in list_tree(service.home):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, 9)
        service.kill()
    return counts


def run_rounds(folder: Path, kinds: Iterable[str]) -> None:
    total: Counter[str] = Counter()
    for number, kind in enumerate(kinds):
        (place := folder / str(number)).mkdir()
        total.update(run_round(place, kind))
        print(kind, dict(total), flush=True)
    assert {name: count for name, count in total.items() if count and name != "kills"} == {}


def test_nothing_is_left_of_a_service_whose_parent_or_worker_is_killed(tmp_path: Path) -> None:
    run_rounds(tmp_path, ("worker", "tool server"))


def test_folder_of_figures_of_a_killed_service_is_removed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place := tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(place))
    service = start(tmp_path)
    service.kill()
    assert find_left(service.home, set(list_tree(service.home))) == []
    killed = {*place.glob("massmem-metrics-*")}
    assert len(killed) == 1
    service.start("--workers", "2")
    assert len({*place.glob("massmem-metrics-*")} - killed) == len([*place.glob("massmem-metrics-*")]) == 1
    assert service.stop() == 0
    assert [*place.glob("massmem-metrics-*")] == []


@pytest.mark.full
def test_nothing_is_left_of_a_service_whatever_is_killed_of_it_50_times(tmp_path: Path) -> None:
    run_rounds(tmp_path, 4 * ("parent", "worker", "parent", "reader", "tool server", "cat", "guard", "tracker"))
