"""Exports as people have them: files, archives, folders; whole, damaged, or something else."""

import gzip
import io
import json
import zipfile
from collections.abc import AsyncIterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from massmem.core.errors import InputError
from massmem.session.imports.files import Export, parse_export, read_export
from massmem.store import open_store
from massmem.store.ports import SessionStore
from tests.unit.session.imports.test_imports import bring_in


def say(*texts: str) -> list[dict[str, str]]:
    """Return messages of a user and an assistant in turn."""
    return [{"role": ("user", "assistant")[place % 2], "content": text} for place, text in enumerate(texts)]


def chat(uuid: str, *texts: str) -> dict[str, Any]:
    """Return a conversation as Claude exports it."""
    senders = [{"sender": ("human", "assistant")[place % 2], "text": text} for place, text in enumerate(texts)]
    return {"uuid": uuid, "name": uuid, "chat_messages": senders}


def pack(files: Mapping[str, Any]) -> bytes:
    """Return a ZIP archive with these files; what is no text is written as JSON."""
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content if isinstance(content, str) else json.dumps(content))
    return written.getvalue()


def list_texts(export: Export) -> list[list[str]]:
    """Return what was said in each conversation."""
    return [[text for turn in one.turns for text in (turn.question, turn.answer)] for one in export.conversations]


def read_error(data: bytes, name: str = "talk.json") -> str:
    with pytest.raises(InputError) as e:
        parse_export(data, name, name)
    return f"{e.value.message}; {e.value.hint}"


SHARDS = {
    "export/conversations-000.json": [chat("a", "Where?", "Here.")],
    "export/conversations-002.json": [chat("b", "When?", "Now."), chat("a", "Where?", "Here.", "And?", "There.")],
    "export/export_manifest.json": {"files": []},
    "export/users.json": [{"uuid": "me"}],
    "__MACOSX/export/._conversations-000.json": "no JSON",
}


@pytest.mark.parametrize("is_folder", [False, True])
def test_archive_in_shards_is_read_whole_and_a_missing_one_is_named(is_folder: bool, tmp_path: Path):
    (tmp_path / "export.zip").write_bytes(pack(SHARDS))
    with zipfile.ZipFile(tmp_path / "export.zip") as archive:
        archive.extractall(tmp_path / "folder")
    export = read_export(tmp_path / ("folder" if is_folder else "export.zip"))
    assert list_texts(export) == [["Where?", "Here.", "And?", "There."], ["When?", "Now."]]
    assert export.left_out == {"conversations-001.json: not there": 1}


def test_damaged_file_of_an_archive_is_named_and_the_others_are_read():
    export = parse_export(pack({"a.json": say("Where?", "Here."), "b.json": '[{"role": "us'}), "e.zip", "e.zip")
    assert list_texts(export) == [["Where?", "Here."]]
    assert [*export.left_out] == ["b.json: ends in the middle: it was not downloaded or copied whole"]


def test_lists_of_the_same_name_in_an_archive_stay_apart():
    lines = "\n".join(map(json.dumps, say("Where?", "Here.")))
    export = parse_export(pack({"x/messages.jsonl": lines, "y/messages.jsonl": lines}), "e.zip", "e.zip")
    assert len(export.conversations) == 2


def test_archive_is_bounded_cut_off_or_without_an_export():
    bomb = pack({"conversations.json": "[" + " " * 2_000_000 + "]"})
    with pytest.raises(InputError, match=r"larger than 0\.001 GB when it is unpacked"):
        parse_export(bomb, "e.zip", "e.zip", 1_000_000)
    with pytest.raises(InputError, match="larger than"):
        parse_export(gzip.compress(b" " * 2_000_000), "e.gz", "e.gz", 1_000_000)
    assert "was not downloaded whole" in read_error(pack({"conversations.json": [chat("a", *"ab" * 99)]})[:200])
    assert "was not downloaded whole" in read_error(gzip.compress(b"[1, 2, 3]")[:-4])
    assert "no file of an export" in read_error(pack({"holiday.jpg": "x"}))
    assert "known are exports of ChatGPT" in read_error(pack({"holiday.jpg": "x"}))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is empty"),
        (b" \n", "is empty"),
        (b"%PDF-1.7", "is a PDF"),
        (b"SQLite format 3\0", "is a database"),
        (b"<!DOCTYPE html><html>", "is a web page"),
        (b'{"a": 1}', "of no form that is known: entry that is no conversation (with a)"),
        (b'[{"role": "user", "content": "Wh', "ends in the middle"),
        (b'[{"role": "user"}, oops]', "line 1 column 20"),
        ('[{"role": "user", "content": "\u00e9t\u00e9"}]'.encode("latin-1"), "iconv -f WINDOWS-1252"),
        (json.dumps([chat("a", "Where?")]).encode(), "question without an answer (1)"),
    ],
)
def test_refusal_says_the_reason(data: bytes, message: str):
    assert message in read_error(data)


def test_other_file_of_an_archive_names_the_one_with_conversations():
    assert "import conversations.json" in read_error(b'[{"uuid": "me"}]', "users.json")


TALK = json.dumps(say("Wo ist Köln?", "Am Rhein \U0001f600."), ensure_ascii=False)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"])
@pytest.mark.parametrize("is_packed", [False, True])
def test_every_encoding_that_says_what_it_is(encoding: str, is_packed: bool):
    data = TALK.encode(encoding)
    export = parse_export(gzip.compress(data) if is_packed else data, "talk.json", "talk.json")
    assert list_texts(export) == [["Wo ist Köln?", "Am Rhein \U0001f600."]]


def test_damaged_bytes_are_counted():
    export = parse_export(TALK.replace("Am", "äöüäöüäöüäöü\0").encode()[:-4] + b'\xff"}]\0\0', "talk.json", "talk.json")
    assert export.left_out == {"byte that is no UTF-8": 1}
    assert len(export.conversations) == 1


@pytest.mark.parametrize("bad", ["{broken", "", "# comment"])
def test_bad_line_among_good_ones_is_counted(bad: str):
    lines = [json.dumps({"messages": say("Hi", "Hello.", str(n), "Yes.")}) for n in range(3)]
    export = parse_export("\n".join([bad, *lines]).encode(), "talks.jsonl", "talks.jsonl")
    assert [texts[2] for texts in list_texts(export)] == ["0", "1", "2"]
    assert export.left_out == ({"line that is no JSON": 1} if bad else {})


def test_conversations_that_begin_alike_stay_apart_and_the_same_one_counts_once():
    lists = [say("Hi", "Hello."), say("Hi", "Hello.", "Where?", "Here."), say("Hi", "Hello."), say("Hi", "Bye.")]
    for written in (json.dumps(lists), "\n".join(map(json.dumps, lists)), json.dumps([{"messages": m} for m in lists])):
        export = parse_export(written.encode(), "talks.json", "talks.json")
        assert list_texts(export) == [["Hi", "Hello."], ["Hi", "Hello.", "Where?", "Here."], ["Hi", "Bye."]]
        assert len({one.session_id for one in export.conversations}) == 3
        again = parse_export(written.encode(), "talks.json", "talks.json")
        assert [one.session_id for one in again.conversations] == [one.session_id for one in export.conversations]


def test_short_ids_are_of_their_file_and_long_ones_of_the_world():
    for session_id, is_same in (("1", False), ("0f0e0d0c-0b0a-0908", True)):
        data = json.dumps([{"id": session_id, "messages": say("Hi", "Hello.")}]).encode()
        one, other = (parse_export(data, name, name).conversations[0].session_id for name in ("a.json", "b.json"))
        assert (one == other) == is_same


def test_entries_that_are_no_conversation_are_counted_and_named():
    entries = [chat("a", "Where?", "Here."), None, "text", {"title": "Broken"}, {"uuid": "e", "chat_messages": []}]
    export = parse_export(json.dumps(entries).encode(), "conversations.json", "conversations.json")
    assert list_texts(export) == [["Where?", "Here."]]
    assert export.left_out == {
        "entry that is no conversation (no object)": 2,
        "entry that is no conversation (Broken)": 1,
        "empty conversation": 1,
    }


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SessionStore]:
    opened = await open_store(f"sqlite:///{tmp_path / 'massmem.db'}", tmp_path)
    yield opened
    await opened.close()


def test_path_that_does_not_exist(tmp_path: Path):
    with pytest.raises(InputError, match="cannot be read"):
        read_export(tmp_path / "nothing.json")


MASSGEN_ID = "session_20251101_151837"


def write_massgen_turn(sessions: Path, number: int, question: str, answer: str, winner: str) -> Path:
    """Write a turn as MassGen 0.1 does, and return its folder."""
    turn = sessions / MASSGEN_ID / f"turn_{number}"
    (turn / "workspace").mkdir(parents=True)
    (turn / "workspace" / "notes.md").write_bytes(b"\xff not read")
    (turn / "answer.txt").write_text(answer, encoding="utf-8")
    metadata = {"turn": number, "timestamp": f"2025-11-01T15:{number:02}:37.123456", "winning_agent": winner}
    metadata |= {"task": question, "session_id": MASSGEN_ID}
    (turn / "metadata.json").write_text(json.dumps(metadata, indent=2), encoding="utf-8")
    with (sessions / MASSGEN_ID / "SESSION_SUMMARY.txt").open("a", encoding="utf-8") as summary:
        summary.write(f"\n{'=' * 80}\nTURN {number}\n{'=' * 80}\nWinning Agent: {winner}\nTask: {question}\n")
    return turn


@pytest.fixture
def massgen(tmp_path: Path) -> Path:
    """The folder of MassGen's sessions: one of eleven turns, with the log of one more that was cut off."""
    sessions = tmp_path / ".massgen" / "sessions"
    for number in range(1, 12):
        write_massgen_turn(sessions, number, f"Question {number}?", f"Answer {number}.\n", f"agent_{number % 2}")
    (sessions / MASSGEN_ID / "turn_12").mkdir()
    (sessions / MASSGEN_ID / "turn_12" / "answer.txt").write_text("Cut off before its metadata.")
    winners = [{"agent_id": f"agent_{number % 2}", "turn": number} for number in range(1, 12)]
    (sessions / MASSGEN_ID / "winning_agents_history.json").write_text(json.dumps(winners, indent=2))
    (tmp_path / ".massgen" / "massgen_logs" / "log_20251101_151837_123456" / "turn_1").mkdir(parents=True)
    return sessions


@pytest.mark.parametrize("folder", ["../..", "..", ".", MASSGEN_ID])
def test_sessions_of_massgen_are_read_from_any_of_their_folders(folder: str, massgen: Path):
    (conversation,) = read_export(massgen / folder).conversations
    expected = [(f"Question {n}?", f"Answer {n}.\n", f"agent_{n % 2}") for n in range(1, 12)]
    assert [(turn.question, turn.answer, turn.agent) for turn in conversation.turns] == expected
    assert conversation.turns[0].time == datetime(2025, 11, 1, 15, 1, 37, 123456).astimezone()
    assert conversation.title == "Question 1?"


async def test_session_of_massgen_is_imported_once_with_its_winners(massgen: Path, store: SessionStore):
    for added in (11, 0):
        (conversation,) = read_export(massgen).conversations
        assert (await bring_in(store, conversation)).added == added
    write_massgen_turn(massgen.parent / "moved", 1, "Question 1?", "Answer 1.\n", "agent_1")
    (conversation,) = read_export(massgen.parent / "moved" / MASSGEN_ID).conversations
    assert (await bring_in(store, conversation)).added == 0
    turns = await store.list_turns(conversation.session_id)
    assert [turn.winner for turn in turns] == [f"agent_{number % 2}" for number in range(1, 12)]


def test_folder_without_a_readable_massgen_session_gets_one_message(massgen: Path, tmp_path: Path):
    for folder in (tmp_path / ".massgen" / "massgen_logs", massgen / MASSGEN_ID / "turn_1"):
        with pytest.raises(InputError, match=r"has no file of an export|of no form") as e:
            read_export(folder)
        assert "massmem import --help" in e.value.hint
    damaged = massgen / MASSGEN_ID / "turn_3" / "metadata.json"
    for content, message in (
        (b'{"task": ', "ends in the middle"),
        (b"\xff\xe9", "is no text"),
        (b"[" * 99_999, "too deeply"),
    ):
        damaged.write_bytes(content)
        with pytest.raises(InputError, match=message) as e:
            read_export(massgen)
        assert str(damaged) in str(e.value)
