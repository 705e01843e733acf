from pathlib import Path

import pytest

from massmem.cli.files import writing
from massmem.errors import InputError, StoreError


def test_a_file_is_written_whole_for_its_owner_alone(tmp_path: Path):
    path = tmp_path / "out.md"
    path.write_text("before")
    with writing(path) as write:
        write("one ")
        assert path.read_text() == "before"
        write("zwei \ud800\n")
    assert path.read_text() == "one zwei ?\n"
    assert path.stat().st_mode & 0o777 == 0o600
    assert [p for p in tmp_path.iterdir() if p.is_file()] == [path]


def test_when_writing_fails_the_old_file_stays(tmp_path: Path):
    path = tmp_path / "out.md"
    path.write_text("before")
    with pytest.raises(StoreError, match="gone"), writing(path) as write:
        write("half")
        raise StoreError("gone")
    assert path.read_text() == "before"
    assert [p for p in tmp_path.iterdir() if p.is_file()] == [path]


def test_a_place_that_cannot_be_written(tmp_path: Path):
    for path in (tmp_path / "no" / "folder", tmp_path):
        with pytest.raises(InputError, match="cannot be written"), writing(path) as write:
            write("x")


def test_without_a_file_it_is_stdout(capsys: pytest.CaptureFixture[str]):
    with writing(None) as write:
        write("hello\n")
    assert capsys.readouterr().out == "hello\n"
