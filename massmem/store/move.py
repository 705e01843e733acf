"""Copies sessions from one store to another, one after the other, each verified by count and hash.

The source is only read. A session arrives whole or not at all. A move that was killed is simply run again: what has
arrived is recognised by its hash and left alone.
"""

import json
from collections.abc import AsyncGenerator, Sequence, Set
from dataclasses import dataclass
from hashlib import sha256
from typing import Literal

from massmem.core.errors import SessionBusyError, StoreError
from massmem.core.records import LogEntry, SessionCopy
from massmem.store.lookup import read_all_messages, read_log_pages
from massmem.store.ports import SessionStore

Outcome = Literal["copied", "updated", "there", "newer", "different", "changed", "gone"]
"""The outcome for one session.

copied: it was not in the target.
updated: the target had its beginning, or an older name or state of it.
there: the target has the same already.
newer: the conversation went on in the target.
different: another conversation has this id in the target.
changed: it arrived whole, and the source was written to meanwhile, or it did not, since the target was; the session
must be copied again.
gone: it was deleted from the source meanwhile.
there, newer, different and gone leave the target as it was.
"""


@dataclass(frozen=True, slots=True)
class MoveResult:
    session_id: str
    outcome: Outcome
    events: int = 0
    """Entries of the source's log."""
    messages: int = 0
    """Messages in the target after the copy."""


@dataclass(frozen=True, slots=True)
class _LogHash:
    count: int
    """Entries of the log."""
    last: int
    """Number of the last one, or 0."""
    hash: str
    """Of all entries."""
    start: str
    """Hash of the first entries, as many as the caller asked for."""
    forgotten: Set[object]  # jobs, and facts of jobs


async def move_sessions(
    source: SessionStore, target: SessionStore, session_ids: Sequence[str]
) -> AsyncGenerator[MoveResult]:
    """Copy the sessions in this order; yield what became of each.

    Raises StoreError: a store cannot be used, or a session did not arrive as it was sent.
    """
    for session_id in session_ids:
        yield await _move_session(source, target, session_id)


async def _move_session(source: SessionStore, target: SessionStore, session_id: str) -> MoveResult:
    copy = await source.export_session(session_id)
    if copy is None:
        return MoveResult(session_id, "gone")
    old_copy = await target.export_session(session_id)
    if old_copy is None:
        return await _copy_session(source, target, copy, "copied", 0)
    target_log = await _hash_log(target, session_id)
    source_log = await _hash_log(source, session_id, target_log.count)
    if source_log.hash == target_log.hash and source_log.forgotten <= target_log.forgotten:
        outcome = "updated" if await _update_rest(source, target, copy, old_copy) else "there"
        return MoveResult(session_id, outcome, source_log.count, old_copy.session.message_count)
    if source_log.start == target_log.hash and target_log.forgotten <= source_log.forgotten:
        return await _copy_session(source, target, copy, "updated", target_log.last)
    target_log = await _hash_log(target, session_id, source_log.count)
    return MoveResult(session_id, "newer" if target_log.start == source_log.hash else "different", source_log.count)


async def _update_rest(source: SessionStore, target: SessionStore, copy: SessionCopy, old_copy: SessionCopy) -> bool:
    """Copy what no event tells: a new name, abandoned turns, the state. Return whether there was any.

    What was changed in the target since stays: a name if the source has only the default one, a newer state.
    old_copy: of the target.
    """
    session_id, is_changed = copy.session.session_id, False
    title = copy.session.title
    if title != old_copy.session.title:
        # The default name is the beginning of the first question.
        question = "".join([turn.question for turn in await source.list_turns(session_id, 0, 1)])
        if not " ".join(question.split()).startswith(title):
            await target.rename_session(session_id, title)
            is_changed = True
    for turn in sorted(set(copy.abandoned) - set(old_copy.abandoned)):
        await target.abandon_turn(session_id, turn)
        is_changed = True
    source_time, target_time = copy.state.updated_at, old_copy.state.updated_at
    if source_time is not None and (target_time is None or target_time < source_time):
        await target.save_state(session_id, copy.state)
        is_changed = True
    return is_changed


async def _copy_session(
    source: SessionStore, target: SessionStore, copy: SessionCopy, outcome: Outcome, replaces: int, tries: int = 20
) -> MoveResult:
    session_id = copy.session.session_id
    sent_hash, count, last = sha256(_encode(copy)), 0, 0

    async def pages() -> AsyncGenerator[Sequence[LogEntry]]:
        nonlocal count, last
        async for page in read_log_pages(source, session_id):
            for entry in page:
                sent_hash.update(_encode(entry))
            count, last = count + len(page), page[-1].seq
            yield page

    try:
        await target.import_session(copy, pages(), read_files(source, copy), replaces=replaces)
    except SessionBusyError:
        return MoveResult(session_id, "changed", count)
    target_hash, messages = await _hash_session(target, session_id), 0
    async for _ in read_all_messages(target, session_id):
        messages += 1
    if target_hash != sent_hash.hexdigest() or messages != copy.session.message_count:
        new = await source.export_session(session_id)
        if tries and new is not None and new.session != copy.session:  # it was written to while it was read
            return await _copy_session(source, target, new, outcome, last, tries - 1)
        raise StoreError(
            f"session {session_id!r} did not arrive as it was sent: {messages} of "
            f"{copy.session.message_count} messages, hash {target_hash[:12]} for {sent_hash.hexdigest()[:12]}",
            "the source is untouched; run the same command again",
        )
    unchanged = await source.get_session(session_id) == copy.session
    return MoveResult(session_id, outcome if unchanged else "changed", count, messages)


async def read_files(store: SessionStore, copy: SessionCopy) -> AsyncGenerator[dict[str, bytes]]:
    """Yield the files of a session one by one. Raises StoreError: one is damaged."""
    for name in copy.files:
        files = await store.load_files(copy.session.session_id, [name])
        if any(sha256(data).hexdigest() != name for data in files.values()):
            raise StoreError(
                f"a file of session {copy.session.session_id!r} is damaged: {name[:12]} is not its hash any more",
                "delete the session, or restore a copy of the store",
            )
        yield files


async def _hash_log(store: SessionStore, session_id: str, first: int = 0) -> _LogHash:
    """first: the result's `start` covers so many entries."""
    digest, count, last, forgotten = sha256(), 0, 0, set[object]()
    start = digest.hexdigest() if first == 0 else ""
    async for page in read_log_pages(store, session_id):
        for entry in page:
            digest.update(f"{entry.seq} {entry.turn} {entry.payload}\n".encode())
            count, last = count + 1, entry.seq
            if count == first:
                start = digest.hexdigest()
            for job in entry.recordings:
                facts = [*job.forgotten, job.status] if job.status == "forgotten" else job.forgotten
                forgotten.update((job.seq, job.kind, job.agent_id, fact) for fact in facts)
    return _LogHash(count, last, digest.hexdigest(), start, forgotten)


async def _hash_session(store: SessionStore, session_id: str) -> str:
    """Return the hash of all that the store holds of a session, "" for an unknown one."""
    copy = await store.export_session(session_id)
    if copy is None:
        return ""
    digest = sha256(_encode(copy))
    async for page in read_log_pages(store, session_id):
        for entry in page:
            digest.update(_encode(entry))
    return digest.hexdigest()


def _encode(part: SessionCopy | LogEntry) -> bytes:
    # The order of keys and of jobs is the one thing that a store may change.
    fields = part.model_dump(mode="json")
    fields["recordings"] = sorted(fields.get("recordings", ()), key=str)
    return json.dumps(fields, sort_keys=True).encode() + b"\n"
