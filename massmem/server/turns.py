"""The turns of this process: they run apart from the connections that ask for them.

A client that loses its connection asks again with the same Idempotency-Key, or follows the session's log. A turn whose
process is killed is resumed by another one, and so is a turn that this process hands over when it shuts down.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from contextlib import AbstractContextManager, aclosing, nullcontext
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from massmem.config.models import TeamConfig
from massmem.core import events as ev
from massmem.core.errors import DuplicateRequestError, InputError, MassmemError, SessionBusyError
from massmem.core.events import now
from massmem.core.messages import AttachedFile, Attachment, remove_description
from massmem.core.outcome import MAX_DEATHS, count_deaths, was_cut_off
from massmem.core.records import EVERYBODY, Owner, SessionCounts, SessionFilter, SessionRecord, TurnRecord
from massmem.server.errors import Rejected, RetryLater
from massmem.server.limits import Limits
from massmem.server.metrics import Metrics
from massmem.session.owners import to_stored_id
from massmem.session.session import Session
from massmem.session.team import Teams
from massmem.session.turn_runner import StopReason
from massmem.store.lookup import find_own_session

log = logging.getLogger(__name__)

NumberedEvent = tuple[int, ev.Event]
"""An event and its number in the session's log."""

_POLL_SECONDS = 0.25
"""How often the log of a turn that another process runs is read."""

_PAGE = 500

_HANDOVER_SECONDS = 1.0
"""For so long a turn without a lease is left alone: its process may be about to hand it over."""

_MAX_RESUMED = 200
"""Turns that are resumed at once."""

_HAND_OVER_SECONDS = 5.0
"""How long turns that are told to stop may take to log it."""

_FOLLOW_TIMEOUT = 900.0
"""Seconds without an event after which a turn is followed no longer."""

_RETRY_AFTER_TIMEOUT = 30

_UNDER_WAY = ("running", "interrupted")
_ENDING = "this process is about to end"
_ENDS = (ev.TurnCompleted, ev.TurnFailed, ev.TurnWaiting, ev.TurnAbandoned)
"""Events after which nothing happens by itself. An interrupted turn is resumed by another process."""


@dataclass(frozen=True, slots=True)
class ClientQuestion:
    owner: Owner
    session_id: str
    """The id under which the session is stored."""
    text: str
    request_id: str = ""
    """Under this id it is asked once at most; empty: any number of times."""
    team: str | None = None
    """None: the team that the session has had so far."""
    attachments: tuple[Attachment, ...] = ()
    """`text` names them."""
    instructions: str = ""
    """For all agents, in this turn."""
    history: tuple[tuple[Literal["user", "agent"], str], ...] = ()
    """Messages before it, from elsewhere: the beginning of the session, if that is new."""
    answer_schema: Mapping[str, Any] | None = None
    """A JSON Schema that the answer has to fit."""
    project: str | None = None
    """As for a Session."""
    full: bool = False
    """All agents are asked, whatever `coordination.depth` says."""
    replaces: int | None = None
    """The turn becomes another version of this one; None: it comes after the last one."""
    change: Callable[[TeamConfig], TeamConfig] | None = None
    """Returns the team's configuration as it is for this turn."""

    @property
    def size(self) -> int:
        """Bytes that it adds to the session at least."""
        texts = (self.text, self.instructions, *(text for _, text in self.history))
        return sum(map(len, texts)) + sum(attachment.file.size for attachment in self.attachments)

    @property
    def content(self) -> tuple[str, tuple[AttachedFile, ...]]:
        """Two questions with the same one are the same."""
        return self.text, tuple(attachment.file for attachment in self.attachments)


class RunningTurn:
    def __init__(self, session_id: str, owner: Owner, question: ClientQuestion | None = None) -> None:
        """question: None resumes the session's interrupted turn."""
        self.session_id = session_id
        self.owner = owner
        self.question = question
        self._events: list[NumberedEvent] = []
        self._error: Exception | None = None
        self._has_ended = False
        self._changed = asyncio.Event()
        self._session: Session | None = None
        self._stopped = False
        self._answers_now = False

    def is_turn_of(self, question: ClientQuestion) -> bool:
        """Whether it runs this very question; questions without a request id are never the same."""
        own = self.question
        return own is not None and own.request_id == question.request_id != "" and own.content == question.content

    async def run(self, session: Session) -> AsyncGenerator[ev.Event, None]:
        """Run the turn, store its events for those who follow, and yield them. Raise as the session does."""
        self._session = session
        if self._stopped:
            raise RetryLater(503, _ENDING)
        if self._answers_now:
            session.answer_now()
        question = self.question
        if question is None:
            source = session.finish_turn()
        else:
            if question.history and not session.resumed:
                await session.add_messages(question.history)
            source = session.ask(
                question.text,
                question.request_id,
                question.answer_schema,
                question.attachments,
                full=question.full,
                replaces=question.replaces,
            )
        async with aclosing(source) as events:
            async for event in events:
                self._events.append((session.seq, event))
                self._wake_followers()
                yield event

    def answer_now(self) -> None:
        self._answers_now = True
        if self._session is not None:
            self._session.answer_now()

    def stop(self, by: StopReason = "signal") -> None:
        """Interrupt the turn. signal: another process resumes it; user: nobody does."""
        self._stopped = True
        if self._session is not None:
            self._session.stop(by)

    @property
    def is_over(self) -> bool:
        """Whether its last event was yielded; it may still hold the session for a moment."""
        # An abandoned turn makes room for the question that it was abandoned for.
        ends = ev.TurnCompleted | ev.TurnFailed | ev.TurnWaiting | ev.TurnInterrupted
        return bool(self._events) and isinstance(self._events[-1][1], ends)

    async def wait_for_end(self) -> None:
        while not self._has_ended:
            await self._changed.wait()

    def end(self, error: Exception | None = None) -> None:
        """Tell those who follow that no event comes any more; they raise `error` after the last event."""
        self._error = error
        self._has_ended = True
        self._wake_followers()

    async def follow(self) -> AsyncGenerator[NumberedEvent, None]:
        """Yield the events from the first on, as they come. Raise what ended the turn."""
        position = 0
        while True:
            changed, has_ended = self._changed, self._has_ended
            for numbered in self._events[position:]:
                position += 1
                yield numbered
            if has_ended:
                break
            await changed.wait()
        if self._error is not None:
            raise self._error

    def _wake_followers(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


class Turns:
    """Starts, resumes, follows and hands over turns, one at a time in each session.

    Whatever reads or writes the store raises StoreError.
    """

    def __init__(self, teams: Teams, limits: Limits, metrics: Metrics) -> None:
        self._teams = teams
        self._store = teams.store
        self._limits = limits
        self._metrics = metrics
        self._running: dict[str, RunningTurn] = {}
        self._closing: dict[str, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopped: dict[str, datetime] = {}
        """Sessions whose user stopped the turn, and when they were changed last: nobody resumes them."""
        self._last_try = ""
        """The session whose turn has killed its process before, and is resumed for the last time."""
        self.stopping = False

    def is_running(self, session_id: str) -> bool:
        return session_id in self._running

    async def wait_for_end(self, session_id: str) -> None:
        """Wait until a turn that is over no longer holds the session. Raise SessionBusyError: one is under way."""
        while (turn := self._running.get(session_id)) is not None:
            if not turn.is_over:
                raise SessionBusyError("a question to this session is under way")
            await turn.wait_for_end()

    async def find_running(self, session_id: str) -> RunningTurn:
        """Return the session's turn.

        Raises:
            InputError: No turn is under way.
            RetryLater: Another process runs the turn; the next try may reach it.
        """
        if (turn := self._running.get(session_id)) is not None:
            return turn
        if await self._is_under_way(session_id):
            raise RetryLater(503, "another process runs this turn")
        raise InputError("no turn of this session is under way", "ask a question first")

    async def ask(self, question: ClientQuestion) -> AsyncGenerator[NumberedEvent, None]:
        """Ask, unless the request id was used before, and yield the events of the turn.

        Raises:
            RetryLater: There are too many questions, or this process is about to end.
            SessionBusyError: Another question to the session is under way.
            InputError: The request id was used for another question; there is no such team.
            MassmemError: As Session.ask.
        """
        number = None
        if question.request_id:
            number = await self._store.find_request(question.session_id, question.request_id)
        if number is None:
            try:
                async with aclosing(self._find_or_start(question).follow()) as events:
                    async for numbered in events:
                        yield numbered
                return
            except DuplicateRequestError as e:  # another process was faster
                number = e.seq
        async with aclosing(self._replay(question, number)) as events:
            async for numbered in events:
                yield numbered

    async def follow(self, session_id: str, after: int) -> AsyncGenerator[NumberedEvent, None]:
        """Yield the events of the session's log with a number > `after`, until no turn is under way.

        When this process ends, only turns of its own are followed any further; clients connect to another one. Raises
        RetryLater when an interrupted turn is not resumed.
        """
        number, clock = after, asyncio.get_running_loop().time
        deadline = clock() + _FOLLOW_TIMEOUT
        while True:
            # Before the log: what ends meanwhile is still read.
            was_here, goes_on = self.is_running(session_id), await self._is_under_way(session_id)
            while page := await self._store.export_log(session_id, number, _PAGE):
                for entry in page:
                    number = entry.seq
                    yield number, ev.decode_event(entry.payload)
                    deadline = clock() + _FOLLOW_TIMEOUT
            if not goes_on or (self.stopping and not was_here):
                return
            if clock() > deadline:
                raise RetryLater(503, "the turn does not go on", _RETRY_AFTER_TIMEOUT)
            await asyncio.sleep(_POLL_SECONDS)

    def stop_question(self, question: ClientQuestion) -> None:
        """Stop the turn of this question for good, if this process runs it: nobody waits for its answer any more."""
        turn = self._running.get(question.session_id)
        if turn is not None and turn.question is question:
            turn.stop("user")

    def resume(self, session_id: str, owner: Owner) -> None:
        """Resume the session's interrupted turn in the background, unless this process runs a turn of it."""
        if not self.stopping and session_id not in self._running:
            self._start(RunningTurn(session_id, owner))

    async def continue_turn(self, session_id: str, owner: Owner) -> RunningTurn:
        """Resume, in the background, the session's last turn, which its user stopped, or which has failed; return it.

        Returns when the turn is under way, or has ended. Raises as `ask`, and InputError: no turn is unfinished.
        """
        last = await self._store.get_last_turn(session_id)
        running = self._running.get(session_id)
        if running is not None and not running.is_over:
            return running
        if last is None or not last.is_unfinished or last.status == "waiting":
            raise InputError("no turn of this session is unfinished", "ask a question")
        turn = RunningTurn(session_id, owner)
        self._start(turn, running)
        async with aclosing(turn.follow()) as events:
            await anext(events, None)
        return turn

    async def resume_cut_off(self) -> None:
        """Resume, in the background, turns that killed processes left behind."""
        cut_off = SessionFilter(owner=EVERYBODY, cut_off=True, before=now() - timedelta(seconds=_HANDOVER_SECONDS))
        sessions = [listed.session for listed in await self._store.find_sessions(cut_off, _MAX_RESUMED)]
        self._stopped = {s.session_id: s.updated_at for s in sessions if self._was_stopped(s)}
        for session in sessions:
            if self._was_stopped(session) or self.is_running(session.session_id):
                continue
            last = await self._store.get_last_turn(session.session_id)
            if last is not None and await self._was_cut_off(last):
                assert session.user_id is not None  # the filter finds sessions with an owner
                # The one that kills its process dies alone, not with turns that were only beside it.
                events = await self._store.read_turn_events(session.session_id, last.turn)
                if count_deaths(events) == MAX_DEATHS - 1:
                    if self.is_running(self._last_try):
                        continue
                    self._last_try = session.session_id
                self.resume(session.session_id, session.owner)
            else:
                self._stopped[session.session_id] = session.updated_at

    def _was_stopped(self, session: SessionRecord) -> bool:
        return self._stopped.get(session.session_id) == session.updated_at

    async def _is_under_way(self, session_id: str) -> bool:
        """Whether the session's turn runs, or somebody will resume it: not when its user stopped it."""
        last = await self._store.get_last_turn(session_id)
        return last is not None and (last.status == "running" or await self._was_cut_off(last))

    async def _was_cut_off(self, turn: TurnRecord) -> bool:
        return turn.status in _UNDER_WAY and was_cut_off(await self._store.read_turn_events(turn.session_id, turn.turn))

    async def stop(self, grace: float) -> None:
        """Start no more turns, let those that run go on for `grace` seconds, then hand them over."""
        self.stopping = True
        await self._wait(grace)
        for turn in self._running.values():
            turn.stop()
        await self._wait(_HAND_OVER_SECONDS)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _replay(self, question: ClientQuestion, number: int) -> AsyncGenerator[NumberedEvent, None]:
        """Yield the events of the turn of a question that was asked before: its event has this number in the log."""
        # A reply to the agents stands right after the event that resumes their turn.
        async with aclosing(self.follow(question.session_id, number - 2)) as events:
            async for seq, event in events:
                if seq == number and not _became(question, event):
                    raise InputError("this name was used for another question", "use a new one")
                if seq >= number or isinstance(event, ev.TurnResumed):
                    yield seq, event
                if seq >= number and isinstance(event, _ENDS):
                    return

    def _find_or_start(self, question: ClientQuestion) -> RunningTurn:
        """Not a coroutine: of two requests for the same question the second one finds the turn of the first."""
        last = self._running.get(question.session_id)
        if last is not None and last.is_turn_of(question):
            return last
        if last is not None and not last.is_over:
            raise SessionBusyError("another question to this session is under way")
        turn = RunningTurn(question.session_id, question.owner, question)
        self._start(turn, last)
        return turn

    def _start(self, turn: RunningTurn, last: RunningTurn | None = None) -> None:
        """last: ends before this turn begins."""
        self._running[turn.session_id] = turn
        self.run(self._run(turn, last))

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Do this beside requests; it is cancelled when this process ends and `server.grace` is over."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, turn: RunningTurn, last: RunningTurn | None) -> None:
        error: Exception | None = RetryLater(503, _ENDING)
        session: Session | None = None
        started = time.monotonic()
        try:
            if last is not None:
                await last.wait_for_end()
            with self._hold(turn), self._metrics.running.track_inprogress():
                session = await self._open_session(turn)
                async with aclosing(turn.run(session)) as events:
                    async for event in events:
                        self._metrics.count_event(event, time.monotonic() - started)
                        _log_failure(event)
            error = None
        except (MassmemError, Rejected) as e:
            error = e
        finally:
            turn.end(error)
            if self._running[turn.session_id] is turn:
                del self._running[turn.session_id]
        if session is not None:
            await self._close_session(session)

    def _hold(self, turn: RunningTurn) -> AbstractContextManager[None]:
        """Count the turn while the block runs. Raise RetryLater when there are too many."""
        if self.stopping:
            raise RetryLater(503, _ENDING)
        question = turn.question
        return nullcontext() if question is None else self._limits.hold_turn(turn.owner.user_id, question.size)

    async def measure(self, owner: Owner) -> SessionCounts:
        """Return what is stored of the owner."""
        return await self._store.count_sessions(SessionFilter(owner=owner, prefix=to_stored_id(owner, "")))

    async def check_room(self, owner: Owner, *, is_new: bool = False) -> None:
        """Raise Rejected when the owner has no room for more. is_new: a conversation is to be added."""
        if owner.user_id is not None:
            self._limits.check_room(owner.user_id, await self.measure(owner), is_new=is_new)

    async def _open_session(self, turn: RunningTurn) -> Session:
        if (closing := self._closing.get(turn.session_id)) is not None:
            await asyncio.wait({closing})
        question, session_id, owner = turn.question, turn.session_id, turn.owner
        record = await find_own_session(self._store, session_id, owner)
        if question is None:
            return Session(await self._teams.choose(None, record), record, session_id=session_id, owner=owner)
        await self.check_room(owner, is_new=record is None)
        team = await self._teams.choose(question.team, record)
        config = team.config if question.change is None else question.change(team.config)
        own = {"instructions": question.instructions, "project": question.project}
        return await Session.open_with(team, config, record, session_id=session_id, owner=owner, **own)

    async def _close_session(self, session: Session) -> None:
        """Finish what is prepared for the next turn; that one waits for it."""
        task = asyncio.current_task()
        assert task is not None
        self._closing[session.id] = task
        try:
            if not self.stopping:
                await session.wait_for_preparation()
            await session.close()
        finally:
            if self._closing.get(session.id) is task:
                del self._closing[session.id]

    async def _wait(self, seconds: float) -> None:
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)


def _log_failure(event: ev.Event) -> None:
    """Log why an agent or a turn failed, for whoever runs the service; users are told only that it did.

    The messages of providers may quote what they were sent: the log has the kind of the error, and what to do.
    """
    match event:
        case ev.AgentFailed():
            fields = {"agent": event.agent_id, "step": event.step, "hint": event.hint}
            log.warning("an agent failed: %s", event.error, extra={"fields": fields})
        case ev.TurnFailed():
            log.warning("a turn failed", extra={"fields": {"exit_code": event.exit_code}})
        case _:
            pass


def _became(question: ClientQuestion, event: ev.Event) -> bool:
    """Whether the event is of this very question."""
    match event:
        case ev.TurnStarted():
            # What is optional is in the text: the turn went without it when a model does not see.
            required = {attachment.file for attachment in question.attachments if not attachment.optional}
            is_same_text = question.text == remove_description(event.question, event.description)
            return is_same_text and required <= {*event.attachments} <= {a.file for a in question.attachments}
        case ev.TurnResumed(question=text) | ev.UserReplied(text=text):
            return text == question.text
        case _:
            return False
