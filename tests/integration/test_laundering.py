"""What a tool said stays the tool's, however an agent puts it, in which turn, session or prompt it does."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from massmem.config.models import TeamConfig
from massmem.core.events import Event
from massmem.memory.indexed import IndexedMemory
from massmem.memory.persistent import Memory, Selection
from massmem.recording.forgetting import open_durable_memory
from massmem.recording.worker import Recorder
from massmem.session.session import Session
from massmem.store import open_store
from massmem.store.ports import SessionStore
from tests.contract.test_session_store import session
from tests.support.laundering import WAYS, mentions, page_of
from tests.support.memories import open_disk_memory
from tests.support.sample_turn import USAGE, answer, event
from tests.support.sessions import collect
from tests.support.tools import server, team


def question(session_id: str, turn: int, text: str) -> Event:
    fields = {"session_id": session_id, "turn": turn, "question": text, "agents": ("ann",), "seed": 7}
    return event(turn * 10, "turn_started", **fields)


def end(turn: int, text: str) -> list[Event]:
    seconds = turn * 10 + 5
    done = event(seconds, "turn_completed", winner="ann", answer=text, presented=False, usage=USAGE)
    return [
        answer(seconds, "ann", text),
        event(seconds, "winner_decided", agent_id="ann", votes={}, by="only_answer"),
        done,
    ]


def read_page(turn: int, number: int) -> list[Event]:
    call = {"agent_id": "ann", "round": 1, "name": "mcp__desk__page", "call_id": "c1"}
    seconds = turn * 10 + 1
    called = event(seconds, "tool_called", batch=1, arguments=f'{{"number": {number}}}', usage=USAGE, **call)
    return [called, event(seconds, "tool_returned", content=page_of(number), recorded=False, **call)]


async def add_attempt(store: SessionStore, number: int) -> None:
    """A session in which the page is read, and laundered at once; and two turns later; and in another session."""
    for name in (f"read_{number}", f"later_{number}"):
        await store.create_session(session(name))
    say = [WAYS[(number + step) % len(WAYS)](number) for step in range(3)]
    first = [question(f"read_{number}", 1, "What is new at the desk?"), *read_page(1, number), *end(1, say[0])]
    await store.append(f"read_{number}", 1, first)
    await store.append(f"read_{number}", 2, [question(f"read_{number}", 2, "Go on, please."), *end(2, say[1])])
    await store.append(f"later_{number}", 1, [question(f"later_{number}", 1, "Anything to add?"), *end(3, say[2])])


async def launder(folder: Path, numbers: Sequence[int]) -> list[Memory]:
    """Return memories that hold a secret and have lost its origin."""
    store = await open_store(f"sqlite:///{folder / 'm.db'}", folder)
    memory = open_disk_memory(folder / "index")
    try:
        for number in numbers:
            await add_attempt(store, number)
        await Recorder(store, memory).drain()
        return await list_losses(memory, numbers)
    finally:
        await memory.close()
        await store.close()


async def list_losses(memory: IndexedMemory, numbers: Sequence[int]) -> list[Memory]:
    memories = await memory.list(Selection(), 1_000_000)
    laundered = [m for m in memories if m.agent_id != "user" and any(mentions(m.text, n) for n in numbers)]
    assert len(laundered) >= len(numbers)
    return [m for m in laundered if m.rests_on != "tool:mcp__desk__page"]


async def test_words_of_a_tool_are_laundered_in_no_way(tmp_path: Path):
    assert await launder(tmp_path, range(2 * len(WAYS))) == []


@pytest.mark.full
async def test_a_thousand_attempts_to_launder_lose_no_origin(tmp_path: Path):
    for start in range(0, 1_000, 50):  # a session of another batch is another team's, as far as words go
        assert await launder(tmp_path / str(start), range(start, start + 50)) == []


def build_team(numbers: Sequence[int], **sections: Any) -> TeamConfig:
    """One agent that reads a page in each turn and launders it, then in a further turn once more."""
    replies: list[object] = []
    for number in numbers:
        call = {"tool": "page", "arguments": {"number": number}}
        replies += [{"call": call}, WAYS[number % len(WAYS)](number), WAYS[(number + 1) % len(WAYS)](number)]
    memory = {"persistent_memory": {"embedding": {"model": "none"}, "session_name": None}}
    return team({"answer": replies}, {**server(), "name": "desk"}, memory=memory, **sections)


@pytest.mark.slow
async def test_a_scripted_agent_with_a_real_tool_launders_nothing(tmp_path: Path, home: Path):
    numbers = range(len(WAYS))
    folder = home / ".massmem"
    config = build_team(numbers)
    running = await Session.open(config, home=folder)
    try:
        for number in numbers:
            await collect(running.ask(f"What does page {number} say?"))
            await collect(running.ask("Say it again."))
    finally:
        await running.close()
    async with open_durable_memory(config.memory, folder) as memory:
        assert await list_losses(memory, numbers) == []
