"""Files that a command line names, of every kind."""

import os
import threading
from pathlib import Path

import pytest

from massmem.cli.question import read_file
from massmem.core.errors import InputError


def test_file_is_read_whole(tmp_path: Path):
    (tmp_path / "a").write_bytes(b"x" * 2_500_000)
    assert read_file(tmp_path / "a", 2_500_000) == b"x" * 2_500_000


def test_file_above_the_limit_is_not_even_read(tmp_path: Path):
    with (tmp_path / "large").open("wb") as file:
        file.truncate(2**40)  # a file with holes, which takes no space
    with pytest.raises(InputError, match="is larger than 1,000 bytes") as caught:
        read_file(tmp_path / "large", 1_000)
    assert "files.max_size" in caught.value.hint


def test_pipe_is_read_to_its_end(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    writing = threading.Thread(target=lambda: (tmp_path / "pipe").write_bytes(b"from a pipe"))
    writing.start()
    assert read_file(tmp_path / "pipe", 1_000) == b"from a pipe"
    writing.join()


def test_pipe_that_nobody_writes_to_is_refused(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match=r"pipe did not end within 0.05 seconds"):
        read_file(tmp_path / "pipe", 1_000, seconds=0.05)


def test_pipe_that_never_ends_is_refused(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    writer = os.open(tmp_path / "pipe", os.O_RDWR)
    os.write(writer, b"and then nothing")
    with pytest.raises(InputError, match="did not end"):
        read_file(tmp_path / "pipe", 1_000, seconds=0.05)
    os.close(writer)


def test_endless_device_is_refused():
    with pytest.raises(InputError, match="is larger than 1,000,000 bytes"):
        read_file(Path("/dev/zero"), 1_000_000)


def test_folder_is_refused(tmp_path: Path):
    with pytest.raises(InputError, match="is a folder"):
        read_file(tmp_path, 1_000)


@pytest.mark.parametrize("name", ["missing", "~no-such-user/x", "a\0b"])
def test_file_that_cannot_be_opened_is_refused(name: str, tmp_path: Path):
    with pytest.raises(InputError, match=r"cannot be read|is not known"):
        read_file(Path(name) if name.startswith("~") else tmp_path / name, 1_000)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_unreadable_file_is_refused(tmp_path: Path):
    (tmp_path / "secret").write_text("x")
    (tmp_path / "secret").chmod(0)
    with pytest.raises(InputError, match="Permission denied"):
        read_file(tmp_path / "secret", 1_000)
