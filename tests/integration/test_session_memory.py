"""What agents are shown of earlier turns, read from the prompts that a model server received."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from filelock import FileLock

from massmem.config.load import load_config
from massmem.config.models import TeamConfig
from massmem.core.events import Event, Notice, TurnCompleted
from massmem.core.messages import add_text, make_attachment
from massmem.core.records import Owner, RecordingCounts
from massmem.session.session import Session
from massmem.session.team import Team
from massmem.store import open_store
from tests.support.cli import massmem, script, write_team
from tests.support.council_server import CouncilServer, council_server
from tests.support.extraction_stub import extraction_server
from tests.support.pictures import PNG
from tests.support.qdrant_stub import QdrantStub
from tests.support.sessions import ask, collect
from tests.support.turns import only

ROOT = Path(__file__).parents[2]
AGENTS = ("ann", "ben", "cyd")
FIRST, SECOND = "Which answer is right about zebras?", "As I said, which answer is right about their stripes?"


def load_team(tmp_path: Path, council: CouncilServer, memory: str = "") -> TeamConfig:
    path = tmp_path / "team.yaml"
    path.write_text(council.config(AGENTS) + memory)
    return load_config(path, {})[0]


def memories(council: CouncilServer) -> dict[str, str]:
    """What each agent's last request quotes."""
    found: dict[str, str] = {}
    for asked in council.requests:
        last = asked.messages[-1]["content"]
        found[asked.agent] = last.partition("<memories>\n")[2].partition("\n</memories>")[0]
    return found


def winner(events: list[Event]) -> str:
    (end,) = only(events, TurnCompleted)
    return str(end.winner)


@pytest.fixture
def folder(home: Path) -> Path:
    return home / ".massmem"


async def count_queue(folder: Path) -> RecordingCounts:
    store = await open_store(f"sqlite:///{folder / 'massmem.db'}", folder)
    try:
        return await store.count_recordings()
    finally:
        await store.close()


async def pending(folder: Path) -> int:
    return (await count_queue(folder)).pending


def quote_own(agent: str, won: str) -> str:
    """Return how an agent is shown its own answer of an earlier turn."""
    return f"You: answer of {agent}" if agent == won else f"You (not chosen): answer of {agent}"


async def test_an_agent_recalls_its_own_words_and_the_winners_and_nobody_elses(tmp_path: Path, folder: Path):
    with council_server() as council:
        session_id, events = await ask(load_team(tmp_path, council), folder, FIRST)
        assert all(text == "" for text in memories(council).values()), "a first turn has nothing to remember"
        assert not (folder / "memory").exists(), "a home without memories needs no index"
        assert await pending(folder) > 0
        council.requests.clear()
        await ask(load_team(tmp_path, council), folder, SECOND, session_id)
        assert await pending(folder) == 0, "what was said was recorded before the program ended"
        shown = memories(council)
    won = winner(events)
    for agent in AGENTS:
        assert quote_own(agent, won) in shown[agent]
        for other in set(AGENTS) - {agent}:
            assert (f"[From {other} Turn 1] answer of {other}" in shown[agent]) == (other == won)
    assert all(FIRST not in text for text in shown.values()), "the conversation shows that verbatim"


async def test_a_new_session_sees_nothing_of_others_unless_it_is_told_to(tmp_path: Path, folder: Path):
    with council_server() as council:
        _, events = await ask(load_team(tmp_path, council), folder, FIRST)
        won = winner(events)
        council.requests.clear()
        await ask(load_team(tmp_path, council), folder, SECOND)
        assert set(memories(council).values()) == {""}
        council.requests.clear()
        everywhere = "memory: {persistent_memory: {session_name: null}}\n"
        await ask(load_team(tmp_path, council, everywhere), folder, "Which answer about zebras and stripes?")
        assert all(quote_own(a, won) in text for a, text in memories(council).items())


async def test_passage_from_the_middle_of_a_file_is_recalled_with_its_name(tmp_path: Path, folder: Path):
    everywhere = "memory: {persistent_memory: {session_name: null}}\n"
    filler = [f"Line {i} of the manual says nothing of interest to anybody who reads it." for i in range(40)]
    manual = "\n".join([*filler, "The zebra pump is serviced every 250 hours.", *filler])
    with council_server() as council:
        await ask(load_team(tmp_path, council, everywhere), folder, add_text("Sum it up.", "manual.txt", manual))
        council.requests.clear()
        await ask(load_team(tmp_path, council, everywhere), folder, "How often is the zebra pump serviced?")
        shown = memories(council)
    for text in shown.values():
        (line,) = (line for line in text.splitlines() if "every 250 hours" in line)
        assert "[manual.txt]" in line


async def test_picture_is_recalled_by_its_name_and_description(folder: Path):
    describes = {
        "type": "scripted",
        "vision": True,
        "script": {"describe": "A plan of the pump house, with two doors."},
    }
    agents = [{"id": "ann", "backend": describes}, {"id": "bob", "backend": {"type": "scripted", "vision": False}}]
    config = TeamConfig.model_validate({"agents": agents, "files": {"describe": True}})
    async with await Session.open(config, home=folder) as session:
        await collect(session.ask("What is it?", attachments=[make_attachment("plan.png", "image/png", PNG)]))
    search = massmem("memory", "search", "pump house doors", "--json", text=True)
    assert search.returncode == 0, search.stderr
    texts = [memory["text"] for memory in json.loads(search.stdout)["memories"]]
    assert any("two doors" in text for text in texts)
    assert any("plan.png" in text for text in texts)


async def test_runs_that_name_a_session_share_its_memories(tmp_path: Path, folder: Path):
    named = "memory: {persistent_memory: {session_name: zoo}}\n"
    with council_server() as council:
        await ask(load_team(tmp_path, council, named), folder, FIRST)
        await ask(load_team(tmp_path, council), folder, "Which answer is right about lions?")
        council.requests.clear()
        await ask(load_team(tmp_path, council, named), folder, SECOND)
        shown = memories(council)
    assert all(FIRST in text for text in shown.values())
    assert not any("lions" in text for text in shown.values())


async def test_users_of_the_service_and_of_this_machine_recall_nothing_of_each_other(tmp_path: Path, folder: Path):
    async def ask_as(owner: str | None, name: str, question: str) -> None:
        session = Session(team, None, session_id=name, owner=Owner(owner))
        await collect(session.ask(question))
        await session.close()

    with council_server() as council:
        team = await Team.open(
            load_team(tmp_path, council, "memory: {persistent_memory: {session_name: null}}\n"), home=folder
        )
        await team.start()
        questions = {None: "Which zebra is tame?", "alice": "Which zebra is fast?", "bob": "Which zebra is old?"}
        for owner, question in questions.items():
            await ask_as(owner, f"first_{owner}", question)
        for owner, question in questions.items():
            council.requests.clear()
            await ask_as(owner, f"second_{owner}", SECOND + " And which zebra?")
            for text in memories(council).values():
                assert [other for other in questions.values() if other in text] == [question]
        await team.close()


@pytest.mark.parametrize("name", ["id", "title"])
async def test_name_of_an_existing_session_pins_that_session(tmp_path: Path, folder: Path, name: str):
    with council_server() as council:
        session_id, _ = await ask(load_team(tmp_path, council), folder, FIRST)
        await ask(load_team(tmp_path, council), folder, "Which answer is right about lions?")
        store = await open_store(f"sqlite:///{folder / 'massmem.db'}", folder)
        await store.rename_session(session_id, "the zoo")
        await store.close()
        council.requests.clear()
        pinned = {"id": session_id, "title": "the zoo"}[name]
        named = f"memory: {{persistent_memory: {{session_name: {pinned}}}}}\n"
        await ask(load_team(tmp_path, council, named), folder, SECOND)
        shown = memories(council)
    assert all(FIRST in text for text in shown.values())
    assert not any("lions" in text for text in shown.values())


async def test_memory_off_costs_nothing(tmp_path: Path, folder: Path):
    with council_server() as council:
        config = load_team(tmp_path, council, "memory: {persistent_memory: {enabled: false}}\n")
        session_id, _ = await ask(config, folder, FIRST)
        council.requests.clear()
        await ask(config, folder, SECOND, session_id)
        assert set(memories(council).values()) == {""}
    assert not (folder / "memory").exists()


async def test_while_another_process_holds_the_index_words_alone_are_searched_and_it_is_said_once(
    tmp_path: Path, folder: Path
):
    with council_server() as council:
        await ask(load_team(tmp_path, council), folder, "Which answer is right about tigers?")
        session_id, events = await ask(load_team(tmp_path, council), folder, FIRST)
        (lock,) = (folder / "memory").rglob("lock")
        council.requests.clear()
        with FileLock(lock):
            session = await Session.open(load_team(tmp_path, council), home=folder, session_id=session_id)
            said = [e async for e in session.ask(SECOND)]
            await session.close()
        shown = memories(council)
        assert len(only(said, Notice)) == 1
        assert winner(said)
        for agent in AGENTS:
            assert quote_own(agent, winner(events)) in shown[agent]
            assert (f"[From {winner(events)} Turn 1]" in shown[agent]) == (agent != winner(events))
        assert await pending(folder) > 0, "left for a later run"
        await ask(load_team(tmp_path, council), folder, "Which answer is right about lions?", session_id)
        assert await pending(folder) == 0


@pytest.mark.parametrize("off", ["{enabled: false}", "{persistent_memory: {enabled: false}}"])
async def test_a_turn_without_memory_never_becomes_a_memory(tmp_path: Path, folder: Path, off: str):
    secret = "The vault code is 4711. Which answer is right about zebras?"
    with council_server() as council:
        session_id, _ = await ask(load_team(tmp_path, council, f"memory: {off}\n"), folder, secret)
        assert await count_queue(folder) == RecordingCounts()
        everywhere = load_team(tmp_path, council, "memory: {persistent_memory: {session_name: null}}\n")
        await ask(everywhere, folder, "The vault is in the cellar. Which answer is right about lions?", session_id)
        council.requests.clear()
        await ask(everywhere, folder, "What did I tell you about the vault and its code?")
    assert all("in the cellar" in text for text in memories(council).values())
    assert all("4711" not in text for text in memories(council).values())


async def test_an_agent_without_memory_is_not_recorded_and_recalls_nothing(tmp_path: Path, folder: Path):
    with council_server() as council:
        config = load_team(tmp_path, council)
        agents = [agent.model_dump(exclude_unset=True) for agent in config.agents]
        agents[0]["memory"] = {"persistent_memory": {"enabled": False}}
        config = config.model_validate(config.model_dump(exclude_unset=True) | {"agents": agents})
        session_id, events = await ask(config, folder, FIRST)
        council.requests.clear()
        await ask(config, folder, SECOND, session_id)
    quoted = memories(council)
    assert quoted["ann"] == ""
    assert quote_own("ben", winner(events)) in quoted["ben"]
    assert "answer of ann" not in quoted["ben"] + quoted["cyd"]


async def test_a_memory_that_cannot_be_opened_is_reported_in_the_first_turn(tmp_path: Path, folder: Path):
    folder.mkdir()
    (folder / "memory").write_text("in the way")
    with council_server() as council:
        _, events = await ask(load_team(tmp_path, council), folder, FIRST)
    assert any("remembered later" in notice.message for notice in only(events, Notice))


SLOW_IMPORT = """
import sys, time

class Slow:
    def find_spec(self, name, path=None, target=None):
        time.sleep({{"{module}": {seconds}}}.get(name, 0))

sys.meta_path.insert(0, Slow())
"""

TWO_QUESTIONS = """
import asyncio, sys
from massmem import Session, load_config

async def main():
    async with await Session.open(load_config(sys.argv[1])[0]) as session:
        for question in ("Which answer is right about zebras?", "And about their stripes?"):
            async for event in session.ask(question):
                if event.type in ("agent_failed", "turn_completed"):
                    print(event.type)

asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.parametrize("runs", [1, pytest.param(50, marks=pytest.mark.full)])
@pytest.mark.parametrize("loads", ["Qdrant's client", "mem0"])
def test_agents_answer_while_a_thread_loads_clients(home: Path, monkeypatch: pytest.MonkeyPatch, loads: str, runs: int):
    """The library that the SDK of the agents' models looks up takes a second to load, so that they meet."""
    (home / "sitecustomize.py").write_text(SLOW_IMPORT.format(module="httpx._client", seconds=1))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(home), str(ROOT)]))
    monkeypatch.setenv("OPENAI_API_KEY", "none")

    def run(number: int) -> tuple[str, str]:
        command = [sys.executable, "-c", TWO_QUESTIONS, str(home / "team.yaml")]
        own_home = {**os.environ, "HOME": str(home / f"home{number}")}
        done = subprocess.run(command, capture_output=True, text=True, env=own_home, timeout=120, check=False)
        return done.stdout, done.stderr

    with council_server() as council, QdrantStub() as qdrant, extraction_server('{"memory": []}') as llm:
        council.delay = 0.3
        memory = {
            "Qdrant's client": {"qdrant": {"mode": "server", "url": qdrant.url}},
            "mem0": {"llm": {"provider": "openai", "model": "m", "base_url": llm}},
        }
        load_team(home, council, f"memory: {json.dumps({'persistent_memory': memory[loads]})}")
        with ThreadPoolExecutor(4) as pool:
            results = list(pool.map(run, range(runs)))
    for events, errors in results:
        assert events.split() == ["turn_completed", "turn_completed"], errors


async def test_time_to_load_mem0_is_not_taken_from_the_time_to_record(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    """A disk or a processor on which mem0 takes longer to import than closing waits for memories."""
    (tmp_path / "sitecustomize.py").write_text(SLOW_IMPORT.format(module="mem0", seconds=4))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with extraction_server('{"memory": []}') as url:
        llm = {"provider": "openai", "model": "m", "api_key": "none", "base_url": f"{url}/v1"}
        path = write_team(tmp_path, script("Both are right about zebras."), memory={"persistent_memory": {"llm": llm}})
        result = massmem("--config", path, FIRST, timeout=120)
    assert result.returncode == 0, result.stderr
    assert await pending(folder) == 0
