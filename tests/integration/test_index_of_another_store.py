"""An index and a database that do not belong together, in each direction: said, mended, or removed by a rebuild."""

import asyncio
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from massmem.core.events import Event
from massmem.store import open_store
from tests.contract.test_session_store import done, session
from tests.support.cli import massmem
from tests.support.memory_command import MemoryCommand, database_of
from tests.support.sample_turn import begin

TEAM = """
agents: [{id: ann, backend: {type: scripted, script: {answer: "Hello."}}}]
memory: {persistent_memory: {embedding: {model: none}}}
"""
DOG, CAT, OWL = "My dog is called Bruno.", "My cat is called Felix.", "An owl lives in our barn."


class Home:
    """A home whose index and database can be swapped for older ones and others."""

    def __init__(self, path: Path, command: MemoryCommand) -> None:
        self.path, self.command = path / ".massmem", command

    def say(self, session_id: str, turn: int, text: str) -> None:
        async def append() -> None:
            store = await open_store(f"sqlite:///{database_of(self.path.parent)}", self.path)
            if await store.get_session(session_id) is None:
                await store.create_session(session(session_id))
            events: Sequence[Event] = [begin("ann", at=turn * 10, question=text), done(turn * 10 + 1)]
            await store.append(session_id, turn, events)
            await store.close()

        asyncio.run(append())
        self.command("record")

    def list_texts(self) -> set[str]:
        return {m["text"] for m in self.command.json("list")["memories"] if m["agent_id"] == "user"}

    def copy(self, name: str) -> Path:
        return Path(shutil.copytree(self.path, self.path.with_name(name)))

    def take(self, part: str, home: Path) -> None:
        """Replace the index ("memory") or the database ("massmem.db") by the one of another home."""
        shutil.rmtree(self.path / part, ignore_errors=True)
        for file in self.path.glob(f"{part}*"):
            file.unlink()
        (shutil.copytree if part == "memory" else shutil.copy)(home / part, self.path / part)

    def ask_doctor(self) -> list[str]:
        result = massmem("doctor", "--offline", "--config", "team.yaml", text=True)
        failed = [line for line in result.stdout.splitlines() if line.startswith("failed")]
        assert result.returncode == bool(failed)
        return failed


@pytest.fixture
def place(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Home:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "team.yaml").write_text(TEAM)
    return Home(home, MemoryCommand(capsys))


def test_a_restored_database_takes_what_it_does_not_have_out_of_the_index(place: Home) -> None:
    place.say("session_a", 1, DOG)
    old = place.copy("old")
    place.say("session_a", 2, CAT)
    place.say("session_b", 1, OWL)
    place.list_texts()
    place.take("massmem.db", old)
    assert "the store does not have like this" in "".join(place.ask_doctor())
    assert place.list_texts() == {DOG}
    assert place.ask_doctor() == []
    # What is said now has the numbers of what is gone.
    place.say("session_a", 2, OWL)
    assert place.list_texts() == {DOG, OWL}


def test_an_older_index_gets_what_was_said_since_and_loses_what_was_forgotten(place: Home) -> None:
    place.say("session_a", 1, DOG)
    place.say("session_a", 2, CAT)
    place.list_texts()
    old = place.copy("old")
    place.say("session_a", 3, OWL)
    ids = {m["text"]: m["id"] for m in place.command.json("list")["memories"]}
    place.command("forget", ids[DOG], "--yes")
    place.command("pin", ids[CAT])
    before = place.command.json("list")["memories"]
    place.take("memory", old)
    assert len(place.ask_doctor()) == 2
    assert "not in the index" in place.command("list")[1]
    assert place.list_texts() == {CAT, OWL}
    after = place.command.json("list")["memories"]
    assert {(m["text"], m["pinned"]) for m in after} == {(m["text"], m["pinned"]) for m in before}
    assert place.ask_doctor() == []


def test_the_index_of_another_home_is_said_and_removed_by_a_rebuild(place: Home) -> None:
    place.say("session_b", 1, OWL)
    place.list_texts()
    other = place.copy("other")
    shutil.rmtree(place.path)
    place.say("session_a", 1, DOG)
    place.list_texts()
    place.take("memory", other)
    assert len(place.ask_doctor()) == 2
    _, err = place.command("list")
    assert "sessions of another store in the index: 1" in err
    assert "sessions of another store in the index: 1" in place.command("search", "owl")[1]
    assert place.list_texts() == {DOG, OWL}, "it may be of another store, in which they are"
    place.command("rebuild")
    assert place.list_texts() == {DOG}
    assert place.ask_doctor() == []


def test_votes_and_turns_that_go_on_are_no_difference(place: Home) -> None:
    question = ("--config", "team.yaml", "Which of the two answers is right, and why?")
    for _ in range(3):
        assert massmem(*question, text=True).returncode == 0
        assert place.command("list")[1] == ""
        assert place.ask_doctor() == []
