"""SIGKILL while a session is deleted: it is whole, or says that it is being deleted, and the next deletion ends it."""

import asyncio
import random
import shutil
import time
from collections import Counter
from pathlib import Path

import pytest

from massmem.core.records import EVERYBODY, SessionFilter
from massmem.memory.persistent import Selection
from massmem.session.sessions import list_begun_deletions
from massmem.store import open_store
from tests.contract.test_session_store import everything
from tests.support.cli import massmem
from tests.support.forked import ForkedMassmem
from tests.support.recorded_sessions import TEAM, record_sessions, store_sessions, wait_for
from tests.support.verdict import check

TURNS = 150
LONGEST = 0.4
"""Seconds after the first trace of the deletion, in which it is killed; adapted to how long it takes here."""
LOST, KEPT = "session_lost", "session_kept"
DELETE = ("sessions", "delete", LOST, "--yes", *TEAM)


@pytest.fixture
def user(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """massmem's folder with a long session that waits to be recorded, and a short one that is; its copy beside it."""
    monkeypatch.chdir(tmp_path)
    folder = record_sessions(home, {KEPT: _talk(KEPT, 3)})
    asyncio.run(store_sessions(folder, {LOST: _talk(LOST, TURNS)}))
    asyncio.run(_forget_answers(folder))
    shutil.copytree(folder, tmp_path / "copy")
    return folder


async def _forget_answers(folder: Path) -> None:
    """Leave marks in the queue that the answers are not to be recorded."""
    store = await open_store(f"sqlite:///{folder / 'massmem.db'}", folder)
    for name in (KEPT, LOST):
        await store.forget_recordings(Selection(session_id=name, agent_id="ann"))
    await store.close()


def _talk(name: str, turns: int) -> list[tuple[str, str]]:
    return [(f"Question {turn} in {name}", f"Answer {turn} in {name}") for turn in range(1, turns + 1)]


@pytest.mark.parametrize("times", [4, pytest.param(60, marks=pytest.mark.full)])
def test_a_killed_deletion_never_lies_and_can_be_finished(user: Path, tmp_path: Path, times: int):
    seen: Counter[str] = Counter()
    longest = LONGEST
    for round_ in range(times):
        _restore(user, tmp_path)
        child = ForkedMassmem(*DELETE)
        wait_for(user / "deleting" / LOST, child)
        time.sleep(random.Random(round_).uniform(0, longest))
        child.kill()
        state = asyncio.run(_state(user))
        longest *= 0.7 if state == "gone" else 1.1
        seen["lie"] += massmem(*DELETE).returncode not in (0, 5)
        seen.update([state, *_wrong_after(user)])
    check(f"delete, {times} kills", seen)


def _restore(user: Path, tmp_path: Path) -> None:
    shutil.rmtree(user)
    shutil.copytree(tmp_path / "copy", user)


async def _state(user: Path) -> str:
    """What the kill left, and says of itself."""
    store = await open_store(f"sqlite:///{user / 'massmem.db'}", user)
    try:
        record = await store.get_session(LOST)
        messages = len(await everything(store, LOST))
        if len(await everything(store, KEPT)) != 6:
            return "lost"
        if record is None:
            return "lie" if messages else "traces" if list_begun_deletions(user) else "gone"
        if record.status == "deleting":
            listed = await store.find_sessions(SessionFilter(status="deleting", owner=EVERYBODY))
            return "marked" if [summary.session.session_id for summary in listed] == [LOST] else "lie"
        return "whole" if messages == record.message_count == 2 * TURNS else "lost"
    finally:
        await store.close()


def _wrong_after(user: Path) -> list[str]:
    """A ghost for every file in which something of the session is left, and whether the other one is whole."""
    files = [path for path in user.rglob("*") if path.is_file()]
    ghosts = [path for path in files if LOST in path.name or LOST.encode() in path.read_bytes()]
    texts = (b"Answer 3 in session_kept", b"Question 1 in session_kept")
    whole = all(text in (user / "massmem.db").read_bytes() for text in texts)
    return ["ghost"] * len(ghosts) + ([] if whole else ["lost"])
