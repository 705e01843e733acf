"""The turns of this process: asked for by requests, taken up when another process was killed, handed over at the end.

A turn does not belong to a connection. Whoever has lost theirs asks again under the same name, or follows the log.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Coroutine, Mapping
from contextlib import ExitStack, aclosing
from dataclasses import dataclass

from massmem.errors import AskedBeforeError, InputError, MassmemError, SessionBusyError
from massmem.events import EVENT, Event, TurnResumed, TurnStarted, UserReplied
from massmem.server.limits import Limits, TooMuch
from massmem.server.observed import Observer
from massmem.server.running import Numbered, Running, ends
from massmem.session.session import Session
from massmem.session.team import Team

log = logging.getLogger(__name__)

LOOK = 0.25
"""Seconds between two looks at the log of a turn that another process runs."""

_PAGE = 500
_HAND_OVER = 5.0
"""Seconds for turns that were told to stop to say so in the log."""

_PATIENCE = 900.0
"""Seconds without any event after which a turn is not waited for any longer."""

_LATER = 30
_GOES_ON = ("running", "interrupted")


@dataclass(frozen=True, slots=True)
class Question:
    """session_id: as the store names it. request: the name under which it is asked once at most, "" for none.

    team: None: the one that the session has had so far.
    """

    owner: str
    session_id: str
    text: str
    request: str = ""
    team: str | None = None


class Turns:
    def __init__(self, teams: Mapping[str, Team], limits: Limits, observer: Observer) -> None:
        """teams: by name, "" for the configured one."""
        self._teams = teams
        self._store = teams[""].store
        self._limits = limits
        self._observer = observer
        self._running: dict[str, Running] = {}
        self._settling: dict[str, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.stopping = False

    def runs(self, session_id: str) -> bool:
        return session_id in self._running

    async def ask(self, question: Question, *, live: bool = True) -> AsyncGenerator[Numbered, None]:
        """Ask, unless this was asked before under its name, and follow what becomes of it.

        live False: the events are wanted once the turn has ended; whoever waits is not woken for each of them.

        Raises, also while it is followed:
            TooMuch: the user, or all of them, ask for too much, or this process is about to end.
            SessionBusyError: another question to the session is under way.
            InputError: the name was used for another question; there is no such team.
            MassmemError: as Session.ask.
        """
        session_id = question.session_id
        try:
            seq = await self._store.asked(session_id, question.request) if question.request else None
            if seq is not None:
                raise AskedBeforeError(seq)
            running = self._running.get(session_id)
            if running is None:
                running = self._begin(question)
            elif not running.asks(question.text, question.request):
                raise SessionBusyError("another question to this session is under way")
            async with aclosing(running.follow(live=live)) as events:
                async for each in events:
                    yield each
        except AskedBeforeError as e:
            # A reply stands after the event that says which turn it belongs to.
            async with aclosing(self.follow(session_id, e.seq - 2, one=True)) as events:
                async for seq, event in events:
                    if seq == e.seq and _said(event) != question.text:
                        raise InputError("this name was used for another question", "use a new one") from e
                    if seq >= e.seq or isinstance(event, TurnResumed):
                        yield seq, event

    async def follow(self, session_id: str, after: int, *, one: bool = False) -> AsyncGenerator[Numbered, None]:
        """The events of the session's log with a number > after, until no turn runs; one: until a turn ends.

        Raises StoreError; TooMuch when nobody takes a turn up that was cut off.
        """
        seq, clock = after, asyncio.get_running_loop().time
        until = clock() + _PATIENCE
        while True:
            last = await self._store.last_turn(session_id)
            goes_on = last is not None and last.status in _GOES_ON
            while page := await self._store.export_log(session_id, seq, _PAGE):
                for entry in page:
                    seq, event = entry.seq, EVENT.validate_json(entry.payload)
                    yield seq, event
                    until = clock() + _PATIENCE
                    if one and seq > after + 1 and ends(event):
                        return
            if not goes_on:
                return
            if clock() > until:
                raise TooMuch(503, "the turn does not go on", _LATER)
            await asyncio.sleep(LOOK)

    def finish(self, session: Session) -> None:
        """Take up the session's unfinished turn, in the background."""
        self._start(session.id, Running(), _opened(session), ExitStack())

    async def stop(self, grace: float) -> None:
        """Begin no more turns; let those that run go on for `grace` seconds, then hand them over."""
        self.stopping = True
        await self._wait(grace)
        for running in self._running.values():
            running.stop()
        await self._wait(_HAND_OVER)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _begin(self, question: Question) -> Running:
        """Nothing is waited for here: of two requests for the same the second one finds the first."""
        if self.stopping:
            raise TooMuch(503, "this process is about to end")
        with ExitStack() as until_done:
            until_done.enter_context(self._limits.turn(question.owner))
            running = Running(question.request, question.text)
            self._start(question.session_id, running, self._session(question), until_done.pop_all())
        return running

    async def _session(self, question: Question) -> Session:
        if (earlier := self._settling.get(question.session_id)) is not None:
            await asyncio.wait({earlier})
        if question.team is None:
            return await self.session(question.session_id, question.owner)
        if question.team not in self._teams:
            raise InputError(f"there is no team {question.team[:100]!r}", "see which are configured")
        return await Session.of(self._teams[question.team], question.session_id, question.owner)

    async def session(self, session_id: str, owner: str, *, anew: bool = False) -> Session:
        """The session on the team that it has had so far. Raises as Session.of."""
        session = await Session.of(self._teams[""], session_id, owner, anew=anew)
        for team in self._teams.values():
            if team is not self._teams[""] and session.config_path == team.config.source:
                await session.close()
                return await Session.of(team, session_id, owner, anew=anew)
        return session

    def _start(
        self, session_id: str, running: Running, session: Coroutine[None, None, Session], until_done: ExitStack
    ) -> None:
        self._running[session_id] = running
        task = asyncio.create_task(self._run(session_id, running, session, until_done))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(
        self, session_id: str, running: Running, opening: Coroutine[None, None, Session], until_done: ExitStack
    ) -> None:
        error: Exception | None = TooMuch(503, "this process is about to end")
        session: Session | None = None
        try:
            with until_done, self._observer.turn() as seen:
                session = await opening
                async with aclosing(running.run(session)) as events:
                    async for event in events:
                        seen.feed(event)
            error = None
        except (MassmemError, TooMuch) as e:
            error = e
        finally:
            running.end(error)
            del self._running[session_id]
        if session is not None:
            await self._settle(session)

    async def _settle(self, session: Session) -> None:
        """What is done for the next turn, after the answer was given."""
        task = asyncio.current_task()
        assert task is not None  # this runs in one
        self._settling[session.id] = task
        try:
            if not self.stopping:
                await session.settle()
            await session.close()
        finally:
            if self._settling.get(session.id) is task:
                del self._settling[session.id]

    async def _wait(self, seconds: float) -> None:
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)


async def _opened(session: Session) -> Session:
    return session


def _said(event: Event) -> str | None:
    match event:
        case TurnStarted(question=text) | TurnResumed(question=text) | UserReplied(text=text):
            return text
        case _:
            return None
