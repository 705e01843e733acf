"""Two repositories and one home: what is said in one is recalled there, and nowhere else."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli import massmem

CONFIG = """
agents: [{id: ann, backend: {type: scripted, script: {answer: ["Noted."]}}}]
memory: {persistent_memory: {session_name: null, embedding: {model: none}}}
"""
VAULT = "The password vault is called Heron."


@pytest.fixture
def work(home: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    for name in ("alpha/.git", "alpha/src", "beta/.git", "plain"):
        (folder / name).mkdir(parents=True)
    (folder / "team.yaml").write_text(CONFIG)
    return folder


def run(folder: Path, *line: str, code: int = 0) -> Any:
    team = next(parent / "team.yaml" for parent in folder.parents if (parent / "team.yaml").exists())
    done = massmem(*line, "--config", str(team), cwd=folder, text=True)
    assert done.returncode == code, done.stderr
    return done


def ask(folder: Path, question: str, *options: str) -> set[str]:
    """Return what the agent was shown for the question."""
    run(folder, "-q", "--debug", *options, question)
    newest = max(
        (folder / ".massmem" / "massmem_logs").rglob("recall_*.json"), key=lambda path: path.stat().st_mtime_ns
    )
    return {memory["text"] for memory in json.loads(newest.read_text())["shown"]}


def test_repositories_do_not_mix_and_global_is_everywhere(work: Path) -> None:
    alpha, beta, plain = work / "alpha", work / "beta", work / "plain"
    run(alpha, "-q", VAULT)
    run(beta, "memory", "add", "--global", "I like vaults of steel.")
    question = "What is the password vault called?"
    assert ask(alpha, question) >= {VAULT}
    for place, options in ((beta, ()), (plain, ()), (alpha, ("--global",))):
        assert VAULT not in ask(place, question, *options)
    assert VAULT in ask(beta, question, "--project", "alpha")
    assert VAULT in ask(plain, question, "--project", str(alpha))
    assert "I like vaults of steel." in ask(alpha, "Which vaults do I like?")

    hits = json.loads(run(alpha, "memory", "search", "vault", "--json").stdout)
    (memory,) = [memory for memory in hits["memories"] if memory["text"] == VAULT]
    assert hits["project"] == memory["project"] == str(alpha)
    searched = run(beta, "memory", "search", "password vault")
    assert VAULT not in searched.stdout
    assert searched.stderr.endswith("looked in the project beta and in what is global\n")
    listed = run(beta, "memory", "list", "--agent", "user", "--limit", "100").stdout
    assert f"(in alpha) {VAULT}" in listed
    run(alpha, "memory", "promote", memory["short_id"])
    assert VAULT in run(beta, "memory", "search", "password vault").stdout
    run(alpha, "memory", "demote", memory["short_id"])
    assert VAULT not in run(beta, "memory", "search", "password vault").stdout


def test_stored_conversation_keeps_its_project(work: Path) -> None:
    alpha, beta = work / "alpha", work / "beta"
    run(alpha / "src", "-q", VAULT)
    run(beta, "-q", "--continue", "And in which town?")
    assert {one["project"] for one in json.loads(run(beta, "sessions", "list", "--json").stdout)["sessions"]} == {
        str(alpha)
    }
    refused = run(beta, "--continue", "--global", "x", code=2)
    assert "the conversation belongs to the project alpha, and stays there" in refused.stderr
    refused = run(beta, "--project", "alpha", "--global", "x", code=2)
    assert "--project and --global exclude each other" in refused.stderr
    refused = run(beta, "--project", "gamma", "x", code=2)
    assert "name one of alpha, or a folder" in refused.stderr
