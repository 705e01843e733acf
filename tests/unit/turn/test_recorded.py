"""Turns again from their logs: everything that the agents did not do is decided anew, and comes out the same."""

import random
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from massmem.config.models import TeamConfig
from massmem.core.events import (
    BallotCast,
    Event,
    TurnCompleted,
    TurnResumed,
    TurnWaiting,
    WinnerDecided,
)
from massmem.session.session import Session
from massmem.turn.recorded import replay_as_recorded
from tests.support.sessions import team

SHORT, WHOLE = 30, 500


def draw_team(chance: random.Random) -> TeamConfig:
    """Return a team of scripted agents in which everything that a turn can come to happens now and then."""
    count = chance.choice([1, 2, 3, 3, 4, 5])
    names = [f"agent{i}" for i in range(count)]
    scripts: dict[str, dict[str, Any]] = {name: draw_script(chance, name) for name in names}
    coordination: dict[str, Any] = {
        "max_rounds": chance.choice([1, 2, 3, 4]),
        "presentation": chance.choice(["auto", "synthesize", "as_is"]),
        "early_stop": chance.random() < 0.5,
        "escalate_below": chance.choice([None, 0.6]),
        "max_concurrency": chance.choice([1, 2, 16]),
        "ask_user": chance.random() < 0.3,
    }
    return team(scripts, **coordination)


def draw_script(chance: random.Random, name: str) -> dict[str, Any]:
    replies: list[Any] = [f"The answer is {chance.choice(['42', '43', 'forty-two, I think'])}."]
    if chance.random() < 0.15:
        replies = [{"ask": "city", "text": f"It is in {{city}}, says {name}."}]
    if chance.random() < 0.1:
        replies = [{"text": "half of", "error": chance.choice(["unavailable", "refused", "interrupted"])}]
    votes: list[Any] = [
        chance.choice([{"vote": "first"}, {"vote": "last"}, {"new_answer": f"Better, says {name}."}, {"raw": "{"}])
        for _ in range(chance.choice([1, 2, 3]))
    ]
    script: dict[str, Any] = {"answer": replies, "vote": votes, "chunk_size": chance.choice([0, 7])}
    if chance.random() < 0.1:
        script["present"] = [{"error": "refused"}]
    if chance.random() < 0.3:
        script["latency"] = chance.choice([0.001, 0.004])
    return script


async def record_turn(config: TeamConfig, home: Path, chance: random.Random) -> list[Event]:
    """Run a turn, stopped and resumed, hurried or answered now and then; return its events as the store has them."""
    session = await Session.open(config, home=home)
    try:
        stop_after = chance.choice([None, None, None, chance.randrange(1, 30)])
        now_after = chance.choice([None, None, None, chance.randrange(1, 20)])
        await run(session, session.ask("What is the answer?"), stop_after, now_after)
        for _ in range(5):
            turn = await session._store.get_last_turn(session.id)
            assert turn is not None
            if turn.status == "waiting":
                await run(session, session.ask(chance.choice(["Paris", "In Rome, please"])))
            elif turn.status == "interrupted":
                await run(session, session.finish_turn())
        return await session._store.read_turn_events(session.id, 1)
    finally:
        await session.close()


async def run(
    session: Session, events: AsyncGenerator[Event, None], stop_after: int | None = None, now_after: int | None = None
) -> None:
    number = 0
    async with aclosing(events):
        async for _ in events:
            number += 1
            if number == stop_after:
                session.stop("user")
            if number == now_after:
                session.answer_now()


async def check_turns(count: int, tmp_path: Path) -> set[type[Event]]:
    """Record turns and replay them; fail at the first that differs. Return the kinds of events that occurred."""
    kinds: set[type[Event]] = set()
    for number in range(count):
        chance = random.Random(f"recorded {number}")
        config = draw_team(chance)
        events = await record_turn(config, tmp_path / str(number), chance)
        verdict = await replay_as_recorded(events, config.coordination, config.param_specs)
        assert verdict.is_identical, f"turn {number}: {verdict.difference}"
        assert not verdict.ended_by_limit
        assert verdict.events > 3
        kinds |= {type(event) for event in events}
    return kinds


async def test_recorded_turns_come_out_the_same_byte_for_byte(tmp_path: Path):
    kinds = await check_turns(SHORT, tmp_path)
    assert {TurnCompleted, TurnResumed, TurnWaiting, WinnerDecided, BallotCast} <= kinds


@pytest.mark.full
async def test_five_hundred_recorded_turns_come_out_the_same(tmp_path: Path):
    await check_turns(WHOLE, tmp_path)
