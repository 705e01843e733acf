import json
import os
import stat
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from massmem.cli.chat.line_editor import (
    MAX_HISTORY,
    MAX_INLINE_CHARACTERS,
    MAX_LINE,
    CommandCompleter,
    HistoryFile,
    PasteReader,
    Pastes,
)

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
    assert {p.name for p in path.parent.iterdir()} == {"history", "history.lock"}


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


START, END = "\x1b[200~", "\x1b[201~"


def test_short_paste_is_inserted_with_unix_line_ends():
    assert Pastes().add("one\r\ntwo\rthree") == "one\ntwo\nthree"


@pytest.mark.parametrize("text", ["x" * (MAX_INLINE_CHARACTERS + 1), "line\n" * 40])
def test_long_paste_gets_a_placeholder(text: str):
    pastes = Pastes()
    placeholder = pastes.add(text)
    assert len(placeholder) < 40
    assert pastes.expand(f"see {placeholder}!") == f"see {text}!"


def test_every_paste_has_its_own_placeholder():
    pastes = Pastes()
    first, second = pastes.add("a" * 5_000), pastes.add("b" * 5_000)
    assert first != second
    assert pastes.expand(second + first) == "b" * 5_000 + "a" * 5_000


def test_edited_and_typed_placeholders_stay_text():
    pastes = Pastes()
    placeholder = pastes.add("a" * 5_000)
    edited = placeholder.replace("5,000", "5,001")
    assert pastes.expand(edited) == edited
    assert pastes.expand("[pasted 5,000 characters #2]") == "[pasted 5,000 characters #2]"


@given(st.text("ab\n", max_size=30), st.text("cd\n", max_size=30), st.lists(st.integers(6, 80), max_size=8))
def test_small_pastes_and_keys_pass_in_any_pieces(typed: str, pasted: str, cuts: list[int]):
    reader = PasteReader(0, Pastes())
    data = f"{typed}{START}{pasted}{END}{typed}"
    # The start mark is not cut: prompt_toolkit parses a paste that was not recognised.
    positions = [cut for cut in sorted({*cuts}) if not len(typed) < cut < len(typed) + len(START)]
    pieces = [data[a:b] for a, b in zip([0, *positions], [*positions, len(data)], strict=True)]
    assert "".join(map(reader.replace_pastes, pieces)) == data


def test_large_paste_in_pieces_becomes_a_placeholder():
    pastes = Pastes()
    reader = PasteReader(0, pastes)
    text = "0123456789" * 1_000
    pieces = ["see ", START + text[:4_000], text[4_000:] + END[:3], END[3:] + "!"]
    output = "".join(map(reader.replace_pastes, pieces))
    assert output == f"see {START}[pasted 10,000 characters #1]{END}!"
    assert pastes.expand("[pasted 10,000 characters #1]") == text


def test_paste_of_ten_megabytes_takes_less_than_two_seconds():
    reader = PasteReader(0, Pastes())
    started = time.process_time()
    reader.replace_pastes(START)
    for _ in range(10_000):
        assert reader.replace_pastes("x" * 1_000) == ""
    assert len(reader.replace_pastes(END)) < 60
    assert time.process_time() - started < 2


def test_invalid_utf8_is_read():
    out, into = os.pipe()
    os.write(into, b"\xff\xfe\xc3")
    os.write(into, b"\xa9")
    reader = PasteReader(out, Pastes())
    assert "é" in reader.read()
    os.close(into)
    os.close(out)


@pytest.mark.parametrize("size", [4_000_001, 9_000_000])
def test_endless_paste_is_cut_but_still_too_long_for_a_question(size: int):
    pastes = Pastes()
    reader = PasteReader(0, pastes)
    reader.replace_pastes(START)
    for _ in range(size // 100_000 + 1):
        reader.replace_pastes("x" * 100_000)
    placeholder = reader.replace_pastes(END).removeprefix(START).removesuffix(END)
    assert 1_000_000 < len(pastes.expand(placeholder)) < 4_200_000
