"""The file of an SQLite store: errors, revision, backup."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from massmem.core.errors import StoreDamagedError, StoreError
from massmem.store import sqlite_file

NAMES = ["FULL", "IOERR", "READONLY", "PERM", "CANTOPEN", "BUSY", "LOCKED", "NOTADB", "CORRUPT", "NOMEM", "TOOBIG"]


@pytest.mark.parametrize("name", NAMES)
def test_error_says_what_failed_and_what_to_do(name: str) -> None:
    error = sqlite3.OperationalError("the library's words")
    error.sqlite_errorcode = getattr(sqlite3, f"SQLITE_{name}") | (7 << 8)  # extended codes keep the low byte
    shown = sqlite_file.to_store_error(error, Path("/x/m.db"))
    assert "/x/m.db" in shown.message
    assert shown.hint
    assert isinstance(shown, StoreDamagedError) == (name in {"NOTADB", "CORRUPT"})


def test_unknown_error_keeps_the_words_of_the_library() -> None:
    for error in (sqlite3.ProgrammingError("odd"), sqlite3.OperationalError("odd"), None):
        shown = sqlite_file.to_store_error(error, Path("/x/m.db"))
        assert type(shown) is StoreError
        assert str(error) in shown.message


def test_file_that_is_no_store_is_refused_and_not_touched(tmp_path: Path) -> None:
    text, foreign, broken = (tmp_path / f"{name}.db" for name in ("text", "foreign", "broken"))
    text.write_text("these are my notes, and not a database " * 100)
    with closing(sqlite3.connect(foreign)) as connection:
        connection.execute("CREATE TABLE recipes (id)")
        connection.commit()
    whole = foreign.read_bytes()
    broken.write_bytes(whole[:100] + b"\xff" * 100 + whole[200:])
    for path, words in ((text, "not an SQLite database"), (foreign, "recipes"), (broken, "damaged")):
        before = path.read_bytes()
        with pytest.raises(StoreDamagedError, match=words):
            sqlite_file.read_revision(path)
        assert path.read_bytes() == before
    with pytest.raises(StoreError, match="cannot be opened"):
        sqlite_file.read_revision(tmp_path / "missing.db")


def test_backup_is_whole_and_private(tmp_path: Path) -> None:
    source, copy = tmp_path / "a.db", tmp_path / "b.db"
    copy.write_text("left by an earlier run")
    with closing(sqlite3.connect(source)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("CREATE TABLE t AS SELECT 42 AS n")
        connection.commit()
        sqlite_file.back_up(source, copy)  # what is still in the write-ahead log belongs to it
    with closing(sqlite3.connect(copy)) as connection:
        assert connection.execute("SELECT n FROM t").fetchall() == [(42,)]
    assert copy.stat().st_mode & 0o777 == 0o600
