"""Runs turns of scripted agents, and checks the order of events that massmem.core.events states."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from massmem.config.models import AgentConfig, BackendConfig, CoordinationConfig, MemoryConfig
from massmem.core.events import (
    AgentDelta,
    AgentFailed,
    AgentRetrying,
    AgentStarted,
    AnswerSubmitted,
    BallotCast,
    BallotsVoided,
    DepthDecided,
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
from massmem.memory.tokens import Buffer, estimate_tokens
from massmem.providers import Providers
from massmem.providers.base import ChatProvider
from massmem.tools.actions import AskContext
from massmem.turn.agent import Agent
from massmem.turn.compressor import AgentContext, Compressor, Recall, TokenMeter
from massmem.turn.coordinator import Turn
from massmem.turn.outbox import Outbox
from massmem.turn.prompt_builder import Prompt
from massmem.turn.shapes import run_turn

Scripts = Mapping[str, dict[str, Any]]
SEED = 7
"""Of all turns."""


def config_of(name: str, script: dict[str, Any], *, tools: bool = True) -> AgentConfig:
    """Return the configuration of a scripted agent that is never retried."""
    backend = BackendConfig(type="scripted", script=script, max_retries=0, tools=tools)
    return AgentConfig(id=name, backend=backend, system_message="", memory=MemoryConfig(), mcp_servers=())


def agent_of(
    config: AgentConfig, provider: ChatProvider, asking: AskContext | None = None, recall: Recall | None = None
) -> Agent:
    """Return an agent without history."""
    compressor = Compressor(config, provider, TokenMeter(128_000, Buffer(estimate_tokens)), recall)
    return Agent(config, provider, AgentContext(Prompt(config.id, config.system_message), compressor), asking)


async def agents_of(scripts: Scripts, *, tools: bool = True, asking: AskContext | None = None) -> dict[str, Agent]:
    """Return one scripted agent per entry."""
    providers = Providers()
    configs = [config_of(name, script, tools=tools) for name, script in scripts.items()]
    return {c.id: agent_of(c, await providers.open(c.backend), asking) for c in configs}


async def play(scripts: Scripts, past: Sequence[Event] = (), *, tools: bool = True, **settings: Any) -> list[Event]:
    """Run one turn of scripted agents; return its events, deltas included."""
    return await run(await agents_of(scripts, tools=tools), past, **settings)


async def run(agents: Mapping[str, Agent], past: Sequence[Event] = (), **settings: Any) -> list[Event]:
    """Run one turn of these agents; return its events, deltas included. settings: also the `question`."""
    if past:  # as the session resumes it
        resumed = TurnResumed(session_id="session_x", turn=1, question="why?", agents=tuple(agents))
        return [resumed, *await run_rest(agents, [*past, resumed], **settings)]
    return await run_rest(agents, **settings)


async def run_rest(
    agents: Mapping[str, Agent], past: Sequence[Event] = (), question: str = "why?", **settings: Any
) -> list[Event]:
    """Run what is left of a turn after these events; return its events, deltas included."""
    turn = Turn("session_x", 1, question, SEED, past)
    return await collect_turn(turn, agents, CoordinationConfig(**settings))


async def collect_turn(
    turn: Turn, agents: Mapping[str, Agent], settings: CoordinationConfig, *more: Any, **named: Any
) -> list[Event]:
    """Run a turn that nobody stores; return its events, deltas included. more, named: see `run_turn`."""
    outbox = Collector()
    await run_turn(turn, agents, settings, outbox, *more, **named)
    return outbox.events


class Collector(Outbox):
    """Keeps all events; whoever waits until they are stored goes on at once."""

    def __init__(self, on_emitted: Callable[[Event], None] = lambda _: None) -> None:
        super().__init__()
        self.events: list[Event] = []
        self._on_emitted = on_emitted

    def emit(self, event: Event) -> None:
        self.events.append(event)
        self.on_event(event)
        self._on_emitted(event)

    async def wait_until_stored(self) -> None:
        await asyncio.sleep(0)


def only(events: Sequence[Event], kind: type) -> list[Any]:
    return [e for e in events if isinstance(e, kind)]


def check_order(events: Sequence[Event]) -> None:
    """Assert what the docstring of massmem.core.events promises of one uncut turn."""
    steps = [e for e in events if not isinstance(e, Notice)]
    assert isinstance(steps[0], TurnStarted | TurnResumed)
    assert isinstance(steps[-1], TurnCompleted | TurnFailed | TurnWaiting)
    assert len(only(steps, TurnStarted) + only(steps, TurnResumed)) == 1
    assert len(only(steps, TurnCompleted) + only(steps, TurnFailed) + only(steps, TurnWaiting)) == 1
    busy: set[str] = set()
    expected: set[str] = set()
    not_needed = False
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
            case BallotsVoided():
                assert not busy and not expected
            case DepthDecided(next=agents):
                assert not busy and not expected
                expected, not_needed = set(agents), not agents
            case WinnerDecided(not_asked=not_asked):
                assert not busy and (expected == set(not_asked) or (not_needed and not expected))
                expected.clear()
            case _:
                pass
    if isinstance(steps[-1], TurnCompleted):
        assert len(only(steps, WinnerDecided)) <= 1
    assert expected == set()
