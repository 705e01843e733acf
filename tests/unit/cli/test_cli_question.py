"""Files that a command line names, of every kind."""

import os
import threading
from pathlib import Path

import pytest

from massmem.cli.question import UserQuestion, attach_mentioned_files, read_file
from massmem.config.models import FilesConfig
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


REFUSED = [
    ("docs", "docs is a folder", "one by one, such as docs/a.md docs/b.md"),
    ("nothing/here.txt", "there is no file nothing/here.txt", "check its name"),
    ("note.txt", "there is no file note.txt", "did you mean notes.txt?"),
    ("notes.txt/x", "notes.txt/x cannot be read: Not a directory", "check its name, and that you may read it"),
    ("https://x.org/a/b.pdf?c=1", "https://x.org/a/b.pdf?c=1 is an address, and a file is needed here",
     "save it first: curl -sSLo b.pdf 'https://x.org/a/b.pdf?c=1' and name b.pdf"),
    ("HTTP://x.org", "HTTP://x.org is an address, and a file is needed here",
     "save it first: curl -sSLo page.html HTTP://x.org and name page.html"),
    ("file:///tmp/a%20b", "file:///tmp/a%20b is an address, not the name of a file", "name the file: /tmp/a b"),
    ("/dev/zero", "/dev/zero is a device", "write what comes out of it to a file first"),
    ("-", "- is no file", 'what is piped in is added without -f: command | massmem "your question"'),
    ("", "the name of a file is empty", "name a file"),
    ("~no-such-user/x", "~no-such-user/x: this home folder is not known", "write the whole path"),
    ("a\0b", "a\0b cannot be read: embedded null byte", "check its name, and that you may read it"),
]  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "docs").mkdir()
    for name in ("notes.txt", "docs/b.md", "docs/a.md", "docs/.hidden"):
        (tmp_path / name).write_text(f"text of {name}")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(("name", "message", "hint"), REFUSED)
@pytest.mark.usefixtures("folder")
def test_name_that_is_no_file_is_refused_with_advice(name: str, message: str, hint: str):
    with pytest.raises(InputError) as refused:
        read_file(name, 1_000)
    assert refused.value.message == message
    assert refused.value.hint.endswith(hint)


@pytest.mark.parametrize("mention", ["missing.txt", "docs", "./gone", '"my plan.pdf"', "ftp://x.org/a", "~/gone"])
@pytest.mark.usefixtures("folder")
def test_a_mention_that_is_no_file_is_refused(mention: str):
    with pytest.raises(InputError, match=r"is a folder|there is no file|is an address") as refused:
        attach_mentioned_files(f"What is in @{mention}, and why?", FilesConfig())
    assert refused.value.hint.endswith("to send the line as it is, put a space behind the @")


@pytest.mark.parametrize(
    "text", ["ask @alice", "@ missing.txt", "@app.route('/x')", "@john.doe", "@Override", "a@b.md"]
)
@pytest.mark.usefixtures("folder")
def test_other_words_with_an_at_sign_are_sent_as_they_are(text: str):
    assert attach_mentioned_files(text, FilesConfig()) == UserQuestion(text)


@pytest.mark.usefixtures("folder")
def test_a_mentioned_file_is_added():
    question = attach_mentioned_files("What is in @notes.txt, and why?", FilesConfig())
    assert question.text == "What is in @notes.txt, and why?\n\n--- notes.txt ---\ntext of notes.txt"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_unreadable_file_is_refused(tmp_path: Path):
    (tmp_path / "secret").write_text("x")
    (tmp_path / "secret").chmod(0)
    with pytest.raises(InputError, match="Permission denied"):
        read_file(tmp_path / "secret", 1_000)
