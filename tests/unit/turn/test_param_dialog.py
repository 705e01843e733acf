"""Params of a turn: how a reply is read, which events follow, and what the state holds then."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from massmem.config.models import BackendConfig, TeamConfig
from massmem.core.errors import ProviderError
from massmem.core.events import Event, Notice, ParamProvided, TurnWaiting, UserReplied, now
from massmem.core.messages import Usage
from massmem.core.records import SessionState
from massmem.providers import Providers
from massmem.providers.base import ChatProvider
from massmem.turn.param_dialog import MAX_FREE_PARAMS, ParamDialog, ReplyReading
from tests.support.sample_turn import SECRET, USAGE, begin, event, param_request, waiting

ORDER = {"pattern": "O-[0-9]{5}(-hush)?", "examples": ["O-12345"], "mapping": ["order number"]}
WAITING = [
    begin("ann", "bob"),
    event(0.1, "round_started", round=1, agents=("ann",)),
    param_request(0.2, "ann", "order_id"),
    waiting(0.3, "order_id", "ann"),
]


def config(**coordination: Any) -> TeamConfig:
    return TeamConfig.model_validate(
        {
            "agents": [{"id": "ann", "backend": {"type": "scripted"}}],
            "params": {"order_id": ORDER, "email": {"type": "email"}, "city": {}, "plan": {"values": ["basic", "pro"]}},
            "coordination": coordination,
        }
    )


def dialog(events: Sequence[Event] = WAITING, state: SessionState | None = None, **coordination: Any) -> ParamDialog:
    return ParamDialog(config(**coordination), state or SessionState(), 1, events)


async def model(*extract: object) -> dict[str, ChatProvider]:
    backend = BackendConfig(type="scripted", max_retries=0, script={"extract": list(extract)})
    return {"ann": await Providers().open(backend)}


async def read(dialog: ParamDialog, message: str, *extract: object) -> ReplyReading | None:
    """extract: the script of the model that is asked to read the message."""
    return await dialog.read_reply("Where is it?", message, await model(*extract), asyncio.Event())


def reply(intent: str, provided: bool, value: str = "") -> str:
    return f'{{"intent": "{intent}", "provided": {str(provided).lower()}, "value": "{value}"}}'


NEVER = {"error": "unavailable"}


async def test_reply_that_a_rule_can_read_costs_no_request():
    reading = await read(dialog(), "It's O-98765", NEVER)
    assert reading == ReplyReading("answer", "O-98765", Usage(requests=0))
    assert (await read(dialog(), "cancel", NEVER)) == ReplyReading("cancel", None, Usage(requests=0))


async def test_reply_that_no_rule_can_read_is_read_by_a_model():
    reading = await read(dialog(), "O 98765, I think, or isn't it?", reply("answer", True, "O-98765"))
    assert reading is not None and (reading.intent, reading.value) == ("answer", "O-98765")
    assert reading.usage.requests == 1


@pytest.mark.parametrize(
    "said",
    [
        reply("answer", True, "O-12345"),  # the example of its prompt
        reply("answer", True, "98765"),  # not of the form
        reply("answer", False, "O-98765"),
        "I could not find it.",
        "[]",
        '{"provided": true}',
    ],
)
async def test_value_that_is_not_in_the_reply_is_not_taken(said: str):
    reading = await read(dialog(), "I do not know, isn't it on the 98765 bill?", said)
    assert reading is not None and (reading.intent, reading.value) == ("answer", None)


@pytest.mark.parametrize("raw", ["the pro plan", "pro plan", "Pro"])
async def test_value_in_more_words_is_taken(raw: str):
    asked = [begin("ann"), param_request(0.2, "ann", "plan"), waiting(0.3, "plan", "ann")]
    reading = await read(dialog(asked), "Isn't it the pro plan?", reply("answer", True, raw))
    assert reading is not None and reading.value == "pro"
    both = await read(dialog(asked), "Is it basic or pro?", reply("answer", True, "basic or pro"))
    assert both is not None and both.value is None


def test_reply_is_a_value_unless_it_can_be_none():
    def says_value(reading: ReplyReading, message: str) -> bool:
        return next(e.is_value for e in dialog().accept(reading, message) if isinstance(e, UserReplied))

    assert says_value(ReplyReading("answer", "O-98765"), "O-98765")
    assert not says_value(ReplyReading("answer"), "I don't know")
    assert says_value(ReplyReading("answer"), "9876?"), "a mistyped value is nearly one"
    (cancel, *_) = dialog().abandon(_record(), ReplyReading("cancel"), "never mind")
    assert isinstance(cancel, UserReplied) and not cancel.is_value


@pytest.mark.parametrize("intent", ["change", "cancel", "reset"])
async def test_model_may_read_another_intent(intent: str):
    reading = await read(dialog(), "Is it going to rain?", reply(intent, False))
    assert reading is not None and reading.intent == intent


async def test_failing_model_changes_nothing():
    talk = dialog()
    with pytest.raises(ProviderError):
        await read(talk, "well, is it?", NEVER)
    assert talk.is_waiting and talk.waiting.ask_number("order_id") == 1


async def test_stop_while_reading_changes_nothing():
    stop = asyncio.Event()
    stop.set()
    chat = await model({"text": reply("change", False), "delay": 30})
    assert await dialog().read_reply("Where?", "well, is it?", chat, stop) is None


def test_value_is_in_the_state_and_in_no_event():
    talk = dialog()
    events = talk.accept(ReplyReading("answer", SECRET), SECRET)
    assert [e.type for e in events] == ["user_replied", "param_provided"]
    assert SECRET not in repr(events)
    assert talk.state.params == {}
    assert talk.build_ask_context(events).known == {"order_id": SECRET}
    state = talk.apply(events)
    assert state is not None
    assert (state.params, state.waiting_for_param) == ({"order_id": SECRET}, None)
    assert SECRET not in repr(state)


def test_param_is_given_up_after_max_asks_replies_without_its_value():
    talk = dialog(max_asks=2)
    first = talk.accept(ReplyReading("answer"), "hm")
    assert [e.type for e in first] == ["user_replied"]
    talk.apply(first)
    second = talk.accept(ReplyReading("answer"), "hm")
    assert [e.type for e in second] == ["user_replied", "param_cleared"]
    assert talk.build_ask_context(second).given_up == {"order_id"}
    assert "order_id" not in talk.build_ask_context(second).names


def test_one_reply_may_hold_two_values():
    talk = dialog([*WAITING, param_request(0.3, "bob", "email")])
    events = talk.accept(ReplyReading("answer", "O-98765"), "O-98765, and write to ann@example.org")
    assert [e.param for e in events if isinstance(e, ParamProvided)] == ["order_id", "email"]
    state = talk.apply(events)
    assert state is not None and state.params == {"order_id": "O-98765", "email": "ann@example.org"}


def test_abandoned_turn_keeps_values_unless_the_user_resets():
    record = _record()
    for why, known in (("cancel", {"city": "Rome"}), ("reset", {}), ("change", {"city": "Rome"})):
        talk = dialog(state=SessionState(params={"city": "Rome"}))
        events = talk.abandon(record, ReplyReading(why), "words")  # pyright: ignore[reportArgumentType]  # one of them
        state = talk.apply(events)
        assert state is not None
        assert (state.params, state.waiting_for_param, state.plan_execution) == (known, None, None)
        assert any(isinstance(e, UserReplied) for e in events) == (why != "change"), "a question is no reply"
        assert not talk.is_waiting


def test_value_set_by_a_program_resumes_the_turn():
    talk = dialog(state=SessionState(params={"order_id": "O-98765"}))
    assert [e.type for e in talk.list_provided_params()] == ["param_provided"]


def test_state_names_the_param_that_is_waited_for():
    talk = dialog(WAITING[:2])
    state = talk.apply(WAITING[2:])
    assert state is not None
    assert state.waiting_for_param == "order_id"
    assert state.plan_execution is not None and state.plan_execution["asked"] == {"ann": "order_id"}


def test_team_that_may_not_ask_writes_no_state():
    team = TeamConfig.model_validate({"agents": [{"id": "ann", "backend": {"type": "scripted"}}]})
    talk = ParamDialog(team, SessionState(), 1)
    ended = event(9, "turn_completed", winner="ann", answer="A", presented=False, usage=USAGE)
    assert talk.apply([*WAITING[:2], ended]) is None
    assert not talk.build_ask_context().may_ask


def test_number_of_free_params_is_limited():
    past = [begin("ann"), *(param_request(1, "ann", f"p{i}") for i in range(MAX_FREE_PARAMS))]
    assert dialog([begin("ann")], ask_user=True).build_ask_context().free
    assert not dialog(past, ask_user=True).build_ask_context().free
    assert not dialog(ask_user=False).build_ask_context().may_ask


def test_waiting_expires():
    def waited(seconds: float) -> ParamDialog:
        asked = TurnWaiting(
            param="order_id", prompt="?", agents=("ann",), asked=1, usage=USAGE, at=now() - timedelta(seconds=seconds)
        )
        return dialog([*WAITING[:3], asked], waiting_timeout=60)

    assert waited(61).is_expired
    assert not waited(59).is_expired
    assert not waited(-3600).is_expired, "the clock was set back"
    assert not dialog().is_expired


async def test_message_after_expiry_is_no_reply():
    talk = dialog(waiting_timeout=1)
    reading = await read(talk, "O-98765", NEVER)
    assert reading is not None and reading.intent == "timeout"


def test_values_are_masked_in_error_texts():
    talk = dialog(state=SessionState(params={"order_id": SECRET}))
    failed = event(
        1, "agent_failed", agent_id="ann", round=1, step="answer", error="RequestRejected",
        message=f"400: bad prompt: {SECRET}!", hint=f"look at {SECRET}", usage=USAGE,
    )  # fmt: skip
    retry = event(1, "agent_retrying", agent_id="ann", round=1, error=f"said {SECRET}", delay=1.0, attempt=1)
    for e in (failed, retry, Notice(message=SECRET)):
        assert SECRET not in talk.mask(e).model_dump_json()
        assert "[order_id]" in talk.mask(e).model_dump_json()
    assert talk.mask(WAITING[0]) == WAITING[0]


def test_question_may_hold_the_value_that_a_program_waits_for():
    talk = dialog([], state=SessionState(waiting_for_param="order_id"))
    assert talk.read_question("what about it?") == []
    events = talk.read_question("what about O-98765")
    assert [e.type for e in events] == ["param_provided"]
    state = talk.apply([begin("ann"), *events])
    assert state is not None and (state.params, state.waiting_for_param) == ({"order_id": "O-98765"}, None)


def _record() -> Any:
    from massmem.core.records import TurnRecord

    return TurnRecord(session_id="session_a", turn=1, question="Where?", status="waiting", seed=1, started_at=now())
