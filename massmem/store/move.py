"""Copies sessions from one store to another, one after the other, each verified by count and hash.

The source is only read. A session arrives whole or not at all, so that a copying that was killed is simply run again:
what has arrived is found by its hash and left alone.
"""

import json
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Literal

from massmem.core.errors import StoreError
from massmem.core.records import LogEntry, SessionCopy
from massmem.store.ports import SessionStore

PAGE = 500

Outcome = Literal["copied", "updated", "there", "newer", "different", "changed", "gone"]
"""What became of a session.

copied: it was not in the target. updated: the target had its beginning, or an older name or state of it.
there: the target has the same already.
newer: the conversation went on in the target. different: another conversation has this id there. changed: the source
was written to meanwhile, so that it must be copied again. gone: it was deleted from the source meanwhile.
The last five leave the target as it was, but for `changed`.
"""


@dataclass(frozen=True, slots=True)
class MoveResult:
    """events: entries of the source's log. messages: what was counted in the target after the copying."""

    session_id: str
    outcome: Outcome
    events: int = 0
    messages: int = 0


@dataclass(frozen=True, slots=True)
class _Log:
    """How many entries a log has and their hash; `start`: the hash of its first entries, as many as were asked for."""

    count: int
    hash: str
    start: str


async def move_sessions(
    source: SessionStore, target: SessionStore, session_ids: Sequence[str]
) -> AsyncGenerator[MoveResult]:
    """Copy the sessions, oldest first as they are given, and tell of each what became of it.

    Raises:
        StoreError: a store cannot be used, or a session did not arrive as it was sent.
    """
    for session_id in session_ids:
        yield await _move(source, target, session_id)


async def _move(source: SessionStore, target: SessionStore, session_id: str) -> MoveResult:
    copy = await source.export_session(session_id)
    if copy is None:
        return MoveResult(session_id, "gone")
    there = await target.export_session(session_id)
    if there is None:
        return await _copied(source, target, copy, "copied")
    theirs = await _read(target, session_id)
    ours = await _read(source, session_id, theirs.count)
    if ours.hash == theirs.hash:
        outcome = "updated" if await _caught_up(source, target, copy, there) else "there"
        return MoveResult(session_id, outcome, ours.count, there.session.message_count)
    if ours.start == theirs.hash:
        return await _copied(source, target, copy, "updated")
    begun = await _read(target, session_id, ours.count)
    return MoveResult(session_id, "newer" if begun.start == ours.hash else "different", ours.count)


async def _caught_up(source: SessionStore, target: SessionStore, copy: SessionCopy, there: SessionCopy) -> bool:
    """Bring over what no event tells: a name that was given, turns that were given up, values. Was there any?

    What was changed in the target since stays: a name when the source has none but the first question, newer values.
    """
    name, changed = copy.session.session_id, False
    title = copy.session.title
    if title != there.session.title:
        # As long as nobody gives it a name, it is called by how its first question begins.
        first = "".join([turn.question for turn in await source.list_turns(name, 0, 1)])
        if not " ".join(first.split()).startswith(title):
            await target.rename_session(name, title)
            changed = True
    for turn in sorted(set(copy.abandoned) - set(there.abandoned)):
        await target.abandon_turn(name, turn)
        changed = True
    ours, theirs = copy.state.updated_at, there.state.updated_at
    if ours is not None and (theirs is None or theirs < ours):
        await target.save_state(name, copy.state)
        changed = True
    return changed


async def _copied(source: SessionStore, target: SessionStore, copy: SessionCopy, outcome: Outcome) -> MoveResult:
    session_id = copy.session.session_id
    sent, count = sha256(_line(copy)), 0

    async def pages() -> AsyncGenerator[Sequence[LogEntry]]:
        nonlocal count
        async for page in _pages(source, session_id):
            for entry in page:
                sent.update(_line(entry))
            count += len(page)
            yield page

    await target.import_session(copy, pages())
    arrived, messages = await _arrived(target, session_id), await _messages(target, session_id)
    if arrived != sent.hexdigest() or messages != copy.session.message_count:
        if await source.get_session(session_id) == copy.session:
            raise StoreError(
                f"session {session_id!r} did not arrive as it was sent: {messages} of "
                f"{copy.session.message_count} messages, hash {arrived[:12]} for {sent.hexdigest()[:12]}",
                "the source is untouched; run the same command again",
            )
        return MoveResult(session_id, "changed", count, messages)
    unchanged = await source.get_session(session_id) == copy.session
    return MoveResult(session_id, outcome if unchanged else "changed", count, messages)


async def _pages(store: SessionStore, session_id: str) -> AsyncGenerator[list[LogEntry]]:
    after = 0
    while page := await store.export_log(session_id, after, PAGE):
        yield page
        after = page[-1].seq


async def _read(store: SessionStore, session_id: str, first: int = 0) -> _Log:
    """first: of how many entries the hash is wanted besides."""
    hashed, count = sha256(), 0
    start = hashed.hexdigest() if first == 0 else ""
    async for page in _pages(store, session_id):
        for entry in page:
            hashed.update(f"{entry.seq} {entry.turn} {entry.payload}\n".encode())
            count += 1
            if count == first:
                start = hashed.hexdigest()
    return _Log(count, hashed.hexdigest(), start)


async def _arrived(store: SessionStore, session_id: str) -> str:
    """The hash of all that the store holds of a session, "" when there is none."""
    copy = await store.export_session(session_id)
    if copy is None:
        return ""
    hashed = sha256(_line(copy))
    async for page in _pages(store, session_id):
        for entry in page:
            hashed.update(_line(entry))
    return hashed.hexdigest()


async def _messages(store: SessionStore, session_id: str) -> int:
    count, after = 0, 0
    while page := await store.read_messages(session_id, after, PAGE):
        count, after = count + len(page), page[-1].seq
    return count


def _line(part: SessionCopy | LogEntry) -> bytes:
    # The order of keys is the one thing that a store may change.
    return json.dumps(part.model_dump(mode="json"), sort_keys=True).encode() + b"\n"
