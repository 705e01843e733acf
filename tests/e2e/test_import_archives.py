"""`massmem import` of exports as they are downloaded: archives, folders, shards; and of newer ones."""

import gzip
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli import call_massmem, massmem

CONFIG = """
agents: [{id: ann, backend: {type: scripted, script: {answer: "Noted."}}}]
memory: {persistent_memory: {session_name: null, embedding: {model: none}}}
"""


def chat(uuid: str, *texts: str) -> dict[str, Any]:
    """Return a conversation as Claude exports it."""
    messages = [{"sender": ("human", "assistant")[place % 2], "text": text} for place, text in enumerate(texts)]
    return {"uuid": uuid, "name": f"Talk {uuid}", "chat_messages": messages}


PUMP = chat("1", "Where does the green pump stand?", "In the cellar, behind the boiler.")
VALVE = chat("2", "Where does the brass valve stand?", "Beside the pump, on the left.")


def write_zip(folder: Path) -> Path:
    with zipfile.ZipFile(folder / "export.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("conversations.json", json.dumps([PUMP, VALVE]))
        archive.writestr("users.json", json.dumps([{"uuid": "me"}]))
        archive.writestr("pictures/a.png", b"\x89PNG" * 100)
    return folder / "export.zip"


def write_folder(folder: Path) -> Path:
    (folder / "export").mkdir()
    (folder / "export" / "conversations.json").write_text(json.dumps([PUMP, VALVE]))
    (folder / "export" / "user.json").write_text("{}")
    return folder / "export"


def write_shards(folder: Path) -> Path:
    (folder / "export").mkdir()
    for number, conversation in enumerate((PUMP, VALVE)):
        (folder / "export" / f"conversations-{number:03}.json").write_text(json.dumps([conversation]))
    (folder / "export" / "export_manifest.json").write_text("{}")
    return folder / "export"


def write_packed(folder: Path) -> Path:
    (folder / "export.json.gz").write_bytes(gzip.compress(json.dumps([PUMP, VALVE]).encode()))
    return folder / "export.json.gz"


@pytest.fixture
def team(home: Path, tmp_path: Path) -> str:
    (tmp_path / "team.yaml").write_text(CONFIG)
    return str(tmp_path / "team.yaml")


@pytest.mark.parametrize("write", [write_zip, write_folder, write_shards, write_packed])
def test_archive_is_imported_as_it_is(write: Callable[[Path], Path], team: str, tmp_path: Path):
    path = write(tmp_path)
    for added in (1, 0):
        result = massmem("import", str(path), "--json", "--config", team)
        assert result.returncode == 0, result.stderr
        outcomes = json.loads(result.stdout)
        assert [(one["title"], one["added"]) for one in outcomes] == [("Talk 1", added), ("Talk 2", added)]
    shown = json.loads(call_massmem("sessions", "show", "Talk 2", "--json", "--config", team).stdout)
    assert [(turn["question"], turn["answer"]) for turn in shown["turns"]] == [
        ("Where does the brass valve stand?", "Beside the pump, on the left.")
    ]


def test_replaced_turn_is_no_memory_any_more(team: str, tmp_path: Path):
    edited = {**PUMP, "chat_messages": [*VALVE["chat_messages"]]}
    for conversation in (PUMP, edited):
        (tmp_path / "conversations.json").write_text(json.dumps([conversation, None]))
        result = call_massmem("import", str(tmp_path / "conversations.json"), "--config", team)
        assert b"left out: entry that is no conversation (no object) (1)" in result.stderr
        assert call_massmem("--config", team, "Thank you for that.").returncode == 0  # records on the way
    assert b"1 turn added, 1 of an older export removed" in result.stderr
    memories = call_massmem("memory", "list", "--config", team).stdout
    assert b"brass valve" in memories
    assert b"green pump" not in memories


def test_title_that_no_user_could_give_finds_the_conversation(team: str, tmp_path: Path):
    (tmp_path / "talk.json").write_text(json.dumps([{**PUMP, "name": "Pumps/valves: -plan"}]))
    assert call_massmem("import", str(tmp_path / "talk.json"), "--config", team).returncode == 0
    exported = call_massmem("sessions", "export", "Pumps/valves: -plan", "--format", "text", "--config", team)
    assert b"green pump" in exported.stdout
    assert call_massmem("sessions", "delete", "Pumps/valves: -plan", "--yes", "--config", team).returncode == 0
    refused = call_massmem("sessions", "export", "Pumps/valves: -plan", "--config", team)
    assert (refused.returncode, b"cannot be a session id or name" in refused.stderr) == (2, True)


def test_archive_that_was_cut_off_changes_nothing(team: str, tmp_path: Path):
    path = write_zip(tmp_path)
    path.write_bytes(path.read_bytes()[:-40])
    result = call_massmem("import", str(path), "--config", team)
    assert (result.returncode, result.stdout) == (2, b"")
    assert b"export.zip is damaged, or was not downloaded whole" in result.stderr
    assert json.loads(call_massmem("sessions", "list", "--json", "--config", team).stdout)["sessions"] == []
