"""The session store on Redis: sessions that expire after their last use and keep their newest messages."""

import re
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable, Sequence
from contextlib import aclosing, suppress
from datetime import datetime
from functools import partial
from typing import Any

from massmem.core.errors import SessionExistsError, StoreError
from massmem.core.events import Event, now
from massmem.core.messages import clean_text
from massmem.core.records import (
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
    TurnRecord,
)
from massmem.memory.persistent import USER, Selection
from massmem.store.log_format import build_log_page, clean_json, encode_event
from massmem.store.ports import HELD, Retention, StoreInfo, lease_lost_error, unknown_session_error
from massmem.store.redis.document import (
    Document,
    Keys,
    Lease,
    StoredEvent,
    StoredSession,
    StoredTurn,
    is_conversation,
    read_messages,
)
from massmem.store.redis.layout import upgrade_layout
from massmem.store.redis.search import Match, find_matches, rank
from massmem.store.redis.server import Server, read_warnings, rewrite_files
from massmem.store.redis.sessions import IDS, USED, Sessions, due_key, microseconds
from massmem.store.redis.trim import trim_session
from massmem.store.tokenizer import split_query

_LOGS_AT_ONCE = 100
_UNFINISHED = ("running", "failed", "interrupted", "waiting")
_MESSAGE_ID = re.compile(r"([0-9a-f]{16})([0-9a-f]{16})")

JobEdit = Callable[[RecordingJob], dict[str, Any] | None]
"""Returns the fields of a job that get a new value; None: the job stays as it is."""


async def open_redis(url: str, retention: Retention) -> "RedisStore":
    """Connect to the server. Raises as `massmem.store.open_store`; StoreUnavailable: there is no server."""
    server = Server(url)
    try:
        await upgrade_layout(server)
        return RedisStore(server, retention, await read_warnings(server))
    except BaseException:
        await server.close()
        raise


class RedisStore:
    """SessionStore on one database of one server."""

    def __init__(self, server: Server, retention: Retention, warnings: tuple[str, ...] = ()) -> None:
        self._info = StoreInfo("redis", once=warnings)
        self._server = server
        self._retention = retention
        self._sessions = Sessions(server, None if retention.seconds is None else max(1, int(retention.seconds * 1000)))

    @property
    def info(self) -> StoreInfo:
        return self._info

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
        batch, owner = [encode_event(event) for event in events], clean_text(owner)

        async def add(document: Document, _: Any) -> tuple[list[int], int]:
            stored = document.stored
            if owner and stored.lease is not None and stored.lease.owner != owner:
                raise lease_lost_error(session_id)
            if owner and release_lease:
                stored.lease = None
            if state is not None:
                document.fields["state"] = _encode_state(state, now())
            return document.add_events(turn, batch), stored.conversation_length

        if not batch:
            return []
        seqs, length = await self._sessions.change(session_id, add, turns=[turn])
        if length > self._retention.messages:
            with suppress(StoreError):  # the events are stored; what is over the limit goes with the next ones
                trim = partial(trim_session, retention=self._retention)
                await self._sessions.change(session_id, trim, turns=None)
        return seqs

    async def read_turn_events(self, session_id: str, turn: int) -> list[Event]:
        return [stored_event.parse() for stored_event in await self._read_turn(session_id, turn)]

    async def get_last_turn(self, session_id: str) -> TurnRecord | None:
        stored = await self._sessions.load(session_id)
        turns = [] if stored is None else await self.list_turns(session_id, stored.turns - 1, 1)
        return turns[0] if turns else None

    async def list_turns(self, session_id: str, after: int = 0, limit: int = 100) -> list[TurnRecord]:
        document = await self._sessions.load_document(session_id)
        if document is None:
            return []
        turns = [item for item in document.turns.items() if item[0] > after and item[1].is_listed][:limit]
        seqs = [seq for _, turn in turns for seq in (turn.question_seq, turn.answer_seq)]
        logs = await self._server.run_all([("ZRANGEBYSCORE", document.keys.log, seq, seq) for seq in seqs])
        texts = [[message.content for message in read_messages(session_id, members)] for members in logs]
        return [
            turn.to_record(session_id, number, "".join(question), answer[-1] if answer else None)
            for (number, turn), question, answer in zip(turns, texts[::2], texts[1::2], strict=True)
        ]

    async def abandon_turn(self, session_id: str, turn: int) -> None:
        async def abandon(document: Document, _: Any) -> None:
            stored_turn = document.turns.get(turn)
            if stored_turn is not None and stored_turn.status in _UNFINISHED:
                stored_turn.status = "abandoned"

        await self._sessions.change_if_present(session_id, abandon, turns=[turn])

    async def find_request(self, session_id: str, request: str) -> int | None:
        seq = await self._server.run("HGET", Keys(session_id).session, f"request:{clean_text(request)}")
        return None if seq is None else int(seq)

    async def read_conversation(self, session_id: str, before: int | None, limit: int) -> list[MessageRecord]:
        keys, stored = Keys(session_id), await self._sessions.load(session_id)
        undone = frozenset[int]() if stored is None else stored.undone
        newest, conversation = "+inf" if before is None else f"({before}", list[MessageRecord]()
        while len(conversation) < limit:
            page = await self._server.run("ZREVRANGEBYSCORE", keys.log, newest, "-inf", "LIMIT", 0, 10 * limit)
            messages = read_messages(keys.session_id, page)
            conversation += [m for m in messages if is_conversation(m) and m.turn not in undone]
            if len(page) < 10 * limit:
                break
            newest = f"({StoredEvent.unpack(page[-1]).seq}"
        return conversation[:limit]

    async def get_latest_summary(self, session_id: str, agent_id: str) -> MessageRecord | None:
        """A summary stays when it is trimmed: it stands for what was trimmed."""
        document, agent = await self._sessions.load_document(session_id), clean_text(agent_id)
        text = document and document.fields.get(f"summary:{agent}")
        if document is None or text is None:
            return None
        newest, undone = MessageRecord.model_validate_json(text), document.stored.undone
        log = await self._server.run("ZREVRANGE", document.keys.log, 0, -1) if newest.turn in undone else ()
        older = (m for m in read_messages(session_id, log) if m.kind == "injection" and m.agent_id == agent)
        return next((message for message in (newest, *older) if message.turn not in undone), None)

    async def read_messages(self, session_id: str, after: int = 0, limit: int = 1000) -> list[MessageRecord]:
        keys, messages = Keys(session_id), list[MessageRecord]()
        for member in await self._server.run("ZRANGEBYSCORE", keys.log, f"({after}", "+inf"):
            messages += [m for m in read_messages(keys.session_id, [member]) if m.seq > after]
            if len(messages) >= limit:
                break
        return messages[:limit]

    async def read_turn_messages(self, session_id: str, turn: int) -> list[MessageRecord]:
        text = await self._server.run("HGET", Keys(session_id).session, f"turn:{turn}")
        messages = [] if text is None else [aside.message for aside in StoredTurn.model_validate_json(text).aside]
        for stored_event in await self._read_turn(session_id, turn):
            messages += stored_event.messages(session_id)
        return sorted(messages, key=lambda message: message.seq)

    async def get_messages(self, message_ids: Sequence[str]) -> list[MessageRecord]:
        by_id: dict[str, MessageRecord] = {}
        for session_id, seqs in (await self._locate(message_ids)).items():
            document = await self._sessions.load_document(session_id)
            if document is not None:
                # The message of an event's reasoning stands one before it.
                logs = await self._server.run_all([("ZRANGEBYSCORE", document.keys.log, seq, seq + 1) for seq in seqs])
                messages = read_messages(session_id, {member for log in logs for member in log})
                messages += [aside.message for turn in document.turns.values() for aside in turn.aside]
                by_id |= {message.id: message for message in messages if message.seq in seqs}
        return [by_id[message_id] for message_id in sorted(by_id)]

    async def find_repeated_answers(self, message_ids: Sequence[str]) -> list[str]:
        repeated: list[str] = []
        for final in await self.get_messages(message_ids):
            turn = await self.read_turn_messages(final.session_id, final.turn) if final.final else []
            answers = (m for m in turn if m.kind == "assistant" and not m.final and "partial" not in m.metadata)
            repeated += [answer.id for answer in answers if answer.content == final.content]
        return repeated

    async def search_messages(
        self,
        query: str,
        session_ids: Sequence[str] | None = None,
        limit: int = 20,
        *,
        owner: Owner | None = None,
    ) -> list[MessageRecord]:
        terms = split_query(clean_text(query))
        names = await self._server.run("ZRANGE", USED, 0, -1) if session_ids is None else session_ids
        keys = [Keys(name) for name in dict.fromkeys(names)] if terms else []
        matches, searched = list[Match](), 0
        for start in range(0, len(keys), _LOGS_AT_ONCE):
            part = keys[start : start + _LOGS_AT_ONCE]
            logs = await self._server.run_all([("ZRANGE", key.log, 0, -1) for key in part])
            sessions = await self._sessions.load_all(key.session_id for key in part)
            for stored, log in zip(sessions, logs, strict=True):
                if stored is not None and _is_owned_by(stored.session, owner):
                    found_matches = find_matches(stored.session.session_id, log, terms)
                    matches += [match for match in found_matches if match.message.turn not in stored.undone]
                    searched += len(log)
        return rank(matches, searched)[:limit]

    async def get_winners(self, session_ids: Sequence[str]) -> dict[tuple[str, int], str]:
        sessions = [stored for stored in await self._sessions.load_all(session_ids) if stored is not None]
        return {(s.session.session_id, number): winner for s in sessions for number, winner in s.winners.items()}

    async def load_state(self, session_id: str) -> SessionState:
        text = await self._server.run("HGET", Keys(session_id).session, "state")
        return SessionState() if text is None else SessionState.model_validate_json(text)

    async def save_state(self, session_id: str, state: SessionState) -> None:
        async def save(document: Document, _: Any) -> None:
            document.fields["state"] = _encode_state(state, now())

        await self._sessions.change(session_id, save)

    # LeaseTable

    async def acquire_lease(self, session_id: str, owner: str, seconds: float) -> bool:
        async def acquire(document: Document, read: Any) -> bool:
            lease, time = document.stored.lease, await _read_time(read)
            if lease is not None and lease.owner != clean_text(owner) and lease.until > time:
                return False
            document.stored.lease = Lease(owner=clean_text(owner), until=time + int(seconds * 1000))
            return True

        return await self._sessions.change(session_id, acquire)

    async def get_lease_owner(self, session_id: str) -> str | None:
        stored = await self._sessions.load(session_id)
        return stored.lease.owner if stored and stored.lease else None

    async def renew_lease(self, session_id: str, owner: str, seconds: float) -> bool:
        async def renew(document: Document, read: Any) -> bool:
            lease = document.stored.lease
            if lease is None or lease.owner != clean_text(owner):
                return False
            lease.until = await _read_time(read) + int(seconds * 1000)
            return True

        return await self._sessions.change_if_present(session_id, renew) or False

    async def release_lease(self, session_id: str, owner: str) -> None:
        async def release(document: Document, _: Any) -> None:
            if document.stored.lease is not None and document.stored.lease.owner == clean_text(owner):
                document.stored.lease = None

        await self._sessions.change_if_present(session_id, release)

    # RecordingQueue

    async def list_due_recordings(
        self, kind: RecordingKind, limit: int, session_id: str | None = None
    ) -> list[RecordingJob]:
        if session_id is None:
            jobs = await self._read_due(kind, limit)
        else:
            document = await self._sessions.load_document(session_id)
            jobs = [] if document is None else document.jobs()
        due = [job for job in jobs if job.kind == kind and _is_due(job)]
        return sorted(due, key=lambda job: (job.created_at, job.session_id, job.seq, job.agent_id or ""))[:limit]

    async def get_messages_to_record(self, message_ids: Sequence[str]) -> list[MessageToRecord]:
        messages = await self.get_messages(message_ids)
        names = {message.session_id for message in messages}
        sessions = {name: await self._sessions.load(name) for name in names}
        states = {name: await self.load_state(name) for name in names}
        return [
            MessageToRecord(
                message=message,
                group=stored.session.memory_group,
                params=states[message.session_id].params,
                winner=stored.winners.get(message.turn),
            )
            for message in messages
            if (stored := sessions[message.session_id]) is not None
        ]

    async def claim_recording(self, recording: RecordingJob, until: datetime) -> bool:
        return await self._edit_jobs([recording], lambda job: {"next_attempt_at": until} if _is_due(job) else None) == 1

    async def release_recording(self, recording: RecordingJob) -> None:
        await self._edit_jobs([recording], lambda job: {"next_attempt_at": None} if _is_pending(job) else None)

    async def finish_recordings(
        self, recordings: Sequence[RecordingJob], reason: str | None = None, *, lasting: bool = True
    ) -> None:
        end = {"status": "done", "next_attempt_at": None} if lasting else {"next_attempt_at": HELD}
        await self._edit_jobs(recordings, lambda job: {**end, "reason": reason} if _is_pending(job) else None)

    async def release_held_recordings(self) -> int:
        names = {member.partition("\0")[0] for member in await self._server.run("ZRANGE", due_key("held"), 0, -1)}
        release = {"next_attempt_at": None, "reason": None}
        return await self._edit_all_jobs(names, lambda job: release if job.next_attempt_at == HELD else None)

    async def fail_recording(self, recording: RecordingJob, reason: str, retry_at: datetime | None) -> None:
        status = "failed" if retry_at is None else "pending"
        fields = {"status": status, "reason": clean_text(reason), "next_attempt_at": retry_at}
        await self._edit_jobs(
            [recording], lambda job: {**fields, "attempts": job.attempts + 1} if _is_pending(job) else None
        )

    async def count_recordings(self, session_id: str | None = None) -> RecordingCounts:
        """The reason for all sessions is the one of the session that was used last."""
        sessions = (
            [await self._sessions.load(session_id)] if session_id else [s async for s in self._sessions.read_all()]
        )
        counts = [stored.jobs for stored in sessions if stored is not None]
        return RecordingCounts(
            pending=sum(count.pending for count in counts),
            done=sum(count.done for count in counts),
            failed=sum(count.failed for count in counts),
            reason=next((count.reason for count in counts if count.reason is not None), None),
        )

    async def requeue_recordings(self, session_id: str | None = None, *, done: bool) -> int:
        statuses = {"pending", "failed", "done"} if done else {"pending", "failed"}
        again = {"status": "pending", "attempts": 0, "reason": None, "next_attempt_at": None}
        names = await self._choose(session_id)
        return await self._edit_all_jobs(names, lambda job: again if job.status in statuses else None)

    async def forget_fact(
        self, session_id: str, agent_id: str, message_ids: Sequence[str], words: Sequence[int]
    ) -> None:
        turns = {message.turn for message in await self.get_messages(message_ids)}

        def forget(job: RecordingJob) -> dict[str, Any] | None:
            is_meant = job.kind == "extract" and (job.agent_id or "") == agent_id and job.turn in turns
            return {"forgotten": tuple(dict.fromkeys((*job.forgotten, tuple(words))))} if is_meant else None

        await self._edit_all_jobs([session_id], forget)

    async def forget_recordings(self, selection: Selection, message_ids: Sequence[str] = ()) -> None:
        seqs = await self._locate(message_ids)
        kinds = {"fact": ("extract",), "episode": ("episode",), None: ("episode", "extract")}[selection.kind]
        agent_id = None if selection.agent_id == USER else selection.agent_id

        def forget(job: RecordingJob) -> dict[str, Any] | None:
            is_meant = (
                job.kind in (("episode",) if message_ids else kinds)
                and selection.session_id in (None, job.session_id)
                and (selection.agent_id is None or job.agent_id == agent_id)
                and selection.turn in (None, job.turn)
                and (not message_ids or job.seq in seqs[job.session_id])
            )
            return {"status": "forgotten", "reason": None, "next_attempt_at": None} if is_meant else None

        await self._edit_all_jobs(seqs if message_ids else await self._choose(selection.session_id), forget)

    # SessionCatalogue

    async def create_session(self, session: SessionRecord) -> None:
        new = StoredSession(session=_clean_session(session))

        async def create(document: Document, read: Any) -> None:
            if document.is_present:
                raise SessionExistsError(f"session {session.session_id!r} exists already")

        await self._sessions.change(session.session_id, create, turns=None, new=new)

    async def get_session(self, session_id: str) -> SessionRecord | None:
        stored = await self._sessions.load(session_id)
        return None if stored is None else stored.session

    async def list_sessions(self, limit: int | None = None, offset: int = 0) -> list[SessionRecord]:
        sessions = [s.session async for s in self._sessions.read_all() if s.session.status != "deleting"]
        sessions.sort(key=lambda session: (session.created_at, session.session_id), reverse=True)
        return sessions[offset : None if limit is None else offset + limit]

    async def find_sessions(
        self, criteria: SessionFilter, limit: int | None = None, offset: int = 0
    ) -> list[ListedSession]:
        page, end = list[StoredSession](), None if limit is None else offset + limit
        async with aclosing(self._find(criteria)) as sessions:
            async for stored in sessions:
                if end is not None and len(page) >= end and stored.session.updated_at != page[-1].session.updated_at:
                    break
                page.append(stored)
        page.sort(key=lambda s: (s.session.updated_at, s.session.created_at, s.session.session_id), reverse=True)
        return [
            ListedSession(
                session=stored.session,
                turns=stored.turns,
                conversation_length=stored.conversation_length,
                confidence=stored.confidence,
                escalated=stored.escalated,
            )
            for stored in page[offset:end]
        ]

    async def count_sessions(self, criteria: SessionFilter) -> SessionCounts:
        sessions = [stored.session async for stored in self._find(criteria)]
        return SessionCounts(
            sessions=len(sessions),
            active=sum(session.active for session in sessions),
            messages=sum(session.message_count for session in sessions),
            by_status=dict(Counter(session.status for session in sessions)),
        )

    async def count_messages(self, criteria: SessionFilter) -> int:
        return sum([stored.conversation_length async for stored in self._find(criteria)])

    async def rename_session(self, session_id: str, title: str) -> None:
        async def rename(document: Document, _: Any) -> None:
            if document.stored.session.status == "deleting":
                raise unknown_session_error(session_id)
            document.stored.update(title=clean_text(title))

        await self._sessions.change(session_id, rename)

    async def delete_session(self, session_id: str, limit: int) -> int | None:
        async def delete(document: Document, read: Any) -> int | None:
            stored, log = document.stored, await read.zrange(document.keys.log, 0, limit)
            document.is_deleted = len(log) <= limit != 0
            document.removed = log[:limit]
            end = StoredEvent.unpack(document.removed[-1]).seq if document.removed else 0
            for turn in document.turns.values():
                turn.jobs, turn.aside = [job for job in turn.jobs if job.seq > end], []
            left = stored.session.message_count - len(read_messages(document.keys.session_id, document.removed))
            stored.update(status="deleting", title="", last_message="", description="", message_count=left)
            return None if document.is_deleted else left

        return await self._sessions.change_if_present(session_id, delete, turns=None)

    async def erase_deleted(self) -> bool:
        return await rewrite_files(self._server)

    async def export_session(self, session_id: str) -> SessionCopy | None:
        document = await self._sessions.load_document(session_id)
        if document is None:
            return None
        abandoned = [n for n, turn in document.turns.items() if turn.status == "abandoned" and not turn.is_trimmed]
        state = await self.load_state(session_id)
        return SessionCopy(session=document.stored.session, state=state, abandoned=tuple(abandoned))

    async def export_log(self, session_id: str, after: int = 0, limit: int = 1000) -> list[LogEntry]:
        keys, bounds = Keys(session_id), (f"({after}", "+inf", "LIMIT", 0, limit)
        log, deltas = await self._server.run_all([("ZRANGEBYSCORE", key, *bounds) for key in (keys.log, keys.deltas)])
        page = sorted(map(StoredEvent.unpack, (*log, *deltas)), key=lambda stored_event: stored_event.seq)[:limit]
        document, seqs = await self._sessions.load_document(session_id), {item.seq for item in page}
        jobs = [] if document is None else [job for job in document.jobs() if job.seq in seqs]
        jobs.sort(key=lambda job: (job.seq, job.kind, job.agent_id or ""))
        return build_log_page([{"seq": item.seq, "turn": item.turn, "payload": item.json} for item in page], jobs)

    async def import_session(self, copy: SessionCopy, log: AsyncIterable[Sequence[LogEntry]]) -> None:
        """The session comes whole, also what is over the limit: that goes when the conversation goes on."""
        session = _clean_session(copy.session)
        pages = [entries async for entries in log]

        async def replace(document: Document, _: Any) -> None:
            for entries in pages:
                document.restore_events(entries)
            for number in copy.abandoned:
                document.turns[number].status = "abandoned"
            if copy.state.updated_at is not None:
                document.fields["state"] = _encode_state(copy.state, copy.state.updated_at)
            document.stored.session = session

        new = StoredSession(session=session.model_copy(update={"message_count": 0}))
        await self._sessions.change(session.session_id, replace, turns=None, new=new)

    # What several methods read and change

    async def _read_turn(self, session_id: str, number: int) -> list[StoredEvent]:
        log = map(StoredEvent.unpack, await self._server.run("ZRANGE", Keys(session_id).log, 0, -1))
        return [stored_event for stored_event in log if stored_event.turn == number]

    async def _locate(self, message_ids: Sequence[str]) -> dict[str, set[int]]:
        """Return the seqs of the messages by session."""
        places = [(match[1], int(match[2], 16)) for text in message_ids if (match := _MESSAGE_ID.fullmatch(text))]
        names = await self._server.run_all([("HGET", IDS, prefix) for prefix, _ in places])
        seqs: dict[str, set[int]] = {}
        for name, (_, seq) in zip(names, places, strict=True):
            if name is not None:
                seqs.setdefault(name, set()).add(seq)
        return seqs

    async def _read_due(self, kind: RecordingKind, limit: int) -> list[RecordingJob]:
        """Return the jobs of turns that have a due job of the kind, `limit` of these at least if there are as many."""
        while True:
            bounds = ("-inf", microseconds(now()), "LIMIT", 0, limit)
            members = await self._server.run("ZRANGEBYSCORE", due_key(kind), *bounds)
            names = [member.split("\0") for member in members]
            texts = await self._server.run_all([("HGET", Keys(name).session, f"turn:{turn}") for name, turn in names])
            expired = [member for member, text in zip(members, texts, strict=True) if text is None]
            if not expired:
                return [job for text in texts for job in StoredTurn.model_validate_json(text).jobs]
            await self._server.run("ZREM", due_key(kind), *expired)

    async def _edit_jobs(self, jobs: Sequence[RecordingJob], edit: JobEdit) -> int:
        """Change these jobs as they are by now; return how many were changed."""
        names = {(job.session_id, job.seq, job.kind, job.agent_id) for job in jobs}

        def edit_job(job: RecordingJob) -> dict[str, Any] | None:
            return edit(job) if (job.session_id, job.seq, job.kind, job.agent_id) in names else None

        return await self._edit_all_jobs({job.session_id for job in jobs}, edit_job)

    async def _edit_all_jobs(self, session_ids: Iterable[str], edit: JobEdit) -> int:
        async def edit_jobs(document: Document, _: Any) -> int:
            count = 0
            for turn in document.turns.values():
                edits = [edit(job) for job in turn.jobs]
                pairs = zip(turn.jobs, edits, strict=True)
                turn.jobs = [job if new is None else job.model_copy(update=new) for job, new in pairs]
                count += sum(new is not None for new in edits)
            return count

        change = partial(self._sessions.change_if_present, edit=edit_jobs, turns=None, is_use=False)
        return sum([await change(session_id) or 0 for session_id in session_ids])

    async def _choose(self, session_id: str | None) -> list[str]:
        """Return the one session, or all."""
        if session_id is not None:
            return [session_id]
        return [stored.session.session_id async for stored in self._sessions.read_all()]

    async def _find(self, criteria: SessionFilter) -> AsyncGenerator[StoredSession]:
        oldest = "-inf" if criteria.since is None else str(microseconds(criteria.since))
        before = "+inf" if criteria.before is None else f"({microseconds(criteria.before)}"
        async with aclosing(self._sessions.read_all(oldest, before)) as sessions:
            async for stored in sessions:
                if _matches(stored.session, criteria):
                    yield stored


def _matches(session: SessionRecord, criteria: SessionFilter) -> bool:
    text = clean_text(criteria.text).casefold()
    texts = (session.session_id, session.title, session.last_message, session.description)
    return (
        criteria.status in (None, session.status)
        and any(text in field.casefold() for field in texts)
        and (criteria.title is None or clean_text(criteria.title).casefold() == session.title.casefold())
        and session.session_id.startswith(clean_text(criteria.prefix))
        and _is_owned_by(session, criteria.owner)
        and (not criteria.has_messages or session.message_count > 0)
        and (not criteria.cut_off or (session.user_id is not None and session.status in ("active", "interrupted")))
    )


def _is_owned_by(session: SessionRecord, owner: Owner | None) -> bool:
    """owner None: everybody."""
    return owner is None or session.user_id == (owner.user_id and clean_text(owner.user_id))


def _is_pending(job: RecordingJob) -> bool:
    return job.status == "pending"


def _is_due(job: RecordingJob) -> bool:
    return job.status == "pending" and (job.next_attempt_at is None or job.next_attempt_at <= now())


def _clean_session(session: SessionRecord) -> SessionRecord:
    return SessionRecord.model_validate(clean_json(session.model_dump()))


def _encode_state(state: SessionState, updated_at: datetime) -> str:
    return SessionState.model_validate({**clean_json(state.model_dump()), "updated_at": updated_at}).model_dump_json()


async def _read_time(read: Any) -> int:
    """Return the server's time in milliseconds."""
    seconds, microseconds_ = await read.time()
    return seconds * 1000 + microseconds_ // 1000
