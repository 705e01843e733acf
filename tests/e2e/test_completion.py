"""Completion as bash does it: the real script, the real shell, the TAB key."""

import os
import shutil
import stat
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pexpect
import pytest

from massmem.session.registry import Registry, RegistryEntry
from tests.support.cli import massmem

pytestmark = [pytest.mark.slow, pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")]


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`massmem` on PATH, as it is installed."""
    folder = tmp_path / "bin"
    folder.mkdir()
    path = folder / "massmem"
    path.write_text(f'#!/bin/sh\nexec {sys.executable} -m massmem "$@"\n')
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


@pytest.fixture
def sessions(home: Path) -> None:
    def entry(day: int, description: str) -> RegistryEntry:
        start = datetime(2026, 11, day, 10, tzinfo=UTC)
        return RegistryEntry(f"session_{start:%Y%m%d_%H%M%S}", start.isoformat(), description=description)

    Registry(home / ".massmem").upsert(entry(20, "Clocks in step"), entry(21, "Blue skies"), entry(22, "\x1b[2Jx"))


def complete(*words: str) -> list[str]:
    """What bash puts in the place of the last word."""
    line = " ".join(words)
    code = (
        f'eval "$(massmem completion bash)"; COMP_WORDS=({" ".join(repr(word) for word in words)}); '
        f"COMP_CWORD={len(words) - 1}; COMP_LINE={line!r}; _massmem_completion massmem; "
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    ran = subprocess.run(["bash", "--norc", "-c", code], capture_output=True, text=True, timeout=30, check=True)
    assert ran.stderr == ""
    return sorted(filter(None, ran.stdout.splitlines()))


@pytest.mark.usefixtures("program", "sessions")
def test_commands_options_and_sessions():
    assert complete("massmem", "se") == ["serve", "sessions"]
    assert complete("massmem", "sessions", "sh") == ["show"]
    assert {"list", "show", "delete"} <= set(complete("massmem", "sessions", ""))
    assert {"--config", "--continue"} <= set(complete("massmem", "--con"))
    assert complete("massmem", "sessions", "list", "--status", "de") == ["deleting"]
    assert complete("massmem", "--session-id", "session_202611") == [
        "session_20261120_100000", "session_20261121_100000", "session_20261122_100000"
    ]  # fmt: skip
    assert complete("massmem", "--session-id", "session_20261121") == ["session_20261121_100000"]
    for command in (["sessions", "show"], ["sessions", "delete"], ["memory", "list", "--session-id"]):
        assert complete("massmem", *command, "session_20261121") == ["session_20261121_100000"]
    assert complete("massmem", "memory", "list", "--config", "@examples/scripted", "--agent", "") == [
        "critic", "engineer", "teacher", "user"
    ]  # fmt: skip
    assert complete("massmem", "memory", "search", "x", "--agent", "gr") == ["green"]
    assert complete("massmem", "memory", "list", "--config", "nowhere.yaml", "--agent", "") == []
    assert complete("massmem", "completion", "") == ["bash", "fish", "zsh"]


@pytest.mark.usefixtures("program")
def test_nothing_is_offered_and_nothing_said_where_there_is_nothing(home: Path):
    assert complete("massmem", "--session-id", "session_") == []
    (home / ".massmem").mkdir()
    (home / ".massmem" / "sessions.json").write_text("{")
    assert complete("massmem", "--session-id", "session_") == []


@pytest.mark.usefixtures("program", "sessions")
def test_the_tab_key():
    environ = dict(os.environ) | {"PS1": "$ ", "TERM": "dumb"}
    shell = pexpect.spawn(
        "bash", ["--norc", "--noprofile", "-i"], env=environ, encoding="utf-8", timeout=30, dimensions=(24, 200)
    )
    shell.sendline('bind "set enable-bracketed-paste off"; eval "$(massmem completion bash)"; echo loaded-$((1+1))')
    shell.expect("loaded-2")
    shell.send("massmem sessi\t")
    shell.expect("massmem sessions ")
    shell.send("\x15massmem --session-id session_20261121\t")
    shell.expect("session_20261121_100000 ")
    shell.send("\x15exit\r")
    shell.expect(pexpect.EOF)
    shell.close()


def test_a_script_for_each_shell():
    for shell in ("bash", "zsh", "fish"):
        ran = massmem("completion", shell)
        assert (ran.returncode, ran.stderr) == (0, b"")
        assert f"_MASSMEM_COMPLETE=complete_{shell}".encode() in ran.stdout
    ran = massmem("completion", env=os.environ | {"SHELL": "/usr/bin/fish"})
    assert b"complete_fish" in ran.stdout
    ran = massmem("completion", env=os.environ | {"SHELL": "/bin/tcsh"})
    assert (ran.returncode, ran.stdout) == (2, b"")
    assert b"massmem completion bash|zsh|fish" in ran.stderr


@pytest.mark.usefixtures("program")
def test_it_can_be_installed_by_itself(home: Path):
    ran = subprocess.run(
        ["bash", "--norc", "-c", "massmem --install-completion; exit $?"], capture_output=True, timeout=30, check=False
    )
    assert ran.returncode == 0, ran.stderr
    script = home / ".bash_completions" / "massmem.sh"
    assert "complete_bash" in script.read_text()
    assert str(script) in (home / ".bashrc").read_text()
