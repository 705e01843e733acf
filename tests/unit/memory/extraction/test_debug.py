"""Files of --debug: the fields, who may read them, and that none is lost."""

import json
import stat
from datetime import UTC, datetime
from pathlib import Path

import pytest

from massmem.core.errors import HomeError
from massmem.memory.extraction.extractor import make_debug_record, write_debug
from massmem.memory.extraction.prompts import Origin
from massmem.memory.persistent import Fact
from tests.support.extraction_stub import DAY, FIRST, make_message

ORIGIN = Origin("temp_20251029_200122", "test_agent", 1)
MOMENT = datetime(2025, 10, 29, 20, 3, 35, 123456, tzinfo=UTC)
MESSAGES = [
    make_message("Map the code base, the key is sk-abcdefghijklmnopqrstuvwx."),
    make_message(
        "[Tool Usage]\n[Tool Call: directory_tree]\nArguments: {}\n\n[Tool Call: read_file]\nResult: x",
        "a1",
        "assistant",
    ),
    make_message("[Tool Usage]\n[Tool Call: read_file]\nArguments: {}", "a2", "assistant"),
]
FACT = Fact(ORIGIN.session_id, 1, ORIGIN.agent_id, FIRST, ("a1",), DAY)


def test_the_record_has_the_fields_of_a_debug_file():
    record = make_debug_record(MESSAGES, ORIGIN, [FACT], MOMENT)
    assert list(record) == [
        "timestamp", "agent_id", "session_id", "turn", "metadata", "messages_sent", "facts_extracted",
        "extraction_count",
    ]  # fmt: skip
    assert record["timestamp"] == "2025-10-29T20:03:35.123456+00:00"
    assert record["metadata"] == {"tools_used": ["directory_tree", "read_file"], "has_tools": True, "message_count": 3}
    assert record["messages_sent"][1] == {"role": "assistant", "content": MESSAGES[1].text}
    (fact,) = record["facts_extracted"]
    assert (fact["memory"], fact["event"]) == (FIRST, "ADD")
    assert int(fact["id"]) >= 1 << 62
    assert record["extraction_count"] == 1


def test_it_is_written_without_secrets_for_the_owner_only(tmp_path: Path):
    path = write_debug(tmp_path, 2, make_debug_record(MESSAGES, ORIGIN, [FACT], MOMENT))
    assert path == tmp_path / "attempt_2/memory_debug/test_agent/turn_1_20251029_200335.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert "sk-abc" not in path.read_text()
    assert json.loads(path.read_text())["extraction_count"] == 1


def test_two_within_a_second_are_both_kept(tmp_path: Path):
    record = make_debug_record(MESSAGES, ORIGIN, [], MOMENT)
    paths = {write_debug(tmp_path, 1, record) for _ in range(3)}
    assert {p.name for p in paths} == {f"turn_1_20251029_200335{end}.json" for end in ("", "_2", "_3")}


def test_odd_characters_do_not_stop_it(tmp_path: Path):
    record = make_debug_record([make_message("a lone surrogate \ud800 here")], ORIGIN, [], MOMENT)
    assert json.loads(write_debug(tmp_path, 1, record).read_text())["metadata"]["message_count"] == 1


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path):
    (tmp_path / "attempt_1").write_text("a file")
    with pytest.raises(HomeError):
        write_debug(tmp_path, 1, make_debug_record(MESSAGES, ORIGIN, [], MOMENT))
