"""The user of the command line and those of the HTTP service on one store: neither is shown what is the other's."""

import json
from pathlib import Path
from typing import Any

import pytest

from massmem.cli.main import main
from massmem.session.owners import hash_user
from massmem.store import open_store
from tests.contract.test_session_store import done, session
from tests.support.sample_turn import begin

CONFIG = """
agents: [{id: ann, backend: {type: scripted, script: {answer: "Hello."}}}]
memory: {persistent_memory: {embedding: {model: none}, session_name: null}}
"""
OWN, ALICE = "session_20251028_143000", "session_20251029_090000"
ACCESS = ["--owner", "alice"], ["--all-owners"]


class Command:
    """Runs massmem in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *line: str, code: int = 0) -> str:
        """Return stdout; the exit code must be `code`."""
        self._capsys.readouterr()
        ended = main([*line, "--config", "team.yaml"])
        out, err = self._capsys.readouterr()
        assert ended == code, err
        return out

    def json(self, *line: str) -> Any:
        return json.loads(self(*line, "--json"))


@pytest.fixture
async def shared_home(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two sessions about penguins: an earlier one of this machine's user, and one of alice's."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "team.yaml").write_text(CONFIG)
    folder = home / ".massmem"
    store = await open_store(f"sqlite:///{folder / 'massmem.db'}", folder)
    for start, (name, owner) in enumerate([(OWN, None), (ALICE, "alice")]):
        group = hash_user(owner) if owner else ""
        await store.create_session(session(name, start).model_copy(update={"user_id": owner, "memory_group": group}))
        question = begin("ann", at=start, question=f"Which penguin does {owner} like?")
        await store.append(name, 1, [question, done(start + 1, f"The penguin of {owner} is small.")])
    await store.close()
    return folder


@pytest.fixture
def massmem(shared_home: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(capsys)


def list_ids(entries: list[dict[str, Any]]) -> list[str]:
    return [entry["session_id"] for entry in entries]


@pytest.mark.parametrize(("options", "ids"), [([], [OWN]), (ACCESS[0], [ALICE]), (ACCESS[1], [ALICE, OWN])])
def test_lists_searches_and_counts_cover_the_sessions_of_the_owner(
    massmem: Command, options: list[str], ids: list[str]
) -> None:
    assert list_ids(massmem.json("sessions", "list", *options)["sessions"]) == ids
    hits = massmem.json("sessions", "search", "penguin", *options)["messages"]
    assert {hit["session_id"] for hit in hits} == set(ids)
    assert massmem.json("sessions", "stats", *options)["total_sessions"] == len(ids)
    assert massmem.json("sessions", "insights", *options)["sessions"] == len(ids)


@pytest.mark.parametrize("line", [["show"], ["export"], ["insights"], ["rename", "Penguins"], ["delete", "--yes"]])
def test_session_of_another_owner_is_unknown(massmem: Command, line: list[str]) -> None:
    command, *arguments = line
    for name in (ALICE, ALICE[:-1]):
        massmem("sessions", command, name, *arguments, code=5)
    massmem("sessions", "search", "penguin", "--session-id", ALICE, code=5)
    assert list_ids(massmem.json("sessions", "list", "--all-owners")["sessions"]) == [ALICE, OWN]
    massmem("sessions", command, ALICE, *arguments, *ACCESS[0])


def test_cleanup_deletes_sessions_of_the_owner_only(massmem: Command) -> None:
    massmem("sessions", "cleanup", "--older-than", "1d", "--yes")
    assert list_ids(massmem.json("sessions", "list", "--all-owners")["sessions"]) == [ALICE]


def test_question_never_continues_the_session_of_another_owner(massmem: Command) -> None:
    massmem("--continue", "And now?")
    massmem("--session-id", ALICE, "And now?", code=5)
    assert len(massmem.json("sessions", "show", ALICE, *ACCESS[0])["turns"]) == 1
    assert len(massmem.json("sessions", "show", OWN)["turns"]) == 2


def test_memories_of_another_owner_are_neither_listed_nor_recalled_nor_forgotten(massmem: Command) -> None:
    massmem("memory", "record")
    assert {memory["session_id"] for memory in massmem.json("memory", "list")["memories"]} == {OWN}
    for options, ids in ((ACCESS[0], {ALICE}), (ACCESS[1], {OWN, ALICE})):
        assert {memory["session_id"] for memory in massmem.json("memory", "list", *options)["memories"]} == ids
    for options, session_id in (([], OWN), (ACCESS[0], ALICE)):
        hits = massmem.json("memory", "search", "penguin", *options)["memories"]
        assert {hit["session_id"] for hit in hits} == {session_id}
    for command in (["list"], ["search", "penguin"], ["forget", "--yes"]):
        massmem("memory", *command, "--session-id", ALICE, code=5)
    for memory in massmem.json("memory", "list", *ACCESS[0])["memories"]:
        massmem("memory", "show", memory["id"], code=2)
        assert massmem.json("memory", "show", memory["id"], *ACCESS[0])["session_id"] == ALICE
    massmem("memory", "forget", "--agent", "user", "--yes")
    memories = massmem.json("memory", "list", "--all-owners")["memories"]
    assert {memory["session_id"] for memory in memories if memory["agent_id"] == "user"} == {ALICE}


def test_owner_without_a_session_has_no_memory_to_list_or_forget(massmem: Command) -> None:
    massmem("memory", "record")
    before = massmem.json("memory", "list", "--all-owners")["memories"]
    assert massmem.json("memory", "list", "--owner", "nobody")["memories"] == []
    assert massmem.json("memory", "forget", "--agent", "user", "--owner", "nobody", "--yes") == {
        "forgotten": 0,
        "note": "",
    }
    assert massmem.json("memory", "list", "--all-owners")["memories"] == before


def test_agents_of_the_command_line_recall_nothing_of_another_owner(massmem: Command) -> None:
    massmem("memory", "record")
    massmem("Which penguin is small?")
    newest = massmem.json("sessions", "list")["sessions"][0]["session_id"]
    exported = massmem("sessions", "export", newest, "--format", "json")
    assert "alice" not in exported
