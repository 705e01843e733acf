"""Limits of a turn and runs that leave nothing behind, as real processes."""

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli import massmem, script, write_team

pytestmark = pytest.mark.slow

DOLLAR_A_TOKEN = {"input": 1_000_000, "output": 1_000_000}


def tree(*folders: Path) -> dict[str, tuple[int, int, int]]:
    """Everything below: mode, size and time of change."""
    found: dict[str, tuple[int, int, int]] = {}
    for folder in folders:
        for path in [folder, *folder.rglob("*")]:
            known = path.lstat()
            found[str(path)] = (known.st_mode, known.st_size if path.is_file() else 0, known.st_mtime_ns)
    return found


def priced_team(folder: Path, *scripts: dict[str, Any], price: dict[str, Any] | None = None, **sections: Any) -> str:
    path = Path(write_team(folder, *scripts, **sections))
    team = json.loads(path.read_text())
    for agent in team["agents"]:
        agent["backend"] |= {} if price is None else {"price": price}
    path.write_text(json.dumps(team))
    return str(path)


def result(*arguments: str) -> tuple[int, dict[str, Any]]:
    ran = massmem("--output", "json", *arguments)
    return ran.returncode, json.loads(ran.stdout)


@pytest.mark.parametrize(("option", "limit"), [(("--max-tokens", "300"), "tokens"), (("--max-cost", "300"), "cost")])
def test_a_limit_ends_the_turn_with_what_it_has(tmp_path: Path, option: tuple[str, str], limit: str):
    long = script("word " * 2_000, chunk_size=50)
    team = priced_team(tmp_path, long, price=DOLLAR_A_TOKEN)
    code, found = result("--config", team, *option, "Write on and on.")
    assert (code, found["status"], found["limit"]) == (4, "limit", limit)
    assert found["answer"].startswith("word word")
    assert 250 < found["usage"]["cost"] < 350
    assert found["agents"][0]["usage"]["cost"] == found["usage"]["cost"]
    assert any("cut off" in notice for notice in found["notices"])


def test_the_limits_of_the_configuration_count(tmp_path: Path):
    team = write_team(tmp_path, script("word " * 2_000, chunk_size=50), coordination={"max_tokens": 3})
    ran = massmem("--config", team, "Why?")
    assert (ran.returncode, ran.stdout) == (4, b"")
    assert b"the limit of 3 tokens for a turn is reached" in ran.stderr
    assert b"--max-tokens" in ran.stderr
    assert massmem("--config", team, "--max-tokens", "100000", "Why?").returncode == 0


def test_a_time_limit_ends_the_turn_with_what_it_has(tmp_path: Path):
    team = write_team(tmp_path, script("quick"), script("slow", latency=30))
    begun = time.monotonic()
    code, found = result("--config", team, "--timeout", "1", "Why?")
    assert time.monotonic() - begun < 25
    assert (code, found["status"], found["limit"], found["answer"]) == (4, "limit", "timeout", "quick")


def test_costs_are_not_limited_where_nobody_knows_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-unused")
    path = tmp_path / "team.yaml"
    backend = {"type": "openai", "model": "gpt-4o", "base_url": "https://proxy.invalid/v1"}
    path.write_text(json.dumps({"agents": [{"id": "ann", "backend": backend}]}))
    ran = massmem("--config", str(path), "--max-cost", "1", "Why?")
    assert ran.returncode == 2
    assert b"the price is not known for ann (openai gpt-4o)" in ran.stderr
    assert b"--max-tokens" in ran.stderr


def test_costs_are_shown_and_kept(tmp_path: Path):
    team = priced_team(tmp_path, script("one"), script("two", present="both"), price=DOLLAR_A_TOKEN)
    ran = massmem("--config", team, "Why?")
    assert f"${_total(ran.stderr)}" in ran.stderr.decode()
    shown = json.loads(massmem("sessions", "insights", "--json").stdout)
    assert shown["cost"] == pytest.approx(shown["tokens"]["prompt"] + shown["tokens"]["completion"])
    listed = json.loads(massmem("sessions", "list", "--json").stdout)
    session = (listed["sessions"] if isinstance(listed, dict) else listed)[0]["session_id"]
    assert "$" in massmem("sessions", "show", session).stdout.decode()


def _total(stderr: bytes) -> str:
    return stderr.decode().rpartition("$")[2].split()[0]


@pytest.mark.parametrize(
    "case",
    ["answered", "failed", "limit", *(pytest.param(case, marks=pytest.mark.full) for case in ("json", "waiting"))],
)
def test_without_a_store_nothing_is_written(tmp_path: Path, home: Path, case: str):
    """Memory, logs and the registry are on in the configuration; the first run of this home."""
    failing = {"answer": {"error": "auth"}}
    asking = {"answer": {"ask": "order_id", "text": "x"}}
    scripts = {"failed": [failing, failing], "waiting": [asking]}.get(case, [script("one"), script("two")])
    sections: dict[str, Any] = {"memory": {}} | ({"params": {"order_id": {}}} if case == "waiting" else {})
    team = write_team(tmp_path, *scripts, session_id="session_x", **sections)
    more = {"limit": ["--max-tokens", "5"], "json": ["--output", "json"]}.get(case, [])
    work, temp = tmp_path / "work", tmp_path / "tmp"
    for folder in (work, temp):
        folder.mkdir()
    before = tree(tmp_path, home)
    ran = massmem("--config", team, "--no-store", *more, "Why?", cwd=work, env={**os.environ, "TMPDIR": str(temp)})
    assert ran.returncode == {"failed": 2, "limit": 4, "waiting": 6}.get(case, 0), ran.stderr
    assert tree(tmp_path, home) == before
    assert b"session-id" not in ran.stderr


def test_the_same_run_with_a_store_writes(tmp_path: Path, home: Path):
    """So that the comparison above can fail."""
    before = tree(home)
    massmem("--config", write_team(tmp_path, script("one")), "Why?")
    assert len(tree(home)) > len(before)
