"""What each agent of a session is shown of its log, turn for turn."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from massmem.config.load import resolve_agents
from massmem.config.models import TeamConfig
from massmem.events import (
    ContextCompressed,
    Event,
    HistoryCleared,
    NoteAdded,
    TurnCompleted,
    TurnInterrupted,
    TurnStarted,
)
from massmem.messages import ChatMessage, Usage
from massmem.providers import Providers
from massmem.providers.base import ChatProvider
from massmem.session.recall import SessionMemory
from massmem.session.views import HISTORY_PAGE, Place, Views
from massmem.session.windows import Windows
from massmem.store import open_store
from massmem.store.base import SessionStore
from massmem.turn.context import Context, Task
from tests.contract.test_session_store import session
from tests.support.sample_turn import answer

ID = "session_a"
NEXT = "What now?"
USUAL = Task("answer", NEXT, lambda _: NEXT)
LONG = "Nothing of note happened in this part of the work, which went on as it had before. " * 8


@pytest.fixture
async def store(home: Path) -> AsyncIterator[SessionStore]:
    folder = home / ".massmem"
    opened = await open_store(f"sqlite:///{folder / 'm.db'}", folder)
    await opened.create_session(session())
    yield opened
    await opened.close()


class Opened:
    """Views of a team without a searchable memory; one agent, unless more are named."""

    def __init__(self, store: SessionStore, home: Path, *agents: str, **memory: Any) -> None:
        settings = {"persistent_memory": {"enabled": False}, **memory}
        backend = {"type": "scripted", "script": {"context_window": 0}, "context_window": 8_000}
        team = {"agents": [{"id": name, "backend": backend} for name in agents or ("ann",)], "memory": settings}
        self.config = TeamConfig.model_validate(team)
        self.agents = resolve_agents(self.config, {})
        self.windows = Windows(self.agents)
        memories = SessionMemory(self.config.memory, home, store, self.agents)
        self.views = Views(store, memories, self.agents, self.windows)
        self.chat: dict[str, ChatProvider] = {}

    async def contexts(self, turn: int, question: str = NEXT, newest: int | None = None) -> dict[str, Context]:
        for agent in self.agents:
            self.chat.setdefault(agent.id, await Providers().open(agent.backend))
        return await self.views.contexts(Place(ID, turn, question, newest), self.chat)

    async def shown(self, turn: int, question: str = NEXT, agent: str = "ann", newest: int | None = None) -> list[str]:
        """What the agent is sent before the question, without its system prompt."""
        return [m.content for m in await self.messages(turn, question, agent, newest)][1:-1]

    async def messages(
        self, turn: int, question: str, agent: str = "ann", newest: int | None = None
    ) -> list[ChatMessage]:
        context = (await self.contexts(turn, question, newest))[agent]
        return [*context.request(Task("answer", question, lambda _: question)).messages]

    async def close(self) -> None:
        await self.views.close()
        await self.windows.close()


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


async def test_the_first_turn_shows_nothing(store: SessionStore, home: Path):
    opened = Opened(store, home)
    assert await opened.shown(1) == []
    await opened.close()


async def test_earlier_turns_are_shown_and_the_one_under_way_is_not(store: SessionStore, home: Path):
    await play(store, 3)
    opened = Opened(store, home, "ann", "bob")
    assert await opened.shown(4) == pairs(1, 3)
    assert await opened.shown(3, agent="bob") == pairs(1, 2)
    await opened.close()


async def test_a_log_of_several_pages_is_read_as_one(store: SessionStore, home: Path):
    turns = HISTORY_PAGE // 2 + 20
    await play(store, turns)
    opened = Opened(store, home)
    assert await opened.shown(turns + 1) == pairs(1, turns)
    await opened.close()


async def test_the_history_is_off_by_one_key(store: SessionStore, home: Path):
    await play(store, 3)
    opened = Opened(store, home, conversation_memory={"enabled": False})
    assert await opened.shown(4) == []
    await opened.close()


async def test_a_sliding_window_shows_the_newest_messages(store: SessionStore, home: Path):
    await play(store, 5)
    opened = Opened(store, home, conversation_memory={"max_messages": 4})
    assert await opened.shown(6) == pairs(4, 5)
    await opened.close()


async def test_older_messages_that_bear_on_the_question_come_before_the_window(store: SessionStore, home: Path):
    await play(store, 9)
    opened = Opened(store, home, conversation_memory={"max_messages": 4, "relevant_messages": 2})
    assert await opened.shown(10, "What was Q3 about?") == [*pairs(3, 3), *pairs(8, 9)]
    assert await opened.shown(10, "Something else") == pairs(8, 9)
    await opened.close()


async def test_what_is_nearly_full_is_compressed_after_a_turn_and_the_next_begins_with_that(
    store: SessionStore, home: Path
):
    await play(store, 5, 4 * LONG)
    opened = Opened(store, home, compression={"summary": "extract"})
    (context,) = (await opened.contexts(5)).values()
    assert await context.fit(USUAL, 1) is None
    opened.views.prepare(ID, 5, 4 * LONG, opened.chat)
    await opened.views.settle()
    (event,) = opened.views.take_prepared()
    assert (event.agent_id, event.why) == ("ann", "background")
    assert opened.views.take_prepared() == []
    summary = await store.latest_summary(ID, "ann")
    assert summary is not None and summary.content == event.summary
    shown = await opened.messages(6, NEXT)
    assert event.summary in shown[1].content + shown[2].content
    assert [m.content.split()[0] for m in shown if m.role == "user"][-2:] == ["Q5?", "What"]
    assert not any(m.content.startswith("Q1?") for m in shown)
    await opened.close()


async def test_what_has_room_is_left_alone(store: SessionStore, home: Path):
    await play(store, 2)
    opened = Opened(store, home)
    (context,) = (await opened.contexts(3)).values()
    await context.fit(USUAL, 1)
    opened.views.prepare(ID, 3, "A3.", opened.chat)
    await opened.views.settle()
    assert opened.views.take_prepared() == []
    assert await store.latest_summary(ID, "ann") is None
    await opened.close()


async def test_compressing_now_puts_a_summary_before_the_next_turn(store: SessionStore, home: Path):
    await play(store, 12, LONG)
    opened = Opened(store, home, compression={"summary": "extract", "trigger_threshold": 0.95})
    await opened.contexts(12)
    (event,) = await opened.views.compact(ID, 12, opened.chat)
    assert (event.why, event.after < event.before) == ("asked", True)
    (size,) = await opened.views.sizes(ID, 12, opened.chat)
    assert size.tokens < event.before
    await opened.close()


async def test_closing_ends_what_still_runs(store: SessionStore, home: Path):
    await play(store, 20, LONG)
    opened = Opened(store, home)
    await opened.contexts(20)
    opened.views.prepare(ID, 20, "A20.", opened.chat)
    await opened.close()
    assert opened.views.take_prepared() == []


async def test_what_this_process_has_stored_is_shown_without_reading_it(store: SessionStore, home: Path):
    warm, cold = Opened(store, home), Opened(store, home)
    await warm.shown(1, newest=0)
    newest = 0
    for turn, events in enumerate(stories(), 1):
        numbers = await store.append(ID, turn, events)
        warm.views.follow(ID, turn, numbers, events)
        newest = numbers[-1]
        assert await warm.shown(turn + 1, newest=newest) == await cold.shown(turn + 1), turn
    await store.close()
    assert await warm.shown(9, newest=newest)
    for opened in (warm, cold):
        await opened.close()


async def test_what_somebody_else_has_stored_is_read(store: SessionStore, home: Path):
    opened = Opened(store, home)
    await opened.shown(1, newest=0)
    await play(store, 2)
    assert await opened.shown(3, newest=4) == pairs(1, 2)
    events: list[Event] = [HistoryCleared()]
    await store.append(ID, 0, events)
    assert await opened.shown(3, newest=5) == []
    await opened.close()


async def test_a_log_that_was_read_once_is_not_read_again(store: SessionStore, home: Path):
    turns = HISTORY_PAGE // 2 + 20
    await play(store, turns)
    opened = Opened(store, home)
    assert await opened.shown(turns + 1, newest=2 * turns) == pairs(1, turns)
    await store.close()
    assert await opened.shown(turns + 1, newest=2 * turns) == pairs(1, turns)
    await opened.close()


def stories() -> list[list[Event]]:
    """Turns that end in every way, with what stands beside them in a log."""

    def begun(turn: int) -> TurnStarted:
        return TurnStarted(session_id=ID, turn=turn, question=f"Q{turn}?\0", agents=("ann",), seed=turn)

    def ended(turn: int) -> TurnCompleted:
        return TurnCompleted(winner="ann", answer=f"A{turn}.", presented=True, usage=Usage())

    summary = ContextCompressed(
        agent_id="ann", round=1, why="background", before=9, after=5, window=9, kept=2, removed=1, summary="S", until=4,
        by="extract", usage=Usage(),
    )  # fmt: skip
    return [
        [begun(1), answer(1, "ann", "A1."), ended(1)],
        [begun(2), TurnInterrupted(by="user")],
        [begun(3), ended(3).model_copy(update={"reasoning": "Hm."}), NoteAdded(text="A note.")],
        [begun(4), ended(4), summary],
        [HistoryCleared(), begun(5), ended(5)],
    ]
