"""SIGKILL while a statement is forgotten: nothing else is lost, and the same command again finishes it."""

import asyncio
import json
import os
import random
import shutil
import time
from collections import Counter
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from massmem.cli.main import main
from massmem.store import open_store
from tests.contract.test_session_store import done, everything, session
from tests.support.cli import massmem
from tests.support.sample_turn import answer, begin
from tests.support.store_writer import finish, start
from tests.support.verdict import check

SECRET = "The door code of the mill is 4711."
TURNS = 6
SESSIONS = ("session_a", "session_b")
LONGEST = 0.5
"""Seconds after the first trace of the command, in which it is killed; adapted to how long it takes here."""
CONFIG = """
agents: [{id: ann, backend: {type: scripted, script: {answer: "Hello."}}}]
memory: {persistent_memory: {embedding: {model: none}}}
"""


def kite(name: str, turn: int) -> str:
    return f"Kite {turn} of {name} nests in an oak."


@pytest.fixture
def user(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """massmem's folder with two sessions that say the secret, recorded; its copy beside it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "team.yaml").write_text(CONFIG)
    folder = home / ".massmem"
    asyncio.run(_fill(folder))
    assert massmem("memory", "record", "--config", "team.yaml").returncode == 0
    shutil.copytree(folder, tmp_path / "copy")
    return folder


async def _fill(folder: Path) -> None:
    store = await open_store(f"sqlite:///{folder / 'massmem.db'}", folder)
    for name in SESSIONS:
        await store.create_session(session(name))
        for turn in range(1, TURNS + 1):
            question = begin("ann", question=f"{kite(name, turn)} {SECRET if turn % 2 else ''}")
            await store.append(name, turn, [question, answer(1, "ann", f"Noted: {SECRET}"), done(5, f"Answer {turn}.")])
    await store.close()


def _forget(folder: Path, result: Path, memory_id: str) -> None:
    """massmem in a process of its own that has its modules already; notes its exit code."""
    os.environ["HOME"] = str(folder / "home")
    os.chdir(folder)
    line = ["memory", "forget", "--everywhere", memory_id, "--yes", "--config", "team.yaml"]
    with (folder / "output").open("w") as out, redirect_stdout(out), redirect_stderr(out):
        result.write_text(str(main(line)))


def _find_id() -> str:
    listed = json.loads(massmem("memory", "list", "--json", "--config", "team.yaml").stdout)["memories"]
    return next(memory["id"] for memory in listed if SECRET in memory["text"])


@pytest.mark.parametrize("times", [3, pytest.param(200, marks=pytest.mark.full)])
def test_forgetting_that_was_killed_is_finished_by_the_same_command(user: Path, tmp_path: Path, times: int):
    counts: Counter[str] = Counter()
    memory_id, result, longest = _find_id(), tmp_path / "result", LONGEST
    for round_ in range(times):
        shutil.rmtree(user)
        shutil.copytree(tmp_path / "copy", user)
        child = start(_forget, tmp_path, result, memory_id)
        _wait_for(user / "forgetting", result)
        time.sleep(random.Random(round_).uniform(0, longest))
        child.kill()
        child.join()
        longest *= 0.8 if result.exists() else 1.1
        counts["whole"] += result.exists()
        counts["lost"] += asyncio.run(_count_lost(user))
        is_begun = (user / "forgetting").exists()  # without it everything was done, and checked
        result.unlink(missing_ok=True)
        if is_begun:
            assert finish([start(_forget, tmp_path, result, memory_id)]) == [0]
            counts["lie"] += result.read_text() != "0"
            result.unlink()
        counts["lost"] += asyncio.run(_count_lost(user)) + _count_lost_memories()
        counts["ghost"] += len([p for p in user.rglob("*") if p.is_file() and b"4711" in p.read_bytes()])
    check(f"forget, {times} kills", counts)


def _wait_for(*paths: Path) -> None:
    deadline = time.monotonic() + 60
    while not any(path.exists() for path in paths):
        assert time.monotonic() < deadline
        time.sleep(0.001)


async def _count_lost(user: Path) -> int:
    """Count what is gone besides the secret."""
    store = await open_store(f"sqlite:///{user / 'massmem.db'}", user)
    texts = [message.content for name in SESSIONS for message in await everything(store, name)]
    await store.close()
    kites = sum(any(kite(name, turn) in text for text in texts) for name in SESSIONS for turn in range(1, TURNS + 1))
    return 2 * TURNS - kites + 2 * 3 * TURNS - len(texts)


def _count_lost_memories() -> int:
    massmem("memory", "record", "--config", "team.yaml")
    out = massmem("memory", "list", "--limit", "1000", "--json", "--config", "team.yaml").stdout.decode()
    return sum(kite(name, turn) not in out for name in SESSIONS for turn in range(1, TURNS + 1))
