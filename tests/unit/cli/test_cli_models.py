"""`massmem models` as a process, against a real server on loopback."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from massmem.weights import from_url
from tests.support.file_server import FileServer, serving

CONTENT = b"GGUF" + bytes(300_000)


@pytest.fixture
def server() -> Iterator[FileServer]:
    with serving(FileServer({"/m.gguf": CONTENT})) as running:
        yield running


def massmem(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "massmem", "models", *arguments]
    environment = os.environ | {"MASSMEM_MODELS": str(folder)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)


def test_fetch_a_model_of_the_users_choice(server: FileServer, tmp_path: Path) -> None:
    url = server.base + "/m.gguf"
    path = tmp_path / "models" / from_url(url).file
    ran = massmem(path.parent, "fetch", url, "--json")
    assert ran.returncode == 0, ran.stderr
    said = json.loads(ran.stdout)
    assert (said["path"], said["state"], said["size"], said["fetched"]) == (str(path), "verified", len(CONTENT), True)
    assert path.read_bytes() == CONTENT
    assert f"massmem: {url}: 0 % of 0.3 MB" in ran.stderr
    assert f"massmem: {url}: 100 % of 0.3 MB" in ran.stderr
    again = massmem(path.parent, "fetch", url)
    assert (again.returncode, again.stdout) == (0, "")
    assert again.stderr == f"massmem: {url} is already there: {path}\n"
    assert len(server.requests) == 1


def test_a_model_that_is_not_there(server: FileServer, tmp_path: Path) -> None:
    ran = massmem(tmp_path, "fetch", server.base + "/other.gguf?token=hunter2")
    assert ran.returncode == 2
    assert ran.stdout == ""
    assert "HTTP 404" in ran.stderr
    assert "hunter2" not in ran.stderr
    assert "Traceback" not in ran.stderr


def test_what_cannot_be_meant(tmp_path: Path) -> None:
    for arguments in (
        ["fetch", "not-a-url"],
        ["fetch", "--small", "http://127.0.0.1:1/m.gguf"],
        ["fetch", "http://[::1"],
    ):
        ran = massmem(tmp_path, *arguments)
        assert (ran.returncode, ran.stdout) == (2, "")
        assert "Traceback" not in ran.stderr


def test_list(tmp_path: Path) -> None:
    rows = json.loads(massmem(tmp_path, "list", "--json").stdout)
    assert [(row["size"], row["state"]) for row in rows] == [(1_117_320_768, "missing"), (491_400_064, "missing")]
    (tmp_path / Path(rows[1]["path"]).name).write_bytes(b"GGUF")
    ran = massmem(tmp_path, "list")
    assert [line.split()[0:4] for line in ran.stdout.splitlines()] == [
        ["Qwen2.5-Coder-1.5B-Instruct", "1,117", "MB", "missing"],
        ["Qwen2.5-Coder-0.5B-Instruct", "0", "MB", "unverified"],
    ]
    assert ran.stderr == "massmem: get the embedded model with: massmem models fetch\n"
