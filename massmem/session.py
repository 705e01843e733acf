"""One conversation with a team, across any number of runs: the application service behind every front end.

It composes store, registry, providers, agents and coordinator; nothing else does.
"""

import asyncio
import logging
import secrets
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

from massmem.agent import Agent
from massmem.asking import Params, Reading
from massmem.batches import batches
from massmem.budget import Budget
from massmem.config.models import TeamConfig
from massmem.coordinator import Turn, run_turn
from massmem.errors import AskedBeforeError, HomeError, InputError, SessionBusyError, StoreError, UnknownSessionError
from massmem.events import (
    Event,
    Notice,
    ToolReturned,
    TurnCompleted,
    TurnFailed,
    TurnInterrupted,
    TurnWaiting,
    named,
)
from massmem.listing import Listing
from massmem.messages import clean_text
from massmem.new_session import NewSession, agents_of, stored_session
from massmem.ownership import Ownership, owned
from massmem.providers.base import ChatProvider
from massmem.records import SessionRecord, TurnRecord
from massmem.session_ids import check_session_name
from massmem.store.reading import existing_session, wanted_session
from massmem.team import Team
from massmem.unfinished import unfinished, was_cut_off
from massmem.views import Place, Views

log = logging.getLogger(__name__)

StopReason = Literal["user", "signal"]


class Session:
    """One question at a time, also over processes.

    Made by `Session.open`, for a session alone, or by `Session.of`, one of many on the same team; to be closed.
    """

    def __init__(self, team: Team, record: SessionRecord | None, new: NewSession = NewSession()) -> None:  # noqa: B008 - frozen
        """record None: it is made with its first question, as `new` says."""
        self.resumed = record is not None
        self.unfinished: TurnRecord | None = None
        self.wait = 0.0
        """Seconds that a question waits for another process to end its turn of this session."""
        self.seq = 0
        """Where the event that was yielded last stands in the log."""
        self._team = team
        self._config = team.config
        self._store = team.store
        self._record = record
        self._new = new
        self._agents = agents_of(team.agents, new.owner)
        self._memory = team.memory
        self._views = Views(team.store, team.memory, self._agents, team.windows)
        self._stop = asyncio.Event()
        self._stopped_by: StopReason = "user"
        self._params = Params(team.config)
        # The list is of the sessions of this machine's user.
        listed = new.owner is None and self.lasting
        self._listing = Listing(team.store, team.home, team.config.store.url) if listed else None
        self._ownership: Ownership | None = None
        self._alone = False
        self._request = ("", "")

    @classmethod
    async def open(
        cls,
        config: TeamConfig,
        *,
        home: Path,
        session_id: str | None = None,
        newest: bool = False,
        debug: Path | None = None,
    ) -> Self:
        """Open the session `session_id` (or the configuration's), or prepare a new one when neither is given.

        home: the folder for massmem's own files, made when missing. A new session is stored with its first question.
        session_id: also a name, or the beginning of an id. newest: go on with the session that was used last.
        debug: a folder for debug files of what is remembered; None: none are written.

        Raises:
            MissingKeyError, MissingModelError, ConfigError, HomeError, InputError: see there; no session was made.
            UnknownSessionError: there is no such session; the hint names similar ones.
            InputError: session_id may be any of several sessions; the hint names them.
            StoreError: the store cannot be used.
        """
        wanted = session_id or (None if newest else config.session_id)
        if wanted is not None:
            check_session_name(wanted)
        fallback = wanted is None and not newest
        team = await Team.open(config, home=home, debug=debug, fallback=fallback)
        try:
            session = cls(team, await wanted_session(team.store, wanted, newest=newest))
            session._alone = True
            session.unfinished = unfinished(await session._last_turn())
            await team.start()
        except BaseException:
            await team.close()
            raise
        return session

    @classmethod
    async def of(cls, team: Team, session_id: str, owner: str) -> Self:
        """The session with exactly this id, on a team that was started, to be made for `owner` when there is none.

        Raises:
            UnknownSessionError: it is somebody else's.
            SessionBusyError: it is being deleted.
            StoreError: the store cannot be read.
        """
        record = await team.store.get_session(session_id)
        if record is not None and record.user_id != owner:
            raise UnknownSessionError("there is no such session")
        if record is not None and record.status == "deleting":
            raise SessionBusyError("the session is being deleted", "wait until it is gone, then ask again")
        session = cls(team, record, NewSession(session_id, owner))
        session.unfinished = unfinished(await session._last_turn())
        return session

    @property
    def id(self) -> str:
        """The session's id; empty until a new session has stored its first question, unless it has one before."""
        return self._new.session_id if self._record is None else self._record.session_id

    @property
    def config_path(self) -> str:
        """The file of the team that the session began with; empty for a new one."""
        return "" if self._record is None else self._record.config_path

    @property
    def lasting(self) -> bool:
        """False: it is held in memory, because the store was away, and ends with this process."""
        return self._store.info.durable

    @property
    def hidden(self) -> Mapping[str, object]:
        """What the user gave when asked, by name: no log may show it."""
        return self._params.hidden

    async def ask(self, question: str, request: str = "") -> AsyncGenerator[Event, None]:
        """Run a turn and yield its events, each after it was stored.

        request: a name that only this question has in the session; under it, it is never asked a second time.

        An unfinished turn comes first: it is taken up when it was cut off by a kill or asks the same question, and
        given up when the user stopped it or saw it fail and asks something else now. To a turn that waits for the user
        the question is the reply, and becomes a turn of its own only when it is something else.

        Raises:
            InputError: the question is empty.
            AskedBeforeError: what has this name is in the log already; nothing was done.
            ProviderError: the reply could not be read; the turn still waits.
            SessionBusyError: another process runs a turn of this session.
            StoreError: the log cannot be written; what was yielded before is safe.
        """
        question = clean_text(question)
        if not question.strip():
            raise InputError("the question is empty", 'ask like this: massmem "your question"')
        await self._exist()
        async with self._owned():
            self._request = (request, question)
            if request and (seq := await self._store.asked(self.id, request)) is not None:
                raise AskedBeforeError(seq)
            last = await self._last_turn()
            if (pending := unfinished(last)) is not None:
                message = _Message(question)
                async with aclosing(self._take_up(pending, message)) as events:
                    async for event in events:
                        yield event
                if message.used or self._stop.is_set():
                    return
            number = 1 if last is None else last.turn + 1
            self._params.begin(number, (), await self._store.state(self.id))
            news, wanted = self._params.opening(question), self._config.params
            turn = Turn(self.id, number, question, secrets.randbits(32), (), news, wanted)
            async with aclosing(self._run(turn)) as events:
                async for event in events:
                    yield event

    async def finish_turn(self) -> AsyncGenerator[Event, None]:
        """Take the unfinished turn up where it was and yield its further events.

        Raises:
            InputError: no turn is unfinished.
            SessionBusyError, StoreError: as `ask`.
        """
        async with self._owned():
            pending = unfinished(await self._last_turn())
            if pending is None:
                raise InputError("no turn of this session is unfinished", "ask a question")
            past = await self._load(pending)
            late = self._params.waits and self._params.expired()
            ending = self._abandon(pending, Reading("timeout"), "") if late else self._resume(pending, past)
            async with aclosing(ending) as events:
                async for event in events:
                    yield event

    async def _append(self, turn: int, events: Sequence[Event]) -> list[int]:
        """Store what happened, with the values of params that came in; only as long as the session is ours."""
        if self._ownership is not None:
            self._ownership.check()
        return await self._store.append(self.id, turn, events, self._params.stored(events))

    async def _tell(self, turn: int, events: Sequence[Event]) -> AsyncGenerator[Event, None]:
        """Store, then yield."""
        told = [named(event, *self._request) for event in events]
        numbers = await self._append(turn, told)
        for number, event in zip(numbers, told, strict=True):
            self.seq = number
            yield event

    async def add_tool_result(self, agent_id: str, name: str, text: str) -> None:
        """Keep what a tool gave back outside a turn (in an editor, a pipeline); the agent recalls it later.

        name: of the tool. Raises InputError for an unknown agent, StoreError.
        """
        if agent_id not in {agent.id for agent in self._agents}:
            raise InputError(f"there is no agent {agent_id!r}", f"agents: {', '.join(a.id for a in self._agents)}")
        await self._exist()
        last = await self._last_turn()
        event = ToolReturned(agent_id=agent_id, round=0, name=name, content=text)
        await self._store.append(self.id, 0 if last is None else last.turn, [event])
        self._memory.wake()

    def stop(self, by: StopReason) -> None:
        """End the running turn now: its last event is turn_interrupted, and it can be taken up later."""
        self._stopped_by = by
        self._stop.set()

    async def settle(self) -> None:
        """Wait until what is done after a turn, for the next one, is done."""
        await self._views.settle()

    async def close(self) -> None:
        """Record for a moment what is still to be remembered, and let go of everything that is this session's."""
        await self._views.close()
        if self._alone:
            await self._team.close()

    async def _exist(self) -> None:
        if self._record is None:
            self._record = await stored_session(self._store, self._config, self._new)

    @asynccontextmanager
    async def _owned(self) -> AsyncGenerator[None, None]:
        """Run turns of the session alone."""
        async with owned(
            self._store, self._team.home, self.id, wait=self.wait, on_loss=self._stop.set
        ) as self._ownership:
            self._stop.clear()
            async with self._listed():
                await existing_session(self._store, self.id)  # it may have been deleted since it was opened
                yield

    @asynccontextmanager
    async def _listed(self) -> AsyncGenerator[None, None]:
        """Keep the session's entry in the list right."""
        if self._listing is None:
            yield
            return
        # Beside the turn: with thousands of sessions the list takes longer to write than a turn should wait.
        entering = asyncio.create_task(self._listing.enter(self.id, "active"))
        try:
            yield
        finally:
            try:
                await entering
                await self._listing.enter(self.id)
            except (HomeError, StoreError) as e:  # the turn is in the store, the list can be made again from it
                log.warning("the list of sessions was not updated: %s", e.message)

    async def _last_turn(self) -> TurnRecord | None:
        return None if self._record is None else await self._store.last_turn(self.id)

    async def _load(self, pending: TurnRecord) -> list[Event]:
        """What the log holds of the turn."""
        past = await self._store.turn_events(self.id, pending.turn)
        self._params.begin(pending.turn, past, await self._store.state(self.id))
        return past

    async def _take_up(self, pending: TurnRecord, message: "_Message") -> AsyncGenerator[Event, None]:
        """Go on with the unfinished turn, as far as that is what the message asks for, or give it up."""
        past = await self._load(pending)
        message.used = message.text == pending.question
        if message.used or (not self._params.waits and was_cut_off(past)):
            async with aclosing(self._resume(pending, past)) as events:
                async for event in events:
                    yield event
            if message.used or self._stop.is_set():
                return
            past = await self._load(pending)
        elif not self._params.waits:
            await self._store.abandon_turn(self.id, pending.turn)
        if self._params.waits:
            async with aclosing(self._reply(pending, past, message)) as events:
                async for event in events:
                    yield event

    async def _reply(self, pending: TurnRecord, past: list[Event], message: "_Message") -> AsyncGenerator[Event, None]:
        """Read the message as the reply that the turn waits for, and go on with the turn, or give it up."""
        reading = await self._params.read(pending.question, message.text, self._team.chat, self._stop)
        match reading:
            case None:
                message.used = True
                ending = self._tell(pending.turn, [TurnInterrupted(by=self._stopped_by)])
            case Reading("answer"):
                message.used = True
                ending = self._resume(pending, past, self._params.news(reading, message.text))
            case Reading(intent):
                message.used = intent in ("cancel", "reset")
                ending = self._abandon(pending, reading, message.text)
        async with aclosing(ending) as events:
            async for event in events:
                yield event

    def _abandon(self, pending: TurnRecord, reading: Reading, text: str) -> AsyncGenerator[Event, None]:
        return self._tell(pending.turn, self._params.abandoned(pending, reading, text))

    async def _resume(
        self, pending: TurnRecord, past: list[Event], news: Sequence[Event] = ()
    ) -> AsyncGenerator[Event, None]:
        told = news or self._params.known()
        turn = Turn(self.id, pending.turn, pending.question, pending.seed, past, told, self._config.params)
        async with aclosing(self._run(turn)) as events:
            async for event in events:
                yield event

    async def _run(self, turn: Turn) -> AsyncGenerator[Event, None]:
        """Store each batch of events, then yield it; whatever ends the turn from outside is stored as well."""
        budget = Budget(self._config.coordination, self._team.prices)
        chat = {agent.id: budget.metered(agent, self._team.chat[agent.id]) for agent in self._agents}
        agents = await self._council(turn, chat)
        for event in self._views.take_prepared():
            yield event
        source = run_turn(turn, agents, self._config.coordination, budget)
        ended, warnings = False, self._team.warnings()
        try:
            async with aclosing(batches(source, self._stop)) as gathered:
                async for batch in gathered:
                    batch[:0] = [Notice(message=text) for text in (*warnings, *self._memory.take_notices())]
                    warnings.clear()
                    batch = [named(self._params.masked(event), *self._request) for event in batch]
                    numbers = await self._append(turn.number, batch)
                    self._memory.wake()
                    ended = isinstance(batch[-1], TurnCompleted | TurnFailed | TurnWaiting)
                    if isinstance(batch[-1], TurnCompleted):
                        self._views.prepare(self.id, turn.number, chat)
                    for number, event in zip(numbers, batch, strict=True):
                        self.seq = number
                        yield event
            if not ended:
                ended = True
                async for event in self._tell(turn.number, [TurnInterrupted(by=self._stopped_by)]):
                    yield event
        finally:
            if not ended:
                with suppress(StoreError):  # a store that just failed has raised its error already
                    await self._append(turn.number, [TurnInterrupted(by=self._stopped_by)])

    async def _council(self, turn: Turn, chat: Mapping[str, ChatProvider]) -> dict[str, Agent]:
        contexts = await self._views.contexts(Place(turn.session_id, turn.number, turn.question), chat)
        asking = self._params.asking(turn.news)
        return {a.id: Agent(a, chat[a.id], contexts[a.id], asking) for a in self._agents}


@dataclass(slots=True)
class _Message:
    """What the user says to a session with an unfinished turn. used: it was for that turn."""

    text: str
    used: bool = False
