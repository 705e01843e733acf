"""The turns of one session: begun, taken up where they were, given up; stored, then told."""

import asyncio
import secrets
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Any, Literal

from massmem.config.models import AgentConfig
from massmem.errors import AskedBeforeError, InputError, StoreError
from massmem.events import Event, Notice, TurnCompleted, TurnFailed, TurnInterrupted, TurnWaiting, named
from massmem.providers.base import ChatProvider
from massmem.records import SessionState, TurnRecord
from massmem.session.batches import batches
from massmem.session.known import Known
from massmem.session.ownership import Ownership
from massmem.session.team import Team
from massmem.session.unfinished import unfinished, was_cut_off
from massmem.session.views import Place, Views
from massmem.telemetry.stages import Stage, memory_payload, respond_payload
from massmem.turn.agent import Agent
from massmem.turn.asking import Params, Reading
from massmem.turn.budget import Budget
from massmem.turn.coordinator import Turn, run_turn
from massmem.turn.tool_loop import Hand, Kept

StopReason = Literal["user", "signal"]


class NotAsKnown(Exception):
    """Somebody else has asked in the session, changed or deleted it, or does so now: nothing was done."""


class Turns:
    """Runs one turn at a time, for whoever owns the session; what is yielded is in the log.

    session_id, ownership: set before each call. seq: where the event that was yielded last stands in the log.
    stopping: set to end the running turn, with `stopped_by`.
    """

    ownership: Ownership

    def __init__(self, team: Team, agents: Sequence[AgentConfig], views: Views, known: Known) -> None:
        """known: kept right by what is stored here."""
        self.session_id = ""
        self.seq = 0
        self.stopping = asyncio.Event()
        self.stopped_by: StopReason = "user"
        self.params = Params(team.config)
        self._team = team
        self._config = team.config
        self._store = team.store
        self._agents = tuple(agents)
        self._views = views
        self._known = known
        self._request = ("", "")
        self._unsaid: list[str] = []

    async def ask(self, question: str, request: str) -> AsyncGenerator[Event, None]:
        """What `Session.ask` does.

        The session is owned, or it is taken with the first event of a new turn, when the last one is settled.
        Raises NotAsKnown: it could not be taken.
        """
        self._request = (request, question)
        last = self._known.last
        if request and (seq := await self._store.asked(self.session_id, request)) is not None:
            raise AskedBeforeError(seq)
        if (pending := unfinished(last)) is not None:
            message = _Message(question)
            async with aclosing(self._take_up(pending, message)) as events:
                async for event in events:
                    yield event
            if message.used or self.stopping.is_set():
                return
        number = 1 if last is None else last.turn + 1
        self.params.begin(number, (), self._known.state)
        news, wanted = self.params.opening(question), self._config.params
        turn = Turn(self.session_id, number, question, secrets.randbits(32), (), news, wanted)
        async with aclosing(self._run(turn, leaving=True)) as events:
            async for event in events:
                yield event

    async def finish(self) -> AsyncGenerator[Event, None]:
        """What `Session.finish_turn` does once the session is owned."""
        self._request = ("", "")
        pending = unfinished(self._known.last)
        if pending is None:
            raise InputError("no turn of this session is unfinished", "ask a question")
        past = await self._load(pending)
        late = self.params.waits and self.params.expired()
        ending = self._abandon(pending, Reading("timeout"), "") if late else self._resume(pending, past)
        async with aclosing(ending) as events:
            async for event in events:
                yield event

    async def _append(self, turn: int, events: Sequence[Event], *, leaving: bool = False) -> list[int]:
        """Store what happened, with the values of params that came in; only as long as the session is ours.

        leaving: it is let go of.
        """
        mine = self.ownership
        mine.check()
        state, owner = self.params.stored(events), mine.lease.owner if leaving else ""
        numbers = await self._store.append(self.session_id, turn, events, state, owner)
        if leaving:
            mine.gone()
        self._follow(turn, numbers, events, state)
        return numbers

    async def _begin(self, turn: int, events: Sequence[Event]) -> list[int]:
        """Store the first events of a turn, or of the rest of it, and take the session if it is not taken."""
        mine, mark = self.ownership, self._known.mark
        if mine.held:
            return await self._append(turn, events)
        if mark is None:
            raise NotAsKnown
        mine.may_be_taken()
        numbers = await self._store.begin_turn(self.session_id, turn, events, mine.lease, mark)
        if numbers is None:
            mine.gone()
            raise NotAsKnown
        mine.taken()
        self._follow(turn, numbers, events, self.params.stored(events))
        return numbers

    def _follow(self, turn: int, numbers: Sequence[int], events: Sequence[Event], state: SessionState | None) -> None:
        self._known.follow(turn, numbers, events, state)
        self._views.follow(self.session_id, turn, numbers, events)

    async def _tell(self, turn: int, events: Sequence[Event]) -> AsyncGenerator[Event, None]:
        """Store, then yield."""
        told = [named(event, *self._request) for event in events]
        numbers = await self._append(turn, told)
        for number, event in zip(numbers, told, strict=True):
            self.seq = number
            yield event

    async def _load(self, pending: TurnRecord) -> list[Event]:
        """What the log holds of the turn."""
        past = await self._store.turn_events(self.session_id, pending.turn)
        self.params.begin(pending.turn, past, await self._store.state(self.session_id))
        return past

    async def _take_up(self, pending: TurnRecord, message: "_Message") -> AsyncGenerator[Event, None]:
        """Go on with the unfinished turn, as far as that is what the message asks for, or give it up."""
        past = await self._load(pending)
        message.used = message.text == pending.question
        if message.used or (not self.params.waits and was_cut_off(past)):
            async with aclosing(self._resume(pending, past)) as events:
                async for event in events:
                    yield event
            if message.used or self.stopping.is_set():
                return
            past = await self._load(pending)
        elif not self.params.waits:
            await self._store.abandon_turn(self.session_id, pending.turn)
        if self.params.waits:
            async with aclosing(self._reply(pending, past, message)) as events:
                async for event in events:
                    yield event

    async def _reply(self, pending: TurnRecord, past: list[Event], message: "_Message") -> AsyncGenerator[Event, None]:
        """Read the message as the reply that the turn waits for, and go on with the turn, or give it up."""
        reading = await self.params.read(pending.question, message.text, self._team.chat, self.stopping)
        match reading:
            case None:
                message.used = True
                ending = self._tell(pending.turn, [TurnInterrupted(by=self.stopped_by)])
            case Reading("answer"):
                message.used = True
                ending = self._resume(pending, past, self.params.news(reading, message.text))
            case Reading(intent):
                message.used = intent in ("cancel", "reset")
                ending = self._abandon(pending, reading, message.text)
        async with aclosing(ending) as events:
            async for event in events:
                yield event

    def _abandon(self, pending: TurnRecord, reading: Reading, text: str) -> AsyncGenerator[Event, None]:
        return self._tell(pending.turn, self.params.abandoned(pending, reading, text))

    async def _resume(
        self, pending: TurnRecord, past: list[Event], news: Sequence[Event] = ()
    ) -> AsyncGenerator[Event, None]:
        told = news or self.params.known()
        turn = Turn(self.session_id, pending.turn, pending.question, pending.seed, past, told, self._config.params)
        async with aclosing(self._run(turn)) as events:
            async for event in events:
                yield event

    async def _run(self, turn: Turn, *, leaving: bool = False) -> AsyncGenerator[Event, None]:
        """Run the turn, and tell telemetry what came in and what went out.

        leaving: let go of the session when it has ended.
        """
        begun = await self._begun(turn)
        last: Event | None = None
        with self._team.tracer.turn(self.session_id) as trace:
            async with aclosing(self._stored(begun, leaving=leaving)) as events:
                async for event in events:
                    trace.feed(event)
                    last = event
                    yield event
        if last is not None:
            await self._stage("respond", turn, {**respond_payload(last), **await self._memory()})

    async def _stage(self, stage: Stage, turn: Turn, payload: Mapping[str, Any]) -> None:
        stages = self._team.stages
        if stages.wanted:
            await asyncio.to_thread(stages.write, stage, self.session_id, turn.number, payload)

    async def _memory(self) -> dict[str, Any]:
        """For a stage: how much the session holds now."""
        if not self._team.stages.wanted:
            return {}
        session, state = await self._store.get_session(self.session_id), self.params.state
        count = 0 if session is None else session.message_count
        return {"memory": memory_payload(count, state.params, state.waiting_for_param)}

    async def _begun(self, turn: Turn) -> "_Begun":
        """Store how the turn begins: no agent is asked before that."""
        budget, kept = Budget(self._config.coordination, self._team.prices), Kept()
        chat = {agent.id: budget.metered(agent, self._team.chat[agent.id]) for agent in self._agents}
        agents = await self._council(turn, chat, kept)
        source = run_turn(turn, agents, self._config.coordination, budget)
        try:
            self._unsaid += self._team.warnings()
            told = self._told([*self._notices(), await anext(source)])
            received = await self._memory()
            numbers = await self._begin(turn.number, told)
        except BaseException:
            await source.aclose()
            raise
        self._unsaid.clear()
        return _Begun(turn, chat, kept, source, list(zip(numbers, told, strict=True)), received)

    async def _stored(self, begun: "_Begun", *, leaving: bool) -> AsyncGenerator[Event, None]:
        """Store each batch of events, then yield it; whatever ends the turn from outside is stored as well."""
        turn, ended = begun.turn, False
        try:
            await self._stage("received", turn, begun.received)
            for event in self._views.take_prepared():
                yield event
            for self.seq, event in begun.told:
                yield event
            async with aclosing(batches(begun.source, self.stopping)) as gathered:
                async for batch in gathered:
                    ended = isinstance(batch[-1], TurnCompleted | TurnFailed | TurnWaiting)
                    told = self._told([*self._notices(), *batch])
                    numbers = await self._append(turn.number, told, leaving=leaving and ended)
                    self._unsaid.clear()
                    begun.kept.confirm(told)
                    self._team.memory.wake()
                    if isinstance(end := told[-1], TurnCompleted):
                        self._views.prepare(self.session_id, turn.number, end.answer, begun.chat)
                    for self.seq, event in zip(numbers, told, strict=True):
                        yield event
            if not ended:
                ended = True
                async for event in self._tell(turn.number, [TurnInterrupted(by=self.stopped_by)]):
                    yield event
        finally:
            if not ended:
                with suppress(StoreError):  # a store that just failed has raised its error already
                    await self._append(turn.number, [TurnInterrupted(by=self.stopped_by)])

    def _notices(self) -> list[Notice]:
        """What is to be said of store, tools and memory; to be said again unless it is stored."""
        self._unsaid += self._team.memory.take_notices()
        return [Notice(message=text) for text in self._unsaid]

    def _told(self, events: Sequence[Event]) -> list[Event]:
        """As they are stored."""
        return [named(self.params.masked(event), *self._request) for event in events]

    async def _council(self, turn: Turn, chat: Mapping[str, ChatProvider], kept: Kept) -> dict[str, Agent]:
        await self._team.tools.ready()
        newest = None if self._known.mark is None else self._known.mark.seq
        contexts = await self._views.contexts(Place(turn.session_id, turn.number, turn.question, newest), chat)
        asking = self.params.asking(turn.news)
        hands = {a.id: self._hand(a, turn, kept) for a in self._agents}
        return {a.id: Agent(a, chat[a.id], contexts[a.id], asking, hands[a.id]) for a in self._agents}

    def _hand(self, agent: AgentConfig, turn: Turn, kept: Kept) -> Hand:
        box, recorded = self._team.tools.of(agent.id), agent.memory.recording.record_all_tool_calls
        return Hand(box, turn.past, kept, self._config.coordination.max_tool_rounds, recorded)


@dataclass(frozen=True, slots=True)
class _Begun:
    """A turn of which the first events are in the log. told: they, with their numbers. source: the others.

    received: of the stage of this name, how it was before.
    """

    turn: Turn
    chat: Mapping[str, ChatProvider]
    kept: Kept
    source: AsyncGenerator[Event, None]
    told: Sequence[tuple[int, Event]]
    received: Mapping[str, Any]


@dataclass(slots=True)
class _Message:
    """What the user says to a session with an unfinished turn. used: it was for that turn."""

    text: str
    used: bool = False
