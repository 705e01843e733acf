"""What the commands of `massmem memory` do, between configuration, store and memory."""

import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from massmem.cli.progress import Progress
from massmem.cli.team import Prepared
from massmem.config.load import resolve_agents
from massmem.config.models import MemoryConfig
from massmem.errors import InputError, MemoryUnavailable, UnknownSessionError
from massmem.memory import index_folder, remove_set_aside, set_aside
from massmem.memory.indexed import IndexedMemory
from massmem.memory.memories import USER, Memory, MemoryStats, Recalled, Selection, Wanted
from massmem.memory.persistent import Scope
from massmem.memory.recording.attempts import Counts
from massmem.records import MessageRecord, RecordingCounts
from massmem.session.extractor import open_extractor
from massmem.session.forgetting import MakeRoom, forget_everywhere, kept_memory, no_such_memory
from massmem.session.recall import by_words, recorder
from massmem.session_ids import SESSION_ID, check_session_name
from massmem.store import open_configured
from massmem.store.base import SessionStore
from massmem.store.reading import find_session

_ALL = 1_000_000


@dataclass(frozen=True, slots=True)
class Stats:
    """memory None: it cannot be used now, unavailable says why. size: bytes on disk, None on a server.

    note: what the user should know about the memory, may be empty.
    """

    memory: MemoryStats | None
    queue: RecordingCounts
    location: str
    size: int | None
    unavailable: str = ""
    note: str = ""

    def row(self) -> dict[str, Any]:
        """As JSON."""
        known = {} if self.memory is None else asdict(self.memory)
        more = {"location": self.location, "bytes": self.size}
        more |= {"unavailable": self.unavailable or None, "note": self.note or None}
        return known | more | {"recordings": self.queue.model_dump()}


@dataclass(frozen=True, slots=True)
class Recorded:
    """What was recorded, and what the queue holds now. removed: copies of a damaged index that are of no more use."""

    counts: Counts
    queue: RecordingCounts
    removed: tuple[Path, ...] = ()

    @property
    def whole(self) -> bool:
        """Nothing is left to be recorded."""
        return not (self.counts.unavailable or self.queue.pending or self.queue.failed)

    def row(self) -> dict[str, Any]:
        """As JSON."""
        done = asdict(self.counts)
        del done["unavailable"]
        return done | {"recordings": self.queue.model_dump(), "removed": [str(copy) for copy in self.removed]}


async def search(
    at: Prepared, query: str, session_id: str | None, agent: str | None, most: tuple[int | None, int | None]
) -> tuple[Recalled, str]:
    """What the agent (or anyone, when None) would recall in the next turn of the session, or of all sessions.

    most: memories and tokens, None for the configuration's. When the index cannot be used, the log is searched by
    words, and the second part of the result says why.
    """
    settings = at.config.memory.retrieval
    limit, tokens = most[0] or settings.limit, most[1] or settings.max_tokens
    async with _store(at) as store:
        session_id = await _session(store, session_id)
        last = None if session_id is None else await store.last_turn(session_id)
        turn = 1 if last is None else last.turn + 1
        scope = Scope(session_id or "", agent or USER, turn, everywhere=session_id is None)
        wanted = Wanted(tokens, limit)
        try:
            async with _memory(at) as memory:
                return await memory.recall(query, scope, wanted), ""
        except MemoryUnavailable as e:
            return await by_words(store, query, scope, wanted), e.message


async def listed(at: Prepared, selection: Selection, limit: int) -> Sequence[Memory]:
    """Memories, newest first. Raises as `find_session` for the session that is selected."""
    async with _memory(at) as memory:
        return await memory.list(await _meant(at, memory, selection), limit)


async def shown(at: Prepared, memory_id: str) -> tuple[Memory, Sequence[MessageRecord]]:
    """A memory and the messages that it came from. Raises InputError when there is no such memory."""
    async with _store(at) as store, _memory(at) as memory:
        found = await memory.list(Selection(ids=(memory_id,)), 1)
        if not found:
            raise no_such_memory(memory_id)
        return found[0], await store.messages_by_id(found[0].message_ids)


async def counted(at: Prepared, selection: Selection) -> int:
    """How many memories the selection names."""
    return len(await listed(at, selection, _ALL))


async def forgotten(at: Prepared, selection: Selection) -> int:
    """Delete them, and see to it that they are never recorded again; returns how many they were.

    Raises InputError when one of the selection's ids is none, and as `find_session`.
    """
    async with _store(at) as store, _memory(at) as memory:
        selection = await _meant(at, memory, selection)
        return await forget_everywhere(store, memory, selection, at.config.memory, at.home)


async def stats(at: Prepared) -> Stats:
    """Counts of memory and queue; of the queue alone when the memory cannot be used now."""
    folder = index_folder(at.config.memory, at.home)
    found, note, unavailable = None, "", ""
    async with _store(at) as store:
        queue = await store.recording_counts()
        try:
            async with _memory(at) as memory:
                found, note = await memory.stats(), memory.note
        except MemoryUnavailable as e:
            unavailable = e.message
    server = at.config.memory.persistent_memory.qdrant.mode == "server"
    location = found.location if found else str(folder)
    return Stats(found, queue, location, None if server else _size(folder), unavailable, note)


async def recorded(at: Prepared, session_id: str | None, progress: Progress) -> Recorded:
    """Record what is in the queue, also what waits for another attempt or was given up."""
    _check_lasting(at)
    async with _store(at) as store:
        session_id = await _session(store, session_id)
        await store.requeue(session_id, done=False)
        async with _memory(at) as memory:
            return await _drained(at, store, memory, session_id, progress)


async def rebuilt(at: Prepared, session_id: str | None, progress: Progress) -> Recorded:
    """Queue everything again, delete what the queue will make anew, and record it.

    A damaged index is set aside first; when all is recorded, it and earlier ones are deleted.
    """
    _check_lasting(at)
    async with _store(at) as store:
        session_id = await _session(store, session_id)
        sessions = [session_id] if session_id else [s.session_id for s in await store.list_sessions()]
        # Facts are kept when there is no model that would find them again.
        kind = "episode" if at.config.memory.persistent_memory.llm is None else None
        async with _memory(at, damaged=_refuse if session_id else set_aside) as memory:
            await store.requeue(session_id, done=True)
            if sessions:
                await memory.forget(Selection(session_ids=tuple(sessions), kind=kind))
            done = await _drained(at, store, memory, session_id, progress)
    if session_id is not None or not done.whole:
        return done
    return replace(done, removed=tuple(await remove_set_aside(at.config.memory, at.home)))


async def _refuse(config: MemoryConfig, home: Path, environ: Mapping[str, str]) -> None:
    raise InputError(
        "the memory index is damaged, and with it the memories of all sessions",
        "run `massmem memory rebuild` without --session-id",
    )


async def _drained(
    at: Prepared, store: SessionStore, memory: IndexedMemory, session_id: str | None, progress: Progress
) -> Recorded:
    total = (await store.recording_counts(session_id)).pending
    agents = resolve_agents(at.config, os.environ)

    def show(c: Counts) -> None:
        progress(min(total, c.episodes + c.turns + c.extractions + c.retried + c.failed), total)

    async with open_extractor(at.config.memory.persistent_memory.llm, at.home, memory.known()) as extractor:
        counts = await recorder(store, memory, extractor, agents, session_id).drain(done=show)
    if not counts.unavailable:
        progress(total, total)
    return Recorded(counts, await store.recording_counts(session_id))


@asynccontextmanager
async def _store(at: Prepared) -> AsyncGenerator[SessionStore]:
    if at.team is not None:
        yield at.team.store
        return
    store = await open_configured(at.config.store, at.home)
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def _memory(at: Prepared, damaged: MakeRoom | None = None) -> AsyncGenerator[IndexedMemory]:
    """What is kept between runs, also when the configuration keeps nothing from now on. damaged: what to do then."""
    memory = kept_memory(at.config.memory, at.home, damaged) if at.team is None else at.team.kept_memory()
    async with memory as opened:
        yield opened


async def _session(store: SessionStore, name: str | None) -> str | None:
    """The id of the session that a user means. Raises as `find_session`."""
    return None if name is None else (await find_session(store, check_session_name(name))).session_id


async def _meant(at: Prepared, memory: IndexedMemory, selection: Selection) -> Selection:
    """The selection with the id of its session; its memories may have outlived it. Raises as `find_session`."""
    name = selection.session_id
    if name is None:
        return selection
    try:
        async with _store(at) as store:
            return replace(selection, session_id=await _session(store, name))
    except UnknownSessionError:
        if SESSION_ID.fullmatch(name) and await memory.list(Selection(name), 1):
            return selection
        raise


def _check_lasting(at: Prepared) -> None:
    if not at.config.memory.persistent_memory.on_disk:
        raise InputError(
            "nothing is kept between runs: memory.persistent_memory.on_disk is false",
            "set it to true; what was said until then is still in the queue",
        )


def _size(folder: Path) -> int:
    """Bytes that the folder takes on the disk; the index keeps files with holes in them."""
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file())
