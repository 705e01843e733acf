"""Compares an index with the store that it was made from, and mends it from the log.

The index has a mark: what the store said of each session when they were compared last (`read_recording_marks`). Where a
backup was restored, a folder synced, or one of them is from another machine, the store says something else now. It has
no names: that of a session that is deleted stays nowhere.
"""

import json
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING

from massmem.config.home import lock_file, replace_file
from massmem.core.errors import MassmemError
from massmem.core.ids import make_message_id
from massmem.memory.index import ALL_POINTS
from massmem.memory.persistent import Memory, Selection
from massmem.recording.forgetting import is_forgotten
from massmem.store.lookup import read_all_messages, read_log_pages
from massmem.store.ports import SessionStore

if TYPE_CHECKING:
    from massmem.memory.indexed import IndexedMemory


@dataclass(slots=True)
class Comparison:
    recorded: dict[str, tuple[int, int, int]] = field(default_factory=dict[str, tuple[int, int, int]])
    lost: dict[str, int] = field(default_factory=dict[str, int])
    """Messages that are recorded and not in the index, by session."""
    outdated: list[str] = field(default_factory=list[str])
    """Ids of memories that the store does not have any more, has in another form, or that were forgotten."""
    foreign: list[str] = field(default_factory=list[str])
    """Sessions that the index has, and the store has not had as far as the mark tells."""

    def describe(self) -> list[str]:
        """Return what to say of it, a line for each."""
        lost, outdated, foreign = sum(self.lost.values()), len(self.outdated), len(self.foreign)
        lines = {
            f"{lost:,} {'message is' if lost == 1 else 'messages are'} not in the index: massmem memory rebuild": lost,
            f"the index had {outdated:,} memories that the store does not have like this: they are removed": outdated,
            f"sessions of another store in the index: {foreign:,}; to remove them: massmem memory rebuild": foreign,
        }
        return [line for line, number in lines.items() if number]


async def compare(store: SessionStore, memory: "IndexedMemory") -> Comparison:
    """Compare the index with the store; change neither. Raises StoreError, MemoryUnavailable."""
    present, recorded = await memory.list_sessions(), await store.read_recording_marks()
    mark = dict[str, tuple[int, ...]]()
    with suppress(OSError, ValueError):
        mark = {name: tuple(row) for name, row in json.loads(memory.mark_file.read_bytes()).items()}
    is_own = not mark.keys().isdisjoint(map(_hash, recorded))
    result = Comparison(recorded, {name: row[0] for name, row in recorded.items() if row[0] and name not in present})
    for name in present if store.info.kind != "redis" else ():  # what expires there stays in the index
        now, old = recorded.get(name, (0, 0, 0)), mark.get(_hash(name), (0, 0, 0))
        is_gone = name not in recorded and await store.get_session(name) is None
        if is_gone and (memory.folder is None or not is_own or _hash(name) not in mark):
            result.foreign += [name] if memory.folder else []  # a server may have those of many stores
        elif is_gone or (is_own and now != old):
            has_more = now[0] >= old[0] and now[1] >= old[1] and now[2] == old[2]
            last = Selection(name, message_ids=(make_message_id(name, now[1]),))
            # Most sessions have only gone on.
            if not (has_more and await memory.list(last, 1)) and (lost := await _look(store, memory, name, result)):
                result.lost[name] = lost
    return result


async def mend(store: SessionStore, memory: "IndexedMemory") -> Comparison:
    """Compare them once for each opening, queue again what is lost, and delete what is outdated. Raises as `compare`.

    Not facts, since a model would be paid for them again; nor where another embedder has an index, which is said.
    """
    if memory.temporary or memory.note or memory.is_compared:
        return Comparison()
    memory.is_compared = True
    result = await compare(store, memory)
    if result.outdated:
        await memory.forget(Selection(ids=tuple(result.outdated)))
    for session_id in result.lost if len(result.lost) < 100 else [None]:  # all at once
        await store.requeue_recordings(session_id, done=True, facts=False)
    with suppress(MassmemError):  # without the mark, the next one looks at more
        if memory.mark_file.name:
            with lock_file(memory.mark_file):
                replace_file(memory.mark_file, json.dumps({_hash(name): row for name, row in result.recorded.items()}))
    return result


def _hash(session_id: str) -> str:
    return sha256(session_id.encode()).hexdigest()[:16]


async def _look(store: SessionStore, memory: "IndexedMemory", session_id: str, result: Comparison) -> int:
    """Add a session's memories that are outdated to the result; return how many recorded messages are not there."""
    memories = await memory.list(Selection(session_id), ALL_POINTS)  # first: the log has what is recorded meanwhile
    messages = {message.id: message async for message in read_all_messages(store, session_id)}
    jobs = [job async for page in read_log_pages(store, session_id) for entry in page for job in entry.recordings]
    gone = {job.message_id for job in jobs if (job.kind, job.status) == ("episode", "forgotten")}
    facts = [(job.agent_id, words) for job in jobs for words in job.forgotten]

    def is_current(one: Memory) -> bool:
        names = [name for name in one.message_ids if one.kind == "fact" or name not in gone]
        # Later messages have the numbers of those that a restored log does not have.
        is_in_log = any(name in messages and messages[name].created_at <= one.created_at for name in names)
        # A fact that was edited is forgotten, and may be much like what it is now.
        own = [
            words for agent_id, words in facts if agent_id == one.agent_id and one.kind == "fact" and not one.changes
        ]
        return is_in_log and not is_forgotten(one.text, own) and messages.keys() >= {*one.changes}

    current = [one for one in memories if is_current(one)]
    result.outdated += {one.id for one in memories} - {one.id for one in current}
    held = {name for one in current for name in (*one.changes, *(one.message_ids if one.kind == "episode" else ()))}
    return sum((j.kind, j.status, j.reason) == ("episode", "done", None) and j.message_id not in held for j in jobs)
