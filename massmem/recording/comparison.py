"""Compares an index with the store that it was made from, and mends it from the log.

The index has a mark: what the store said of each session when the two were compared last (`count_recorded`). Where a
backup was restored, a folder synced, or one of them is from another machine, the store says something else now. The
sessions that differ are looked at, unless they have only gone on and the index has their last message.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

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
    recorded: Mapping[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    """What the store says, by session."""
    lost: dict[str, int] = field(default_factory=dict[str, int])
    """Messages that are recorded and not in the index, by session."""
    outdated: list[str] = field(default_factory=list[str])
    """Ids of memories that the store does not have any more, has in another form, or that were forgotten."""
    foreign: int = 0
    """Sessions of which the index has memories, and that the store has never had, as far as the mark tells."""

    def describe(self, *, is_mended: bool = True) -> list[str]:
        """Return what to say of it, a line for each."""
        lost, outdated, verb = sum(self.lost.values()), len(self.outdated), "were" if is_mended else "will be"
        lines = {
            f"{lost:,} {'message is' if lost == 1 else 'messages are'} not in the index: massmem memory rebuild": lost,
            f"{outdated:,} memories {verb} removed from the index: the store does not have them like this": outdated,
            f"the index has memories of {self.foreign:,} {'session' if self.foreign == 1 else 'sessions'} of another "
            "store, which are removed by: massmem memory rebuild": self.foreign,
        }
        return [line for line, number in lines.items() if number]


async def compare(store: SessionStore, memory: "IndexedMemory") -> Comparison:
    """Compare the index with the store; change neither. Raises StoreError, MemoryUnavailable."""
    mark = {name: tuple(counts) for name, counts in (await memory.read_mark()).items()}
    present, recorded = await memory.list_sessions(), await store.count_recorded()
    result = Comparison(recorded, {name: row[0] for name, row in recorded.items() if row[0] and name not in present})
    mark = mark if mark.keys() & recorded.keys() else {}  # else it is another store's
    for name in present if store.info.kind != "redis" else ():  # what expires there stays in the index
        now, old = recorded.get(name, (0, 0, 0)), mark.get(name, (0, 0, 0))
        if name not in mark and name not in recorded and await store.get_session(name) is None:
            result.foreign += memory.folder is not None  # a server may have those of many stores
        elif mark and now != old and not await _has_gone_on(memory, name, now, old):
            outdated, lost = await _look(store, memory, name)
            result.outdated += outdated
            result.lost |= {name: lost} if lost else {}
    return result


async def mend(store: SessionStore, memory: "IndexedMemory") -> Comparison:
    """Compare them once for each opening of an index, queue again what is lost, and delete what is outdated.

    Facts that are lost stay so, since a model would be paid for them again, and so does all when another embedder has
    an index of it, of which the user is told.

    Raises StoreError, MemoryUnavailable.
    """
    if memory.temporary or memory.note or memory.is_compared:
        return Comparison()
    memory.is_compared = True
    result = await compare(store, memory)
    if result.outdated:
        await memory.forget(Selection(ids=tuple(result.outdated)))
    is_all = result.lost.keys() == {name for name, row in result.recorded.items() if row[0]}
    for session_id in [None] if is_all and result.lost else result.lost:
        await store.requeue_recordings(session_id, done=True, facts=False)
    await memory.write_mark(result.recorded)
    return result


async def _has_gone_on(memory: "IndexedMemory", session_id: str, now: Sequence[int], old: Sequence[int]) -> bool:
    """Return whether there is only more than before, and the index has the last of it."""
    if now[0] < old[0] or now[1] < old[1] or now[2] != old[2]:
        return False
    return bool(await memory.list(Selection(session_id, message_ids=(make_message_id(session_id, now[1]),)), 1))


async def _look(store: SessionStore, memory: "IndexedMemory", session_id: str) -> tuple[list[str], int]:
    """Return the ids of a session's memories that are outdated, and how many recorded messages are not there."""
    memories = await memory.list(Selection(session_id), ALL_POINTS)  # first: the log has what is recorded meanwhile
    if memory.folder is None and await store.get_session(session_id) is None:
        return [], 0  # it may be in another store
    messages = {message.id: message async for message in read_all_messages(store, session_id)}
    jobs = [job async for page in read_log_pages(store, session_id) for entry in page for job in entry.recordings]
    gone = {job.message_id for job in jobs if (job.kind, job.status) == ("episode", "forgotten")}
    turns = {(job.agent_id, job.turn) for job in jobs if (job.kind, job.status) == ("extract", "forgotten")}
    facts = [(job.agent_id, words) for job in jobs for words in job.forgotten]

    def is_current(one: Memory) -> bool:
        sources = [messages[name] for name in one.message_ids if name in messages]
        if one.kind == "episode":
            sources = [message for message in sources if message.id not in gone]
        elif not one.changes:  # the fact that was edited is forgotten, and may be much like what it is now
            words = [words for agent_id, words in facts if agent_id == one.agent_id]
            if (one.agent_id, one.turn) in turns or is_forgotten(one.text, words):
                return False
        # Later messages have the numbers of those that a restored log does not have.
        return messages.keys() >= {*one.changes} and any(m.created_at <= one.created_at for m in sources)

    held, outdated = set[str](), list[str]()
    for one in memories:
        if not is_current(one):
            outdated.append(one.id)
        else:
            held.update(one.changes, one.message_ids if one.kind == "episode" else ())
    done = {job.message_id for job in jobs if (job.kind, job.status, job.reason) == ("episode", "done", None)}
    return outdated, len(done - held)
