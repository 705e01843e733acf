"""Runs a turn of a session again, apart from it, with something changed: what follows from that, and does it decide?

What an agent did is taken from the log as long as everything that it rested on is the same. Only where the change
shows in what an agent is sent is its model asked again.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from massmem.config.models import AgentConfig, AgentSpec, BackendConfig, TeamConfig
from massmem.core.errors import InputError
from massmem.core.events import Event, TurnStarted
from massmem.core.events import Step as StepName
from massmem.core.messages import Candidate
from massmem.core.outcome import TurnOutcome
from massmem.core.records import SessionRecord, TurnRecord
from massmem.memory.persistent import Selection
from massmem.providers.base import ChatProvider
from massmem.recording.forgetting import unknown_memory
from massmem.session.fork import open_past
from massmem.session.history import History
from massmem.session.owners import restrict_to_owner
from massmem.session.team import Team
from massmem.session.turn_runner import create_agents
from massmem.store.lookup import require_turn
from massmem.store.ports import SessionStore
from massmem.turn.agent import Agent, Presentation, Result, Work
from massmem.turn.budget import Budget
from massmem.turn.coordinator import Turn, run_turn
from massmem.turn.param_dialog import ParamDialog
from massmem.turn.recorded import RecordedStep, StepKey, play_step, read_steps
from massmem.turn.request import StepCost
from massmem.turn.sight import Description
from massmem.turn.stream import Checkpoint

_PASSES = 2
"""Passes of the event loop for each place in the log that a replayed step is behind another one."""


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that is different in a replay: a memory is left out, or an agent has another model."""

    memory_id: str = ""
    """Of a memory, or of a message."""
    agent_id: str = ""
    backend: BackendConfig | None = None

    def __str__(self) -> str:
        if self.backend is None:
            return f"without memory {self.memory_id}"
        return f"{self.agent_id} with {self.backend.model or self.backend.type}"


@dataclass(frozen=True, slots=True)
class AskedStep:
    """A step that was not taken from the log."""

    agent_id: str
    round: int
    step: StepName
    reason: str


@dataclass(slots=True)
class Replay:
    """A turn that was run again."""

    changes: tuple[Change, ...]
    events: list[Event] = field(default_factory=list[Event])
    asked: list[AskedStep] = field(default_factory=list[AskedStep])
    """In the order in which they were."""

    @property
    def outcome(self) -> TurnOutcome:
        return TurnOutcome.of(self.events)

    @property
    def winner(self) -> str | None:
        winner = self.outcome.winner
        return None if winner is None else winner.agent_id


@dataclass(frozen=True, slots=True)
class Comparison:
    """A turn beside its replay."""

    original: Sequence[Event]
    replay: Replay
    causes: tuple[Change, ...] = ()
    """Of the changes: those that change the winner by themselves; all, when they do so only together."""
    together: bool = False
    """None of the causes changes the winner by itself."""

    @property
    def winner(self) -> str | None:
        """Of the original."""
        winner = TurnOutcome.of(self.original).winner
        return None if winner is None else winner.agent_id

    @property
    def winner_changed(self) -> bool:
        return self.winner != self.replay.winner

    @property
    def answer_changed(self) -> bool:
        return TurnOutcome.of(self.original).answer != self.replay.outcome.answer


async def load_recorded_turn(store: SessionStore, session_id: str, number: int) -> tuple[TurnRecord, list[Event]]:
    """Return a turn with its events.

    Raises:
        InputError: there is no such turn, or it is under way.
        StoreError: the store cannot be read.
    """
    turn = await require_turn(store, session_id, number)
    if turn.status == "running":
        raise InputError(f"turn {number} is under way", "replay it when it has ended")
    return turn, await store.read_turn_events(session_id, number)


class TurnReplayer:
    """Runs one turn again, as often as wanted. Nothing of it is stored."""

    def __init__(self, team: Team, session: SessionRecord, turn: TurnRecord, events: Sequence[Event]) -> None:
        """team: a started one, with the agents that the turn had. events: all of the turn.

        Raises InputError: the turn has no winner, or an agent of it is not in the team.
        """
        started = next((event for event in events if isinstance(event, TurnStarted)), None)
        if started is None or TurnOutcome.of(events).winner is None:
            raise InputError(f"turn {turn.turn} has no winner to compare with", "choose one that was answered")
        agents = {agent.id for agent in team.config.agents}
        if missing := [agent_id for agent_id in started.agents if agent_id not in agents]:
            raise InputError(
                f"the team has no agent {missing[0]!r}, which took part in turn {turn.turn}",
                "name the configuration that the session had: --config FILE",
            )
        self._team = team
        self._session = session
        self._turn = turn
        self._started = started
        self._events = events

    async def compare(self, changes: Sequence[Change]) -> Comparison:
        """Run the turn again with all changes; when the winner is another one, find out which of them are the cause.

        For that each change is tried alone. Without any change all agents are asked again.

        Raises:
            InputError: there is no such memory or agent; no key, no tool server for an agent's other model.
            StoreError: the store cannot be read.
        """
        for change in changes:
            await self._check(change)
        comparison = Comparison(self._events, await self.run(changes))
        if not (changes and comparison.winner_changed):
            return comparison
        if len(changes) == 1:
            return Comparison(self._events, comparison.replay, tuple(changes))
        alone = [change for change in changes if (await self.run([change])).winner != comparison.winner]
        return Comparison(self._events, comparison.replay, tuple(alone or changes), together=not alone)

    async def run(self, changes: Sequence[Change]) -> Replay:
        """Run the turn again with these changes. Raises as `compare`."""
        team = self._team.beside(self._change_team(changes))
        replay = Replay(tuple(changes))
        try:
            await team.start()
            async with open_past(self._team.store, self._session.session_id, self._turn.turn) as earlier_store:
                await self._run(team, earlier_store, replay)
        finally:
            await team.close()
        return replay

    async def _check(self, change: Change) -> None:
        if change.backend is not None:
            if change.agent_id not in self._started.agents:
                hint = f"agents: {', '.join(self._started.agents)}"
                raise InputError(f"there is no agent {change.agent_id!r} in turn {self._turn.turn}", hint)
            return
        if await self._team.store.get_messages([change.memory_id]):
            return
        async with self._team.open_durable_memory() as memory:
            if not await memory.list(Selection(ids=(change.memory_id,)), 1):
                raise unknown_memory(change.memory_id)

    def _change_team(self, changes: Sequence[Change]) -> TeamConfig:
        backends = {change.agent_id: change.backend for change in changes if change.backend is not None}

        def replace_backend(agent: AgentSpec) -> AgentSpec:
            backend = backends.get(agent.id)
            return agent if backend is None else agent.model_copy(update={"backend": backend})

        by_id = {agent.id: agent for agent in self._team.config.agents}
        agents = tuple(replace_backend(by_id[agent_id]) for agent_id in self._started.agents)
        return self._team.config.model_copy(update={"agents": agents})

    async def _run(self, team: Team, earlier_store: SessionStore, replay: Replay) -> None:
        started, coordination = self._started, team.config.coordination
        turn = Turn(
            started.session_id,
            started.turn,
            started.question,
            started.seed,
            params=team.config.param_specs,
            answer_schema=started.answer_schema,
            attachments=started.attachments,
            description=Description(started.description),
        )
        budget = Budget(coordination)
        providers = {agent.id: budget.limit(agent, team.chat[agent.id]) for agent in team.agents}
        stage = _Stage(
            team, earlier_store, restrict_to_owner(team.agents, self._session.user_id), providers, turn, started.at
        )
        without = [change.memory_id for change in replay.changes if change.memory_id]
        dialog = ParamDialog(team.config, await self._team.store.load_state(turn.session_id), turn.number)
        history = stage.create_history(self._session.user_id, without)
        asking = dialog.build_ask_context()
        live = await create_agents(team, stage.configs, history, turn, providers, asking)
        reasons = await self._list_reasons(stage, replay.changes)
        steps = read_steps(self._events, orders={agent.id: agent.order for agent in live.values()})
        agents = {
            agent_id: _ReplayAgent(agent, steps, reasons.get(agent_id, ""), replay) for agent_id, agent in live.items()
        }
        async with aclosing(run_turn(turn, agents, coordination, budget)) as items:
            async for item in items:
                if isinstance(item, Checkpoint):
                    item.confirm()
                else:
                    replay.events.append(item)

    async def _list_reasons(self, stage: "_Stage", changes: Sequence[Change]) -> dict[str, str]:
        """Return why an agent is asked again from the start, by its id: its model, or what it recalls, has changed."""
        if not changes:
            return dict.fromkeys(self._started.agents, "asked again")
        reasons = {change.agent_id: str(change) for change in changes if change.backend is not None}
        memories = [change for change in changes if change.memory_id]
        owner = self._session.user_id
        recalled = await stage.recall(owner, []) if memories else {}
        for change in memories:
            without = await stage.recall(owner, [change.memory_id])
            for agent_id in self._started.agents:
                if without[agent_id] != recalled[agent_id]:
                    reasons.setdefault(agent_id, str(change))
        return reasons


@dataclass(frozen=True, slots=True)
class _Stage:
    """What a replay runs on."""

    team: Team
    earlier_store: SessionStore
    """The session as it was before the turn."""
    configs: tuple[AgentConfig, ...]
    providers: Mapping[str, ChatProvider]
    turn: Turn
    began_at: datetime

    def create_history(self, owner: str | None, without: Sequence[str]) -> History:
        """Return what the agents see of the session. without: ids of memories."""
        team, most = self.team, self.team.config.files.max_size
        history = History(self.earlier_store, team.memory, self.configs, team.windows, owner=owner, max_attached=most)
        history.without, history.before = frozenset(without), self.began_at
        return history

    async def recall(self, owner: str | None, without: Sequence[str]) -> dict[str, str]:
        """Return what each agent recalls at the start of the turn, by its id."""
        history, turn = self.create_history(owner, without), self.turn
        contexts = await history.build_contexts(turn.session_id, turn.number, turn.question, self.providers)
        recalled: dict[str, str] = {}
        for agent_id, context in contexts.items():
            prompt = context.prompt.next_step("answer", turn.question)
            recalled[agent_id] = (await context.compressor.recall(prompt)).memories
        return recalled


class _ReplayAgent:
    """An agent that does what it did, and is asked again where something has changed for it."""

    def __init__(self, agent: Agent, steps: Mapping[StepKey, RecordedStep], reason: str, replay: Replay) -> None:
        """reason: why the agent is asked again in every step; "": only where it is shown something else."""
        self.id, self.name, self.order = agent.id, agent.name, agent.order
        self._agent = agent
        self._steps = steps
        self._reason = reason
        self._replay = replay

    def answer(self, question: str, round_: int, cost: StepCost) -> AsyncGenerator[Work | Result, None]:
        return self._act(round_, "answer", (), cost, self._agent.answer(question, round_, cost))

    def vote(
        self, question: str, round_: int, candidates: Sequence[Candidate], cost: StepCost, *, final: bool
    ) -> AsyncGenerator[Work | Result, None]:
        live = self._agent.vote(question, round_, candidates, cost, final=final)
        return self._act(round_, "vote", candidates, cost, live)

    def present(
        self,
        question: str,
        round_: int,
        candidates: Sequence[Candidate],
        cost: StepCost,
        schema: Mapping[str, Any] | None = None,
    ) -> AsyncGenerator[Work | Presentation, None]:
        live = self._agent.present(question, round_, candidates, cost, schema)
        return self._act(round_, "present", candidates, cost, live)

    async def _act(
        self, round_: int, name: StepName, candidates: Sequence[Candidate], cost: StepCost, live: AsyncGenerator[Any]
    ) -> AsyncGenerator[Any]:
        """Do what the agent did in this step, or what it does now. live: begins when it is asked for its first item."""
        recorded = self._find(round_, name, candidates)
        items = live if recorded is None else self._play(recorded, cost)
        async with aclosing(items):
            async for item in items:
                yield item

    def _play(self, recorded: RecordedStep, cost: StepCost) -> AsyncGenerator[Work | Result | Presentation, None]:
        """Play a step at the pace of the log: the order of answers may decide a tie."""
        position = recorded.begin

        async def wait(place: int) -> None:
            nonlocal position
            for _ in range(_PASSES * (place - position)):
                await asyncio.sleep(0)
            position = place

        return play_step(recorded, cost, wait)

    def _find(self, round_: int, name: StepName, candidates: Sequence[Candidate]) -> RecordedStep | None:
        """Return the step of the log; None, with a note, when the agent has to be asked."""
        recorded = self._steps.get((self.id, round_, name))
        reason = self._reason
        if not reason and recorded is not None and recorded.is_whole:
            if tuple(candidates) == recorded.candidates:
                return recorded
            reason = "the answers that it is shown have changed"
        reason = reason or "it did not act here"
        self._replay.asked.append(AskedStep(self.id, round_, name, reason))
        return None
