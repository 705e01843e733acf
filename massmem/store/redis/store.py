"""The session store on Redis: sessions that expire after their last use and keep their newest messages."""

import asyncio
import json
import secrets
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import aclosing
from datetime import datetime
from functools import partial
from typing import Any, TypeVar, Unpack
from weakref import WeakValueDictionary

from massmem.core.errors import SessionExistsError, StoreError
from massmem.core.events import Event, now
from massmem.core.ids import make_message_id
from massmem.core.messages import clean_text
from massmem.core.records import (
    EVERYBODY,
    Everybody,
    ListedSession,
    LogEntry,
    MessageRecord,
    MessageToRecord,
    Owner,
    RecordingCounts,
    RecordingJob,
    RecordingKind,
    SessionCopy,
    SessionCounts,
    SessionFilter,
    SessionRecord,
    SessionState,
    TurnPlace,
    TurnRecord,
)
from massmem.core.records import count_microseconds as _us
from massmem.memory.persistent import USER, Scope, Selection
from massmem.store.encoding import clean_json, encode_event
from massmem.store.ports import (
    HELD,
    FilePages,
    LogPages,
    Retention,
    SessionFields,
    StoreInfo,
    check_replaced,
    lease_lost_error,
    unknown_session_error,
)
from massmem.store.redis.record import JobEdit, Lease, Record, StoredSession, depends_on_log, is_conversation
from massmem.store.redis.server import RedisConnection, check_layout, read_warnings, rewrite_files
from massmem.store.redis.tables import RedisFileTable, RedisKeyTable, files_key, is_owned_by, matches, search

T = TypeVar("T")

USED, DUE = "massmem:v3:used", "massmem:v3:due"
"""Session ids by last use, and those with pending jobs by the time these are due. Some may have expired meanwhile."""

HIDDEN = "massmem:v3:hidden"
"""Session ids with turns that are withdrawn or undone; some may have expired meanwhile."""

_RECORDS_AT_ONCE, _SESSIONS_AT_ONCE = 20, 500
_WRITERS = 32
"""Processes whose changes a session counts."""

_REMEMBERED = 10_000
"""Sessions of which this process remembers its changes."""


async def open_redis(url: str, retention: Retention) -> "RedisStore":
    """Connect to the server. Raises as `massmem.store.open_store`; StoreUnavailable: there is no server."""
    server = RedisConnection(url)
    try:
        await check_layout(server)
        return RedisStore(server, retention, await read_warnings(server))
    except BaseException:
        await server.close()
        raise


class RedisStore(RedisKeyTable, RedisFileTable):
    """SessionStore on one database of one server. Each session is one record, changed by compare-and-set.

    A session counts the changes of each process, and so does the process. When a connection breaks before the reply,
    the count tells whether the change was made, so that nothing is done twice. When it is lower than what this process
    remembers, the server came back without a change that it had acknowledged.
    """

    def __init__(self, server: RedisConnection, retention: Retention, warnings: tuple[str, ...] = ()) -> None:
        self.info = StoreInfo("redis", once=warnings)
        self._server = server
        self._retention = retention
        self._ttl = None if retention.seconds is None else max(1, int(retention.seconds * 1000))
        self._writer = secrets.token_hex(8)
        self._locks = WeakValueDictionary[str, asyncio.Lock]()
        # How many changes of a session (by id and time of creation) were acknowledged, and how many were sent.
        self._counts: dict[tuple[str, datetime], tuple[int, int]] = {}

    async def close(self) -> None:
        await self._server.close()

    # SessionLog

    async def append(
        self,
        session_id: str,
        turn: int,
        events: Sequence[Event],
        *,
        state: SessionState | None = None,
        owner: str = "",
        release_lease: bool = False,
    ) -> list[int]:
        batch = [encode_event(event) for event in events]
        *_, newest = [0, *await self._server.run("ZREVRANGE", USED, 0, 0, "WITHSCORES")]

        def append(record: Record) -> list[int]:
            stored = record.stored
            if owner and stored.lease is not None and stored.lease.owner != clean_text(owner):
                raise lease_lost_error(session_id)
            if owner and release_lease:
                stored.lease = None
            if state is not None:
                stored.state = _clean_state(state)
            seqs = record.append(turn, batch, int(newest))
            if record.is_whole:
                record.trim(self._retention)
            return seqs

        return await self._change(session_id, append, is_whole=any(map(depends_on_log, events))) if batch else []

    async def read_turn_events(self, session_id: str, turn: int, until: int | None = None) -> list[Event]:
        return (await self.read_events_of_turns(session_id, [turn], until))[turn]

    async def read_events_of_turns(
        self, session_id: str, turns: Collection[int], until: int | None = None
    ) -> dict[int, list[Event]]:
        record = await self._load(session_id)
        return record.read_events(turns, until) if record else {turn: [] for turn in turns}

    async def get_last_turn(self, session_id: str, *, with_withdrawn: bool = False) -> TurnRecord | None:
        turns = await self._read_turns(session_id)
        return next((turn for turn in reversed(turns) if with_withdrawn or not turn.withdrawn), None)

    async def list_places(self, session_id: str) -> list[TurnPlace]:
        return [*await self._read_turns(session_id)]

    async def list_hidden(self, scope: Scope) -> frozenset[tuple[str, int]]:
        names = {scope.session_id, *scope.others}
        if scope.all_sessions or scope.group:
            names.update(await self._server.run("SMEMBERS", HIDDEN))
        sessions = filter(None, await self._load_sessions(names))
        return frozenset(place for stored in sessions for place in stored.list_hidden(scope))

    async def list_turns(self, session_id: str, after: int = 0, limit: int = 100) -> list[TurnRecord]:
        return [turn for turn in await self._read_turns(session_id) if turn.turn > after][:limit]

    async def abandon_turn(self, session_id: str, turn: int) -> None:
        def abandon(record: Record) -> None:
            record.stored.abandoned |= {turn}

        await self._change_if_present(session_id, abandon, is_whole=False)

    async def find_request(self, session_id: str, request: str) -> int | None:
        stored = await self._load_head(session_id)
        return stored.requests.get(clean_text(request)) if stored else None

    async def read_conversation(self, session_id: str, before: int | None, limit: int) -> list[MessageRecord]:
        record = await self._load(session_id)
        if record is None:
            return []
        messages = [m for m in reversed(record.read_messages()) if m.turn not in record.stored.list_hidden_turns()]
        return [m for m in messages if is_conversation(m) and (before is None or m.seq < before)][:limit]

    async def get_latest_summary(self, session_id: str, agent_id: str) -> MessageRecord | None:
        record = await self._load(session_id)
        summaries = record.read_summaries() if record else []
        return next((summary for summary in reversed(summaries) if summary.agent_id == clean_text(agent_id)), None)

    async def read_messages(self, session_id: str, after: int = 0, limit: int = 1000) -> list[MessageRecord]:
        record = await self._load(session_id)
        return [message for message in record.read_messages() if message.seq > after][:limit] if record else []

    async def read_turn_messages(self, session_id: str, turn: int) -> list[MessageRecord]:
        record = await self._load(session_id)
        return record.read_messages(turn, trimmed=True) if record else []

    async def get_messages(self, message_ids: Sequence[str]) -> list[MessageRecord]:
        return [message for _, message in await self._find_messages(message_ids)]

    async def find_repeated_answers(self, message_ids: Sequence[str]) -> list[str]:
        repeated: list[str] = []
        for record, final in await self._find_messages(message_ids):
            turn = record.read_messages(final.turn) if final.final else []
            answers = (m for m in turn if m.kind == "assistant" and not m.final)
            repeated += [answer.id for answer in answers if answer.content == final.content]
        return repeated

    async def search_messages(
        self, query: str, session_ids: Sequence[str] | None = None, limit: int = 20, *, owner: Owner | Everybody
    ) -> list[MessageRecord]:
        names = await self._choose(None) if session_ids is None else dict.fromkeys(session_ids)
        sessions = [stored.session for stored in await self._load_sessions(names) if stored is not None]
        messages: list[MessageRecord] = []
        async for record in self._load_all(session.session_id for session in sessions if is_owned_by(session, owner)):
            messages += [m for m in record.read_messages() if m.turn not in record.stored.list_hidden_turns()]
        return search(messages, query, limit)

    async def get_winner_names(self, session_ids: Sequence[str]) -> dict[tuple[str, int], str]:
        return {
            (s.session.session_id, turn): s.names.get(winner, winner)
            for s in filter(None, await self._load_sessions(session_ids))
            for turn, winner in s.winners.items()
            if winner
        }

    async def save_files(self, session_id: str, files: Mapping[str, bytes]) -> None:
        if files and await self._load_head(session_id) is None:
            raise unknown_session_error(session_id)
        await self._save_files(session_id, files)

    async def load_state(self, session_id: str) -> SessionState:
        stored = await self._load_head(session_id)
        return stored.state if stored else SessionState()

    async def save_state(self, session_id: str, state: SessionState) -> None:
        def save(record: Record) -> None:
            record.stored.state = _clean_state(state)

        await self._change(session_id, save, is_whole=False)

    # LeaseTable

    async def acquire_lease(self, session_id: str, owner: str, seconds: float, *, if_free: bool = False) -> bool:
        time = await self._read_time()
        new_lease = Lease(owner=clean_text(owner), until=time + int(seconds * 1000))

        def acquire(record: Record) -> bool:
            lease = record.stored.lease
            if lease is None or lease.owner == new_lease.owner or (lease.until <= time and not if_free):
                record.stored.lease = new_lease
            return record.stored.lease is new_lease

        return await self._change(session_id, acquire, is_whole=False)

    async def get_lease_owner(self, session_id: str) -> str | None:
        stored = await self._load_head(session_id)
        return stored.lease.owner if stored and stored.lease else None

    async def renew_lease(self, session_id: str, owner: str, seconds: float) -> bool:
        return await self._change_lease(session_id, owner, await self._read_time() + int(seconds * 1000))

    async def release_lease(self, session_id: str, owner: str) -> None:
        await self._change_lease(session_id, owner, None)

    async def _change_lease(self, session_id: str, owner: str, until: int | None) -> bool:
        """until None: the lease ends. False: somebody else has it, or nobody."""

        def change(record: Record) -> bool:
            lease = record.stored.lease
            if lease is None or lease.owner != clean_text(owner):
                return False
            record.stored.lease = None if until is None else Lease(owner=lease.owner, until=until)
            return True

        return await self._change_if_present(session_id, change, is_whole=False) or False

    # RecordingQueue

    async def list_due_recordings(
        self, kind: RecordingKind, limit: int, session_id: str | None = None
    ) -> list[RecordingJob]:
        names = [session_id] if session_id is not None else await self._server.run("ZRANGEBYSCORE", DUE, 0, _us(now()))
        due: list[RecordingJob] = []
        async with aclosing(self._load_all(names)) as records:
            async for record in records:
                due += [job for job in record.jobs if job.kind == kind and _is_due(job)]
                if len(due) >= limit:
                    break
        return sorted(due, key=lambda job: (job.created_at, job.session_id, job.seq, job.agent_id or ""))[:limit]

    async def get_messages_to_record(self, message_ids: Sequence[str]) -> list[MessageToRecord]:
        return [
            MessageToRecord(
                message=message,
                group=record.stored.session.memory_group,
                project=record.stored.session.project,
                params=record.stored.state.params,
                winner=record.stored.winners.get(message.turn),
                is_forgotten=any(
                    job.kind == "episode" and job.status == "forgotten"
                    for job in record.jobs_by_seq.get(message.seq, ())
                ),
            )
            for record, message in await self._find_messages(message_ids)
        ]

    async def claim_recording(self, recording: RecordingJob, until: datetime) -> bool:
        return await self._edit_pending([recording], lambda j: {"next_attempt_at": until} if _is_due(j) else None) == 1

    async def extend_claim(self, recording: RecordingJob, until: datetime | None) -> None:
        await self._edit_pending([recording], lambda _: {"next_attempt_at": until})

    async def finish_recordings(
        self, recordings: Sequence[RecordingJob], reason: str | None = None, *, lasting: bool = True
    ) -> None:
        end = {"status": "done", "next_attempt_at": None} if lasting else {"next_attempt_at": HELD}
        await self._edit_pending(recordings, lambda _: {**end, "reason": reason})

    async def release_held_recordings(self) -> int:
        names, release = await self._server.run("ZRANGE", DUE, 0, -1), {"next_attempt_at": None, "reason": None}
        return await self._edit_jobs(names, lambda job: release if job.next_attempt_at == HELD else None)

    async def fail_recording(self, recording: RecordingJob, reason: str, retry_at: datetime | None) -> None:
        status = "failed" if retry_at is None else "pending"
        fields = {"status": status, "reason": clean_text(reason), "next_attempt_at": retry_at}
        await self._edit_pending([recording], lambda job: {**fields, "attempts": job.attempts + 1})

    async def add_attempts(self, recordings: Sequence[RecordingJob], number: int) -> None:
        await self._edit_pending(recordings, lambda job: {"attempts": job.attempts + number})

    async def count_recordings(self, session_id: str | None = None) -> RecordingCounts:
        """The reason for all sessions is the one of the session that was used last."""
        names = [session_id] if session_id is not None else await self._server.run("ZREVRANGE", USED, 0, -1)
        counts = [stored.jobs for stored in await self._load_sessions(names) if stored is not None]
        return RecordingCounts(
            pending=sum(count.pending for count in counts),
            done=sum(count.done for count in counts),
            failed=sum(count.failed for count in counts),
            reason=next((count.reason for count in counts if count.reason is not None), None),
            messages=sum(count.messages for count in counts),
            retrying=sum(count.retrying for count in counts),
            oldest=min((count.oldest for count in counts if count.oldest is not None), default=None),
            forgotten_facts=sum(count.forgotten_facts for count in counts),
        )

    async def read_recording_marks(self) -> dict[str, tuple[int, int, int]]:
        records = self._load_all(await self._choose(None))
        return {record.session_id: record.read_recording_marks() async for record in records if record.jobs}

    async def requeue_recordings(self, session_id: str | None = None, *, done: bool, facts: bool = True) -> int:
        statuses = {"pending", "failed", "done"} if done else {"pending", "failed"}
        again = {"status": "pending", "attempts": 0, "reason": None, "next_attempt_at": None}
        kinds = {"episode", "complete", *(("extract",) if facts else ())}
        names = await self._choose(session_id)
        return await self._edit_jobs(names, lambda job: again if job.status in statuses and job.kind in kinds else None)

    async def forget_fact(
        self, session_id: str, agent_id: str, message_ids: Sequence[str], words: Sequence[int]
    ) -> None:
        turns = {message.turn for message in await self.get_messages(message_ids)}

        def forget(job: RecordingJob) -> dict[str, Any] | None:
            is_meant = job.kind == "extract" and (job.agent_id or "") == agent_id and job.turn in turns
            return {"forgotten": tuple(dict.fromkeys((*job.forgotten, tuple(words))))} if is_meant else None

        await self._edit_jobs([session_id], forget)

    async def forget_recordings(self, selection: Selection, message_ids: Sequence[str] = ()) -> None:
        kinds = {"fact": ("extract",), "episode": ("episode",), None: ("episode", "extract")}[selection.kind]

        def forget(job: RecordingJob) -> dict[str, Any] | None:
            is_meant = (
                job.kind in (("episode",) if message_ids else kinds)
                and (not selection.session_ids or job.session_id in selection.session_ids)
                and selection.agent_id in (None, job.agent_id or USER)
                and selection.turn in (None, job.turn)
                and (not message_ids or job.message_id in message_ids)
            )
            return {"status": "forgotten", "reason": None, "next_attempt_at": None} if is_meant else None

        await self._edit_jobs(await self._choose(selection.session_id), forget)

    # SessionCatalogue

    async def create_session(self, session: SessionRecord) -> None:
        def check(old: Record | None) -> None:
            if old is not None:
                raise SessionExistsError(f"session {session.session_id!r} exists already")

        new = Record(StoredSession(session=_clean_session(session)))
        await self._change(session.session_id, lambda _: None, new=new, check=check)

    async def get_session(self, session_id: str) -> SessionRecord | None:
        stored = await self._load_head(session_id)
        return stored.session if stored else None

    async def list_sessions(self) -> list[SessionRecord]:
        every = self._find(SessionFilter(owner=EVERYBODY))
        sessions = [stored.session async for stored in every if stored.session.status != "deleting"]
        return sorted(sessions, key=lambda session: (session.created_at, session.session_id), reverse=True)

    async def find_sessions(
        self, criteria: SessionFilter, limit: int | None = None, offset: int = 0
    ) -> list[ListedSession]:
        page, end = list[ListedSession](), None if limit is None else offset + limit
        async with aclosing(self._find(criteria)) as sessions:
            async for stored in sessions:
                if end is not None and len(page) >= end:
                    break
                fields = stored.model_dump(include={"turns", "conversation_length", "confidence", "escalated"})
                page.append(ListedSession(session=stored.session, **fields))
        return page[offset:]

    async def count_sessions(self, criteria: SessionFilter) -> SessionCounts:
        matching = [stored async for stored in self._find(criteria)]
        sessions = [stored.session for stored in matching]
        return SessionCounts(
            sessions=len(sessions),
            active=sum(session.active for session in sessions),
            messages=sum(session.message_count for session in sessions),
            bytes=sum(stored.size for stored in matching if stored.session.status != "deleting"),
            by_status=dict(Counter(session.status for session in sessions)),
        )

    async def count_messages(self, criteria: SessionFilter) -> int:
        return sum([stored.conversation_length async for stored in self._find(criteria)])

    async def rename_session(self, session_id: str, title: str) -> None:
        def rename(record: Record) -> None:
            if record.stored.session.status == "deleting":
                raise unknown_session_error(session_id)
            record.stored.update(title=clean_text(title))

        await self._change(session_id, rename, is_whole=False)

    async def update_session(self, session_id: str, **fields: Unpack[SessionFields]) -> None:
        await self._change_if_present(session_id, lambda r: r.stored.update(**fields), is_whole=False)

    async def delete_session(self, session_id: str, limit: int) -> int | None:
        def delete(record: Record) -> int | None:
            record.is_deleted = len(record.log) <= limit != 0
            record.remove([*(seq for seq, entry in record.entries.items() if entry.trimmed_at), *[*record.log][:limit]])
            record.stored.update(status="deleting", title="", last_message="", description="")
            return None if record.is_deleted else record.stored.session.message_count

        return await self._change_if_present(session_id, delete)

    async def erase_deleted(self) -> bool:
        return await rewrite_files(self._server)

    async def export_session(self, session_id: str) -> SessionCopy | None:
        record = await self._load(session_id)
        if record is None:
            return None
        abandoned = tuple(turn.turn for turn in record.read_turns() if turn.status == "abandoned")
        files, stored = sorted(await self._server.run("HKEYS", files_key(session_id))), record.stored
        return SessionCopy(session=stored.session, state=stored.state, abandoned=abandoned, files=tuple(files))

    async def export_log(
        self, session_id: str, after: int = 0, limit: int = 1000, *, with_trimmed: bool = False
    ) -> list[LogEntry]:
        record = await self._load(session_id)
        entries = {} if record is None else record.entries if with_trimmed else record.log
        log = [(seq, entry) for seq, entry in entries.items() if seq > after][:limit]
        jobs = record.jobs_by_seq if record else {}
        return [LogEntry(seq=n, turn=e.turn, payload=e.payload, recordings=tuple(jobs.get(n, ()))) for n, e in log]

    async def import_session(
        self, copy: SessionCopy, log: LogPages, files: FilePages | None = None, *, replaces: int | None = None
    ) -> None:
        """The session comes whole, also what is over the limit: that goes when the conversation goes on."""
        session = _clean_session(copy.session)
        new = Record(StoredSession(session=session.model_copy(update={"message_count": 0})))
        async for entries in log:
            new.restore(entries)
        new.stored.session, new.stored.abandoned = session, frozenset(copy.abandoned)
        if copy.state.updated_at is not None:
            new.stored.state = _clean_state(copy.state, copy.state.updated_at)
        added = await self._add_files(session.session_id, files)  # first: an import that is cut off is made again
        await self._change(
            session.session_id,
            lambda _: None,
            new=new,
            check=lambda old: check_replaced(session.session_id, replaces, old.stored.seq if old else 0),
        )
        stored = await self._server.run("HKEYS", files_key(session.session_id))
        await self.delete_files(session.session_id, [*{*stored} - added])

    async def rewrite_log(self, session_id: str, entries: Sequence[LogEntry]) -> None:
        await self._change(session_id, lambda record: record.rewrite(entries), is_use=False)

    # Loading

    async def _load(self, session_id: str) -> Record | None:
        fields = await self._server.run("HGETALL", session_key(session_id))
        return Record.decode(fields) if fields else None

    async def _load_head(self, session_id: str) -> StoredSession | None:
        return (await self._load_sessions([session_id]))[0]

    async def _load_all(self, session_ids: Iterable[str]) -> AsyncGenerator[Record]:
        names = list(session_ids)
        for start in range(0, len(names), _RECORDS_AT_ONCE):
            part = names[start : start + _RECORDS_AT_ONCE]
            hashes = await self._server.run_all([("HGETALL", session_key(name)) for name in part])
            await self._drop_from_indexes(name for name, fields in zip(part, hashes, strict=True) if not fields)
            for fields in filter(None, hashes):
                yield Record.decode(fields)

    async def _load_sessions(self, session_ids: Iterable[str]) -> list[StoredSession | None]:
        names = list(session_ids)
        texts = await self._server.run_all([("HGET", session_key(name), "record") for name in names])
        await self._drop_from_indexes(name for name, text in zip(names, texts, strict=True) if text is None)
        return [None if text is None else StoredSession.model_validate_json(text) for text in texts]

    async def _drop_from_indexes(self, session_ids: Iterable[str]) -> None:
        """Drop sessions from the indexes. One that is created again at this moment is put back by its next change."""
        names = [clean_text(session_id) for session_id in session_ids]
        if names:
            await self._server.run_all([("ZREM", USED, *names), ("ZREM", DUE, *names), ("SREM", HIDDEN, *names)])

    async def _find(self, criteria: SessionFilter) -> AsyncGenerator[StoredSession]:
        """Yield the sessions that match, the last used first."""
        names = await self._server.run("ZREVRANGE", USED, 0, -1)
        names = [name for name in names if name.startswith(clean_text(criteria.session_id or criteria.prefix))]
        for start in range(0, len(names), _SESSIONS_AT_ONCE):
            for stored in await self._load_sessions(names[start : start + _SESSIONS_AT_ONCE]):
                if stored is not None and matches(stored.session, criteria):
                    yield stored

    async def _find_messages(self, message_ids: Sequence[str]) -> list[tuple[Record, MessageRecord]]:
        names = await self._choose(None) if message_ids else []
        prefixes = {message_id[:16] for message_id in message_ids}
        chosen = [name for name in names if make_message_id(name, 0)[:16] in prefixes]
        pairs = [(r, m) async for r in self._load_all(chosen) for m in r.read_messages(trimmed=True)]
        ids = set(message_ids)
        return sorted([pair for pair in pairs if pair[1].id in ids], key=lambda pair: pair[1].id)

    async def _read_turns(self, session_id: str) -> list[TurnRecord]:
        record = await self._load(session_id)
        return record.read_turns() if record else []

    async def _choose(self, session_id: str | None) -> list[str]:
        """Return the one session, or all."""
        return [session_id] if session_id is not None else await self._server.run("ZRANGE", USED, 0, -1)

    async def _read_time(self) -> int:
        seconds, microseconds = await self._server.run("TIME")
        return int(seconds) * 1000 + int(microseconds) // 1000

    # Changing

    async def _edit_pending(self, jobs: Sequence[RecordingJob], edit: JobEdit) -> int:
        """Change those of the jobs that are still pending; return how many were changed."""
        ids = {(job.session_id, job.seq, job.kind, job.agent_id) for job in jobs}

        def edit_job(job: RecordingJob) -> dict[str, Any] | None:
            is_meant = (job.session_id, job.seq, job.kind, job.agent_id) in ids and job.status == "pending"
            return edit(job) if is_meant else None

        return await self._edit_jobs({job.session_id for job in jobs}, edit_job)

    async def _edit_jobs(self, session_ids: Iterable[str], edit: JobEdit) -> int:
        change = partial(self._change_if_present, edit=lambda record: record.edit_jobs(edit), is_use=False)
        return sum([await change(session_id) or 0 for session_id in session_ids])

    async def _change_if_present(
        self, session_id: str, edit: Callable[[Record], T], *, is_whole: bool = True, is_use: bool = True
    ) -> T | None:
        if await self._load_head(session_id) is None:
            return None
        return await self._change(session_id, edit, is_whole=is_whole, is_use=is_use)

    async def _change(
        self,
        session_id: str,
        edit: Callable[[Record], T],
        *,
        new: Record | None = None,
        check: Callable[[Record | None], None] = lambda _: None,
        is_whole: bool = True,
        is_use: bool = True,
    ) -> T:
        """Change a session in one transaction; return what `edit` returns.

        edit: is called again when somebody else changes the session before it is stored. new: the session to store in
        place of what is there. check: raises what keeps the change from being made. is_whole: with its log. is_use: the
        time to live starts anew.

        Raises StoreError: the session does not exist, or the server lost changes that it had acknowledged.
        """
        key, number = session_key(session_id), 0
        sent: Record | None = None
        result: T

        async def attempt(pipeline: Any) -> T:
            nonlocal sent, result, number
            fields = await (pipeline.hgetall(key) if is_whole else _read_head(pipeline, key))
            record = Record.decode(fields, is_whole=is_whole) if fields else None
            changes: dict[str, int] = json.loads(fields.pop("changes", "{}"))
            if sent is not None and (record is None if sent.is_deleted else changes.get(self._writer) == number):
                return result  # it was made, only the reply was lost
            if record is not None:
                self._check_durability(record.stored, changes)
            check(record)
            record = new or record
            if record is None:
                raise unknown_session_error(session_id)
            sent, result = None, edit(record)
            encoded = {} if record.is_deleted else record.encode()
            if encoded != fields:
                acknowledged, last = self._counts.pop(_identify(record.stored), (0, 0))
                number = max(last, changes.pop(self._writer, 0)) + 1
                self._counts[_identify(record.stored)] = acknowledged, number
                counted = dict([*changes.items(), (self._writer, number)][-_WRITERS:])
                pipeline.multi()
                store_record(pipeline, record, fields, encoded | {"changes": json.dumps(counted)})
                if is_use:
                    self._renew(pipeline, key, session_id)
                sent = record
            return result

        # Tasks of this process take turns: they would only make each other start again.
        async with self._locks.setdefault(key, asyncio.Lock()):
            result = await self._server.transact(attempt, key)
            if sent is not None:
                self._counts[_identify(sent.stored)] = (0 if sent.is_deleted else number), number
            while len(self._counts) > _REMEMBERED:
                del self._counts[next(iter(self._counts))]
            return result

    def _check_durability(self, stored: StoredSession, changes: dict[str, int]) -> None:
        """Raise StoreError, once, if the session lacks a change that the server acknowledged to this process."""
        acknowledged, last = self._counts.get(_identify(stored), (0, 0))
        is_forgotten = self._writer not in changes and len(changes) >= _WRITERS
        if changes.get(self._writer, 0) >= acknowledged or is_forgotten:
            return
        self._counts[_identify(stored)] = 0, last
        raise StoreError(
            f"{self._server.name} has lost part of session {stored.session.session_id} that it had acknowledged: it "
            "came back older",
            "see what is left with: massmem sessions show; set `appendonly yes` and `appendfsync always` there",
        )


def store_record(pipeline: Any, record: Record, fields: dict[str, str], encoded: dict[str, str]) -> None:
    """Queue the commands that store what was changed. fields: of the hash as they were; encoded: as they are to be."""
    session_id, key = record.stored.session.session_id, session_key(record.stored.session.session_id)
    if record.is_deleted:
        pipeline.unlink(key, files_key(session_id))
        pipeline.zrem(USED, session_id)
        pipeline.zrem(DUE, session_id)
        pipeline.srem(HIDDEN, session_id)
        return
    if gone := fields.keys() - encoded.keys():
        pipeline.hdel(key, *gone)
    if record.removed_files:
        pipeline.hdel(files_key(session_id), *record.removed_files)
    pipeline.hset(key, mapping={name: text for name, text in encoded.items() if fields.get(name) != text})
    pipeline.zadd(USED, {session_id: record.stored.session.used})
    if record.stored.list_hidden_turns():
        pipeline.sadd(HIDDEN, session_id)
    times = [_us(job.next_attempt_at or job.created_at) for job in record.jobs if job.status == "pending"]
    if times:
        pipeline.zadd(DUE, {session_id: min(times)}, lt=not record.is_whole)
    elif record.is_whole:
        pipeline.zrem(DUE, session_id)


async def _read_head(pipeline: Any, key: str) -> dict[str, str]:
    names = ("record", "changes")
    texts = await pipeline.hmget(key, names)
    return {name: text for name, text in zip(names, texts, strict=True) if text is not None}


def session_key(session_id: str) -> str:
    return f"massmem:v3:session:{clean_text(session_id)}"


def _identify(stored: StoredSession) -> tuple[str, datetime]:
    # The id may be given again to another session.
    return stored.session.session_id, stored.session.created_at


def _is_due(job: RecordingJob) -> bool:
    return job.status == "pending" and (job.next_attempt_at or now()) <= now()


def _clean_session(session: SessionRecord) -> SessionRecord:
    return SessionRecord.model_validate(clean_json(session.model_dump()))


def _clean_state(state: SessionState, updated_at: datetime | None = None) -> SessionState:
    """updated_at None: now."""
    return SessionState.model_validate({**clean_json(state.model_dump()), "updated_at": updated_at or now()})
