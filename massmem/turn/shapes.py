"""Runs turns of each shape: a vote, a union of items, or a draft that is revised."""

import asyncio
from collections.abc import Mapping

from massmem.config.models import CoordinationConfig
from massmem.core import events as ev
from massmem.core.turn_result import TurnResult
from massmem.core.verdict import Policy
from massmem.turn.agent import Agent
from massmem.turn.budget import Budget
from massmem.turn.coordinator import Turn, TurnRun
from massmem.turn.outbox import Outbox
from massmem.turn.union import UnionRun

_RUNS: Mapping[ev.Shape, type[TurnRun]] = {"vote": TurnRun, "union": UnionRun}


async def run_turn(
    turn: Turn,
    agents: Mapping[str, Agent],
    settings: CoordinationConfig,
    outbox: Outbox,
    budget: Budget | None = None,
    answer_now: asyncio.Event | None = None,
) -> None:
    """Run a turn, or the rest of it, and emit its events in the order that massmem.core.events states.

    The last event is turn_completed, turn_failed or turn_waiting. Cancelling it cancels all requests.

    agents: by id, in configuration order. settings.timeout counts from this call. budget: ends the turn when its
    requests come to a limit. answer_now: once it is set, the turn ends with its answers so far, or with the first one.
    """
    shapes = [event.shape for event in turn.events if isinstance(event, ev.TurnStarted)]
    settings = settings.model_copy(update={"shape": shapes[0]} if shapes else {})  # as it began
    deadline = asyncio.get_running_loop().time() + settings.timeout
    is_adaptive = settings.depth == "adaptive" and not turn.full
    policy = Policy(turn.calibration, settings.max_error, settings.escalate_below, adaptive=is_adaptive)
    run = _RUNS[settings.shape](
        turn, agents, settings, outbox, deadline, budget or Budget(), answer_now or asyncio.Event(), policy
    )
    run.tally.apply_all(turn.events)
    run.names = TurnResult.of(turn.events).names | {
        agent.id: agent.name for agent in agents.values() if agent.name != agent.id
    }
    run.budget.begin(run.tally.usage, deadline)
    if turn.events:
        run.unreported_usage += turn.description.usage  # the first try was stopped, and its event has none
    outbox.on_event = run.apply
    run.open()
    await run.run_rounds()
    run.decide()
    await run.conclude()
