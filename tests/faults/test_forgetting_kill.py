"""SIGKILL while a statement is forgotten: nothing else is lost, and the same command again finishes it."""

import asyncio
import json
import random
import shutil
import signal
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from threading import Thread

import pytest
import requests

from massmem.store import open_store
from tests.contract.test_session_store import everything
from tests.support.cli import massmem
from tests.support.forked import ForkedMassmem
from tests.support.recorded_sessions import TEAM, record_sessions, wait_for
from tests.support.service import Client, StartService, make_agent, make_config, wait_until
from tests.support.verdict import check

SECRET = "The door code of the mill is 4711."
TURNS = 6
SESSIONS = ("session_a", "session_b")
SHOW = (("sessions", "show", "session_a"), ("memory", "search", "mill door code"), ("memory", "list"))
"""What would show the secret."""
LONGEST = 0.5
"""Seconds after the first trace of the command, in which it is killed; adapted to how long it takes here."""


def kite(name: str, turn: int) -> str:
    return f"Kite {turn} of {name} nests in an oak."


@pytest.fixture
def user(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """massmem's folder with two sessions that say the secret, recorded; its copy beside it."""
    monkeypatch.chdir(tmp_path)
    folder = record_sessions(home, {name: [_talk(name, turn) for turn in range(1, TURNS + 1)] for name in SESSIONS})
    shutil.copytree(folder, tmp_path / "copy")
    return folder


def _talk(name: str, turn: int) -> tuple[str, str, str]:
    return f"{kite(name, turn)} {SECRET if turn % 2 else ''}", f"Noted: {SECRET}", f"Answer {turn}."


def _find_id() -> str:
    listed = json.loads(massmem("memory", "list", "--json", *TEAM).stdout)["memories"]
    return next(memory["id"] for memory in listed if SECRET in memory["text"])


@pytest.mark.parametrize("times", [3, pytest.param(200, marks=pytest.mark.full)])
def test_forgetting_that_was_killed_is_finished_by_the_same_command(user: Path, tmp_path: Path, times: int):
    counts: Counter[str] = Counter()
    command = ("memory", "forget", "--everywhere", _find_id(), "--yes", *TEAM)
    longest = LONGEST
    for round_ in range(times):
        shutil.rmtree(user)
        shutil.copytree(tmp_path / "copy", user)
        child = ForkedMassmem(*command)
        wait_for(user / "forgetting", child)
        time.sleep(random.Random(round_).uniform(0, longest))
        child.kill()
        is_whole = child.exit_code != -signal.SIGKILL
        longest *= 0.8 if is_whole else 1.1
        counts["whole"] += is_whole
        counts["lost"] += asyncio.run(_count_lost(user))
        if list((user / "forgetting").glob("*.*n")):  # without it everything was done, and checked
            if round_ % 2:
                shown = massmem(*SHOW[round_ // 2 % len(SHOW)], *TEAM)
                counts["leak"] += b"4711" in shown.stdout + shown.stderr
            else:
                counts["lie"] += massmem(*command).returncode != 0
        elif (user / "forgetting").exists():  # killed before it said what is to be forgotten, or after it was
            counts["unsaid"] += 1
            massmem("sessions", "list", *TEAM)
            counts["lie"] += b"names are not shown" in massmem("--list-sessions").stderr
            massmem(*command)
        assert not (user / "forgetting").exists()
        counts["lost"] += asyncio.run(_count_lost(user)) + _count_lost_memories()
        counts["ghost"] += len([p for p in user.rglob("*") if p.is_file() and b"4711" in p.read_bytes()])
    check(f"forget, {times} kills", counts)


@pytest.mark.slow
@pytest.mark.parametrize("times", [3, pytest.param(50, marks=pytest.mark.full)])
def test_service_that_was_killed_while_it_forgot_shows_nothing_of_it_again(start_service: StartService, times: int):
    counts: Counter[str] = Counter()
    agent = make_agent("ann", "It is blue.")
    service = start_service(make_config(agent, memory={"persistent_memory": {"embedding": {"model": "none"}}}))
    alice, bob = service.client("alice"), service.client("bob")
    marks = service.home / ".massmem" / "forgetting"
    for round_ in range(times):
        secret = f"The door code of mill {round_} is 4711-{round_}."
        for client in (alice, bob):
            client.chat(secret, f"s{round_}")
        memory_id = _wait_for_memory(alice, secret)
        thread = Thread(target=_forget, args=(alice, memory_id), daemon=True)
        thread.start()
        wait_until(lambda thread=thread: any(marks.glob("*.begun")) or not thread.is_alive())
        time.sleep(random.Random(round_).uniform(0, 0.2))
        service.kill()
        thread.join()
        is_begun = any(marks.glob("*.begun"))
        counts["whole"] += not is_begun
        service.start()
        wait_until(lambda: alice.get("/api/v1/sessions").status_code == 200)
        shown = "".join(alice.get(path).text for path in (f"/api/v1/chat/history/s{round_}", "/api/v1/memories"))
        counts["leak"] += secret in shown
        counts["lost"] += "It is blue." not in shown
        counts["lost"] += secret not in str(bob.read_history(f"s{round_}"))
    check(f"service that forgets, {times} kills", counts)


def _wait_for_memory(client: Client, text: str) -> str:
    """Return the id of the memory with the text, once it is recorded."""
    ids: list[str] = []

    def find() -> bool:
        memories = client.get("/api/v1/memories").json()["memories"]
        ids[:] = [memory["id"] for memory in memories if text in memory["text"]]
        return bool(ids)

    wait_until(find)
    return ids[0]


def _forget(client: Client, memory_id: str) -> None:
    with suppress(requests.RequestException):
        client.delete(f"/api/v1/memories/{memory_id}?everywhere=true")


async def _count_lost(user: Path) -> int:
    """Count what is gone besides the secret."""
    store = await open_store(f"sqlite:///{user / 'massmem.db'}", user)
    texts = [message.content for name in SESSIONS for message in await everything(store, name)]
    await store.close()
    kites = sum(any(kite(name, turn) in text for text in texts) for name in SESSIONS for turn in range(1, TURNS + 1))
    return 2 * TURNS - kites + 2 * 3 * TURNS - len(texts)


def _count_lost_memories() -> int:
    massmem("memory", "record", *TEAM)
    out = massmem("memory", "list", "--limit", "1000", "--json", *TEAM).stdout.decode()
    return sum(kite(name, turn) not in out for name in SESSIONS for turn in range(1, TURNS + 1))
