"""Histories cleared and compacted, turns taken back and notes made: seen in the prompts that a model server gets."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from filelock import FileLock

from massmem.cli.memory import list_memories
from massmem.cli.setup import Setup
from massmem.config.load import load_config
from massmem.config.models import TeamConfig
from massmem.core.errors import InputError
from massmem.core.events import TurnCompleted, TurnInterrupted, TurnStarted, TurnWaiting
from massmem.core.records import COMMAND_LINE_USER
from massmem.memory.persistent import Selection
from massmem.session.session import Session
from tests.support.council_server import CouncilServer, council_server
from tests.support.sessions import collect

WINDMILL = "I have painted the old windmill of Aalsmeer."
LIGHTHOUSE = "Where is the red lighthouse of Cuxhaven?"


@pytest.fixture
def folder(home: Path) -> Path:
    return home / ".massmem"


@pytest.fixture
def council() -> Iterator[CouncilServer]:
    with council_server() as server:
        server.delay = 0
        yield server


@pytest.fixture
def config(tmp_path: Path, council: CouncilServer) -> TeamConfig:
    path = tmp_path / "team.yaml"
    memory = "memory: {persistent_memory: {embedding: {provider: none}}, compression: {summary: extract}}\n"
    path.write_text(council.config(("ann",)) + memory)
    return load_config(path, {})[0]


@asynccontextmanager
async def open_session(config: TeamConfig, folder: Path, session_id: str | None = None) -> AsyncIterator[Session]:
    session = await Session.open(config, home=folder, session_id=session_id)
    try:
        yield session
    finally:
        await session.close()


async def tell(session: Session, *questions: str) -> None:
    for question in questions:
        assert isinstance((await collect(session.ask(question)))[-1], TurnCompleted)
        await session.wait_for_preparation()


async def prompt(council: CouncilServer, session: Session, question: str) -> tuple[str, str]:
    """Return the recalled memories, and all the rest of what the agent is sent for this question."""
    council.requests.clear()
    await collect(session.ask(question))
    _, *rest = council.requests[0].messages
    sent = "\n".join(message["content"] for message in rest)
    head, _, quoted = sent.partition("\n\nRelevant memories")
    memories, _, tail = quoted.partition("</memories>")
    return memories, head + tail


async def list_remembered(config: TeamConfig, folder: Path) -> list[str]:
    return [memory.text for memory in await list_memories(Setup(config, folder, COMMAND_LINE_USER), Selection())]


async def test_a_cleared_history_is_shown_to_nobody_not_even_to_another_process(
    config: TeamConfig, folder: Path, council: CouncilServer
):
    async with open_session(config, folder) as session:
        await tell(session, WINDMILL)
        _, shown = await prompt(council, session, "And then?")
        assert WINDMILL in shown
        await session.clear_history()
        _, shown = await prompt(council, session, "What now?")
        assert shown == "What now?"
    async with open_session(config, folder, session.id) as again:
        memories, shown = await prompt(council, again, "What of the windmill?")
        assert "windmill of" not in shown
        assert "What now?" in shown
        assert "windmill of Aalsmeer" in memories, "what is remembered is still recalled"


async def test_clearing_before_the_first_question_does_nothing(config: TeamConfig, folder: Path):
    async with open_session(config, folder) as session:
        await session.clear_history()
        assert session.id == ""


async def test_an_undone_turn_is_neither_shown_nor_recalled(config: TeamConfig, folder: Path, council: CouncilServer):
    async with open_session(config, folder) as session:
        await tell(session, LIGHTHOUSE, WINDMILL)
        undone = await session.undo()
        assert (undone.turn, undone.question, undone.status) == (2, WINDMILL, "completed")
        memories, shown = await prompt(council, session, "Where was the windmill of Aalsmeer?")
        assert WINDMILL not in shown + memories
        assert LIGHTHOUSE in shown
    assert not [text for text in await list_remembered(config, folder) if text == WINDMILL]
    assert [text for text in await list_remembered(config, folder) if text == LIGHTHOUSE]


async def test_undoing_goes_on_to_the_turn_before(config: TeamConfig, folder: Path, council: CouncilServer):
    async with open_session(config, folder) as session:
        await tell(session, LIGHTHOUSE, WINDMILL)
        assert [(await session.undo()).turn, (await session.undo()).turn] == [2, 1]
        with pytest.raises(InputError, match="no turn to undo"):
            await session.undo()
        _, shown = await prompt(council, session, "Anything?")
        assert shown == "Anything?"
        assert (await session.undo()).turn == 3
    async with open_session(config, folder, session.id) as again:
        with pytest.raises(InputError, match="no turn to undo"):
            await again.undo()


async def test_there_is_nothing_to_undo_in_a_new_session(config: TeamConfig, folder: Path):
    async with open_session(config, folder) as session:
        with pytest.raises(InputError, match="no turn to undo"):
            await session.undo()


async def test_memories_of_an_undone_turn_that_cannot_be_deleted_go_later(
    config: TeamConfig, folder: Path, council: CouncilServer
):
    async with open_session(config, folder) as session:
        await tell(session, WINDMILL)
    with FileLock(folder / "memory" / "words" / "lock"):
        async with open_session(config, folder, session.id) as again:
            assert (await again.undo()).question == WINDMILL
    async with open_session(config, folder, session.id) as again:
        memories, shown = await prompt(council, again, "Where was the windmill of Aalsmeer?")
        assert WINDMILL not in shown + memories
    assert WINDMILL not in await list_remembered(config, folder)


async def test_note_of_the_user_is_recalled_in_the_very_first_turn(
    config: TeamConfig, folder: Path, council: CouncilServer
):
    async with open_session(config, folder) as session:
        await session.remember("The windmill is closed on Mondays.")
        assert session.id
        memories, shown = await prompt(council, session, "When is the windmill closed?")
        assert "The windmill is closed on Mondays." in memories
        assert shown == "When is the windmill closed?"
        _, shown = await prompt(council, session, "And else?")
        assert "Mondays" not in shown, "it is no question that was never answered"
        await session.undo()
    assert "The windmill is closed on Mondays." in await list_remembered(config, folder)


async def test_only_what_can_be_remembered_is(config: TeamConfig, folder: Path):
    async with open_session(config, folder) as session:
        with pytest.raises(InputError, match="nothing to remember"):
            await session.remember("  ")
    off = config.memory.persistent_memory.model_copy(update={"enabled": False})
    without = config.model_copy(update={"memory": config.memory.model_copy(update={"persistent_memory": off})})
    async with open_session(without, folder) as session:
        with pytest.raises(InputError, match="remembers nothing"):
            await session.remember("The windmill is closed.")


async def test_a_conversation_is_compacted_when_the_user_wants_it(
    config: TeamConfig, folder: Path, council: CouncilServer
):
    async with open_session(config, folder) as session:
        assert await session.compact() == []
        long = [f"{LIGHTHOUSE} {'Tell me more of it. ' * 40}{i}" for i in range(6)]
        await tell(session, *long)
        (before,) = await session.context()
        (report,) = await session.compact()
        (after,) = await session.context()
        assert (report.agent_id, report.why) == ("ann", "asked")
        assert report.after < report.before
        assert after.tokens < before.tokens
        _, shown = await prompt(council, session, "And?")
        assert long[0] not in shown


async def test_the_summary_of_a_cleared_history_is_gone_with_it(
    config: TeamConfig, folder: Path, council: CouncilServer
):
    async with open_session(config, folder) as session:
        await tell(session, *(f"{LIGHTHOUSE} {'More. ' * 100}{i}" for i in range(4)))
        assert await session.compact()
        await session.clear_history()
        _, shown = await prompt(council, session, "What now?")
        assert shown == "What now?"


async def test_a_turn_that_the_user_stopped_is_not_taken_up_because_of_a_compaction(
    config: TeamConfig, folder: Path, council: CouncilServer
):
    async with open_session(config, folder) as session:
        await tell(session, *(f"{LIGHTHOUSE} {'More. ' * 100}{i}" for i in range(4)))
        council.delay = 5
        async for event in session.ask(WINDMILL):
            if event.type == "agent_started":
                session.stop("user")
        assert isinstance(event, TurnInterrupted)
        council.delay = 0
        assert await session.compact()
        await prompt(council, session, "What now?")
        assert len(council.requests) == 1, "another question gives the stopped one up"


def asking(*, memory: bool) -> TeamConfig:
    script = {"answer": {"ask": "order_id", "ask_prompt": "Which order?", "text": "It is {order_id}."}}
    return TeamConfig.model_validate(
        {
            "agents": [{"id": "ann", "backend": {"type": "scripted", "script": script}}],
            "params": {"order_id": {"pattern": "O-[0-9]+"}},
            "memory": {"persistent_memory": {"enabled": memory, "embedding": {"provider": "none"}}},
        }
    )


@pytest.mark.parametrize("memory", [True, False])
async def test_values_that_came_in_with_an_undone_turn_are_forgotten(folder: Path, memory: bool):
    config = asking(memory=memory)
    async with open_session(config, folder) as session:
        assert isinstance((await collect(session.ask("Where is my parcel?")))[-1], TurnWaiting)
        assert isinstance((await collect(session.ask("O-4711")))[-1], TurnCompleted)
        assert dict(session.secret_values) == {"order_id": "O-4711"}
        await session.undo()
        end = (await collect(session.ask("Where is my parcel?")))[-1]
        assert isinstance(end, TurnWaiting), "the value is asked for again"


async def test_a_turn_that_waits_can_be_undone(folder: Path):
    config = asking(memory=False)
    async with open_session(config, folder) as session:
        await collect(session.ask("Where is my parcel?"))
        assert (await session.undo()).status == "waiting"
        events = await collect(session.ask("O-4711"))
        assert isinstance(events[0], TurnStarted), "it is a question of its own, no reply"
