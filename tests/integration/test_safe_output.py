"""Stored text drives no terminal, also when a pipe ends in one: every command, on a store full of escape sequences."""

import json
import unicodedata
from collections.abc import Sequence
from pathlib import Path

import pytest
from typer.core import TyperGroup
from typer.main import get_command

from massmem.cli.commands import COMMANDS, load_command
from massmem.cli.main import main
from massmem.store import open_store
from tests.contract.test_session_store import done, session
from tests.support.sample_turn import ballot, begin, event

HOSTILE = "penguin \x1b[31;8mred\x1b]0;title\x07 \x9b2J\x9dC\x9c a\rb\x08c\x7fd \u202eback\u2066 \x1bPq\x1b\\ \x1bc end"
NAME = "session_20251028_143000"
TEAM = {
    "agents": [{"id": "ann", "backend": {"type": "scripted", "script": {"answer": HOSTILE, "latency": 0}}}],
    "memory": {"persistent_memory": {"embedding": {"model": "none"}, "session_name": None}},
}

SHOWN: dict[tuple[str, ...], Sequence[Sequence[str]]] = {
    ("ask",): [["Which penguin?"], ["Which penguin?", "--json"], ["Which?", "--output", "jsonl"]],
    ("memory", "search"): [["penguin"], ["penguin", "--json"]],
    ("memory", "history"): [["penguin"], ["penguin", "--json"]],
    ("memory", "list"): [[], ["--json"]],
    ("memory", "show"): [["MEMORY"], ["MEMORY", "--json"]],
    ("memory", "add"): [[f"A new {HOSTILE}", "--session-id", NAME], [HOSTILE, "--session-id", NAME, "--json"]],
    ("memory", "edit"): [["MEMORY", f"Another {HOSTILE}"], ["MEMORY", HOSTILE, "--json"]],
    ("memory", "pin"): [["MEMORY"], ["MEMORY", "--json"]],
    ("memory", "unpin"): [["MEMORY"], ["MEMORY", "--json"]],
    ("memory", "promote"): [["MEMORY"], ["MEMORY", "--json"]],
    ("memory", "demote"): [["MEMORY"], ["MEMORY", "--json"]],
    ("memory", "forget"): [
        ["MEMORY", "--yes"],
        [f"no {HOSTILE}", "--yes"],
        ["--everywhere", "--text", "penguin", "--yes"],
    ],
    ("sessions", "list"): [[], ["--json"]],
    ("sessions", "show"): [[NAME], [NAME, "--all"], [NAME, "--events", "--turn", "1"], [NAME, "--json"]],
    ("sessions", "search"): [["penguin"], ["penguin", "--json"]],
    ("sessions", "rename"): [[NAME, HOSTILE]],
    ("sessions", "fork"): [[NAME], [NAME, "--json"]],
    ("sessions", "version"): [[NAME, "1"], [f"no {HOSTILE}", "1"]],
    ("export",): [["--all", "--to", "exported"], ["--all", "--to", f"odd {HOSTILE}".replace("/", "")]],
    ("sessions", "delete"): [[f"no {HOSTILE}", "--yes"], [NAME, "--yes"]],
    ("sessions", "cleanup"): [["--older-than", "1d", "--dry-run"], ["--older-than", "1d", "--yes", "--json"]],
    ("sessions", "export"): [[NAME, "--format", kind] for kind in ("text", "markdown", "html", "json")],
    ("sessions", "insights"): [[], [NAME], ["--json"]],
    ("replay",): [[NAME, "--turn", "1"], [NAME, "--turn", "1", "--json"]],
    ("import",): [[f"odd {HOSTILE}.json".replace("/", "")], ["hostile.json", "--json"]],
    ("doctor",): [["--offline"], [f"odd {HOSTILE}"]],
    ("config", "validate"): [[], [f"odd {HOSTILE}"]],
    ("config", "show"): [[], ["--json"]],
    ("eval",): [["questions.jsonl", "-o", kind] for kind in ("text", "json", "jsonl", "html")],
    ("store", "recover"): [[f"odd {HOSTILE}", "--to", "new"]],
}
"""Commands that show what is stored, or what they are given, and lines of their arguments."""

SHOWS_NOTHING_STORED = {
    ("init",): "keys and models of this machine",
    ("keys", "set"): "a name of ours",
    ("keys", "list"): "names of ours",
    ("keys", "remove"): "a name of ours",
    ("config", "schema"): "names of ours",
    ("paths",): "places of ours",
    ("memory", "stats"): "numbers",
    ("memory", "rebuild"): "numbers",
    ("memory", "record"): "numbers",
    ("sessions", "stats"): "numbers",
    ("models", "fetch"): "names of ours",
    ("models", "list"): "a server with a name that is not printable is refused",
    ("models", "refresh"): "numbers",
    ("store", "backup"): "numbers",
    ("store", "migrate"): "numbers",
    ("store", "restore"): "numbers",
    ("store", "import"): "numbers",
    ("ui",): "an address of ours",
    ("serve",): "JSON, see JsonFormatter",
    ("worker",): "JSON, see JsonFormatter",
    ("mcp",): "JSON for a program",
    ("acp",): "JSON for an editor",
    ("skill", "install"): "names of files, and our own text",
    ("review",): "tested by itself: tests/unit/render/test_review.py",
    ("jobs", "list"): "tested by itself: test_jobs_command.py",
    ("jobs", "show"): "the user's own file, see write_out",
    ("key", "list"): "names have to be printable",
    ("key", "create"): "a key of ours; its name has to be printable",
    ("key", "revoke"): "nothing",
    ("token", "create"): "a token of ours",
    ("completion",): "a script of ours",
}


def list_commands() -> set[tuple[str, ...]]:
    paths: set[tuple[str, ...]] = set()
    for name in COMMANDS:
        command = get_command(load_command(name))
        names = list(command.commands) if isinstance(command, TyperGroup) else [name]
        paths |= {(name,) if names == [name] else (name, one) for one in names}
    return paths


def is_obeyed(character: str) -> bool:
    return (unicodedata.category(character) in ("Cc", "Cs") and character not in "\n\t") or character in "\u202e\u2066"


@pytest.fixture
async def full_home(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("team.yaml").write_text(json.dumps(TEAM))
    Path("questions.jsonl").write_text(json.dumps({"id": HOSTILE, "question": HOSTILE, "answer": HOSTILE}))
    Path("hostile.json").write_text(json.dumps([{"role": "user", "content": HOSTILE}]))
    folder = home / ".massmem"
    store = await open_store(f"sqlite:///{folder / 'massmem.db'}", folder)
    texts = dict.fromkeys(("title", "description", "model", "config_path"), HOSTILE)
    await store.create_session(session(NAME).model_copy(update=texts))
    notice = event(0.5, "notice", message=HOSTILE)
    vote = ballot(1, "ann", "ann", reason=HOSTILE)
    question = begin("ann", question=HOSTILE, names={"ann": f"Ann {HOSTILE}"})
    await store.append(NAME, 1, [question, notice, vote, done(5, HOSTILE)])
    await store.close()
    return folder


def find_memory(capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    main(["memory", "list", "--json", "--config", "team.yaml"])
    return json.loads(capsys.readouterr().out)["memories"][0]["id"]


def test_list_of_sessions_drives_no_terminal(full_home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["--list-sessions"], ["--list-sessions", "--json"]):
        assert main(arguments) == 0
        out = capsys.readouterr().out
        assert NAME in out
        assert not any(map(is_obeyed, out))


def test_every_command_has_a_row() -> None:
    assert list_commands() == SHOWN.keys() | SHOWS_NOTHING_STORED.keys()
    assert not SHOWN.keys() & SHOWS_NOTHING_STORED.keys()


@pytest.mark.parametrize("path", SHOWN, ids=" ".join)
def test_command_writes_nothing_that_a_terminal_obeys(
    full_home: Path, capsys: pytest.CaptureFixture[str], path: tuple[str, ...]
) -> None:
    seen = ""
    if path[0] in ("memory", "ask"):
        main(["memory", "record", "--config", "team.yaml"])
    for arguments in SHOWN[path]:
        line = [find_memory(capsys) if word == "MEMORY" else word for word in arguments]
        capsys.readouterr()
        code = main([*path, *line, *([] if path == ("store", "recover") else ["--config", "team.yaml"])])
        out, err = capsys.readouterr()
        assert [c for c in out + err if is_obeyed(c)] == [], (path, line, ascii(out + err))
        assert code != 70
        if "--json" in arguments and out:
            json.loads(out)
        seen += out + err
    assert "penguin" in seen
