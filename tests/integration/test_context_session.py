"""Whole sessions whose conversations do not fit the window: against a server that refuses, and in process."""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from massmem.config.models import TeamConfig
from massmem.core.errors import MissingModelError
from massmem.core.events import ContextCompressed, Event, TurnCompleted
from massmem.providers.weights import require_weights
from massmem.session.session import Session
from tests.support.refusing import Refusing
from tests.support.sessions import collect
from tests.support.turns import only

FILLER = "We looked at it again and nothing came of it, so that it stays as it was for the time being. " * 6


def config(server: Refusing, *, agents: int = 1, **memory: Any) -> TeamConfig:
    backend = {"type": "openai", "model": "m", "base_url": server.base_url, "api_key": "none", "max_retries": 0}
    return TeamConfig.model_validate(
        {"agents": [{"id": f"agent_{n}", "backend": backend} for n in range(agents)], "memory": memory}
    )


async def talk(
    team: TeamConfig, home: Path, questions: Sequence[str], session_id: str | None = None
) -> AsyncIterator[list[Event]]:
    session = await Session.open(team, home=home, session_id=session_id)
    try:
        for question in questions:
            yield await collect(session.ask(question))
    finally:
        await session.close()


async def session_of(team: TeamConfig, home: Path, questions: Sequence[str]) -> str:
    session = await Session.open(team, home=home)
    try:
        for question in questions:
            await collect(session.ask(question))
        return session.id
    finally:
        await session.close()


def turns(number: int) -> list[str]:
    return [f"Turn {n}: the code of room {n} is R{n}-77. {FILLER}" for n in range(number)]


async def test_a_window_is_learnt_from_the_first_refusal_and_never_overflows_again(tmp_path: Path):
    with Refusing(2_000) as server:
        events = [turn async for turn in talk(config(server), tmp_path, turns(24))]
        assert sum(seen.refused for seen in server.seen) == 1
    assert all(isinstance(turn[-1], TurnCompleted) for turn in events)
    reasons = [event.why for turn in events for event in only(turn, ContextCompressed)]
    assert reasons[0] == "overflow"
    assert "background" in reasons[1:]


async def test_compressed_messages_are_recalled_and_shown_ones_are_not_repeated(tmp_path: Path):
    with Refusing(2_000) as server:
        async for _ in talk(config(server), tmp_path, [*turns(16), "What is the code of room 2?"]):
            pass
        last = server.seen[-1].text
    assert "R2-77" in last
    assert last.count("R15-77") == 1


async def test_the_next_run_goes_on_from_the_summary(tmp_path: Path):
    with Refusing(2_000) as server:
        session_id = await session_of(config(server, compression={"summary": "extract"}), tmp_path, turns(16))
        first = len(server.seen)
        async for _ in talk(config(server), tmp_path, ["And now?"], session_id):
            pass
        (request,) = [seen for seen in server.seen[first:] if not seen.summary]
    assert "<notes>" in request.text
    assert "Turn 15" in request.text
    assert request.tokens < 1_700


async def test_every_agent_has_its_own_window(tmp_path: Path):
    with Refusing(2_000) as server:
        async for turn in talk(config(server, agents=2), tmp_path, turns(12)):
            assert isinstance(turn[-1], TurnCompleted)
            assert all(event.agent_id in ("agent_0", "agent_1") for event in only(turn, ContextCompressed))


@pytest.mark.parametrize(
    ("conversation", "shown", "hidden"),
    [
        ({"enabled": False}, [], ["Turn 7"]),
        ({"preset": "brief"}, ["Turn 7", "Turn 5"], ["Turn 4"]),
        ({"max_messages": 2}, ["Turn 7"], ["Turn 6"]),
        ({"preset": "chat", "max_tokens": 450}, ["Turn 7", "Turn 6"], ["Turn 4"]),
        ({"max_messages": 2, "relevant_messages": 4}, ["Turn 7", "Turn 2"], ["Turn 5"]),
    ],
)
async def test_the_history_is_a_window_over_an_untouched_log(
    tmp_path: Path, conversation: dict[str, Any], shown: list[str], hidden: list[str]
):
    memory = {"conversation_memory": conversation, "persistent_memory": {"enabled": False}}
    with Refusing(100_000) as server:
        async for _ in talk(config(server, **memory), tmp_path, [*turns(8), "What is the code of room 2, R2?"]):
            pass
        last = server.seen[-1].text
    assert all(text in last for text in shown)
    assert not any(text in last for text in hidden)


async def test_a_question_larger_than_the_window_says_so(tmp_path: Path):
    with Refusing(1_000) as server:
        (events,) = [turn async for turn in talk(config(server), tmp_path, ["What is this? " + "data " * 4_000])]
    assert "the question" in events[-1].message


@pytest.mark.model
@pytest.mark.full
async def test_thirty_turns_with_the_embedded_model_in_a_small_window(tmp_path: Path):
    try:
        require_weights("")
    except MissingModelError as e:
        pytest.skip(f"{e.message}; {e.hint}")
    backend = {"type": "local", "context_window": 1_024, "max_tokens": 60, "temperature": 0}
    team = TeamConfig.model_validate({"agents": [{"id": "ann", "backend": backend}]})
    asked = [f"My item {n} costs {n * 3} euros. Reply in one short sentence." for n in range(30)]
    async for events in talk(team, tmp_path, asked):
        assert isinstance(events[-1], TurnCompleted), events[-1]
