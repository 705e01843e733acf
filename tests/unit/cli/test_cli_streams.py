from pathlib import Path

import pytest

from massmem.cli.streams import open_output
from massmem.core.errors import InputError, StoreError


def test_file_is_replaced_at_the_end_and_private(tmp_path: Path):
    path = tmp_path / "out.md"
    path.write_text("before")
    with open_output(path) as write:
        write("one ")
        assert path.read_text() == "before"
        write("zwei \ud800\n")
    assert path.read_text() == "one zwei ?\n"
    assert path.stat().st_mode & 0o777 == 0o600
    assert [p for p in tmp_path.iterdir() if p.is_file()] == [path]


def test_old_file_stays_when_writing_fails(tmp_path: Path):
    path = tmp_path / "out.md"
    path.write_text("before")
    with pytest.raises(StoreError, match="gone"), open_output(path) as write:
        write("half")
        raise StoreError("gone")
    assert path.read_text() == "before"
    assert [p for p in tmp_path.iterdir() if p.is_file()] == [path]


def test_unwritable_place_is_an_input_error(tmp_path: Path):
    for path in (tmp_path / "no" / "folder", tmp_path):
        with pytest.raises(InputError, match="cannot be written"), open_output(path) as write:
            write("x")


def test_without_a_file_output_goes_to_stdout(capsys: pytest.CaptureFixture[str]):
    with open_output(None) as write:
        write("hello\n")
    assert capsys.readouterr().out == "hello\n"
