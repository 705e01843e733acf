"""Turns of a session that wait for a value from the user: what each kind of message does to them."""

from pathlib import Path
from typing import Any

import pytest

from massmem.config.models import TeamConfig
from massmem.core.errors import InputError
from massmem.core.events import (
    AnswerSubmitted,
    BallotCast,
    Event,
    HistoryCleared,
    Notice,
    ParamCleared,
    ParamProvided,
    TurnAbandoned,
    TurnCompleted,
    TurnInterrupted,
    TurnResumed,
    TurnStarted,
    TurnWaiting,
    UserReplied,
)
from massmem.core.messages import make_attachment
from massmem.core.records import SessionState, TurnRecord
from massmem.session.session import Session
from massmem.store import open_store
from tests.support.pictures import PNG
from tests.support.sessions import collect
from tests.support.turns import only

NUMBER = "O-98765"
QUESTION = "Where is my order?"
ASKS = {"ask": "order_id", "ask_prompt": "What is your order number?", "text": "Order {order_id} is on its way."}
UNREAD = {"error": "auth"}
"""No model may be asked what a reply means."""
CHANGES = {"text": '{"intent": "change", "provided": false, "value": ""}'}


@pytest.fixture
def folder(home: Path) -> Path:
    return home / ".massmem"


def team(script: dict[str, Any] | None = None, **coordination: Any) -> TeamConfig:
    """ann needs the number of the order, and bob does not."""
    scripts = {
        "ann": {"answer": ASKS, "vote": {"vote_for": "Order"}, "extract": UNREAD, **(script or {})},
        "bob": {"answer": "It is late.", "vote": {"vote_for": "Order"}},
    }
    agents = [
        {"id": name, "backend": {"type": "scripted", "script": script, "vision": True}}
        for name, script in scripts.items()
    ]
    return TeamConfig.model_validate(
        {
            "agents": agents,
            "params": {"order_id": {"pattern": r"O-\d{5}"}},
            "coordination": {"presentation": "as_is", **coordination},
            "memory": {"persistent_memory": {"enabled": False}},
        }
    )


async def wait_for_number(folder: Path, config: TeamConfig, **options: Any) -> str:
    """Ask a question that leads to a question to the user; return the session's id."""
    async with await Session.open(config, home=folder) as session:
        events = await collect(session.ask(QUESTION, **options))
        assert isinstance(events[-1], TurnWaiting)
        return session.id


async def say(folder: Path, config: TeamConfig, session_id: str, text: str, **options: Any) -> list[Event]:
    async with await Session.open(config, home=folder, session_id=session_id) as session:
        return await collect(session.ask(text, **options))


async def read(folder: Path, session_id: str) -> tuple[list[TurnRecord], SessionState]:
    store = await open_store(f"sqlite:///{folder / 'massmem.db'}", folder)
    turns, state = await store.list_turns(session_id, 0), await store.load_state(session_id)
    await store.close()
    return turns, state


def find_completion(events: list[Event]) -> TurnCompleted:
    assert isinstance(events[-1], TurnCompleted), events[-1]
    return events[-1]


async def test_reply_goes_on_with_its_turn(folder: Path):
    config = team()
    name = await wait_for_number(folder, config)
    events = await say(folder, config, name, f"It's {NUMBER}.")
    assert [type(event) for event in events[:3]] == [TurnResumed, UserReplied, ParamProvided]
    assert [event.agent_id for event in only(events, AnswerSubmitted)] == ["ann"], "bob has answered before"
    assert find_completion(events).answer == f"Order {NUMBER} is on its way."
    turns, state = await read(folder, name)
    assert [turn.status for turn in turns] == ["completed"]
    assert (state.params, state.waiting_for_param) == ({"order_id": NUMBER}, None)
    later = await say(folder, config, name, "And now?")
    assert find_completion(later).answer == f"Order {NUMBER} is on its way.", "it is known from now on"


async def test_answer_after_a_reply_has_the_form_that_was_asked_for(folder: Path):
    schema = {"type": "object", "properties": {"days": {"type": "integer"}}, "required": ["days"]}
    config = team({"present": '{"days": 3}'})
    name = await wait_for_number(folder, config, answer_schema=schema)
    assert find_completion(await say(folder, config, name, NUMBER)).data == {"days": 3}


@pytest.mark.parametrize(("text", "why"), [("cancel", "cancel"), ("start over", "reset")])
async def test_wish_to_end_gives_the_turn_up_and_is_no_question(folder: Path, text: str, why: str):
    config = team()
    name = await wait_for_number(folder, config)
    events = await say(folder, config, name, text)
    assert [type(event) for event in events] == [
        UserReplied,
        ParamCleared,
        *([HistoryCleared] if why == "reset" else []),
        TurnAbandoned,
    ]
    assert only(events, UserReplied)[0].text == text
    assert (only(events, TurnAbandoned)[0].why, only(events, TurnAbandoned)[0].turn) == (why, 1)
    turns, state = await read(folder, name)
    assert [turn.status for turn in turns] == ["abandoned"]
    assert state.waiting_for_param is None


async def test_another_question_gives_the_turn_up_and_is_answered(folder: Path):
    name = await wait_for_number(folder, team())
    events = await say(folder, team({"answer": "It is blue.", "extract": CHANGES}), name, "Why is the sky blue?")
    assert [event.why for event in only(events, TurnAbandoned)] == ["change"]
    assert [event.question for event in only(events, TurnStarted)] == ["Why is the sky blue?"]
    assert find_completion(events)
    turns, _ = await read(folder, name)
    assert [turn.status for turn in turns] == ["abandoned", "completed"]


async def test_same_question_again_asks_again_and_is_no_reply(folder: Path):
    config = team()
    name = await wait_for_number(folder, config)
    events = await say(folder, config, name, QUESTION)
    assert [type(event) for event in events] == [TurnResumed, TurnWaiting]
    assert len((await read(folder, name))[0]) == 1


async def test_stop_while_a_reply_is_read_leaves_the_turn_waiting(folder: Path):
    config = team({"extract": {"text": "{}", "delay": 60}})
    name = await wait_for_number(folder, config)
    async with await Session.open(config, home=folder, session_id=name) as session:
        reply = session.ask("I am not sure what you mean.")
        session.stop("user")
        (event,) = await collect(reply)
    assert isinstance(event, TurnInterrupted) and event.by == "user"
    turns, state = await read(folder, name)
    assert len(turns) == 1
    assert state.waiting_for_param == "order_id"
    assert find_completion(await say(folder, config, name, NUMBER))


async def test_user_who_does_not_reply_in_time_is_not_waited_for(folder: Path):
    config = team(waiting_timeout=0.001)
    name = await wait_for_number(folder, config)
    async with await Session.open(config, home=folder, session_id=name) as session:
        events = await collect(session.finish_turn())
    assert [type(event) for event in events] == [ParamCleared, TurnAbandoned]
    assert only(events, TurnAbandoned)[0].why == "timeout"
    again = await wait_for_number(folder, config)
    events = await say(folder, config, again, NUMBER)
    assert only(events, TurnAbandoned)[0].why == "timeout"
    assert [event.question for event in only(events, TurnStarted)] == [NUMBER], "it is too late for a reply"


async def test_turn_that_still_waits_asks_again_when_it_is_finished(folder: Path):
    config = team(waiting_timeout=600)
    name = await wait_for_number(folder, config)
    async with await Session.open(config, home=folder, session_id=name) as session:
        events = await collect(session.finish_turn())
    assert [type(event) for event in events] == [TurnResumed, TurnWaiting]


async def test_session_without_an_unfinished_turn_has_nothing_to_finish(folder: Path):
    config = team({"answer": "It is late."})
    async with await Session.open(config, home=folder) as session:
        await session.add_messages([("user", "Hello.")])
        for _ in range(2):
            with pytest.raises(InputError, match=r"^no turn of this session is unfinished$") as refusal:
                await collect(session.finish_turn())
            assert refusal.value.hint == "ask a question"
            assert session.secret_values == {}
            await collect(session.ask(QUESTION))


async def test_message_after_a_kill_is_the_reply_to_what_the_turn_then_asks(folder: Path):
    config = team()
    async with await Session.open(config, home=folder) as session:
        question = session.ask(QUESTION)
        session.stop("signal")
        assert isinstance((await collect(question))[-1], TurnInterrupted)
    events = await say(folder, config, session.id, NUMBER)
    assert len(only(events, TurnResumed)) == 2
    assert [event.param for event in only(events, UserReplied)] == ["order_id"]
    assert find_completion(events).answer == f"Order {NUMBER} is on its way."
    assert len((await read(folder, session.id))[0]) == 1


async def test_user_is_told_that_nobody_sees_what_a_reply_shows(folder: Path):
    config = team()
    name = await wait_for_number(folder, config)
    events = await say(folder, config, name, NUMBER, attachments=[make_attachment("bill.png", "image/png", PNG)])
    assert [event.message for event in only(events, Notice)] == [
        "what is attached to a reply is not shown: attach it to a question"
    ]
    assert find_completion(events)


async def test_session_is_free_as_soon_as_its_answer_is_stored(folder: Path):
    store = await open_store(f"sqlite:///{folder / 'massmem.db'}", folder)
    holders: dict[str, str | None] = {}
    async with await Session.open(team({"answer": "It is late."}), home=folder) as session:
        async for event in session.ask(QUESTION):
            holders[event.type] = await store.get_lease_owner(session.id)
    assert holders["turn_started"] is not None
    assert holders["turn_completed"] is None
    await store.close()


@pytest.mark.parametrize("seed", [3, 4])
async def test_resumed_turn_shows_the_answers_in_the_order_of_its_seed(folder: Path, seed: int):
    """Prompts begin as before, and a vote for B is for the same answer."""
    votes: list[dict[str, str]] = []
    for stops in (False, True):
        async with await Session.open(team({"answer": "It is early.", "vote": ["B"]}), home=folder) as session:
            session.seed = seed
            question = session.ask(QUESTION)
            if stops:
                session.stop("signal")
                assert [event.seed for event in only(await collect(question), TurnStarted)] == [seed]
                session.seed = 99
                question = session.finish_turn()
            ballots = only(await collect(question), BallotCast)
            votes.append({ballot.agent_id: ballot.choice for ballot in ballots if ballot.agent_id == "ann"})
    assert votes[0] == votes[1] != {}
