"""Runs turns of scripted agents, and checks the order of events that massmem.events states."""

from collections.abc import Mapping, Sequence
from contextlib import aclosing
from typing import Any

from massmem.config.models import AgentConfig, BackendConfig, CoordinationConfig, MemoryConfig
from massmem.events import (
    AgentDelta,
    AgentFailed,
    AgentRetrying,
    AgentStarted,
    AnswerSubmitted,
    BallotCast,
    BallotsVoided,
    Event,
    Notice,
    ParamRequested,
    RoundStarted,
    TurnCompleted,
    TurnFailed,
    TurnResumed,
    TurnStarted,
    TurnWaiting,
    WinnerDecided,
)
from massmem.memory.buffer import Buffer
from massmem.memory.tokens import estimate_tokens
from massmem.providers import Providers
from massmem.providers.base import ChatProvider
from massmem.tools.ask_user import Asking
from massmem.turn.agent import Agent
from massmem.turn.context import Context
from massmem.turn.coordinator import Turn, run_turn
from massmem.turn.meter import Meter

Scripts = Mapping[str, dict[str, Any]]


def config_of(name: str, script: dict[str, Any], *, tools: bool = True) -> AgentConfig:
    """A scripted agent that is never retried."""
    backend = BackendConfig(type="scripted", script=script, max_retries=0, tools=tools)
    return AgentConfig(id=name, backend=backend, system_message="", memory=MemoryConfig(), mcp_servers=())


def agent_of(config: AgentConfig, provider: ChatProvider, asking: Asking | None = None) -> Agent:
    """An agent without history and memory."""
    return Agent(config, provider, Context(config, provider, Meter(128_000, Buffer(estimate_tokens))), asking)


async def agents_of(scripts: Scripts, *, tools: bool = True, asking: Asking | None = None) -> dict[str, Agent]:
    """One scripted agent per entry."""
    providers = Providers()
    configs = [config_of(name, script, tools=tools) for name, script in scripts.items()]
    return {c.id: agent_of(c, await providers.open(c.backend), asking) for c in configs}


async def play(scripts: Scripts, past: Sequence[Event] = (), *, tools: bool = True, **settings: Any) -> list[Event]:
    """All events of one turn, deltas included."""
    agents = await agents_of(scripts, tools=tools)
    turn = Turn("session_x", 1, "why?", 7, past)
    async with aclosing(run_turn(turn, agents, CoordinationConfig(**settings))) as events:
        return [event async for event in events]


def only(events: Sequence[Event], kind: type) -> list[Any]:
    return [e for e in events if isinstance(e, kind)]


def check_order(events: Sequence[Event]) -> None:
    """Assert what the docstring of massmem.events promises of one uncut turn."""
    steps = [e for e in events if not isinstance(e, Notice)]
    assert isinstance(steps[0], TurnStarted | TurnResumed)
    assert isinstance(steps[-1], TurnCompleted | TurnFailed | TurnWaiting)
    assert len(only(steps, TurnStarted) + only(steps, TurnResumed)) == 1
    assert len(only(steps, TurnCompleted) + only(steps, TurnFailed) + only(steps, TurnWaiting)) == 1
    busy: set[str] = set()
    expected: set[str] = set()
    for event in steps:
        match event:
            case RoundStarted(agents=agents):
                assert not busy and not expected, "a round began before the one before it ended"
                expected = set(agents)
            case AgentStarted(agent_id=agent, step=step):
                assert agent not in busy
                assert step == "present" or agent in expected
                busy.add(agent)
            case AgentDelta(agent_id=agent) | AgentRetrying(agent_id=agent):
                assert agent in busy
            case (
                AnswerSubmitted(agent_id=agent)
                | BallotCast(agent_id=agent)
                | ParamRequested(agent_id=agent)
                | AgentFailed(agent_id=agent)
            ):
                busy.remove(agent)
                expected.discard(agent)
            case BallotsVoided() | WinnerDecided():
                assert not busy and not expected
            case _:
                pass
    if isinstance(steps[-1], TurnCompleted):
        assert len(only(steps, WinnerDecided)) <= 1
    assert expected == set()
