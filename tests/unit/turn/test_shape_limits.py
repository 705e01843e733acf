"""What a turn of shape union, decide or revise comes to when it is stopped anywhere: nothing that was paid is lost."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import pytest

from massmem.config.models import CoordinationConfig, PriceConfig
from massmem.core.events import (
    AgentDelta,
    AgentStarted,
    AnswerSubmitted,
    Event,
    ItemsGiven,
    ItemsMerged,
    TurnCompleted,
    TurnFailed,
    TurnResumed,
)
from massmem.core.turn_result import TurnResult
from massmem.memory.budget import Budget
from massmem.providers import Providers
from massmem.turn.agent import Agent
from massmem.turn.coordinator import Turn, run_turn
from massmem.turn.revise import RUNS
from tests.support.turns import SEED, Collector, Scripts, agent_of, agents_of, collect_turn, config_of, only
from tests.unit.turn.test_decide import options, scores
from tests.unit.turn.test_union import REVISE, UNION, checks, items, run

_POINTS = scores({2: 1, 3: 1}, {n: {"2": n, "3": 5} for n in (1, 4, 5)})
TEAMS: dict[Any, Scripts] = {
    "union": UNION,
    "revise": REVISE,
    "decide": {
        name: {"items": options(title, criteria=("Price", "Effort")), "check": _POINTS, "present": "It is the last."}
        for name, title in {"ann": "Stay", "ben": "Move away", "cyd": "Sell it"}.items()
    },
}
SHAPES = pytest.mark.parametrize("shape", [*TEAMS])
EVERY_STEP = 9
"""More than any of these turns has."""


def list_acts(events: Sequence[Event]) -> list[Any]:
    return [event for event in events if isinstance(event, AnswerSubmitted | ItemsGiven)]


def check_end(shape: str, events: Sequence[Event]) -> TurnResult:
    """Assert that the end of a turn shows all that its agents did, and says what is missing."""
    result, acts = TurnResult.of(events), list_acts(events)
    if not any(isinstance(act, AnswerSubmitted) for act in acts):
        assert only(events, TurnFailed)[0].exit_code == 4
        return result
    assert only(events, TurnCompleted), [type(event).__name__ for event in events]
    points = [*(result.items or ()), *(result.revisions or ())]
    listed = {(act.agent_id, item.title) for act in acts for item in act.items or ()}
    assert listed == {(a, own.title) for i in points for a, own in zip(i.found_by, i.versions, strict=True)}
    judged = {(act.agent_id, check.item) for act in acts for check in act.checks}
    assert judged == {(check.agent, point.number) for point in points for check in point.checks}
    text = f"{result.answer} {result.agreement}"
    if shape != "revise":
        assert all(point.item.title in text for point in points)
    judges, agents = {agent for agent, _ in judged}, ("ann", "ben", "cyd")
    match shape:
        case "decide":
            assert text.count(f"{len(judges)} of 3 agents scored") == 1
        case "union":
            lists = sum(isinstance(act, AnswerSubmitted) for act in acts)
            late = [a for a in agents if a not in judges and any(a not in point.found_by for point in points)]
            assert f"{lists} of 3 agents listed {len(points)} items" in text
            assert (f"not checked by {', '.join(late)}" in text) == bool(late)
            assert late or "not checked by" not in text
        case _:
            assert result.answer == [act.content for act in acts if isinstance(act, AnswerSubmitted)][-1]
            silent = [p for p in points if not p.checks]
            assert (f"{len(silent)} without a reply" in text) == bool(silent)
            last = max(act.round for act in acts)
            critics = {act.agent_id for act in acts if act.round == last and act.round % 2 == 0}
            assert ("nobody has one left" in text) == (critics == {"ben", "cyd"} and not silent)
    return result


async def stop_at(shape: Any, agents: Any, step: int, stop: Callable[[], object], **more: Any) -> list[Event]:
    """Run a turn and stop it once so many agents have acted; return its events."""

    def watch(_: Event) -> None:
        if len(list_acts(outbox.events)) == step:
            stop()

    outbox = Collector(watch)
    turn = Turn("session_x", 1, "why?", SEED, kind=RUNS[shape])
    await run_turn(turn, agents, CoordinationConfig(shape=shape, max_concurrency=1), outbox, **more)
    return outbox.events


@SHAPES
async def test_now_at_any_step_it_has_what_there_is(shape: Any) -> None:
    for step in range(1, EVERY_STEP):
        now = asyncio.Event()
        events = await stop_at(shape, await agents_of(TEAMS[shape]), step, now.set, answer_now=now)
        check_end(shape, events)
        end = only(events, TurnCompleted)[0]
        assert end.limit is None and not (end.presented and step <= len(list_acts(events)))
        assert len(list_acts(events)) <= step + 1  # one may have its reply already


@SHAPES
async def test_one_that_is_cancelled_at_any_step_goes_on_and_asks_nobody_twice(shape: Any) -> None:
    whole = TurnResult.of(await stop_at(shape, await agents_of(TEAMS[shape]), 0, lambda: None))
    for step in range(1, EVERY_STEP):
        agents, earlier = await agents_of(TEAMS[shape]), list[Event]()

        def watch(event: Event, earlier: list[Event] = earlier, step: int = step) -> None:
            if not isinstance(event, AgentDelta):
                earlier.append(event)
            if len(list_acts(earlier)) == step:
                running.cancel()  # noqa: B023

        turn = Turn("session_x", 1, "why?", SEED, kind=RUNS[shape])
        settings = CoordinationConfig(shape=shape, max_concurrency=1)
        running = asyncio.create_task(run_turn(turn, agents, settings, Collector(watch)))
        with suppress(asyncio.CancelledError):
            await running
        if only(earlier, TurnCompleted):
            continue
        done = {(act.agent_id, act.round) for act in list_acts(earlier)}
        events = await run(shape, agents, earlier, "why?", max_concurrency=1)  # the scripts go on as well
        assert isinstance(events[0], TurnResumed)
        assert not done & {(e.agent_id, e.round) for e in only(events, AgentStarted) if e.step != "present"}, step
        result = check_end(shape, [*earlier, *events])
        assert (result.answer, result.agreement) == (whole.answer, whole.agreement), step
        assert len(only([*earlier, *events], ItemsMerged)) == (2 if shape == "revise" else 1)


@SHAPES
@pytest.mark.parametrize("kind", ["max_tokens", "max_cost"])
async def test_a_limit_of_spending_at_any_step_shows_what_was_paid(shape: Any, kind: str) -> None:
    whole = await run_with_limit(shape, {})
    usage, ends = TurnResult.of(whole).usage, set[int]()
    most = usage.cost if kind == "max_cost" else usage.prompt + usage.completion
    assert most
    for part in range(1, 21):
        limit = most * part / 20
        events = await run_with_limit(shape, {kind: limit if kind == "max_cost" else round(limit)})
        result = check_end(shape, events)
        ends.add(len(list_acts(events)))
        if list_acts(events) and len(list_acts(events)) < len(list_acts(whole)):
            assert result.limit == kind.removeprefix("max_")
    assert len(ends) > 3, "the limit was reached in the middle"


async def run_with_limit(shape: Any, limit: dict[str, Any]) -> list[Event]:
    settings = CoordinationConfig(shape=shape, max_concurrency=1, **limit)
    budget, providers, agents = Budget(settings), Providers(), dict[str, Agent]()
    for name, script in TEAMS[shape].items():
        config = config_of(name, script)
        backend = config.backend.model_copy(update={"price": PriceConfig(input=1_000_000, output=1_000_000)})
        config = config.model_copy(update={"backend": backend})
        agents[name] = agent_of(config, budget.limit(name, backend, await providers.open(backend)))
    turn = Turn("session_x", 1, "why?", SEED, kind=RUNS[shape])
    return await collect_turn(turn, agents, settings, budget)


@SHAPES
@pytest.mark.parametrize("late", ["items", "check", "present"])
async def test_when_the_time_is_up_it_has_what_there_is(shape: Any, late: str) -> None:
    scripts = {name: dict(script) for name, script in TEAMS[shape].items()}
    who = "ann" if late == "present" or (shape, late) == ("revise", "check") else "cyd"
    scripts[who][late] = {"text": "{}", "delay": 60}
    turn = Turn("session_x", 1, "why?", SEED, kind=RUNS[shape])
    events = await collect_turn(turn, await agents_of(scripts), CoordinationConfig(shape=shape, timeout=2))
    result = check_end(shape, events)
    if (shape, late) != ("revise", "present"):
        assert result.limit == "timeout"


async def test_the_line_of_agreement_says_what_is_missing() -> None:
    slow = {"text": "{}", "delay": 60}
    lines: dict[Any, str] = {
        "union": "not compared: 3 of 3 agents listed 3 items, 1 contested, not checked by ben",
        "decide": "2 of 3 agents scored 3 options by 2 criteria, 0 would choose otherwise",
        "revise": "not compared: 1 point of criticism, 0 revised, 0 declined, 1 without a reply, "
        "this text was not read by ben",
    }
    for shape, line in lines.items():
        scripts = {name: dict(script) for name, script in TEAMS[shape].items()}
        scripts["ben"]["items" if shape == "revise" else "check"] = slow
        turn = Turn("session_x", 1, "why?", SEED, kind=RUNS[shape])
        events = await collect_turn(turn, await agents_of(scripts), CoordinationConfig(shape=shape, timeout=2))
        assert only(events, TurnCompleted)[0].agreement == line


async def test_a_critic_that_fails_has_not_said_that_nothing_is_left() -> None:
    broken = {"items": [{"text": "", "error": "auth"}]}
    scripts = {"ann": {"answer": "A.", "check": checks("B.", i1="confirm")}, "ben": broken, "cyd": {"items": items()}}
    events = await run("revise", await agents_of(scripts), (), "why?")
    assert only(events, TurnCompleted)[0].agreement == (
        "not compared: 0 points of criticism, 0 revised, 0 declined, this text was not read by ben"
    )
