"""SIGKILL while the memories are made again: `memory record` then makes the rest, and what was forgotten stays so."""

import asyncio
import json
import os
import random
import time
from collections import Counter
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from massmem.cli.main import main
from massmem.store import open_store
from tests.contract.test_session_store import done, session
from tests.support.sample_turn import answer, begin
from tests.support.store_writer import finish, start
from tests.support.verdict import check

SESSIONS = ("session_a", "session_b")
TURNS = 60
FORGOTTEN = "Kite 7 of session_a nests in an oak."
LONGEST = 0.5
"""Seconds after the first message of the command, in which it is killed; adapted to how long it takes here."""
CONFIG = """
agents: [{id: ann, backend: {type: scripted, script: {answer: "Hello."}}}]
memory: {persistent_memory: {embedding: {model: none}}}
"""


@pytest.fixture
def user(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a user with two sessions, recorded, of which one message was forgotten."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "team.yaml").write_text(CONFIG)
    asyncio.run(_fill(home / ".massmem"))
    run(tmp_path, "record")
    (forgotten,) = (m["id"] for m in list_memories(tmp_path) if m["text"] == FORGOTTEN)
    run(tmp_path, "forget", forgotten, "--yes")
    return tmp_path


async def _fill(folder: Path) -> None:
    store = await open_store(f"sqlite:///{folder / 'massmem.db'}", folder)
    for name in SESSIONS:
        await store.create_session(session(name))
        for turn in range(1, TURNS + 1):
            question = begin("ann", question=f"Kite {turn} of {name} nests in an oak.")
            await store.append(name, turn, [question, answer(1, "ann", f"Noted: {turn}."), done(5, f"Answer {turn}.")])
    await store.close()


def memory(folder: Path, *arguments: str) -> None:
    """`massmem memory ARGUMENTS` with its modules loaded; notes its output, and its exit code."""
    os.environ["HOME"] = str(folder / "home")
    os.chdir(folder)
    out, err = (folder / "output").open("w"), (folder / "errors").open("w")
    with out, err, redirect_stdout(out), redirect_stderr(err):
        code = main(["memory", *arguments, "--config", "team.yaml"])
    (folder / "exit").write_text(str(code))


def run(folder: Path, *arguments: str) -> str:
    (folder / "exit").unlink(missing_ok=True)
    assert finish([start(memory, folder, *arguments)]) == [0]
    assert (folder / "exit").read_text() == "0", (folder / "errors").read_text()
    return (folder / "output").read_text()


def list_memories(folder: Path) -> list[dict[str, Any]]:
    return json.loads(run(folder, "list", "--limit", "1000", "--json"))["memories"]


def count_memories(folder: Path) -> Counter[str]:
    """Return how often each memory is there, whatever its id and the time it was recorded."""
    fields = ("text", "agent_id", "session_id", "turn", "origin", "winner", "message_ids")
    return Counter(json.dumps({name: m.get(name) for name in fields}) for m in list_memories(folder))


@pytest.mark.parametrize("kills", [4, pytest.param(200, marks=pytest.mark.full)])
def test_rebuild_that_was_killed_is_finished_by_recording(user: Path, kills: int):
    before, longest = count_memories(user), LONGEST
    assert len(before) > 2 * TURNS
    counts: Counter[str] = Counter()
    for round_ in range(kills):
        (user / "errors").unlink()
        (user / "exit").unlink()
        child = start(memory, user, "rebuild")
        while not (user / "errors").exists():
            time.sleep(0.001)
        time.sleep(random.Random(round_).uniform(0, longest))
        child.kill()
        child.join()
        is_whole = (user / "exit").exists()
        longest *= 0.8 if is_whole else 1.1
        counts["whole"] += is_whole
        run(user, "record")
        after = count_memories(user)
        counts["lost"] += (before - after).total()
        counts["ghost"] += (after - before).total()
        counts["lie"] += sum(FORGOTTEN in text for text in after)
    check(f"rebuild, {kills} kills", counts)
