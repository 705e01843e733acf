"""Conversations of other programs: makes sessions of them, and brings these up to date with a newer export."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from massmem.config.home import make_folder
from massmem.core import events as ev
from massmem.core.errors import BusyError, MemoryUnavailable, SessionBusyError, SessionExistsError
from massmem.core.events import now
from massmem.core.messages import Usage
from massmem.core.records import LogEntry, SessionCopy, SessionRecord, TurnRecord
from massmem.recording.forgetting import MARK
from massmem.session.copies import hand_over
from massmem.session.imports.conversations import ImportedConversation, ImportedTurn, make_id
from massmem.session.lease import ProcessLock, hold_lease
from massmem.session.memories import Memories
from massmem.session.owners import memory_group, project_of_folder, to_stored_id
from massmem.session.portable import PortableSession, dump_entries, list_forgotten
from massmem.store.encoding import split_pages
from massmem.store.lookup import read_all_messages, read_log_pages
from massmem.store.ports import SessionStore

_NO_COST = Usage(requests=0)
_TURNS_AT_ONCE = 200
"""That one transaction stores: it takes a tenth of a second."""
_PAUSE = 0.1
"""Seconds until the next one: who waits for the lock of SQLite asks ten times a second, and nobody is next."""


@dataclass(frozen=True, slots=True)
class ImportResult:
    session_id: str
    title: str
    added: int
    """Turns that were not there yet."""
    turns: int
    """Of the export."""
    conflict: bool = False
    """The session has gone on in another way here, and was left as it is."""
    busy: bool = False
    """A turn of the session is under way, or its memory in use, and it was left as it is."""
    replaced: int = 0
    """Turns that the export has no more, or in another wording; they were removed."""


@contextmanager
def hold_import(home: Path, key: bytes, doing: str = "imported") -> Generator[None]:
    """Let nobody else of this home import, or write, what has this key for the block. Raises BusyError."""
    make_folder(home / "imports")
    try:
        with FileLock(home / "imports" / f"{sha256(key).hexdigest()[:32]}.lock", timeout=0, mode=0o600):
            yield
    except Timeout as e:
        raise BusyError(f"this file is being {doing} already", "wait until that has ended, or stop it") from e


async def import_conversation(
    memories: Memories,
    process: ProcessLock,
    conversation: ImportedConversation,
    progress: Callable[[int], bool] = lambda _: True,
    *,
    facts: bool = False,
) -> ImportResult:
    """Store a conversation as a session, or bring the session up to date with it.

    Turns that were edited in the other program are replaced as long as nothing was added to the session here. It can be
    killed at any time and repeated: what is there is not stored again.

    memories: of whom the sessions become. process: that imports. facts: a model extracts facts of every turn later,
    where one is configured; else turns are remembered word for word. progress: takes how many turns are stored, and
    returns whether to store more.

    Raises StoreError.
    """
    store, turns = memories.store, conversation.turns
    if conversation.portable is not None:
        return await _import_whole(memories, process, conversation, conversation.portable, facts=facts)
    result = ImportResult(conversation.session_id, conversation.title, 0, len(turns))
    session_id = to_stored_id(memories.user, conversation.session_id)
    session = await _create_session(memories, conversation, session_id)
    if session is None:
        return replace(result, conflict=True)
    try:
        async with hold_lease(store, process, session_id):
            stored = await store.list_turns(session_id, 0, len(turns) + 1)
            same = _count_same(stored, turns)
            if same < min(len(stored), len(turns)):
                if not await _is_only_imported(store, session_id, stored[same].turn):
                    return replace(result, conflict=True)
                if _is_older(conversation, stored):
                    return result
                removed = await _remove_turns(store, memories, session_id, stored[same].turn)
                stored, result = stored[:same], replace(result, replaced=removed)
            if session.title == session.description != conversation.title:  # nobody has named it here
                await store.rename_session(session_id, conversation.title)
            first = len(stored)
            while progress(first) and first < len(turns):
                part = enumerate(turns[first : first + _TURNS_AT_ONCE], first + 1)
                events = [e for number, turn in part for e in _build_events(session_id, number, turn, facts=facts)]
                await store.append(session_id, first + 1, events)
                first = min(first + _TURNS_AT_ONCE, len(turns))
                await asyncio.sleep(_PAUSE)
    except (SessionBusyError, MemoryUnavailable):
        return replace(result, busy=True)
    return replace(result, added=first - len(stored))


def _count_same(stored: Sequence[TurnRecord], turns: Sequence[ImportedTurn]) -> int:
    """Return how many turns the session and the export have in common, from the first on."""
    pairs = zip(stored, turns, strict=False)
    differ = (n for n, (a, b) in enumerate(pairs) if (a.question, a.answer) != (b.question, b.answer))
    return next(differ, min(len(stored), len(turns)))


def _is_older(conversation: ImportedConversation, stored: Sequence[TurnRecord]) -> bool:
    """Whether the export is older than what was imported before."""
    newest = max(turn.ended_at or turn.started_at for turn in stored)
    return conversation.newest is not None and conversation.newest < newest


async def _is_only_imported(store: SessionStore, session_id: str, turn: int) -> bool:
    """Whether nothing was added to the session here, undone, or forgotten from this turn on."""
    async for page in read_log_pages(store, session_id):
        for entry in page:
            event = json.loads(entry.payload)
            is_imported = event.get("imported") or event.get("type") in _BETWEEN
            is_changed = entry.turn >= turn and (
                MARK in entry.payload or any(job.status == "forgotten" for job in entry.recordings)
            )
            if not is_imported or is_changed:
                return False
    return True


_BETWEEN = {ev.RoundStarted.type, ev.WinnerDecided.type}
"""Types of events between the question and the answer of an imported turn."""


async def _remove_turns(store: SessionStore, memories: Memories, session_id: str, first: int) -> int:
    """Remove the turns from this one on, from the log and from memory; return how many that were.

    Their memories go first: after a kill on the way, the next import does it again.

    Raises MemoryUnavailable: nothing was removed.
    """
    last = await store.get_last_turn(session_id)
    copy = await store.export_session(session_id)
    assert copy is not None  # its lease is held
    remaining = [m async for m in read_all_messages(store, session_id) if m.turn < first]

    async def read_log() -> AsyncGenerator[Sequence[LogEntry]]:
        for page in pages:
            yield [entry for entry in page if entry.turn < first]

    pages = [page async for page in read_log_pages(store, session_id)]
    session = copy.session.model_copy(update={"message_count": len(remaining)})
    async with memories.open_index() as index:
        for turn in range(first, 1 + (0 if last is None else last.turn)):
            await hand_over(store, session_id, turn)
        await memories.withdraw(index, session_id, first)
        copy = copy.model_copy(update={"session": session})
        await store.import_session(copy, read_log(), replaces=pages[-1][-1].seq)
        # A recorder may have taken something out of the queue before.
        await memories.withdraw(index, session_id, first)
    return 0 if last is None else last.turn - first + 1


async def _import_whole(
    memories: Memories,
    process: ProcessLock,
    conversation: ImportedConversation,
    portable: PortableSession,
    *,
    facts: bool,
) -> ImportResult:
    """Make the session of an export of massmem, or add to it what is new there."""
    store, session_id = memories.store, to_stored_id(memories.user, conversation.session_id)
    session = await store.get_session(session_id)
    is_other = session is not None and session.created_at != portable.session.created_at
    if is_other and not await _is_only_imported(store, session_id, 1):
        name = make_id(f"massmem:{conversation.session_id}:{portable.session.created_at.isoformat()}")
        conversation, session_id = replace(conversation, session_id=name), to_stored_id(memories.user, name)
        session = await store.get_session(session_id)
    result = ImportResult(conversation.session_id, conversation.title, 0, len(conversation.turns))
    entries = portable.list_entries(session_id, facts=facts)
    copy = portable.describe(session_id, memories.user, memory_group(memories.config, memories.user))
    if session is None:
        await store.import_session(copy, split_pages(entries), _read_pages_of(portable.files), replaces=0)
        return replace(result, added=len({entry.turn for entry in entries} - {0}))
    if session.owner != memories.user or session.status == "deleting":
        return replace(result, conflict=True)
    try:
        async with hold_lease(store, process, session_id):
            return await _update_whole(memories, portable, copy, entries, result)
    except (SessionBusyError, MemoryUnavailable):
        return replace(result, busy=True)


async def _update_whole(
    memories: Memories, portable: PortableSession, copy: SessionCopy, entries: Sequence[LogEntry], result: ImportResult
) -> ImportResult:
    """Add what is new in an export to the session; one that has gone on in another way stays as it is."""
    store, session_id = memories.store, copy.session.session_id
    old_copy = await store.export_session(session_id)
    assert old_copy is not None  # its lease is held
    stored = [entry async for page in read_log_pages(store, session_id) for entry in page]
    here, there = (_list_events(log, old_copy.state.params) for log in (stored, entries))
    if here[: len(there)] == there[: len(here)]:
        if forgotten := list_forgotten(entries) - list_forgotten(stored):
            await memories.forget_messages(tuple(forgotten))
        if len(there) <= len(here):
            return result
        stored = [entry async for page in read_log_pages(store, session_id) for entry in page]
        new = [entry for entry in entries if entry.seq > here[-1][0]] if here else entries
        names = ("last_message", "message_count", "status", "active", "updated_at", "used")
        session = old_copy.session.model_copy(update={name: getattr(copy.session, name) for name in names})
        copy = copy.model_copy(update={"session": session, "state": old_copy.state})
        last, pages = stored[-1].seq if stored else 0, split_pages([*stored, *new])
        await store.import_session(copy, pages, _read_pages_of(portable.files), replaces=last)
        return replace(result, added=len({entry.turn for entry in new} - {entry.turn for entry in stored} - {0}))
    return replace(result, conflict=True)


def _list_events(entries: Sequence[LogEntry], params: Mapping[str, object]) -> list[tuple[int, Any]]:
    """Return what tells two logs of a session apart: numbers and events, as an export has them."""
    return [(row["seq"], row["event"]) for row in dump_entries(entries, params)]


async def _read_pages_of(files: Mapping[str, bytes]) -> AsyncGenerator[Mapping[str, bytes]]:
    for name, data in files.items():
        yield {name: data}


async def _create_session(
    memories: Memories, conversation: ImportedConversation, session_id: str
) -> SessionRecord | None:
    """Create the session unless it is there; return it. None: it is somebody else's, or is being deleted."""
    store, owner = memories.store, memories.user
    if await store.get_session(session_id) is None:
        times = [turn.time for turn in conversation.turns if turn.time is not None]
        new = SessionRecord(
            session_id=session_id,
            user_id=owner.user_id,
            title=conversation.title,
            model=conversation.turns[0].agent,
            description=conversation.title,
            memory_group=memory_group(memories.config, owner),
            project=project_of_folder(owner, conversation.folder),
            created_at=min(times, default=now()),
            updated_at=conversation.newest or now(),
        )
        with suppress(SessionExistsError):  # another import was faster
            await store.create_session(new)
    session = await store.get_session(session_id)
    is_usable = session is not None and session.owner == owner and session.status != "deleting"
    return session if is_usable else None


def _build_events(session_id: str, number: int, turn: ImportedTurn, *, facts: bool) -> list[ev.Event]:
    """Return the events of a turn in which one agent was asked."""
    time, agent = turn.time or turn.answered_at or now(), turn.agent
    answered = max(time, turn.answered_at or time)
    return [
        ev.TurnStarted(
            imported=True, at=time, session_id=session_id, turn=number, question=turn.question, agents=(agent,), seed=0
        ),
        ev.RoundStarted(at=time, round=1, agents=(agent,)),
        ev.AnswerSubmitted(
            imported=True,
            at=answered,
            agent_id=agent,
            round=1,
            number=1,
            content=turn.answer,
            usage=_NO_COST,
            citations=turn.citations,
        ),
        ev.WinnerDecided(at=answered, agent_id=agent, votes={}, by="only_answer"),
        ev.TurnCompleted(
            imported=True,
            at=answered,
            winner=agent,
            answer=turn.answer,
            presented=False,
            no_facts=not facts,
            usage=_NO_COST,
            citations=turn.citations,
        ),
    ]
