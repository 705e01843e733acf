import io
import os
import pty
import subprocess
import sys
import time
from contextlib import redirect_stderr
from pathlib import Path
from threading import Thread

import pytest

from massmem.cli import streams
from massmem.cli.streams import open_output, show_activity, show_progress
from massmem.core.errors import InputError, StoreError


def test_long_activity_is_a_line_without_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(streams, "LONG_PATIENCE", 0.01)
    with show_activity("opening the session"):
        time.sleep(0.1)
    assert capsys.readouterr().err == "massmem: opening the session ...\n"


@pytest.mark.parametrize("quiet", [True, False])
def test_short_or_quiet_activity_is_not_shown(quiet: bool, capsys: pytest.CaptureFixture[str]):
    with show_activity("opening the session", quiet=quiet):
        pass
    assert capsys.readouterr().err == ""


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
    for path in (tmp_path / "no" / "folder", tmp_path, Path(), Path("/")):
        with pytest.raises(InputError, match="cannot be written"), open_output(path) as write:
            write("x")


def test_device_is_written_to_and_not_replaced(tmp_path: Path):
    pipe, content = tmp_path / "pipe", list[str]()
    os.mkfifo(pipe)
    reader = Thread(target=lambda: content.append(pipe.read_text()))
    reader.start()
    with open_output(pipe) as write:
        write("hello\n")
    reader.join(10)
    assert content == ["hello\n"]
    assert pipe.is_fifo()


def test_link_stays_a_link_to_what_is_replaced(tmp_path: Path):
    target, link = tmp_path / "target.md", tmp_path / "link.md"
    target.write_text("before")
    link.symlink_to(target)
    with open_output(link) as write:
        write("after")
    assert (link.is_symlink(), target.read_text()) == (True, "after")


def test_without_a_file_output_goes_to_stdout(capsys: pytest.CaptureFixture[str]):
    with open_output(None) as write:
        write("hello\n")
    assert capsys.readouterr().out == "hello\n"


CODE = """
import time
from massmem.cli import streams
from massmem.cli.streams import show_progress
with show_progress("deleting") as progress:
    for done in range(5):
        progress(done + 1, 5)
        time.sleep(0.12)
print("done")
"""


def test_every_tenth_is_a_line_without_a_terminal():
    stderr = io.StringIO()
    with redirect_stderr(stderr), show_progress("recording") as progress:
        for done in range(1, 1001):
            progress(done, 1000)
    lines = stderr.getvalue().splitlines()
    assert lines[0] == "massmem: recording: 100 of 1,000"
    assert lines[-1] == "massmem: recording: 1,000 of 1,000"
    assert len(lines) == 10


def test_nothing_to_do_is_no_line():
    stderr = io.StringIO()
    with redirect_stderr(stderr), show_progress("recording") as progress:
        progress(0, 0)
    assert stderr.getvalue() == ""


def test_download_lines_have_megabytes():
    stderr = io.StringIO()
    with redirect_stderr(stderr), show_progress("model", in_bytes=True) as progress:
        for done in (0, 500_000, 1_000_000):
            progress(done, 1_000_000)
        progress(250_000_000, None)
    assert stderr.getvalue().splitlines() == [
        "massmem: model: 0 % of 1.0 MB",
        "massmem: model: 50 % of 1.0 MB",
        "massmem: model: 100 % of 1.0 MB",
        "massmem: model: 200 MB",
    ]


def test_bar_on_a_terminal_is_erased_at_the_end():
    ours, theirs = pty.openpty()
    env = {**os.environ, "TERM": "xterm-256color"}
    ran = subprocess.Popen([sys.executable, "-c", CODE], stdout=subprocess.PIPE, stderr=theirs, env=env)
    os.close(theirs)
    shown = b""
    while True:
        try:
            part = os.read(ours, 65_536)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        shown += part
    os.close(ours)
    out, _ = ran.communicate(timeout=30)
    assert out == b"done\n"
    assert b"deleting" in shown
    assert b"5/5" in shown or b"4/5" in shown
    assert shown.rstrip().endswith((b"\x1b[2K", b"\x1b[?25h"))


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def write_to_terminal(line: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setenv("COLUMNS", "60")
    terminal = Terminal()
    with redirect_stderr(terminal):
        streams.write_err(line, indent="  ")
    return terminal.getvalue().splitlines()


def test_line_on_a_terminal_is_broken_between_words(monkeypatch: pytest.MonkeyPatch):
    text = "the final text was written from all three answers, of which two got the votes of others"
    lines = write_to_terminal(text, monkeypatch)
    assert max(map(len, lines)) <= 60
    assert " ".join(line.strip() for line in lines) == text
    assert lines[1].startswith("    ")


def test_command_that_is_broken_can_be_copied(monkeypatch: pytest.MonkeyPatch):
    command = "massmem --session-id session_20261128_012621_abcd --config @examples/scripted more words"
    lines = write_to_terminal(f"try again with: {command}", monkeypatch)
    assert all(line.endswith(" \\") for line in lines[:-1])
    read = "".join(line.removesuffix("\\") for line in lines).partition("with: ")[2]
    assert read.split() == command.split()


def test_line_for_a_program_stays_whole(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setenv("COLUMNS", "20")
    streams.write_err("word " * 20 + "end")
    assert capsys.readouterr().err == "word " * 20 + "end\n"
