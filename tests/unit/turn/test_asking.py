import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from massmem.config.models import BackendConfig, TeamConfig
from massmem.errors import ProviderError
from massmem.events import Event, Notice, ParamProvided, TurnWaiting, UserReplied, now
from massmem.messages import Usage
from massmem.providers import Providers
from massmem.providers.base import ChatProvider
from massmem.records import SessionState
from massmem.turn.asking import MOST_FREE, Params, Reading
from tests.support.sample_turn import SECRET, USAGE, begin, event, requested, waiting

ORDER = {"pattern": "O-[0-9]{5}(-hush)?", "examples": ["O-12345"], "mapping": ["order number"]}
WAITING = [
    begin("ann", "bob"),
    event(0.1, "round_started", round=1, agents=("ann",)),
    requested(0.2, "ann", "order_id"),
    waiting(0.3, "order_id", "ann"),
]


def config(**coordination: Any) -> TeamConfig:
    return TeamConfig.model_validate(
        {
            "agents": [{"id": "ann", "backend": {"type": "scripted"}}],
            "params": {"order_id": ORDER, "email": {"type": "email"}, "city": {}},
            "coordination": coordination,
        }
    )


def params(past: Sequence[Event] = WAITING, state: SessionState | None = None, **coordination: Any) -> Params:
    made = Params(config(**coordination))
    made.begin(1, past, state or SessionState())
    return made


async def model(*extract: object) -> dict[str, ChatProvider]:
    backend = BackendConfig(type="scripted", max_retries=0, script={"extract": list(extract)})
    return {"ann": await Providers().open(backend)}


async def read(of: Params, message: str, *extract: object) -> Reading | None:
    return await of.read("Where is it?", message, await model(*extract), asyncio.Event())


def reply(intent: str, provided: bool, value: str = "") -> str:
    return f'{{"intent": "{intent}", "provided": {str(provided).lower()}, "value": "{value}"}}'


NEVER = {"error": "unavailable"}


async def test_what_a_rule_can_read_costs_no_request():
    reading = await read(params(), "It's O-98765", NEVER)
    assert reading == Reading("answer", "O-98765", Usage(requests=0))
    assert (await read(params(), "cancel", NEVER)) == Reading("cancel", None, Usage(requests=0))


async def test_a_model_reads_what_a_rule_cannot():
    reading = await read(params(), "O 98765, I think, or isn't it?", reply("answer", True, "O-98765"))
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
async def test_what_is_no_value_is_not_taken(said: str):
    reading = await read(params(), "I do not know, isn't it on the 98765 bill?", said)
    assert reading is not None and (reading.intent, reading.value) == ("answer", None)


@pytest.mark.parametrize("intent", ["change", "cancel", "reset"])
async def test_the_model_may_find_that_the_user_wants_something_else(intent: str):
    reading = await read(params(), "Is it going to rain?", reply(intent, False))
    assert reading is not None and reading.intent == intent


async def test_a_model_that_fails_changes_nothing():
    of = params()
    with pytest.raises(ProviderError):
        await read(of, "well, is it?", NEVER)
    assert of.waits and of.waiting.asked("order_id") == 1


async def test_being_stopped_changes_nothing():
    stop = asyncio.Event()
    stop.set()
    chat = await model({"text": reply("change", False), "delay": 30})
    assert await params().read("Where?", "well, is it?", chat, stop) is None


def test_a_value_is_news_and_is_stored_with_its_event_only():
    of = params()
    news = of.news(Reading("answer", SECRET), SECRET)
    assert [e.type for e in news] == ["user_replied", "param_provided"]
    assert SECRET not in repr(news)
    assert of.state.params == {}
    assert of.asking(news).known == {"order_id": SECRET}
    state = of.stored(news)
    assert state is not None
    assert (state.params, state.waiting_for_param) == ({"order_id": SECRET}, None)
    assert SECRET not in repr(state)


def test_a_reply_without_the_value_leads_to_the_next_question_until_it_is_given_up():
    of = params(max_asks=2)
    first = of.news(Reading("answer"), "hm")
    assert [e.type for e in first] == ["user_replied"]
    of.stored(first)
    second = of.news(Reading("answer"), "hm")
    assert [e.type for e in second] == ["user_replied", "param_cleared"]
    assert of.asking(second).given_up == {"order_id"}
    assert "order_id" not in of.asking(second).names


def test_one_message_may_bring_two_values():
    of = params([*WAITING, requested(0.3, "bob", "email")])
    news = of.news(Reading("answer", "O-98765"), "O-98765, and write to ann@example.org")
    assert [e.param for e in news if isinstance(e, ParamProvided)] == ["order_id", "email"]
    state = of.stored(news)
    assert state is not None and state.params == {"order_id": "O-98765", "email": "ann@example.org"}


def test_giving_up_the_turn_keeps_what_is_known_unless_the_user_starts_over():
    record = _record()
    for why, known in (("cancel", {"city": "Rome"}), ("reset", {}), ("change", {"city": "Rome"})):
        of = params(state=SessionState(params={"city": "Rome"}))
        events = of.abandoned(record, Reading(why), "words")  # pyright: ignore[reportArgumentType]  # one of them
        state = of.stored(events)
        assert state is not None
        assert (state.params, state.waiting_for_param, state.plan_execution) == (known, None, None)
        assert any(isinstance(e, UserReplied) for e in events) == (why != "change"), "a question is no reply"
        assert not of.waits


def test_what_was_given_by_another_way_is_news():
    of = params(state=SessionState(params={"order_id": "O-98765"}))
    assert [e.type for e in of.known()] == ["param_provided"]


def test_the_state_says_what_is_waited_for():
    of = params(WAITING[:2])
    state = of.stored(WAITING[2:])
    assert state is not None
    assert state.waiting_for_param == "order_id"
    assert state.plan_execution is not None and state.plan_execution["asked"] == {"ann": "order_id"}


def test_a_team_that_may_not_ask_writes_no_state():
    of = Params(TeamConfig.model_validate({"agents": [{"id": "ann", "backend": {"type": "scripted"}}]}))
    of.begin(1, (), SessionState())
    ended = event(9, "turn_completed", winner="ann", answer="A", presented=False, usage=USAGE)
    assert of.stored([*WAITING[:2], ended]) is None
    assert not of.asking().offered


def test_free_names_are_bounded():
    past = [begin("ann"), *(requested(1, "ann", f"p{i}") for i in range(MOST_FREE))]
    assert params([begin("ann")], ask_user=True).asking().free
    assert not params(past, ask_user=True).asking().free
    assert not params(ask_user=False).asking().offered


def test_waiting_ends_after_its_time():
    def waited(seconds: float) -> Params:
        asked = TurnWaiting(
            param="order_id", prompt="?", agents=("ann",), asked=1, usage=USAGE, at=now() - timedelta(seconds=seconds)
        )
        return params([*WAITING[:3], asked], waiting_timeout=60)

    assert waited(61).expired()
    assert not waited(59).expired()
    assert not waited(-3600).expired(), "the clock was set back"
    assert not params().expired()


async def test_after_its_time_no_message_is_a_reply():
    of = params(waiting_timeout=1)
    reading = await read(of, "O-98765", NEVER)
    assert reading is not None and reading.intent == "timeout"


def test_errors_do_not_repeat_values():
    of = params(state=SessionState(params={"order_id": SECRET}))
    failed = event(
        1, "agent_failed", agent_id="ann", round=1, step="answer", error="RequestRejected",
        message=f"400: bad prompt: {SECRET}!", hint=f"look at {SECRET}", usage=USAGE,
    )  # fmt: skip
    retry = event(1, "agent_retrying", agent_id="ann", round=1, error=f"said {SECRET}", delay=1.0, attempt=1)
    for e in (failed, retry, Notice(message=SECRET)):
        assert SECRET not in of.masked(e).model_dump_json()
        assert "[order_id]" in of.masked(e).model_dump_json()
    assert of.masked(WAITING[0]) == WAITING[0]


def test_a_program_may_wait_for_a_value_of_the_next_question():
    of = params([], state=SessionState(waiting_for_param="order_id"))
    assert of.opening("what about it?") == []
    news = of.opening("what about O-98765")
    assert [e.type for e in news] == ["param_provided"]
    state = of.stored([begin("ann"), *news])
    assert state is not None and (state.params, state.waiting_for_param) == ({"order_id": "O-98765"}, None)


def _record() -> Any:
    from massmem.records import TurnRecord

    return TurnRecord(session_id="session_a", turn=1, question="Where?", status="waiting", seed=1, started_at=now())
