"""One conversation with a team, across any number of runs: the application service behind every front end.

It composes store, registry, providers, agents and coordinator; nothing else does.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Self

from massmem.config.models import TeamConfig
from massmem.errors import HomeError, InputError, SessionBusyError, StoreError, UnknownSessionError
from massmem.events import ContextCompressed, ContextMeasured, Event, HistoryCleared, NoteAdded, ToolReturned
from massmem.home import massmem_home
from massmem.messages import clean_text
from massmem.records import SessionRecord, TurnRecord
from massmem.session.known import Known
from massmem.session.listing import Listing
from massmem.session.new_session import NewSession, agents_of, stored_session
from massmem.session.ownership import Ownership
from massmem.session.taking_back import undo_last_turn
from massmem.session.team import Team
from massmem.session.turns import NotAsKnown, StopReason, Turns
from massmem.session.unfinished import unfinished
from massmem.session.views import Views
from massmem.session_ids import check_session_name
from massmem.store.base import SessionStore
from massmem.store.reading import existing_session, wanted_session

log = logging.getLogger(__name__)


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
        self._team = team
        self._config = team.config
        self._store = team.store
        self._record = record
        self._new = new
        self._agents = agents_of(team.agents, new.owner)
        self._memory = team.memory
        self._views = Views(team.store, team.memory, self._agents, team.windows)
        self._known = Known()
        self._turns = Turns(team, self._agents, self._views, self._known)
        # The list is of the sessions of this machine's user.
        listed = new.owner is None and self.lasting
        self._listing = Listing(team.store, team.home, team.config.store.url) if listed else None
        self._alone = False

    @classmethod
    async def open(
        cls,
        config: TeamConfig,
        *,
        home: Path | None = None,
        session_id: str | None = None,
        newest: bool = False,
        debug: Path | None = None,
    ) -> Self:
        """Open the session `session_id` (or the configuration's), or prepare a new one when neither is given.

        home: the folder for massmem's own files, made when missing; None: ~/.massmem. A new session is stored with its
        first question. session_id: also a name, or the beginning of an id. newest: go on with the session used last.
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
        team = await Team.open(config, home=home or massmem_home(), debug=debug, fallback=fallback)
        try:
            session = await cls.on(team, wanted, newest=newest)
            session._alone = True
            await team.start()
        except BaseException:
            await team.close()
            raise
        return session

    @classmethod
    async def on(cls, team: Team, session_id: str | None = None, *, newest: bool = False) -> Self:
        """As `open`, one of several sessions of this machine's user on a team that is open; closed before the team is.

        Raises UnknownSessionError, InputError, StoreError: as `open`.
        """
        session = cls(team, await wanted_session(team.store, session_id, newest=newest))
        await session._read()
        return session

    @classmethod
    async def of(cls, team: Team, session_id: str, owner: str, *, anew: bool = False) -> "Session":
        """The session with exactly this id, on a team that was started, to be made for `owner` when there is none.

        It may be one that was closed a while ago; what others have done with it since is found out by its next
        question. anew: it is read now.

        Raises:
            UnknownSessionError: it is somebody else's.
            SessionBusyError: it is being deleted.
            StoreError: the store cannot be read.
        """
        if (kept := team.warm.take(session_id)) is not None:
            if not anew and kept._team is team and kept._new.owner == owner:
                return kept
            team.warm.keep(session_id, kept, kept._views.size)
        session = cls(team, await _record_of(team.store, session_id, owner), NewSession(session_id, owner))
        await session._read()
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
        return self._turns.params.hidden

    @property
    def seq(self) -> int:
        """Where the event that was yielded last stands in the log."""
        return self._turns.seq

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
        if self._known.settled:
            try:
                async with self._owned(lazily=True), aclosing(self._turns.ask(question, request)) as events:
                    async for event in events:
                        yield event
                return
            except NotAsKnown:
                await self._renew()
        async with self._owned(), aclosing(self._turns.ask(question, request)) as events:
            async for event in events:
                yield event

    async def finish_turn(self) -> AsyncGenerator[Event, None]:
        """Take the unfinished turn up where it was and yield its further events.

        Raises:
            InputError: no turn is unfinished.
            SessionBusyError, StoreError: as `ask`.
        """
        async with self._owned(), aclosing(self._turns.finish()) as events:
            async for event in events:
                yield event

    async def compact(self) -> list[ContextCompressed]:
        """Compress now what the agents are shown of earlier turns; says of each agent for whom it became less.

        Raises:
            SessionBusyError, StoreError: as `ask`.
        """
        if self._record is None:
            return []
        async with self._owned():
            last = self._known.last
            return [] if last is None else await self._views.compact(self.id, last.turn, self._team.chat)

    async def context(self) -> list[ContextMeasured]:
        """How full each agent's window is before the next question, without the memories that it brings up.

        Raises StoreError.
        """
        last = await self._last_turn()
        return await self._views.sizes(self.id, 0 if last is None else last.turn, self._team.chat)

    async def clear_history(self) -> None:
        """From now on show the agents nothing of what was said so far, in this process or in any other.

        The log keeps it, and what is remembered of it is still recalled where it bears on a question.

        Raises:
            SessionBusyError, StoreError: as `ask`.
        """
        if self._record is None:
            return
        async with self._owned():
            await self._views.settle()
            self._views.take_prepared()
            await self._store.append(self.id, 0, [HistoryCleared()])

    async def undo(self) -> TurnRecord:
        """Take the last turn back, answered or not: no agent is shown it, and nothing that was remembered of it stays.

        The log keeps it, marked as undone. Values that the user gave in it are forgotten. Returns what was undone; the
        next call takes back the turn before.

        Raises:
            InputError: there is no turn to undo.
            MemoryUnavailable: its memories cannot be deleted now; nothing was undone.
            SessionBusyError, StoreError: as `ask`.
        """
        if self._record is None:
            raise InputError("there is no turn to undo", "ask a question first")
        async with self._owned():
            await self._views.settle()
            self._views.take_prepared()
            return await undo_last_turn(self._team, self.id)

    async def remember(self, text: str) -> None:
        """Have something remembered, word for word, as said by the user; every agent recalls it from the next turn on.

        Raises:
            InputError: there is nothing in it, or the configuration remembers nothing.
            StoreError: the log cannot be written.
        """
        text = clean_text(text).strip()
        if not text:
            raise InputError("there is nothing to remember", "say what: /remember I prefer metric units")
        if not self._memory.enabled:
            raise InputError("this team remembers nothing", "set memory.persistent_memory.enabled: true")
        await self._exist()
        await self._store.append(self.id, 0, [NoteAdded(text=text)])
        self._memory.wake()

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
        self._turns.stopped_by = by
        self._turns.stopping.set()

    async def settle(self) -> None:
        """Wait until what is done after a turn, for the next one, is done."""
        await self._views.settle()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Record for a moment what is still to be remembered, and let go of everything that is this session's."""
        await self._views.close()
        if self._alone:
            await self._team.close()
        elif self._new.owner is not None and self._known.settled and self.seq:
            self._team.warm.keep(self.id, self, self._views.size)

    async def _exist(self) -> None:
        if self._record is None:
            self._record, self._known.mark = await stored_session(self._store, self._config, self._new)

    async def _read(self) -> None:
        if self._record is not None:
            await self._known.read(self._store, self.id)
            self.unfinished = unfinished(self._known.last)

    async def _renew(self) -> None:
        """Somebody else was here: what is theirs is not ours, and what is gone is made anew for its owner."""
        if (owner := self._new.owner) is not None:
            self._record = await _record_of(self._store, self.id, owner)
            await self._exist()

    @asynccontextmanager
    async def _owned(self, *, lazily: bool = False) -> AsyncGenerator[None, None]:
        """Run turns of the session alone. lazily: from the first event on, which takes it as it is known."""
        turns = self._turns
        turns.session_id = self.id
        mine = turns.ownership = Ownership(self._store, self._team.process, self.id, turns.stopping.set)
        try:
            if not lazily:
                await mine.take(self.wait)
            turns.stopping.clear()
            async with self._listed():
                if not lazily:
                    await existing_session(self._store, self.id)  # it may have been deleted since it was opened
                    await self._known.read(self._store, self.id)
                yield
        finally:
            await mine.let_go()

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


async def _record_of(store: SessionStore, session_id: str, owner: str) -> SessionRecord | None:
    record = await store.get_session(session_id)
    if record is not None and record.user_id != owner:
        raise UnknownSessionError("there is no such session")
    if record is not None and record.status == "deleting":
        raise SessionBusyError("the session is being deleted", "wait until it is gone, then ask again")
    return record
