"""The queue of what is to be recorded as memories."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from massmem.core.events import now
from massmem.core.ids import make_message_id
from massmem.core.records import MessageRecord, MessageToRecord, RecordingCounts, RecordingJob, RecordingKind
from massmem.memory.persistent import USER, Selection
from massmem.store.ports import HELD
from massmem.store.schema import (
    IS_PENDING,
    MESSAGE_COLUMNS,
    SESSION,
    TURN,
    CleanText,
    UtcDateTime,
    chat_messages,
    chat_sessions,
    recordings,
    session_state,
    turns,
)
from massmem.store.sql.database import Database, Row

_r = recordings.c
_m = chat_messages.c

QUESTION_SEQ = (
    sa.select(turns.c.question_seq).where(turns.c.session_id == SESSION, turns.c.turn == TURN).scalar_subquery()
)
_LAST_EXTRACTION = (
    sa.select(sa.func.max(_r.seq))
    .where(_r.session_id == SESSION, _r.seq >= QUESTION_SEQ, _r.turn == TURN, _r.kind == "extract")
    .scalar_subquery()
)
_SINCE = sa.func.coalesce(_LAST_EXTRACTION, QUESTION_SEQ - 1)
_END, _DONE_AS = sa.bindparam("end", type_=sa.Integer), sa.bindparam("done_as", type_=CleanText)
_REMEMBERED = _m.metadata["remember"].as_boolean().is_(None)
"""Of a message: memory was on for its author. The mark is only set to false."""
QUEUE_EXTRACTION = sa.insert(recordings).from_select(
    ["session_id", "seq", "kind", "agent_id", "turn", "since", "created_at", "status", "reason"],
    sa.select(
        *(_m.session_id, _END, sa.literal("extract"), _m.agent_id, TURN, _SINCE),
        sa.bindparam("at", type_=UtcDateTime),
        sa.case((_DONE_AS.is_(None), "pending"), else_="done"),
        _DONE_AS,
    )
    .where(_m.session_id == SESSION, _m.seq > _SINCE, _m.seq <= _END, _m.agent_id.is_not(None), _REMEMBERED)
    .group_by(_m.session_id, _m.agent_id),
)
"""Adds a row for each agent with a message to remember in the turn since its last extraction was queued."""

_IS_DUE = sa.or_(_r.next_attempt_at.is_(None), _r.next_attempt_at <= sa.bindparam("now", type_=UtcDateTime))
_DUE = (
    sa.select(recordings)
    .where(sa.text(IS_PENDING), _r.kind == sa.bindparam("of_kind", type_=sa.Text), _IS_DUE)
    .order_by(_r.created_at, _r.session_id, _r.seq, _r.agent_id)
    .limit(sa.bindparam("most", type_=sa.Integer))
)
_DUE_OF_SESSION = _DUE.where(_r.session_id == SESSION)
_UPDATE = sa.update(recordings).where(
    _r.session_id == SESSION,
    _r.seq == sa.bindparam("of_seq", type_=sa.Integer),
    _r.kind == sa.bindparam("of_kind", type_=sa.Text),
    _r.agent_id == sa.bindparam("of_agent", type_=sa.Text),
    # Not when it was forgotten while it was worked on.
    sa.text(IS_PENDING),
)
_REASON = sa.bindparam("new_reason", type_=CleanText)
_EXTEND = _UPDATE.values(next_attempt_at=sa.bindparam("until", type_=UtcDateTime))
_CLAIM = _EXTEND.where(_IS_DUE)
_FINISH = _UPDATE.values(status="done", reason=_REASON, next_attempt_at=None)
_ADD_ATTEMPTS = _UPDATE.values(attempts=_r.attempts + sa.bindparam("more", type_=sa.Integer))
_HOLD = _UPDATE.values(reason=_REASON, next_attempt_at=HELD)
_IS_FORGOTTEN = sa.exists().where(
    _r.session_id == _m.session_id, _r.seq == _m.seq, _r.kind == "episode", _r.status == "forgotten"
)
_MESSAGES_TO_RECORD = (
    sa.select(
        *MESSAGE_COLUMNS,
        chat_sessions.c.memory_group,
        chat_sessions.c.project,
        session_state.c.params_json,
        turns.c.winner,
        _IS_FORGOTTEN.label("is_forgotten"),
    )
    .join(chat_sessions, chat_sessions.c.session_id == _m.session_id)
    .outerjoin(session_state, session_state.c.session_id == _m.session_id)
    .outerjoin(
        turns, sa.and_(turns.c.session_id == _m.session_id, turns.c.turn == _m.turn, turns.c.status == "completed")
    )
    .where(_m.id.in_(sa.bindparam("of_messages", expanding=True)))
    .order_by(_m.id)
)


class SqlRecordingQueue:
    _database: Database

    async def list_due_recordings(
        self, kind: RecordingKind, limit: int, session_id: str | None = None
    ) -> list[RecordingJob]:
        parameters = {"of_kind": kind, "most": limit, "now": now()}
        if session_id is None:
            rows = await self._database.fetch(_DUE, parameters)
        else:
            rows = await self._database.fetch(_DUE_OF_SESSION, parameters | {"of_session": session_id})
        return [build_recording(row) for row in rows]

    async def get_messages_to_record(self, message_ids: Sequence[str]) -> list[MessageToRecord]:
        rows = await self._database.fetch(_MESSAGES_TO_RECORD, {"of_messages": message_ids}) if message_ids else []
        return [_build_message_to_record(row) for row in rows]

    async def claim_recording(self, recording: RecordingJob, until: datetime) -> bool:
        claim = _key(recording) | {"now": now(), "until": until}
        return await self._database.execute(_CLAIM, claim) == 1

    async def extend_claim(self, recording: RecordingJob, until: datetime | None) -> None:
        await self._database.execute(_EXTEND, _key(recording) | {"until": until})

    async def finish_recordings(
        self, recordings: Sequence[RecordingJob], reason: str | None = None, *, lasting: bool = True
    ) -> None:
        if recordings:
            rows = [_key(recording) | {"new_reason": reason} for recording in recordings]
            await self._database.execute(_FINISH if lasting else _HOLD, rows)

    async def release_held_recordings(self) -> int:
        release = (
            sa.update(recordings)
            .where(sa.text(IS_PENDING), _r.next_attempt_at >= HELD)
            .values(reason=None, next_attempt_at=None)
        )
        return await self._database.execute(release)

    async def fail_recording(self, recording: RecordingJob, reason: str, retry_at: datetime | None) -> None:
        fail = _UPDATE.values(
            status="failed" if retry_at is None else "pending",
            attempts=_r.attempts + 1,
            reason=reason,
            next_attempt_at=retry_at,
        )
        await self._database.execute(fail, _key(recording))

    async def add_attempts(self, recordings: Sequence[RecordingJob], number: int) -> None:
        if recordings:
            await self._database.execute(
                _ADD_ATTEMPTS, [_key(recording) | {"more": number} for recording in recordings]
            )

    async def count_recordings(self, session_id: str | None = None) -> RecordingCounts:
        of_session = [] if session_id is None else [_r.session_id == session_id]
        numbers = await self._database.fetch(
            sa.select(_r.status, sa.func.count().label("number")).where(*of_session).group_by(_r.status)
        )
        reasons = await self._database.fetch(
            sa.select(_r.reason)
            .where(_r.status.in_(("pending", "failed")), _r.reason.is_not(None), *of_session)
            .order_by(_r.created_at.desc())
            .limit(1)
        )
        retrying = sa.func.count(sa.case((_r.attempts > 0, 1))).label("retrying")
        oldest = sa.func.min(_r.created_at).label("oldest")
        messages = sa.func.count(sa.case((_r.kind == "episode", 1))).label("messages")
        (waiting,) = await self._database.fetch(
            sa.select(messages, retrying, oldest).where(_r.status == "pending", *of_session)
        )
        counts = {row["status"]: row["number"] for row in numbers if row["status"] != "forgotten"}
        forgotten = sa.select(_r.session_id, _r.agent_id, _r.forgotten).where(_r.forgotten.is_not(None), *of_session)
        rows = await self._database.fetch(forgotten)  # few: each is a turn of which the user had a fact forgotten
        facts = {(row["session_id"], row["agent_id"], *words) for row in rows for words in row["forgotten"]}
        reason = reasons[0]["reason"] if reasons else None
        return RecordingCounts(**counts, **waiting, forgotten_facts=len(facts), reason=reason)

    async def read_recording_marks(self) -> dict[str, tuple[int, int, int]]:
        done = sa.case((sa.and_(_r.kind == "episode", _r.status == "done", _r.reason.is_(None)), _r.seq))
        facts = sa.func.sum(sa.func.json_array_length(_r.forgotten)).label("facts")
        forgotten = sa.func.count(sa.case((_r.status == "forgotten", 1))).label("forgotten")
        counts = (sa.func.count(done).label("number"), sa.func.max(done).label("last"), forgotten, facts)
        query = sa.select(_r.session_id, *counts).where(_r.kind != "complete").group_by(_r.session_id)
        rows = [row.values() for row in await self._database.fetch(query)]
        return {name: (number, last or 0, gone + int(facts or 0)) for name, number, last, gone, facts in rows}

    async def requeue_recordings(self, session_id: str | None = None, *, done: bool, facts: bool = True) -> int:
        requeue = (
            sa.update(recordings)
            .where(_r.status.in_(("pending", "failed", "done") if done else ("pending", "failed")))
            .values(status="pending", attempts=0, reason=None, next_attempt_at=None)
        )
        if session_id is not None:
            requeue = requeue.where(_r.session_id == session_id)
        if not facts:
            requeue = requeue.where(_r.kind != "extract")
        return await self._database.execute(requeue)

    async def forget_fact(
        self, session_id: str, agent_id: str, message_ids: Sequence[str], words: Sequence[int]
    ) -> None:
        turns_of_messages = sa.select(_m.turn).where(_m.id.in_(message_ids))
        extractions = (_r.session_id == session_id, _r.agent_id == agent_id, _r.kind == "extract")

        def forget(connection: sa.Connection) -> None:
            query = sa.select(_r.seq, _r.forgotten).where(*extractions, _r.turn.in_(turns_of_messages))
            for seq, forgotten in connection.execute(query).all():
                facts: list[list[int]] = forgotten or []
                if [*words] not in facts:
                    change = sa.update(recordings).where(*extractions, _r.seq == seq)
                    connection.execute(change.values(forgotten=[*facts, [*words]]))

        await self._database.write(forget)

    async def forget_recordings(self, selection: Selection, message_ids: Sequence[str] = ()) -> None:
        where: list[sa.ColumnElement[bool]] = [_r.kind.in_(_kinds(selection, message_ids))]
        if selection.session_id is not None:
            where.append(_r.session_id == selection.session_id)
        if selection.session_ids:
            where.append(_r.session_id.in_(selection.session_ids))
        if selection.agent_id is not None:
            where.append(_r.agent_id == ("" if selection.agent_id == USER else selection.agent_id))
        if selection.turn is not None:
            where.append(_r.turn == selection.turn)
        if message_ids:
            messages = sa.select(_m.session_id, _m.seq).where(_m.id.in_(message_ids))
            where.append(sa.tuple_(_r.session_id, _r.seq).in_(messages))
        forget = sa.update(recordings).where(*where).values(status="forgotten", reason=None, next_attempt_at=None)
        await self._database.execute(forget)


def build_recording(row: Row) -> RecordingJob:
    """Return a row of the table as a value."""
    derived: dict[str, Any] = {
        "agent_id": row["agent_id"] or None,
        "message_id": make_message_id(row["session_id"], row["seq"]),
        "forgotten": row["forgotten"] or (),
    }
    return RecordingJob(**{**row, **derived})


def build_queue_row(recording: RecordingJob) -> Row:
    """Return the row of the table that `build_recording` turns into this value."""
    stored = {"agent_id": recording.agent_id or "", "forgotten": recording.forgotten or None}
    return recording.model_dump(exclude={"message_id"}) | stored


def _key(recording: RecordingJob) -> Row:
    return {
        "of_session": recording.session_id,
        "of_seq": recording.seq,
        "of_kind": recording.kind,
        "of_agent": recording.agent_id or "",
    }


def _build_message_to_record(row: Row) -> MessageToRecord:
    others = {name: row.pop(name) for name in ("project", "winner", "is_forgotten")}
    group, params = row.pop("memory_group"), row.pop("params_json")
    return MessageToRecord(message=MessageRecord(**row), group=group, params=params or {}, **others)


def _kinds(selection: Selection, message_ids: Sequence[str]) -> tuple[RecordingKind, ...]:
    if message_ids or selection.kind == "episode":
        return ("episode",)
    return ("extract",) if selection.kind == "fact" else ("episode", "extract")
