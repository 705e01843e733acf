"""Turns of a session: what its log, its user, telemetry and the models see of them; which events are stored at once."""

import asyncio
import json
import sqlite3
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, asynccontextmanager, closing
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from massmem.config.models import MemoryConfig, TeamConfig
from massmem.core.errors import DuplicateRequestError, StoreError
from massmem.core.events import (
    AnswerSubmitted,
    BallotCast,
    ContextCompressed,
    Event,
    Notice,
    ParamProvided,
    SourceEvent,
    TurnAbandoned,
    TurnCompleted,
    TurnInterrupted,
    TurnResumed,
    TurnStarted,
    TurnWaiting,
    decode_event,
)
from massmem.core.messages import make_attachment
from massmem.core.records import COMMAND_LINE_USER
from massmem.memory.tokens import estimate_tokens
from massmem.providers.scripted import ScriptedProvider
from massmem.session.handle import ConversationMemory
from massmem.session.session import Session
from massmem.session.team import Team
from massmem.telemetry import Tracer
from tests.support.contexts import RequestKeeper
from tests.support.pictures import PNG
from tests.support.sessions import collect
from tests.support.turns import only

ME = COMMAND_LINE_USER
QUESTION = "Where is my order?"
ASKS = {"ask": "order_id", "ask_prompt": "Which?", "text": "Order {order_id} is on its way."}
CHANGES = {"text": '{"intent": "change", "provided": false, "value": ""}'}
NUMBER = "O-98765"
PARAMS = {"order_id": {"pattern": r"O-\d{5}"}}
PLAN = make_attachment("plan.png", "image/png", PNG)
WORDS = {"enabled": True, "embedding": {"provider": "none"}}
"""Memory that opens at once."""


@pytest.fixture
def folder(home: Path) -> Path:
    return home / ".massmem"


def team(agents: dict[str, dict[str, Any]], *, blind: Sequence[str] = (), **sections: Any) -> TeamConfig:
    """agents: their scripts. blind: those that see no pictures. sections: of the configuration."""
    return TeamConfig.model_validate(
        {
            "agents": [
                {"id": name, "backend": {"type": "scripted", "script": script, "vision": name not in blind}}
                for name, script in agents.items()
            ],
            "memory": {"persistent_memory": {"enabled": False}},
            **sections,
        }
    )


@asynccontextmanager
async def open_team(config: TeamConfig, folder: Path, **options: Any) -> AsyncGenerator[Team, None]:
    opened = await Team.open(config, home=folder, **options)
    await opened.start()
    try:
        yield opened
    finally:
        await opened.close()


def read_log(folder: Path) -> list[Event]:
    """Return what the database holds, read past the store."""
    with closing(sqlite3.connect(folder / "massmem.db")) as db:
        rows = db.execute("SELECT payload FROM events ORDER BY session_id, seq").fetchall()
    return [decode_event(payload) for (payload,) in rows]


def complete(events: Sequence[Event]) -> TurnCompleted:
    assert isinstance(events[-1], TurnCompleted), events[-1]
    return events[-1]


async def interrupt(session: Session, question: str, by: Any = "signal", **options: Any) -> list[Event]:
    """Ask, and stop the turn as soon as it has begun."""
    events: list[Event] = []
    async with aclosing(session.ask(question, **options)) as stream:
        async for event in stream:
            events.append(event)
            if isinstance(event, TurnStarted | TurnResumed):
                session.stop(by)
    assert isinstance(events[-1], TurnInterrupted)
    return events


async def test_stages_tell_before_and_after_each_run_what_the_session_holds(folder: Path):
    path = folder.parent / "stages.jsonl"
    config = team({"ann": {"answer": ASKS}}, params=PARAMS, telemetry={"stages": str(path)})
    async with await Session.open(config, home=folder) as session:
        await collect(session.ask(QUESTION))
        await collect(session.ask(NUMBER))
        await collect(session.ask("And now?"))
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert len({line["session"] for line in lines}) == 1
    assert [
        (line["stage"], line["turn"], line["payload"].get("status"), *line["payload"]["memory"].values())
        for line in lines
    ] == [
        ("received", 1, None, 0, [], None),
        ("respond", 1, "waiting", 3, [], "order_id"),
        ("received", 1, None, 3, [], "order_id"),
        ("respond", 1, "completed", 6, ["order_id"], None),
        ("received", 2, None, 6, ["order_id"], None),
        ("respond", 2, "completed", 9, ["order_id"], None),
    ]


async def test_stage_of_a_session_that_was_deleted_as_soon_as_its_answer_was_seen(folder: Path):
    path = folder.parent / "stages.jsonl"
    config = team({"ann": {}}, telemetry={"stages": str(path)})
    async with open_team(config, folder) as opened, await Session.find(opened, owner=ME) as session:
        async for event in session.ask(QUESTION):
            if isinstance(event, TurnCompleted):
                while await opened.store.delete_session(session.id, 100) is not None:
                    pass
    last = json.loads(path.read_text().splitlines()[-1])
    assert (last["stage"], last["payload"]["memory"]["history_count"]) == ("respond", 0)


async def test_turn_is_a_span_with_its_requests_below(folder: Path):
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    async with open_team(team({"ann": {}}), folder) as opened:
        opened.tracer = Tracer({agent.id: agent for agent in opened.agents}, provider.get_tracer("massmem"))
        async with await Session.find(opened, owner=ME) as session:
            end = complete(await collect(session.ask(QUESTION)))
    request, turn = exporter.get_finished_spans()
    provider.shutdown()
    assert (request.attributes or {})["gen_ai.agent.name"] == "ann"
    assert (turn.attributes or {})["gen_ai.usage.input_tokens"] == end.usage.prompt


@pytest.mark.parametrize(
    ("enabled", "winner", "remembered"),
    [
        ({"ann", "bob"}, "ann", [True, True, True, True]),
        ({"ann"}, "ann", [True, True, False, True]),
        ({"bob"}, "ann", [True, False, True, False]),
        (set[str](), "bob", [False] * 4),
    ],
)
async def test_nothing_of_an_agent_without_memory_is_to_be_remembered(
    folder: Path, enabled: set[str], winner: str, remembered: list[bool]
):
    """Of the question, the answers of ann and bob, and the final answer."""
    scripts = {name: {"answer": f"It is {name}.", "vote": {"vote_for": winner}} for name in ("ann", "bob")}
    config = team(scripts, memory={"persistent_memory": WORDS}, coordination={"presentation": "as_is"})
    agents = [
        agent if agent.id in enabled else agent.model_copy(update={"memory": MemoryConfig(enabled=False)})
        for agent in config.agents
    ]
    config = config.model_copy(update={"agents": tuple(agents)})
    async with await Session.open(config, home=folder) as session:
        events = await collect(session.ask(QUESTION))
    assert complete(events).winner == winner
    answers = sorted(only(events, AnswerSubmitted), key=lambda event: event.agent_id)
    sources = [*only(events, TurnStarted), *answers, *only(events, TurnCompleted)]
    assert [event.remember for event in sources] == remembered
    assert only(read_log(folder), TurnCompleted) == only(events, TurnCompleted)


async def test_memory_that_is_off_for_the_team_is_off_for_its_agents(folder: Path):
    async with await Session.open(team({"ann": {}}), home=folder) as session:
        events = await collect(session.ask(QUESTION))
    assert [event.remember for event in events if isinstance(event, SourceEvent)] == [False] * 3


async def test_wish_to_be_answered_now_holds_for_one_turn(folder: Path):
    async with await Session.open(team({"ann": {}, "bob": {}}), home=folder) as session:
        session.answer_now()
        assert only(await collect(session.ask(QUESTION)), BallotCast) == []
        assert len(only(await collect(session.ask("And now?")), BallotCast)) == 2


async def test_limit_of_tokens_is_that_of_each_turn(folder: Path):
    scripts = {"ann": {"answer": ["word " * 600, "short"]}, "bob": {"answer": "short"}}
    async with await Session.open(team(scripts, coordination={"max_tokens": 2_500}), home=folder) as session:
        ends = [complete(await collect(session.ask(question))) for question in (QUESTION, "And now?")]
    assert [end.limit for end in ends] == ["tokens", None]


async def test_user_is_told_with_each_answer_that_nothing_is_kept(folder: Path):
    config = team({"ann": {}}, store={"url": "redis://127.0.0.1:9"})
    async with (
        open_team(config, folder, fallback=True) as opened,
        await Session.find(opened, owner=ME) as session,
    ):
        for question in (QUESTION, "And now?"):
            (notice,) = only(await collect(session.ask(question)), Notice)
            assert "held in memory and ends with this process" in notice.message


async def test_user_is_told_in_the_first_answer_that_the_memory_cannot_be_used(folder: Path):
    config = team({"ann": {}}, memory={"persistent_memory": WORDS})
    (folder / "memory" / "words").mkdir(parents=True)
    with FileLock(folder / "memory" / "words" / "lock"):
        async with await Session.open(config, home=folder) as session:
            first, second = [await collect(session.ask(question)) for question in (QUESTION, "And now?")]
    assert any("in use" in event.message for event in only(first, Notice))
    assert not any("in use" in event.message for event in only(second, Notice))
    assert only(read_log(folder), Notice) == only([*first, *second], Notice)


async def test_answer_becomes_a_memory_while_the_session_is_open(folder: Path):
    config = team({"ann": {"answer": "Red kites nest."}}, memory={"persistent_memory": WORDS})
    async with open_team(config, folder) as opened, await Session.find(opened, owner=ME) as session:
        await collect(session.ask(QUESTION))
        async with opened.open_durable_memory() as memory, asyncio.timeout(20):
            while (await memory.stats()).episodes < 2:
                await asyncio.sleep(0.01)


async def test_message_is_not_asked_when_the_turn_before_it_is_stopped_again(folder: Path):
    async with await Session.open(team({"ann": {"latency": 0.3}}), home=folder) as session:
        await interrupt(session, QUESTION)
        events = await interrupt(session, "And now?")
        assert [event.question for event in only(events, TurnResumed)] == [QUESTION]
        assert only(events, TurnStarted) == []
        events = await collect(session.ask("And now?"))
        assert [end.answer for end in only(events, TurnCompleted)] == ["Answer of ann."] * 2


async def ask_and_see_who_holds(team: Team, session: Session, question: str) -> list[tuple[str, bool]]:
    """Return the ends of turns, and whether the session is held when they are seen."""
    held: list[tuple[str, bool]] = []
    async with aclosing(session.ask(question)) as events:
        async for event in events:
            if isinstance(event, TurnCompleted | TurnAbandoned | TurnWaiting):
                held.append((event.type, await team.store.get_lease_owner(session.id) is not None))
    return held


async def test_session_is_held_between_a_resumed_turn_and_the_question_after_it(folder: Path):
    async with (
        open_team(team({"ann": {}}), folder) as opened,
        await Session.find(opened, owner=ME) as session,
    ):
        await interrupt(session, QUESTION)
        held = await ask_and_see_who_holds(opened, session, "And now?")
    assert held == [("turn_completed", True), ("turn_completed", False)]


async def test_session_is_held_between_a_turn_that_is_given_up_and_the_question_after_it(folder: Path):
    script = {"answer": [ASKS, "It is blue."], "extract": CHANGES}
    async with (
        open_team(team({"ann": script}, params=PARAMS), folder) as opened,
        await Session.find(opened, owner=ME) as session,
    ):
        assert await ask_and_see_who_holds(opened, session, QUESTION) == [("turn_waiting", False)]
        held = await ask_and_see_who_holds(opened, session, "Why is the sky blue?")
    assert held == [("turn_abandoned", True), ("turn_completed", False)]


async def test_turn_that_is_dropped_at_any_moment_begins_in_the_log_with_its_question(folder: Path):
    async with open_team(team({"ann": {"latency": 30}}), folder) as opened:
        for passes in range(0, 40, 4):
            session = await Session.find(opened, owner=ME)
            dropped = asyncio.create_task(collect(session.ask(QUESTION)))
            for _ in range(passes):
                await asyncio.sleep(0.001)
            dropped.cancel()
            await asyncio.gather(dropped, return_exceptions=True)
            entries = await opened.store.export_log(session.id, 0, 10) if session.id else []
            kinds = [decode_event(entry.payload).type for entry in entries]
            assert kinds[:1] in ([], ["turn_started"])
            await session.close()
    assert len(only(read_log(folder), TurnInterrupted)) > 0


async def test_store_that_fails_in_a_turn_is_the_error_and_the_turn_goes_on_later(folder: Path):
    config = team({"ann": {"answer": "word " * 50, "chunk_size": 5, "chunk_delay": 0.01}})
    async with await Session.open(config, home=folder) as session:
        async with aclosing(session.ask(QUESTION)) as events:
            assert isinstance(await anext(events), TurnStarted)
            with closing(sqlite3.connect(folder / "massmem.db")) as db:
                db.execute("CREATE TRIGGER full BEFORE INSERT ON events BEGIN SELECT RAISE(ABORT, 'no room'); END")
                with pytest.raises(StoreError, match="no room"):
                    async for _ in events:
                        pass
                db.execute("DROP TRIGGER full")
        complete(await collect(session.finish_turn()))
        assert len(only(read_log(folder), TurnStarted)) == 1


async def test_value_that_a_program_waits_for_is_taken_from_the_next_question(folder: Path):
    config = team({"ann": {"answer": ASKS}}, params=PARAMS)
    async with open_team(config, folder) as opened, await Session.find(opened, owner=ME) as session:
        await session.add_messages([("user", "Hello.")])
        handle = ConversationMemory(opened.store).for_session(session.id)
        await handle.set_waiting("order_id")
        events = await collect(session.ask(f"It is {NUMBER}."))
        assert [event.param for event in only(events, ParamProvided)] == ["order_id"]
        assert complete(events).answer == f"Order {NUMBER} is on its way."
        assert (await handle.params(), await handle.waiting()) == ({"order_id": NUMBER}, None)
        state = await opened.store.load_state(session.id)
        assert state.last_result == {"turn": 1, "winner": "ann"}


async def test_log_says_what_an_agent_is_sent_of_the_conversation_and_how_long_the_answer_is(
    folder: Path, caplog: pytest.LogCaptureFixture
):
    caplog.set_level("DEBUG", "massmem")
    config = team({"ann": {"answer": "Two words."}})
    async with open_team(config, folder) as opened, await Session.find(opened, owner=ME) as session:
        for _ in range(3):
            caplog.clear()
            answer = complete(await collect(session.ask(QUESTION)))
        lines = [f"{record.levelname}: {record.getMessage()}" for record in caplog.records]
        tokens = 2 * (estimate_tokens(QUESTION) + estimate_tokens("Two words."))
        where = f"from session {session.id} (agent=ann)"
        assert f"INFO: Retrieved 4 conversation messages for agent (~{tokens} tokens) {where}" in lines
        assert "DEBUG: Including 4 previous messages in context (agent=ann)" in lines
        assert f"INFO: Response generated: 10 chars, {answer.usage.prompt + answer.usage.completion} tokens" in lines
        await (
            ConversationMemory(opened.store).for_session(session.id).prune(3)
        )  # a question, an answer, the final answer
        await collect(session.ask(QUESTION))
        assert "Including 2 previous messages in context (agent=ann)" in caplog.messages


async def test_state_names_the_turn_that_waits_and_then_the_one_that_was_answered(folder: Path):
    scripts = {"ann": {"answer": ["Hello.", ASKS]}}
    async with (
        open_team(team(scripts, params=PARAMS), folder) as opened,
        await Session.find(opened, owner=ME) as session,
    ):
        await collect(session.ask("Hello?"))
        assert isinstance((await collect(session.ask(QUESTION)))[-1], TurnWaiting)
        state = await opened.store.load_state(session.id)
        assert (state.last_result, (state.plan_execution or {})["turn"]) == ({"turn": 1, "winner": "ann"}, 2)
        await collect(session.ask(NUMBER))
        state = await opened.store.load_state(session.id)
        assert (state.last_result, state.plan_execution) == ({"turn": 2, "winner": "ann"}, None)


async def test_described_question_is_known_by_its_request_name_also_after_a_stop(folder: Path):
    config = team({"bob": {}, "ann": {}}, blind=["bob"], files={"describe": True})
    async with await Session.open(config, home=folder) as session:
        first = await interrupt(session, "What is it?", by="user", request="one", attachments=[PLAN])
        (started,) = only(first, TurnStarted)
        assert started.request == "one"
        assert [event.message for event in only(first, Notice)] == [
            "ann described what is attached for agents that do not see it"
        ]
        rest = await collect(session.ask("What is it?", "two", attachments=[PLAN]))
        (resumed,) = only(rest, TurnResumed)
        assert (resumed.request, resumed.question) == ("two", "What is it?\n\n[attached: plan.png]")
        assert only(rest, Notice) == [], "it is described once"
        complete(rest)
        for request in ("one", "two"):
            with pytest.raises(DuplicateRequestError):
                await collect(session.ask("What is it?", request, attachments=[PLAN]))


async def test_turn_that_is_stopped_while_a_picture_is_described_goes_on_with_the_description(folder: Path):
    scripts = {"bob": {"answer": "{seen}"}, "ann": {"describe": [{"delay": 60}, {"text": "A plan."}]}}
    config = team(scripts, blind=["bob"], files={"describe": True})
    async with await Session.open(config, home=folder) as session:
        question = session.ask("What is it?", attachments=[PLAN])
        asyncio.get_running_loop().call_later(0.3, session.stop, "user")
        events = await collect(question)
        assert only(events, TurnStarted)[0].description == ""
        assert isinstance(events[-1], TurnInterrupted)
        rest = await collect(session.finish_turn())
        assert [event.message for event in only(rest, Notice)] == [
            "ann described what is attached for agents that do not see it"
        ]
        complete(rest)


async def test_history_that_was_compressed_between_two_turns_is_told_before_the_second(folder: Path):
    backend = {"type": "scripted", "script": {"answer": "It is fine, all in all. " * 60}, "context_window": 4_000}
    config = TeamConfig.model_validate(
        {**team({"ann": {}}).model_dump(), "agents": [{"id": "ann", "backend": backend}]}
    )
    async with await Session.open(config, home=folder) as session:
        yielded: list[tuple[int, Event]] = []
        for number in range(8):
            async with aclosing(session.ask(f"What of room {number}? {'Look again. ' * 60}")) as events:
                yielded += [(session.seq, event) async for event in events]
            await session.wait_for_preparation()
    before = [
        seq
        for (seq, event), (_, after) in pairwise(yielded)
        if (event.type, after.type) == ("context_compressed", "turn_started")
    ]
    assert set(before) == {0}, "it was stored before the turn began"
    log = read_log(folder)
    assert {event.why for event in only(log, ContextCompressed)} == {"background"}
    assert all(log[seq - 1] == event for seq, event in yielded if seq)


async def test_answer_that_leaves_little_room_is_compressed_before_the_next_question(folder: Path):
    backend = {"type": "scripted", "script": {"answer": "It is fine, all in all. " * 500}, "context_window": 4_000}
    config = TeamConfig.model_validate(
        {**team({"ann": {}}).model_dump(), "agents": [{"id": "ann", "backend": backend}]}
    )
    async with await Session.open(config, home=folder) as session:
        await collect(session.ask("Why?"))
        await session.wait_for_preparation()
        assert (await collect(session.ask("And now?")))[0].type == "context_compressed"


@pytest.mark.parametrize(
    ("names", "rounds", "offered"), [(("ann", "bob"), 2, True), (("ann", "bob"), 1, False), (("ann",), 2, False)]
)
async def test_tools_of_the_vote_are_offered_from_the_start_where_there_is_one(
    folder: Path, names: Sequence[str], rounds: int, offered: bool
):
    """To a model whose cache begins with the tools."""
    config = team({name: {} for name in names}, coordination={"max_rounds": rounds})
    async with open_team(config, folder) as opened, await Session.find(opened, owner=ME) as session:
        provider = opened.chat["ann"]
        assert isinstance(provider, ScriptedProvider)
        provider.abilities = replace(provider.abilities, spare_tools="none")
        opened.chat["ann"] = keeper = RequestKeeper(provider)
        complete(await collect(session.ask(QUESTION)))
    assert bool(keeper.requests[0].tools) is offered


async def test_each_turn_has_a_seed_of_its_own_unless_one_is_given(folder: Path):
    async with await Session.open(team({"ann": {}}), home=folder) as session:
        starts = [only(await collect(session.ask(QUESTION)), TurnStarted)[0] for _ in range(2)]
        session.seed = 5
        starts += only(await collect(session.ask(QUESTION)), TurnStarted)
    first, second, third = (start.seed for start in starts)
    assert first != second
    assert third == 5
