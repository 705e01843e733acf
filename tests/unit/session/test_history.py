"""The history that each agent of a session is sent, turn by turn, and its compression between turns."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from massmem.config.load import resolve_agents
from massmem.config.models import TeamConfig
from massmem.core.events import (
    TurnCompleted,
    TurnStarted,
)
from massmem.core.messages import ChatMessage, Usage
from massmem.core.records import COMMAND_LINE_USER
from massmem.providers import Providers
from massmem.providers.base import ChatProvider
from massmem.providers.learnt import LearntModels
from massmem.session.history import PAGE, History
from massmem.session.recall import SessionMemory
from massmem.session.team import Windows
from massmem.store import open_store
from massmem.store.ports import SessionStore
from massmem.turn.compressor import AgentContext
from massmem.turn.prompt_builder import Prompt
from tests.contract.test_session_store import session

ID = "session_a"
NEXT = "What now?"
LONG = "Nothing of note happened in this part of the work, which went on as it had before. " * 8


@pytest.fixture
async def store(home: Path) -> AsyncIterator[SessionStore]:
    folder = home / ".massmem"
    store = await open_store(f"sqlite:///{folder / 'm.db'}", folder)
    await store.create_session(session())
    yield store
    await store.close()


class SessionOfTeam:
    """The history of a team without a searchable memory; one agent, unless more are named."""

    def __init__(self, store: SessionStore, home: Path, *agents: str, **memory: Any) -> None:
        settings = {"persistent_memory": {"enabled": False}, **memory}
        backend = {"type": "scripted", "script": {"context_window": 0}, "context_window": 8_000}
        config = {"agents": [{"id": name, "backend": backend} for name in agents or ("ann",)], "memory": settings}
        self.config = TeamConfig.model_validate(config)
        self.agents = resolve_agents(self.config, {})
        self.windows = Windows(self.agents, LearntModels())
        memories = SessionMemory(self.config.memory, home, store, self.agents)
        self.history = History(store, memories, self.agents, self.windows, owner=COMMAND_LINE_USER)
        self.providers: dict[str, ChatProvider] = {}

    async def build_contexts(self, turn: int, question: str = NEXT) -> dict[str, AgentContext]:
        for agent in self.agents:
            self.providers.setdefault(agent.id, await Providers().open(agent.backend))
        return await self.history.build_contexts(ID, turn, question, self.providers)

    async def list_texts(self, turn: int, question: str = NEXT, agent: str = "ann") -> list[str]:
        """Return what the agent is sent before the question, without its system prompt."""
        return [m.content for m in await self.list_messages(turn, question, agent)][1:-1]

    async def list_messages(self, turn: int, question: str, agent: str = "ann") -> list[ChatMessage]:
        context = (await self.build_contexts(turn, question))[agent]
        return [*ask(context.prompt, question).messages()]

    async def close(self) -> None:
        await self.history.close()
        await self.windows.close()


def ask(prompt: Prompt, question: str) -> Prompt:
    return prompt.next_step("answer", question).with_message(lambda _: question)


async def play(store: SessionStore, turns: int, text: str = "") -> None:
    """Turns in which ann answers alone: "Q1?", "A1.", ..."""
    for turn in range(1, turns + 1):
        question, answer = f"Q{turn}? {text}".strip(), f"A{turn}. {text}".strip()
        events = [
            TurnStarted(session_id=ID, turn=turn, question=question, agents=("ann",), seed=turn),
            TurnCompleted(winner="ann", answer=answer, presented=False, usage=Usage()),
        ]
        await store.append(ID, turn, events)


def pairs(first: int, last: int) -> list[str]:
    return [text for turn in range(first, last + 1) for text in (f"Q{turn}?", f"A{turn}.")]


async def test_first_turn_has_no_history(store: SessionStore, home: Path):
    team = SessionOfTeam(store, home)
    assert await team.list_texts(1) == []
    await team.close()


async def test_history_ends_before_the_turn_under_way(store: SessionStore, home: Path):
    await play(store, 3)
    team = SessionOfTeam(store, home, "ann", "bob")
    assert await team.list_texts(4) == pairs(1, 3)
    assert await team.list_texts(3, agent="bob") == pairs(1, 2)
    await team.close()


async def test_log_of_several_pages_is_read_whole(store: SessionStore, home: Path):
    turns = PAGE // 2 + 20
    await play(store, turns)
    team = SessionOfTeam(store, home)
    assert await team.list_texts(turns + 1) == pairs(1, turns)
    await team.close()


async def test_history_can_be_turned_off(store: SessionStore, home: Path):
    await play(store, 3)
    team = SessionOfTeam(store, home, conversation_memory={"enabled": False})
    assert await team.list_texts(4) == []
    await team.close()


async def test_sliding_window_has_the_newest_messages(store: SessionStore, home: Path):
    await play(store, 5)
    team = SessionOfTeam(store, home, conversation_memory={"max_messages": 4})
    assert await team.list_texts(6) == pairs(4, 5)
    await team.close()


async def test_relevant_older_messages_come_before_the_window(store: SessionStore, home: Path):
    await play(store, 9)
    team = SessionOfTeam(store, home, conversation_memory={"max_messages": 4, "relevant_messages": 2})
    assert await team.list_texts(10, "What was Q3 about?") == [*pairs(3, 3), *pairs(8, 9)]
    assert await team.list_texts(10, "Something else") == pairs(8, 9)
    await team.close()


async def test_nearly_full_context_is_compressed_ahead_of_the_next_turn(store: SessionStore, home: Path):
    await play(store, 5, 4 * LONG)
    team = SessionOfTeam(store, home, compression={"summary": "extract"})
    (context,) = (await team.build_contexts(5)).values()
    assert await context.compressor.compress_if_due(ask(context.prompt, NEXT), 1) is None
    team.history.prepare_next(ID, 5, 4 * LONG, team.providers)
    await team.history.wait_for_preparation()
    (event,) = team.history.take_prepared()
    assert (event.agent_id, event.why) == ("ann", "background")
    assert team.history.take_prepared() == []
    summary = await store.get_latest_summary(ID, "ann")
    assert summary is not None and summary.content == event.summary
    messages = await team.list_messages(6, NEXT)
    assert event.summary in messages[1].content + messages[2].content
    assert [m.content.split()[0] for m in messages if m.role == "user"][-2:] == ["Q5?", "What"]
    assert not any(m.content.startswith("Q1?") for m in messages)
    await team.close()


async def test_context_with_room_is_not_compressed(store: SessionStore, home: Path):
    await play(store, 2)
    team = SessionOfTeam(store, home)
    await team.build_contexts(3)
    team.history.prepare_next(ID, 3, "A3.", team.providers)
    await team.history.wait_for_preparation()
    assert team.history.take_prepared() == []
    assert await store.get_latest_summary(ID, "ann") is None
    await team.close()


async def test_compacting_puts_a_summary_before_the_next_turn(store: SessionStore, home: Path):
    await play(store, 12, LONG)
    team = SessionOfTeam(store, home, compression={"summary": "extract", "trigger_threshold": 0.95})
    await team.build_contexts(12)
    (event,) = await team.history.compact(ID, 12, team.providers)
    assert (event.why, event.after < event.before) == ("asked", True)
    (size,) = await team.history.measure(ID, 12, team.providers)
    assert size.tokens < event.before
    await team.close()


async def test_closing_ends_the_preparation(store: SessionStore, home: Path):
    await play(store, 20, LONG)
    team = SessionOfTeam(store, home)
    await team.build_contexts(20)
    team.history.prepare_next(ID, 20, "A20.", team.providers)
    await team.close()
    assert team.history.take_prepared() == []
