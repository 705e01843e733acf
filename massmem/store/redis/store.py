"""The session store on Redis: sessions that live for a time after their last use, and keep their newest messages.

A session is its log, some counters and an index of its words; messages, turns and answers are read from the log by the
projection that the other stores fill their tables with. Every change is one program that runs whole or not at all.
"""

from collections.abc import AsyncIterable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING

from massmem.errors import SessionBusyError, StoreError
from massmem.events import Event, now
from massmem.memory.memories import Selection
from massmem.messages import clean_text
from massmem.records import (
    ListedSession,
    LogEntry,
    MessageRecord,
    MessageToRecord,
    RecordingCounts,
    RecordingKind,
    RecordingRecord,
    SessionCopy,
    SessionCounts,
    SessionFilter,
    SessionRecord,
    SessionState,
    TurnRecord,
)
from massmem.store.base import Lease, Mark, Retention, Said, StoreInfo
from massmem.store.redis import listing, queue, scripts
from massmem.store.redis.append import appending, creating, keeping
from massmem.store.redis.client import RedisClient
from massmem.store.redis.importing import import_session, keeping_state, stored_form
from massmem.store.redis.keys import Command, all_key, key
from massmem.store.redis.log import Head, TurnRow
from massmem.store.redis.persistence import rewritten, risks_of
from massmem.store.redis.reading import Reading
from massmem.store.redis.recordings import Recordings
from massmem.store.redis.removal import delete_some, trim
from massmem.store.redis.session import Made, Sessions, Snapshot
from massmem.store.rows import missing, payload

if TYPE_CHECKING:
    from massmem.store.base import SessionStore

_UNFINISHED = ("running", "failed", "interrupted", "waiting")


async def open_redis(url: str, retention: Retention) -> "RedisStore":
    """Connect to the server. Raises as `massmem.store.open_store`; StoreUnavailable: there is no server."""
    client = RedisClient(url)
    try:
        await client.run("PING")
        warnings = await risks_of(client)
    except BaseException:
        await client.close()
        raise
    return RedisStore(client, retention, warnings)


class RedisStore:
    """SessionStore on one database of one server. warnings: what the user should know of the server."""

    def __init__(self, client: RedisClient, retention: Retention, warnings: tuple[str, ...] = ()) -> None:
        self._client = client
        self._most = retention.messages
        self._sessions = Sessions(client, -1 if retention.seconds is None else max(1, int(retention.seconds * 1000)))
        self._reading = Reading(client)
        self._recordings = Recordings(self._sessions)
        self._info = StoreInfo("redis", once=warnings)

    @property
    def info(self) -> StoreInfo:
        return self._info

    async def create_session(self, session: SessionRecord) -> None:
        head = Head(session=stored_form(session))
        await self._sessions.create(head.session.session_id, creating(head))

    async def get_session(self, session_id: str) -> SessionRecord | None:
        found = await self._sessions.read(clean_text(session_id))
        return None if found is None else found.head.session

    async def list_sessions(self, limit: int | None = None, offset: int = 0) -> list[SessionRecord]:
        return await listing.created(self._sessions, limit, offset)

    async def find_sessions(
        self, wanted: SessionFilter, limit: int | None = None, offset: int = 0
    ) -> list[ListedSession]:
        return await listing.listed(self._sessions, wanted, limit, offset)

    async def session_counts(self, wanted: SessionFilter) -> SessionCounts:
        return await listing.counted(self._sessions, wanted)

    async def count_said(self, wanted: SessionFilter) -> int:
        return await listing.count_said(self._sessions, wanted)

    async def asked(self, session_id: str, request: str) -> int | None:
        return await self._reading.asked(clean_text(session_id), clean_text(request))

    async def rename_session(self, session_id: str, title: str) -> None:
        name = clean_text(session_id)

        def make(snapshot: Snapshot) -> Made[None]:
            if snapshot.head.session.status == "deleting":
                raise missing(session_id)
            return _with(snapshot.head, title=clean_text(title))

        await self._sessions.change(name, (), make)

    async def delete_session(self, session_id: str, limit: int) -> int | None:
        return await delete_some(self._sessions, clean_text(session_id), limit)

    async def erase(self) -> bool:
        return await rewritten(self._client)

    async def append(
        self, session_id: str, turn: int, events: Sequence[Event], new: SessionState | None = None, leaving: str = ""
    ) -> list[int]:
        """As in the port. Raises also SessionBusyError: another process has begun this turn."""
        if not events:
            return []
        name, batch = clean_text(session_id), [payload(event) for event in events]
        lease = clean_text(leaving), 0

        def make(snapshot: Snapshot) -> Made[tuple[list[int], Head]]:
            state = [] if new is None else [keeping_state(name, new.model_copy(update={"updated_at": now()}))]
            return appending(snapshot, turn, batch, state, lease)

        return await self._trimmed(*await self._sessions.change(name, [("HGET", key("turns", name), turn)], make))

    async def mark(self, session_id: str) -> Mark | None:
        found = await self._sessions.read(clean_text(session_id), [_state_of(clean_text(session_id))])
        return None if found is None else _mark(found.head, found.more[0])

    async def begin_turn(
        self, session_id: str, turn: int, events: Sequence[Event], lease: Lease, known: Mark
    ) -> list[int] | None:
        name, batch = clean_text(session_id), [payload(event) for event in events]

        def make(snapshot: Snapshot) -> Made[tuple[list[int], Head] | None]:
            if _mark(snapshot.head, snapshot.more[1]) != known:
                return Made((), None)
            return appending(snapshot, turn, batch, (), (clean_text(lease.owner), int(lease.seconds * 1000)))

        try:
            made = await self._sessions.change(name, [("HGET", key("turns", name), turn), _state_of(name)], make)
        except SessionBusyError:
            return None
        except StoreError:
            if await self.mark(session_id) is not None:
                raise
            return None  # it is gone, or on its way
        return None if made is None else await self._trimmed(*made)

    async def _trimmed(self, numbers: list[int], head: Head) -> list[int]:
        with suppress(StoreError):  # the events are stored; what is over the limit goes with the next ones
            await trim(self._sessions, head, self._most)
        return numbers

    async def turn_events(self, session_id: str, turn: int) -> list[Event]:
        return await self._reading.turn_events(clean_text(session_id), turn)

    async def last_turn(self, session_id: str) -> TurnRecord | None:
        found = await self._sessions.read(clean_text(session_id))
        return None if found is None else await self._reading.last_turn(clean_text(session_id), found.head.turns)

    async def turns(self, session_id: str, after: int = 0, limit: int = 100) -> list[TurnRecord]:
        return await self._reading.turns(clean_text(session_id), after, limit)

    async def abandon_turn(self, session_id: str, turn: int) -> None:
        name = clean_text(session_id)

        def make(snapshot: Snapshot) -> Made[None]:
            row = None if snapshot.more[0] is None else TurnRow.model_validate_json(snapshot.more[0])
            if row is None or row.status not in _UNFINISHED:
                return Made((), None)
            row.status = "abandoned"
            return Made([("HSET", key("turns", name), turn, row.model_dump_json())], None)

        if await self._sessions.read(name) is not None:
            await self._sessions.change(name, [("HGET", key("turns", name), turn)], make)

    async def conversation(self, session_id: str, before: int | None, limit: int) -> list[MessageRecord]:
        return await self._reading.conversation(clean_text(session_id), before, limit)

    async def said(self, session_id: str, owner: str, before: int | None, limit: int) -> list[Said]:
        session = await self.get_session(session_id)
        if session is None or session.user_id != owner or session.status == "deleting":
            return []
        found = await self.conversation(session_id, before, limit)
        return [Said(m.seq, m.kind, m.content, m.agent_id, m.confidence, m.created_at) for m in found]

    async def latest_summary(self, session_id: str, agent_id: str) -> MessageRecord | None:
        """Also one that is trimmed: what it stands for is."""
        return await self._reading.latest_summary(clean_text(session_id), agent_id)

    async def messages(self, session_id: str, after: int = 0, limit: int = 1000) -> list[MessageRecord]:
        return await self._reading.messages(clean_text(session_id), after, limit)

    async def messages_by_id(self, ids: Sequence[str]) -> list[MessageRecord]:
        return await self._reading.messages_by_id(ids)

    async def messages_to_record(self, ids: Sequence[str]) -> list[MessageToRecord]:
        messages = await self.messages_by_id(ids)
        names = sorted({message.session_id for message in messages})
        heads = {name: await self._sessions.read(name) for name in names}
        states = {name: await self.state(name) for name in names}
        winners = await self.winners(names)
        return [
            MessageToRecord(
                message=message,
                group=head.head.session.memory_group,
                params=states[message.session_id].params,
                winner=winners.get((message.session_id, message.turn)),
            )
            for message in messages
            if (head := heads[message.session_id]) is not None
        ]

    async def turn_messages(self, session_id: str, turn: int) -> list[MessageRecord]:
        return [each.message for each in await self._reading.turn_said(clean_text(session_id), turn)]

    async def repeated(self, message_ids: Sequence[str]) -> list[str]:
        found: list[str] = []
        for final in await self.messages_by_id(message_ids):
            if final.final:
                turn = await self._reading.turn_said(final.session_id, final.turn)
                found += [each.message.id for each in turn if each.answer and each.message.content == final.content]
        return found

    async def search_text(
        self, query: str, session_ids: Sequence[str] | None = None, limit: int = 20
    ) -> list[MessageRecord]:
        everywhere = ("ZRANGE", all_key("created"), 0, -1)
        names: Sequence[str] = await self._client.run(*everywhere) if session_ids is None else session_ids
        return await self._reading.search(clean_text(query), [clean_text(name) for name in names], limit)

    async def winners(self, session_ids: Sequence[str]) -> dict[tuple[str, int], str]:
        """Also of turns that were trimmed: what was recorded of them is still recalled by it."""
        reads: list[Command] = [("HGETALL", key("turns", clean_text(session_id))) for session_id in session_ids]
        return {
            (session_id, int(turn)): row.winner
            for session_id, turns in zip(session_ids, await self._client.many(reads), strict=True)
            for turn, text in turns.items()
            if (row := TurnRow.model_validate_json(text)).status == "completed" and row.winner is not None
        }

    async def set_memory_group(self, session_id: str, group: str) -> None:
        name = clean_text(session_id)
        if await self._sessions.read(name) is not None:
            await self._sessions.change(name, (), lambda snapshot: _with(snapshot.head, memory_group=clean_text(group)))

    async def due_recordings(
        self, kind: RecordingKind, limit: int, session_id: str | None = None
    ) -> list[RecordingRecord]:
        return await self._recordings.due(kind, limit, session_id and clean_text(session_id))

    async def claim_recording(self, recording: RecordingRecord, until: datetime) -> bool:
        return await self._recordings.change([recording], queue.claiming(now(), until)) == 1

    async def release_recording(self, recording: RecordingRecord) -> None:
        await self._recordings.change([recording], queue.releasing)

    async def finish_recordings(
        self, recordings: Sequence[RecordingRecord], reason: str | None = None, *, lasting: bool = True
    ) -> None:
        await self._recordings.change(recordings, queue.finishing(reason, lasting=lasting))

    async def release_held(self) -> int:
        return await self._recordings.release_held()

    async def fail_recording(self, recording: RecordingRecord, reason: str, retry_at: datetime | None) -> None:
        await self._recordings.change([recording], queue.failing(clean_text(reason), retry_at))

    async def recording_counts(self, session_id: str | None = None) -> RecordingCounts:
        return await self._recordings.counts(session_id and clean_text(session_id))

    async def requeue(self, session_id: str | None = None, *, done: bool) -> int:
        return await self._recordings.change_all(session_id and clean_text(session_id), queue.requeueing(done=done))

    async def forget_fact(
        self, session_id: str, agent_id: str, message_ids: Sequence[str], words: Sequence[int]
    ) -> None:
        turns = {message.turn for message in await self.messages_by_id(message_ids)}
        await self._recordings.change_all(clean_text(session_id), queue.forgetting_fact(agent_id, turns, words))

    async def forget_recordings(self, selection: Selection, message_ids: Sequence[str] = ()) -> None:
        places = await self._reading.places(message_ids) if message_ids else None
        await self._recordings.forget(selection, places)

    async def state(self, session_id: str) -> SessionState:
        found = await self._client.run("HGET", key("session", clean_text(session_id)), "state")
        return SessionState() if found is None else SessionState.model_validate_json(found)

    async def save_state(self, session_id: str, new: SessionState) -> None:
        command = keeping_state(clean_text(session_id), new.model_copy(update={"updated_at": now()}))
        await self._sessions.change(clean_text(session_id), (), lambda _: Made([command], None))

    async def acquire_lease(self, session_id: str, owner: str, seconds: float) -> bool:
        name, for_ = clean_text(session_id), int(seconds * 1000)
        got = await self._client.program(scripts.ACQUIRE, name, clean_text(owner), for_, self._sessions.ttl)
        if got == -1:
            raise missing(session_id)
        return got == 1

    async def lease_owner(self, session_id: str) -> str | None:
        return await self._client.run("HGET", key("lease", clean_text(session_id)), "owner")

    async def renew_lease(self, session_id: str, owner: str, seconds: float) -> bool:
        name, for_ = clean_text(session_id), int(seconds * 1000)
        return await self._client.program(scripts.RENEW, name, clean_text(owner), for_) == 1

    async def release_lease(self, session_id: str, owner: str) -> None:
        await self._client.program(scripts.RELEASE, clean_text(session_id), clean_text(owner))

    async def export_session(self, session_id: str) -> SessionCopy | None:
        name = clean_text(session_id)
        found = await self._sessions.read(name)
        if found is None:
            return None
        abandoned = await self._reading.abandoned(name)
        return SessionCopy(session=found.head.session, state=await self.state(name), abandoned=abandoned)

    async def export_log(self, session_id: str, after: int = 0, limit: int = 1000) -> list[LogEntry]:
        return await self._reading.export_log(clean_text(session_id), after, limit)

    async def import_session(self, copy: SessionCopy, log: AsyncIterable[Sequence[LogEntry]]) -> None:
        await import_session(self._sessions, copy, log)

    async def close(self) -> None:
        await self._sessions.close()


def _state_of(session_id: str) -> Command:
    return "HGET", key("session", session_id), "state"


def _mark(head: Head, state: str | None) -> Mark | None:
    """state: as `_state_of` reads it."""
    if head.session.status == "deleting":
        return None
    saved = None if state is None else SessionState.model_validate_json(state).updated_at
    return Mark(head.session.created_at, head.seq, saved)


def _with(head: Head, **fields: str) -> Made[None]:
    head.session = head.session.model_copy(update=fields)
    return Made(keeping(head), None)


if TYPE_CHECKING:
    _: type[SessionStore] = RedisStore
