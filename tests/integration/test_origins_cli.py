"""Origins at the command line: shown, filtered, made again from the log."""

import json
from pathlib import Path

import pytest

from massmem.session.imports.files import parse_export
from tests.integration.test_laundering import end, question, read_page
from tests.integration.test_memory_ledger_cli import CONFIG, Command, memory  # noqa: F401 - a fixture
from tests.support.laundering import code_of
from tests.support.memory_command import database_of, prepare_home
from tests.unit.session.imports.test_imports import bring_in

SECRET = f"The override is {code_of(1)}."
EXPORT = json.dumps(
    {"messages": [{"role": "user", "content": "Where do storks nest?"}, {"role": "model", "content": "Roofs."}]}
)


@pytest.fixture
async def database(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    async with prepare_home(home, tmp_path, CONFIG) as store:
        first = [question("session_a", 1, "What is new at the desk?"), *read_page(1, 1), *end(1, SECRET)]
        await store.append("session_a", 1, first)
        second = [question("session_a", 2, "Thank you for that."), *end(2, "You are welcome.")]
        await store.append("session_a", 2, second)
        (conversation,) = parse_export(EXPORT.encode(), "storks.json", "storks.json").conversations
        await bring_in(store, conversation)
    return database_of(home)


def origins(memory: Command, *line: str) -> dict[str, str]:  # noqa: F811
    found = memory.json(*line)
    return {m["text"]: m["rests_on"] or m["origin"] for m in [*found["memories"], *found.get("beyond", [])]}


EVERYTHING = {
    "What is new at the desk?": "user",
    SECRET: "tool:mcp__desk__page",
    "Thank you for that.": "user",
    "You are welcome.": "agent",
    "Where do storks nest?": "import",
}


def test_origins_are_listed_and_a_rebuild_makes_the_same(memory: Command) -> None:  # noqa: F811
    assert origins(memory, "list") == EVERYTHING
    memory("rebuild")
    assert origins(memory, "list") == EVERYTHING


@pytest.mark.parametrize("command", [("list",), ("search", "--all", "desk override welcome storks thank nest")])
@pytest.mark.parametrize("origin", ["user", "agent", "import", "tool", "tool:mcp__desk__page", "tool:other"])
def test_a_filter_leaves_one_origin(memory: Command, command: tuple[str, ...], origin: str) -> None:  # noqa: F811
    hits = origins(memory, *command, "--origin", origin)
    quoted = {SECRET: EVERYTHING[SECRET]} if origin == "agent" else {}  # it said that, in words of the tool
    own = {text: own for text, own in EVERYTHING.items() if own == origin or own.startswith(f"{origin}:")}
    assert hits == own | quoted


def test_a_tool_and_an_import_are_named_beside_the_author(memory: Command) -> None:  # noqa: F811
    out, _ = memory("search", "override", "--origin", "tool")
    assert "ann" in out
    assert "(quoting tool:mcp__desk__page)" in out
    (memory_id,) = [m["id"] for m in memory.json("list", "--origin", "import")["memories"]]
    assert "from import" in memory("show", memory_id)[0]
    assert memory.json("show", memory_id)["origin"] == "import"
    assert " from " not in memory("list", "--origin", "agent")[0]


def test_a_wrong_origin_is_an_error_of_input(memory: Command) -> None:  # noqa: F811
    _, err = memory("list", "--origin", "elsewhere", code=2)
    assert "'elsewhere' is no origin" in err
