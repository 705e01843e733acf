import json
import stat
from collections.abc import Sequence
from pathlib import Path

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from massmem.cli.chat.line_editor import MAX_HISTORY, MAX_LINE, CommandCompleter, HistoryFile

KEY = "sk-ant-api03-" + "a" * 40


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "own" / "history"


async def offer(name: str, words: Sequence[str]) -> Sequence[str]:
    match name, words:
        case "resume", _:
            return ["Trip to Lisbon", "session_1"]
        case "model", []:
            return ["ann", "ben"]
        case "model", [_]:
            return ["openai/gpt-5-mini"]
        case _:
            return ()


@pytest.mark.parametrize(
    ("line", "offers"),
    [
        ("/", ["/model", "/resume"]),
        ("/re", ["/resume"]),
        ("/resume ", ["Trip to Lisbon", "session_1"]),
        ("/resume trip to", ["Trip to Lisbon"]),
        ("/model b", ["ben"]),
        ("/model ben o", ["openai/gpt-5-mini"]),
        ("/model ben", []),
        ("why", []),
        ("/a\nb", []),
    ],
)
async def test_completions(line: str, offers: list[str]):
    completer = CommandCompleter({"model": "m", "resume": "r"}, offer)
    completions = [c async for c in completer.get_completions_async(Document(line), CompleteEvent())]
    assert [c.text for c in completions] == offers
    assert all(line[: len(line) + c.start_position] + c.text for c in completions)


def test_history_is_read_newest_first_and_private(path: Path):
    history = HistoryFile(path)
    for line in ("one", "two\nlines", "drei ü"):
        history.store_string(line)
    assert list(HistoryFile(path).load_history_strings()) == ["drei ü", "two\nlines", "one"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_history_has_no_secrets(path: Path):
    HistoryFile(path).store_string(f"use {KEY} please")
    assert "aaaa" not in path.read_text()


def test_very_long_lines_are_not_stored(path: Path):
    HistoryFile(path).store_string("x" * (MAX_LINE + 1))
    assert not path.exists()


def test_long_history_is_shortened(path: Path):
    path.parent.mkdir()
    path.write_text("".join(json.dumps(f"line {i}") + "\n" for i in range(3 * MAX_HISTORY)))
    lines = list(HistoryFile(path).load_history_strings())
    assert (len(lines), lines[0]) == (MAX_HISTORY, f"line {3 * MAX_HISTORY - 1}")
    assert len(path.read_text().splitlines()) == MAX_HISTORY
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [p.name for p in path.parent.iterdir()] == ["history"]


def test_damaged_lines_are_skipped(path: Path):
    path.parent.mkdir()
    path.write_bytes(b'"one"\n{"a": 1}\n\xff\xfe\nnull\n"half')
    assert list(HistoryFile(path).load_history_strings()) == ["one"]
    HistoryFile(path).store_string("two")


def test_unwritable_home_is_ignored(tmp_path: Path):
    (tmp_path / "own").write_text("a file")
    history = HistoryFile(tmp_path / "own" / "history")
    history.store_string("one")
    assert list(history.load_history_strings()) == []
