import json
import stat
from pathlib import Path

import pytest

from massmem.cli.chat.lines_kept import LONGEST, MOST, LinesKept

KEY = "sk-ant-api03-" + "a" * 40


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "place" / "history"


def test_lines_come_back_newest_first(path: Path):
    kept = LinesKept(path)
    for line in ("one", "two\nlines", "drei ü"):
        kept.store_string(line)
    assert list(LinesKept(path).load_history_strings()) == ["drei ü", "two\nlines", "one"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_no_secret_is_kept(path: Path):
    LinesKept(path).store_string(f"use {KEY} please")
    assert "aaaa" not in path.read_text()


def test_what_is_too_long_is_not_kept(path: Path):
    LinesKept(path).store_string("x" * (LONGEST + 1))
    assert not path.exists()


def test_it_does_not_grow_for_ever(path: Path):
    path.parent.mkdir()
    path.write_text("".join(json.dumps(f"line {i}") + "\n" for i in range(3 * MOST)))
    found = list(LinesKept(path).load_history_strings())
    assert (len(found), found[0]) == (MOST, f"line {3 * MOST - 1}")
    assert len(path.read_text().splitlines()) == MOST
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [p.name for p in path.parent.iterdir()] == ["history"]


def test_damaged_lines_are_passed_over(path: Path):
    path.parent.mkdir()
    path.write_bytes(b'"one"\n{"a": 1}\n\xff\xfe\nnull\n"half')
    assert list(LinesKept(path).load_history_strings()) == ["one"]
    LinesKept(path).store_string("two")


def test_a_home_that_cannot_be_written_is_done_without(tmp_path: Path):
    (tmp_path / "place").write_text("a file")
    kept = LinesKept(tmp_path / "place" / "history")
    kept.store_string("one")
    assert list(kept.load_history_strings()) == []
