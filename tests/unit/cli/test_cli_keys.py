import json
import os
import stat
from pathlib import Path

import pexpect
import pytest

from massmem.cli.keys import guess_variable, read_keys
from massmem.cli.setup import read_environment
from tests.support.cli import call_massmem
from tests.support.forked import ForkedTerminal

KEY = "sk-proj-0123456789abcdef"


@pytest.mark.parametrize(
    ("name", "variable"),
    [("openai", "OPENAI_API_KEY"), ("Groq", "GROQ_API_KEY"), ("MY_OWN_KEY", "MY_OWN_KEY")],
)
def test_key_is_stored_in_a_private_file(name: str, variable: str, home: Path):
    ran = call_massmem("keys", "set", name, stdin=f"{KEY}\n".encode())
    path = home / ".massmem" / "keys.env"
    assert (ran.returncode, ran.stdout) == (0, b"")
    assert ran.stderr.decode() == f"massmem: {variable} is stored in {path}\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert read_keys(home / ".massmem") == {variable: KEY}


def test_stored_key_is_used_unless_the_environment_has_one(home: Path, monkeypatch: pytest.MonkeyPatch):
    for name in ("openai", "groq"):
        call_massmem("keys", "set", name, stdin=KEY.encode())
    monkeypatch.setenv("GROQ_API_KEY", "another")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    read_environment()
    assert (os.environ["OPENAI_API_KEY"], os.environ["GROQ_API_KEY"]) == (KEY, "another")
    monkeypatch.delenv("OPENAI_API_KEY")


def test_listed_keys_show_their_first_characters_only():
    call_massmem("keys", "set", "openai", stdin=KEY.encode())
    text = call_massmem("keys", "list").stdout.decode()
    assert text.startswith("OPENAI_API_KEY  sk-pro...")
    assert KEY not in text
    assert json.loads(call_massmem("keys", "list", "--json").stdout)["keys"] == {"OPENAI_API_KEY": "sk-pro..."}


def test_removed_key_is_gone():
    call_massmem("keys", "set", "openai", stdin=KEY.encode())
    assert call_massmem("keys", "remove", "openai").returncode == 0
    assert call_massmem("keys", "list").stdout == b""
    again = call_massmem("keys", "remove", "openai")
    assert (again.returncode, "OPENAI_API_KEY is not stored" in again.stderr.decode()) == (2, True)


@pytest.mark.parametrize(
    ("name", "key", "message"),
    [
        ("openai", "", "this is not an API key"),
        ("openai", "has blanks in it", "this is not an API key"),
        ("openai", "has'quotes'inside", "this is not an API key"),
        ("openai", "ends-with-a-backslash\\", "this is not an API key"),
        ("opnai", KEY, "'opnai' is neither a provider nor a variable"),
    ],
)
def test_text_that_is_no_key_is_refused(name: str, key: str, message: str, home: Path):
    ran = call_massmem("keys", "set", name, stdin=key.encode())
    assert (ran.returncode, message in ran.stderr.decode()) == (2, True)
    assert not (home / ".massmem").exists()


def test_provider_is_known_by_the_start_of_its_key():
    assert guess_variable("sk-ant-api03-x") == "ANTHROPIC_API_KEY"
    assert guess_variable("something else") is None


def test_init_without_any_model_takes_a_pasted_key(home: Path):
    environ = {**os.environ, "MASSMEM_MODELS": str(home / "none")}
    child = ForkedTerminal("init", "--no-try", env=environ, size=(40, 200))
    child.expect("there is no key, no model server and no model")
    child.expect("1  paste an API key")
    child.expect(r"What now\? \[1\]")
    child.sendline("1")
    child.expect(r"The key \(not shown\)")
    child.sendline("sk-ant-api03-0123456789abcdef")
    child.expect("ANTHROPIC_API_KEY is stored in")
    child.expect("found the key ANTHROPIC_API_KEY\r\n")
    child.expect("Also extract facts")
    child.sendline("")
    child.expect("ask with: massmem")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 0
    assert "0123456789" not in str(child.before)
    assert "api_key: ${ANTHROPIC_API_KEY}" in (home / ".massmem" / "config.yaml").read_text()
