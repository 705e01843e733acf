"""Forks from any event of a turn: each opens, is consistent, and goes on like a turn that was cut off there."""

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from massmem.config.models import TeamConfig
from massmem.core.events import (
    AnswerSubmitted,
    BallotCast,
    BallotsVoided,
    Event,
    ToolCalled,
    ToolReturned,
    TurnCompleted,
    TurnWaiting,
    UserReplied,
    decode_event,
)
from massmem.core.records import COMMAND_LINE_USER
from massmem.session.fork import fork_session
from massmem.session.session import Session
from massmem.session.team import Team
from tests.support.sessions import collect
from tests.support.tools import server
from tests.support.turns import only

QUESTION = "Where is my order?"
NUMBER = "O-98765"


def make_council() -> TeamConfig:
    """Ann calls tools twice, ben asks the user, and cyd finds a better answer, which voids the ballots before it."""
    calls = [
        {"call": {"tool": "echo", "arguments": {"text": text}}} for text in ("It left the harbour.", "It is late.")
    ]
    asks = {"ask": "order_id", "ask_prompt": "Which order?", "text": "Order {order_id} is on its way."}
    scripts = {
        "ann": {"answer": [*calls, "Ann read: {result}"], "present": "It is late.", "chunk_size": 6},
        "ben": {"answer": asks},
        "cyd": {
            "answer": "It is lost.",
            "vote": [{"new_answer": "It is late and not lost."}, {"vote_for": "Ann read"}],
        },
    }
    agents = [
        {
            "id": name,
            "backend": {"type": "scripted", "script": script, "max_retries": 0},
            "mcp_servers": [server()] if name == "ann" else [],
        }
        for name, script in scripts.items()
    ]
    params = {"order_id": {"pattern": r"O-\d{5}"}}
    memory = {"persistent_memory": {"enabled": True, "embedding": {"provider": "none"}}}
    sections = {"coordination": {"max_rounds": 4, "early_stop": False}, "params": params, "memory": memory}
    return TeamConfig.model_validate({"agents": agents, **sections})


@pytest.fixture
async def council(home: Path) -> AsyncIterator[Team]:
    opened = await Team.open(make_council(), home=home / ".massmem")
    await opened.start()
    yield opened
    await opened.close()


async def finish(session: Session) -> Event:
    """Go on with the turn to its end, and give the value where it is asked for. Return the last event."""
    last = (await collect(session.finish_turn()))[-1]
    if isinstance(last, TurnWaiting):
        last = (await collect(session.ask(NUMBER)))[-1]
    return last


async def read_events(council: Team, session_id: str) -> list[Event]:
    return [decode_event(entry.payload) for entry in await council.store.export_log(session_id)]


def list_double(events: Sequence[Event]) -> list[object]:
    """Return what an agent did twice in a round, and calls of tools with no result or with two."""
    results = Counter(
        (event.agent_id, event.round) for event in events if isinstance(event, AnswerSubmitted | BallotCast)
    )
    returned = Counter(event.call_id for event in only(events, ToolReturned))
    calls = {event.call_id for event in only(events, ToolCalled)}
    odd = [call for call in calls | set(returned) if call not in calls or returned[call] != 1]
    return [*(step for step, number in results.items() if number > 1), *odd]


async def test_turn_goes_on_from_every_event(council: Team):
    session = await Session.find(council, owner=COMMAND_LINE_USER)
    assert isinstance((await collect(session.ask(QUESTION)))[-1], TurnWaiting)
    assert isinstance((await collect(session.ask(NUMBER)))[-1], TurnCompleted)
    log, original = await council.store.export_log(session.id), await read_events(council, session.id)
    kinds = {type(event) for event in original}
    assert {BallotsVoided, ToolReturned, UserReplied} <= kinds
    for number, entry in enumerate(log, 1):
        fork = await fork_session(council.store, session.id, event=entry.seq)
        copied = await read_events(council, fork.session_id)
        assert [event.type for event in copied] == [event.type for event in original[:number]]
        last = await council.store.get_last_turn(fork.session_id)
        assert last is not None
        assert last.is_unfinished == (TurnCompleted not in map(type, copied))
        assert fork.message_count == len(await council.store.read_messages(fork.session_id))
        copy = await Session.find(council, fork.session_id, owner=COMMAND_LINE_USER)
        end = await finish(copy) if last.is_unfinished else copied[-1]
        events = await read_events(council, fork.session_id)
        assert isinstance(end, TurnCompleted), f"from {entry.payload[:80]}: {end}"
        assert events[:number] == copied, "nothing is lost"
        assert len(only(events, TurnCompleted)) == 1
        assert list_double(events) == []
        ended = await council.store.get_session(fork.session_id)
        assert ended is not None
        assert ended.status == "completed"
        state = await council.store.load_state(fork.session_id)
        assert (state.waiting_for_param, state.params) == (None, {"order_id": NUMBER})
    assert await read_events(council, session.id) == original, "the first session stays as it is"
