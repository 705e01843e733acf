"""SIGKILL while a session is deleted: it is whole, or says that it is being deleted, and the next deletion ends it."""

import asyncio
import os
import random
import shutil
import time
from collections import Counter
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from massmem.cli.main import main
from massmem.core.records import SessionFilter
from massmem.memory.persistent import Selection
from massmem.session.delete import list_begun_deletions
from massmem.store import open_store
from tests.contract.test_session_store import done, everything, session
from tests.support.cli import massmem
from tests.support.sample_turn import begin
from tests.support.store_writer import finish, start
from tests.support.verdict import check

TURNS = 150
LONGEST = 0.4
"""Seconds after the first trace of the deletion, in which it is killed; adapted to how long it takes here."""
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


def _delete(folder: Path, result: Path) -> None:
    """massmem in a process of its own that has its modules already; notes its exit code."""
    os.environ["HOME"] = str(folder / "home")
    os.chdir(folder)
    with (folder / "said").open("w") as out, redirect_stdout(out), redirect_stderr(out):
        result.write_text(str(main(["sessions", "delete", LOST, "--yes", "--config", "team.yaml"])))


@pytest.mark.parametrize("times", [4, pytest.param(60, marks=pytest.mark.full)])
def test_a_killed_deletion_never_lies_and_can_be_finished(user: Path, tmp_path: Path, times: int):
    seen: Counter[str] = Counter()
    result, longest = tmp_path / "result", LONGEST
    for round_ in range(times):
        _restore(user, tmp_path)
        child = start(_delete, tmp_path, result)
        _wait_for(user / "deleting" / LOST)
        time.sleep(random.Random(round_).uniform(0, longest))
        child.kill()
        child.join()
        state = asyncio.run(_state(user))
        longest *= 0.7 if state == "gone" else 1.1
        result.unlink(missing_ok=True)
        assert finish([start(_delete, tmp_path, result)]) == [0]
        seen.update([state, *_wrong_after(user)])
        seen["lie"] += result.read_text() not in ("0", "5")
    check(f"delete, {times} kills", seen)


def _wait_for(path: Path) -> None:
    deadline = time.monotonic() + 30
    while not path.exists():
        assert time.monotonic() < deadline
        time.sleep(0.001)


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
            listed = await store.find_sessions(SessionFilter(status="deleting"))
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
