"""SIGKILL while a session is deleted: it is whole, or says that it is being deleted, and the next deletion ends it."""

import asyncio
import os
import random
import shutil
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from massmem.deletion import begun
from massmem.memory.memories import Selection
from massmem.records import SessionFilter
from massmem.store import open_store
from tests.contract.test_session_store import done, everything, session
from tests.support.cli import massmem, start
from tests.support.sample_turn import begin

TURNS = 300
LONGEST = 0.8
"""Seconds after the first trace of the deletion, in which it is killed; all of it takes about as long."""
LOST, KEPT = "session_lost", "session_kept"
CONFIG = """
agents: [{id: ann, backend: {type: scripted, script: {answer: "Hello."}}}]
memory: {persistent_memory: {embedding: {model: none}}}
"""


@pytest.fixture
def user(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """massmem's folder with a long session, of which a part is in the memory, and a short one; its copy beside it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "team.yaml").write_text(CONFIG)
    folder = home / ".massmem"
    asyncio.run(_fill(folder))
    assert massmem("memory", "record", "--session-id", KEPT, "--config", "team.yaml").returncode == 0
    shutil.copytree(folder, tmp_path / "copy")
    return folder


async def _fill(folder: Path) -> None:
    store = await open_store(f"sqlite:///{folder / 'massmem.db'}", folder)
    for name, turns in ((KEPT, 3), (LOST, TURNS)):
        await store.create_session(session(name))
        for turn in range(1, turns + 1):
            question = begin("ann", question=f"Question {turn} in {name}")
            await store.append(name, turn, [question, done(5, f"Answer {turn} in {name}")])
        await store.forget_recordings(Selection(session_id=name, agent_id="ann"))
    await store.close()


@pytest.mark.parametrize("times", [3, pytest.param(60, marks=pytest.mark.full)])
def test_a_killed_deletion_never_lies_and_can_be_finished(user: Path, tmp_path: Path, times: int):
    seen: Counter[str] = Counter()
    for round_ in range(times):
        _restore(user, tmp_path)
        child = start("sessions", "delete", LOST, "--yes", "--config", "team.yaml")
        _wait_for(user / "deleting" / LOST)
        time.sleep(random.Random(round_).uniform(0, LONGEST))
        os.killpg(child.pid, signal.SIGKILL)
        child.communicate()
        seen[asyncio.run(_state(user))] += 1
        again = massmem("sessions", "delete", LOST, "--yes", "--config", "team.yaml", timeout=60)
        assert again.returncode in (0, 5), again.stderr
        _assert_gone(user)
    print(f"{times} kills: {dict(seen)}; lost 0, ghost 0, leak 0, lie 0")


def _wait_for(path: Path) -> None:
    deadline = time.monotonic() + 30
    while not path.exists():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def _restore(user: Path, tmp_path: Path) -> None:
    shutil.rmtree(user)
    shutil.copytree(tmp_path / "copy", user)


async def _state(user: Path) -> str:
    """What the kill left; anything but these four is a lie."""
    store = await open_store(f"sqlite:///{user / 'massmem.db'}", user)
    try:
        record = await store.get_session(LOST)
        messages = len(await everything(store, LOST))
        assert len(await everything(store, KEPT)) == 6
        if record is None:
            assert messages == 0
            return "traces" if begun(user) else "gone"
        if record.status == "deleting":
            listed = await store.find_sessions(SessionFilter(status="deleting"))
            assert [each.session.session_id for each in listed] == [LOST]
            return "marked"
        assert messages == record.message_count == 2 * TURNS
        return "whole"
    finally:
        await store.close()


def _assert_gone(user: Path) -> None:
    for path in user.rglob("*"):
        assert LOST not in path.name
        assert not path.is_file() or LOST.encode() not in path.read_bytes(), path
    kept = (b"Answer 3 in session_kept", b"Question 1 in session_kept")
    assert all(text in (user / "massmem.db").read_bytes() for text in kept)
