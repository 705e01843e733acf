"""Versions of a turn, and forks: what agents are shown and recall of them, read from the prompts that a server gets."""

from pathlib import Path

import pytest

from massmem.cli.memory import change_memory, forget_memories, list_memories
from massmem.cli.setup import Setup
from massmem.config.load import load_config
from massmem.config.models import TeamConfig
from massmem.core.errors import InputError
from massmem.core.events import Event, TurnCompleted, TurnStarted
from massmem.core.records import COMMAND_LINE_USER, SessionRecord
from massmem.memory.persistent import Selection
from massmem.session.session import Session
from massmem.store.lookup import read_versions
from tests.integration.test_session_changes import (
    LIGHTHOUSE,
    WINDMILL,
    config,
    council,
    folder,
    open_session,
    prompt,
    tell,
)
from tests.support.council_server import CouncilServer
from tests.support.sessions import collect

__all__ = ["config", "council", "folder"]

CASTLE = "I have drawn the grey castle of Tarragona."


async def replace_turn(session: Session, turn: int, question: str) -> list[Event]:
    events = await collect(session.ask(question, replaces=turn))
    assert isinstance(events[-1], TurnCompleted)
    await session.wait_for_preparation()
    return events


@pytest.fixture
def shared(config: TeamConfig) -> TeamConfig:
    """The team, all of whose conversations recall each other."""
    path = Path(config.path)
    path.write_text(path.read_text().replace("embedding:", "session_name: null, embedding:"))
    return load_config(str(path), {})[0]


def setup(config: TeamConfig, folder: Path) -> Setup:
    return Setup(config, folder, COMMAND_LINE_USER)


async def choose_version(setup: Setup, name: str, turn: int) -> int:
    async with setup.open_sessions() as sessions:
        return await sessions.choose_version(await sessions.find(name), turn)


async def fork_session(setup: Setup, name: str, turn: int | None = None) -> SessionRecord:
    async with setup.open_sessions() as sessions:
        return await sessions.fork(await sessions.find(name), turn)


async def test_a_withdrawn_version_is_neither_shown_nor_recalled_until_it_is_chosen_again(
    config: TeamConfig, folder: Path, council: CouncilServer
):
    async with open_session(config, folder) as session:
        await tell(session, LIGHTHOUSE, WINDMILL, "And who was there first?")
        council.requests.clear()
        (started, *_) = await replace_turn(session, 2, CASTLE)
        assert isinstance(started, TurnStarted)
        assert (started.turn, started.parent, started.withdraws) == (4, 1, (2, 3))
        sent = str(council.requests[0].messages)
        assert LIGHTHOUSE in sent
        assert "windmill" not in sent, "the new version itself sees nothing of the old one"
        memories, shown = await prompt(council, session, "Where is the old windmill of Aalsmeer, and the castle?")
        assert WINDMILL not in shown + memories
        assert CASTLE in shown
        assert await choose_version(setup(config, folder), session.id, 2) == 3
        memories, shown = await prompt(council, session, "Where is the castle of Tarragona, what did I ask?")
        assert CASTLE not in shown + memories
        assert WINDMILL in shown
    notes = {memory.text: memory.note for memory in await list_memories(setup(config, folder), Selection())}
    assert (notes[LIGHTHOUSE], notes[WINDMILL], notes[CASTLE]) == ("", "", "withdrawn")
    async with setup(config, folder).open_store() as store:
        assert await read_versions(store, session.id) == {2: (2, 4), 4: (2, 4)}


async def test_other_conversations_and_processes_recall_the_version_that_is_shown(
    shared: TeamConfig, folder: Path, council: CouncilServer
):
    async with open_session(shared, folder) as session:
        await tell(session, WINDMILL)
        await replace_turn(session, 1, CASTLE)
        async with open_session(shared, folder) as other:  # does not get the index: it recalls from the log
            memories, _ = await prompt(council, other, "Is the old windmill of Aalsmeer open?")
            assert WINDMILL not in memories
            memories, _ = await prompt(council, other, "Is the grey castle of Tarragona for sale?")
            assert CASTLE in memories
    async with open_session(shared, folder) as third:  # has the index
        memories, _ = await prompt(council, third, "Was the old windmill of Aalsmeer red?")
        assert WINDMILL not in memories
        await choose_version(setup(shared, folder), session.id, 1)
        memories, _ = await prompt(council, third, "Is the old windmill of Aalsmeer blue?")
        assert WINDMILL in memories
        memories, _ = await prompt(council, third, "Is the grey castle of Tarragona blue?")
        assert CASTLE not in memories


async def test_a_question_takes_the_place_of_a_turn_that_is_part_of_the_conversation(config: TeamConfig, folder: Path):
    async with open_session(config, folder) as session:
        with pytest.raises(InputError, match="empty"):
            await collect(session.ask(CASTLE, replaces=1))
        await tell(session, LIGHTHOUSE)
        with pytest.raises(InputError, match="turn 7"):
            await collect(session.ask(CASTLE, replaces=7))
        await replace_turn(session, 1, WINDMILL)
        with pytest.raises(InputError, match="turn 1 is not part"):
            await collect(session.ask(CASTLE, replaces=1))


async def test_a_fork_recalls_what_both_share_once_and_a_change_of_it_holds_for_both(
    shared: TeamConfig, folder: Path, council: CouncilServer
):
    async with open_session(shared, folder) as session:
        await tell(session, WINDMILL, LIGHTHOUSE)
    copies = [await fork_session(setup(shared, folder), session.id) for _ in range(3)]
    async with open_session(shared, folder) as other:
        memories, _ = await prompt(council, other, "Is the old windmill of Aalsmeer for sale?")
        assert memories.count(WINDMILL) == 1
    (memory,) = [m for m in await list_memories(setup(shared, folder), Selection()) if m.text == WINDMILL]
    await change_memory(setup(shared, folder), memory.id, "pin")
    async with open_session(shared, folder, copies[0].session_id) as fork:
        memories, shown = await prompt(council, fork, "Is the old windmill of Aalsmeer red?")
        assert WINDMILL in shown
        assert WINDMILL not in memories, "the prompt has it word for word"
        await fork.clear_history()
        memories, shown = await prompt(council, fork, "Is the old windmill of Aalsmeer blue?")
        assert memories.count(WINDMILL) == 1
        assert WINDMILL not in shown


async def test_a_fork_recalls_what_it_shares_where_conversations_are_remembered_by_themselves(
    config: TeamConfig, folder: Path, council: CouncilServer
):
    async with open_session(config, folder) as session:
        await tell(session, WINDMILL, LIGHTHOUSE)
    fork = await fork_session(setup(config, folder), session.id, 1)
    async with open_session(config, folder, fork.session_id) as copy:
        await copy.clear_history()
        memories, _ = await prompt(council, copy, "Is the old windmill of Aalsmeer red?")
        assert memories.count(WINDMILL) == 1
    async with setup(config, folder).open_sessions() as sessions:
        await sessions.delete([await sessions.find(session.id)])
    async with open_session(config, folder, fork.session_id) as copy:
        memories, _ = await prompt(council, copy, "Is the old windmill of Aalsmeer blue?")
        assert memories.count(WINDMILL) == 1, "the fork has taken it over"


async def test_a_turn_that_is_forgotten_in_a_fork_is_forgotten_in_both(
    shared: TeamConfig, folder: Path, council: CouncilServer
):
    async with open_session(shared, folder) as session:
        await tell(session, WINDMILL, LIGHTHOUSE)
    fork = await fork_session(setup(shared, folder), session.id, 1)
    async with open_session(shared, folder, fork.session_id) as copy:
        await tell(copy, CASTLE)

    async def list_turn(number: int) -> list[str]:
        memories = await list_memories(setup(shared, folder), Selection(fork.session_id, turn=number))
        return [memory.text for memory in memories if memory.agent_id == "user"]

    assert [await list_turn(1), await list_turn(2)] == [[WINDMILL], [CASTLE]]
    await forget_memories(setup(shared, folder), Selection(fork.session_id, turn=1))
    await forget_memories(setup(shared, folder), Selection(fork.session_id, turn=2))
    async with setup(shared, folder).open_store() as store:
        await store.requeue_recordings(session.id, done=True)  # as a rebuild does
    listed = await list_memories(setup(shared, folder), Selection())
    assert [memory.text for memory in listed if memory.agent_id == "user"] == [LIGHTHOUSE]
    async with open_session(shared, folder) as other:
        memories, _ = await prompt(council, other, "Is the old windmill of Aalsmeer for sale?")
        assert WINDMILL not in memories


async def test_a_turn_that_is_undone_stays_a_memory_of_the_fork(
    config: TeamConfig, folder: Path, council: CouncilServer
):
    async with open_session(config, folder) as session:
        await tell(session, LIGHTHOUSE, WINDMILL)
        fork = await fork_session(setup(config, folder), session.id)
        await session.undo()
    async with open_session(config, folder, fork.session_id) as copy:
        await copy.clear_history()
        memories, _ = await prompt(council, copy, "Is the old windmill of Aalsmeer red?")
        assert memories.count(WINDMILL) == 1
        assert [(await copy.undo()).turn, (await copy.undo()).turn] == [3, 2]
        memories, _ = await prompt(council, copy, "Is the old windmill of Aalsmeer blue?")
        assert WINDMILL not in memories
