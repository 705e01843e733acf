"""What of a folder is read, and that nothing beside it ever is: links, races, names, what git ignores, secrets."""

import os
import socket
import subprocess
import threading
import unicodedata
from pathlib import Path

import pytest

from massmem.config.models import FolderConfig
from massmem.core.errors import InputError
from massmem.tools.folder import Folder, FolderError, Walk, read_start

OUTSIDE = "outside of the folder"


def write(root: Path, *paths: str, text: str = "inside") -> None:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)


def folder_of(root: Path, *include: str) -> Folder:
    return Folder(FolderConfig(path=str(root), include=include))


def list_paths(root: Path, *include: str) -> list[str]:
    return [entry.path for entry in folder_of(root, *include).walk(Walk(60))]


def read(folder: Folder, path: str) -> tuple[str, str]:
    """The text of a file, and the path where it really is."""
    descriptor, place = folder.open_file(path)
    return read_start(descriptor, 1_000).decode(), place


def refuse(folder: Folder, path: str) -> str:
    """Return why a file is not read."""
    with pytest.raises((FolderError, OSError)) as raised:
        read(folder, path)
    return str(raised.value)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write(tmp_path / "project", "a.txt", "docs/b.md")
    write(tmp_path, "outside.txt", "beside/c.txt", text=OUTSIDE)
    return tmp_path / "project"


def test_nothing_outside_is_read_and_links_inside_are_followed(root: Path):
    for name, target in {
        "in.txt": "docs/b.md", "up.md": "docs/../a.txt", "whole.txt": str(root / "a.txt"), "docs/back": "..",
        "out.txt": "../outside.txt", "etc": "/etc", "beside": "../beside", "loop": "loop", "circle": ".",
        "gone": "no.txt",
    }.items():  # fmt: skip
        (root / name).symlink_to(target)
    folder = folder_of(root)
    assert read(folder, "in.txt") == ("inside", "docs/b.md")
    for path in (
        "up.md",
        "whole.txt",
        "docs/back/a.txt",
        "circle/circle/./a.txt",
        "docs/../a.txt",
        str(root / "a.txt"),
    ):
        assert read(folder, path) == ("inside", "a.txt")
    for path in (
        "out.txt", "etc/passwd", "beside/c.txt", "../outside.txt", "docs/../../outside.txt", "docs/back/../outside.txt",
        "/etc/passwd", str(root.parent / "outside.txt"), f"{root}/../outside.txt", f"{root}x/a.txt", "//etc/passwd",
    ):  # fmt: skip
        assert "is not in the folder" in refuse(folder, path), path
    assert "circle of links" in refuse(folder, "loop")
    assert "NUL" in refuse(folder, "a.txt\0.md")
    assert "is a folder" in refuse(folder, "docs")
    assert "is a file" in refuse(folder, "a.txt/b")
    walk = Walk(60)
    paths = [entry.path for entry in folder.walk(walk)]
    assert paths == ["a.txt", "docs/b.md", "in.txt", "up.md", "whole.txt"]
    assert walk.left_out == {"links elsewhere": 7}


def test_pipes_sockets_and_devices_are_never_waited_for(root: Path, monkeypatch: pytest.MonkeyPatch):
    os.mkfifo(root / "pipe")
    monkeypatch.chdir(root)  # the path of a socket has about 100 characters at most
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
        folder = folder_of(root)
        assert "pipe" in refuse(folder, "pipe")
        assert refuse(folder, "socket")
        assert list_paths(root) == ["a.txt", "docs/b.md"]


def test_names_are_found_however_their_letters_are_composed_or_cased(root: Path):
    write(root, unicodedata.normalize("NFD", "Größe/Café.txt"), "one\nline.txt", "Same.txt", "sAME.txt")
    folder = folder_of(root)
    place = unicodedata.normalize("NFC", "Größe/Café.txt")
    for path in (place, unicodedata.normalize("NFD", place), place.lower()):
        assert read(folder, path) == ("inside", place)
    assert place in list_paths(root)
    assert read(folder, "one␊line.txt") == ("inside", "one␊line.txt")
    assert "no such file" in refuse(folder, "same.txt")


def test_names_that_differ_in_the_form_of_a_letter_alone_are_two_files(root: Path):
    composed, apart = (unicodedata.normalize(form, "Café.txt") for form in ("NFC", "NFD"))
    write(root, apart, text="apart")
    write(root, composed, text="composed")
    twin = composed.replace(".txt", "~2.txt")
    assert {composed, twin} <= set(list_paths(root))
    folder = folder_of(root)
    assert read(folder, composed) == ("composed", composed)
    assert read(folder, twin) == read(folder, apart) == ("apart", twin)


def test_left_out_is_what_git_ignores_what_is_hidden_and_what_may_be_secret(root: Path):
    subprocess.run(["git", "init", "-q", root], check=True)
    (root / ".gitignore").write_text("*.log\n/build/\n[broken\nbad\\\n!keep.log\nnode_modules\n")
    (root / ".git/info/exclude").write_text("private.txt\n")
    write(root, "docs/.gitignore", text="*.tmp\n!special.log\n/b.md\n")
    write(
        root,
        "x.log",
        "keep.log",
        "build/o.txt",
        "docs/build/p.txt",
        "docs/t.tmp",
        "docs/special.log",
        "s/b.md",
        "s/t.tmp",
    )
    write(root, "node_modules/m/i.js", "private.txt", ".cache/c.txt", ".github/ci.yml", ".editorconfig", "pic.png")
    secrets = (
        ".env", ".env.local", "PROD.ENV", "key.pem", "id_rsa", "id_ed25519", ".netrc", ".npmrc", "credentials",
        ".aws/c",
        "kubeconfig", "conf/secrets.yaml", "tls.key", ".git-credentials", "infra/terraform.tfstate",
        ".env~", "netrc.orig/.netrc.bak", "app.auto.tfvars.json", "x/secrets", "secrets-old.txt", "db_passwords.md",
        "bash_history", "cookies (2).txt", "my-cookies.json", "secrets/prod.json", "api-keys.csv", "token.json",
        ".anything", "docs/.zshrc.swp", "id_rsa copy", "client_secret_12.json", ".env~2", "x.pem.1",
    )  # fmt: skip
    write(root, *secrets, ".env.example", "id_rsa.pub", "credentials.py", "environment.md", "secrets/vault.go")
    write(root, "history.md", "tokenizer.json", "notes (2).txt", "cookies.ts")
    expected = [
        ".editorconfig", ".env.example", ".github/ci.yml", ".gitignore", "a.txt", "cookies.ts", "credentials.py",
        "docs/.gitignore", "docs/build/p.txt", "docs/special.log", "environment.md", "history.md", "id_rsa.pub",
        "keep.log", "notes (2).txt", "s/b.md", "s/t.tmp", "secrets/vault.go", "tokenizer.json",
    ]  # fmt: skip
    assert list_paths(root) == expected
    tracked = subprocess.run(
        ["git", "-C", root, "ls-files", "-co", "--exclude-standard"], check=True, capture_output=True, text=True
    ).stdout.splitlines()
    assert sorted(set(tracked) - {*secrets, ".cache/c.txt", "pic.png"}) == expected
    folder = folder_of(root)
    for path in (*secrets, "x.log", "build/o.txt", "docs/b.md", ".git/config", ".cache/c.txt", "node_modules/m/i.js"):
        assert "is left out" in refuse(folder, path), path
    (root / "innocent.txt").symlink_to(".env")
    assert "is left out" in refuse(folder, "innocent.txt")
    inner = folder_of(root / "docs")  # the rules of the repository hold in a folder of it, too
    assert "is left out" in refuse(inner, "t.tmp")
    write(root, "docs/y.log")
    assert "is left out" in refuse(inner, "y.log")


def test_rules_of_any_number_and_length_count(root: Path):
    rules = [f"dir{number}/sub*{number}/x" for number in range(5_000)]
    (root / ".gitignore").write_text("\n".join(["*.log", *rules, "a" * 500_000, "!keep.log"]))
    write(root, "x.log", "keep.log", "dir7/sub17/x", "dir7/y")
    assert list_paths(root) == [".gitignore", "a.txt", "dir7/y", "docs/b.md", "keep.log"]


def test_included_is_what_is_named(root: Path):
    (root / ".gitignore").write_text("build/\n*.log\n")
    write(root, ".env", "sub/.env", "build/a/o.txt", "build/p.txt", ".aws/config", "x.log", "pic.png")
    paths = list_paths(root, "/.env", "build/a", ".aws", "*.png")
    assert paths == [".aws/config", ".env", ".gitignore", "a.txt", "build/a/o.txt", "docs/b.md", "pic.png"]
    folder = folder_of(root, "/.env", "build/a")
    assert read(folder, "build/a/o.txt")[0] == read(folder, ".env")[0] == "inside"
    for path in ("sub/.env", "build/p.txt", "x.log"):
        assert "is left out" in refuse(folder, path)


def test_folder_that_is_not_there_is_said(root: Path):
    with pytest.raises(InputError, match="cannot be read: No such file"):
        folder_of(root / "no")
    with pytest.raises(InputError, match="is a file"):
        folder_of(root / "a.txt")
    folder = folder_of(root)
    root.rename(root.with_name("away"))
    with pytest.raises(FileNotFoundError):
        folder.open_file("a.txt")
    root.symlink_to("beside")  # what stands in its place is another folder
    with pytest.raises(OSError):
        folder.open_file("c.txt")


@pytest.mark.slow
@pytest.mark.parametrize("is_folder", [False, True], ids=["a file", "its folder"])
def test_file_that_becomes_a_link_while_it_is_read_never_leads_outside(root: Path, is_folder: bool):
    write(root, "swap/name.txt")
    outside = root.parent / "beside"
    write(outside, "name.txt", text=OUTSIDE)
    place, aside = (root / "swap", root / "aside") if is_folder else (root / "swap/name.txt", root / "swap/aside.txt")
    target = outside if is_folder else outside / "name.txt"
    folder, stop, swaps = folder_of(root), threading.Event(), 0

    def swap() -> None:
        nonlocal swaps
        while not stop.is_set():
            place.rename(aside)
            place.symlink_to(target)
            place.unlink()
            aside.rename(place)
            swaps += 1

    thread = threading.Thread(target=swap)
    thread.start()
    texts: list[str] = []
    try:
        for _ in range(1_000):
            for path in ("swap/name.txt", "swap/../swap/name.txt"):
                try:
                    texts.append(read(folder, path)[0])
                except (OSError, FolderError):
                    texts.append("")
            for entry in folder.walk(Walk(60)):
                try:
                    texts.append(read_start(entry.open(), 1_000).decode())
                except (OSError, FolderError):
                    texts.append("")
    finally:
        stop.set()
        thread.join()
    assert set(texts) <= {"inside", ""}
    assert swaps > 100
    assert texts.count("inside") > 1_000
