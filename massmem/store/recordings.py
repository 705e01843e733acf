"""Statements of the queue of what is to be remembered, and of what its worker reads from the log."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from massmem.memory.memories import USER, Selection
from massmem.records import RecordingCounts, RecordingRecord
from massmem.store.changes import message_id
from massmem.store.prepared import Statement
from massmem.store.schema import PENDING, SESSION, TURN, answers, chat_messages, recordings, turns

_r = recordings.c

LAST_POSITION = (
    sa.select(_r.position).where(_r.session_id == SESSION, _r.kind == "episode").order_by(_r.seq.desc()).limit(1)
)
_QUESTION = sa.select(turns.c.question_seq).where(turns.c.session_id == SESSION, turns.c.turn == TURN).scalar_subquery()
_QUEUED = (
    sa.select(sa.func.max(_r.seq))
    .where(_r.session_id == SESSION, _r.seq >= _QUESTION, _r.turn == TURN, _r.kind == "extract")
    .scalar_subquery()
)
_SINCE = sa.func.coalesce(_QUEUED, _QUESTION - 1)
_END = sa.bindparam("end", type_=sa.Integer)
QUEUE_EXTRACTION = Statement(
    sa.insert(recordings).from_select(
        ["session_id", "seq", "kind", "agent_id", "turn", "since", "created_at"],
        sa.select(
            chat_messages.c.session_id,
            _END,
            sa.literal("extract"),
            chat_messages.c.agent_id,
            TURN,
            _SINCE,
            sa.bindparam("at", type_=_r.created_at.type),
        )
        .where(
            chat_messages.c.session_id == SESSION,
            chat_messages.c.seq > _SINCE,
            chat_messages.c.seq <= _END,
            chat_messages.c.agent_id.is_not(None),
        )
        .group_by(chat_messages.c.session_id, chat_messages.c.agent_id),
    )
)
"""For each agent that said something in the turn since the last extraction of it was queued."""

_IS_DUE = sa.or_(_r.next_attempt_at.is_(None), _r.next_attempt_at <= sa.bindparam("now", type_=_r.created_at.type))
_DUE = (
    sa.select(recordings)
    .where(sa.text(PENDING), _r.kind == sa.bindparam("of_kind", type_=sa.Text), _IS_DUE)
    .order_by(_r.created_at, _r.session_id, _r.seq, _r.agent_id)
    .limit(sa.bindparam("most", type_=sa.Integer))
)
_DUE_OF_ALL, _DUE_OF_SESSION = Statement(_DUE), Statement(_DUE.where(_r.session_id == SESSION))
_THIS_ONE = (
    _r.session_id == SESSION,
    _r.seq == sa.bindparam("of_seq", type_=sa.Integer),
    _r.kind == sa.bindparam("of_kind", type_=sa.Text),
    _r.agent_id == sa.bindparam("of_agent", type_=sa.Text),
    # Not when it was forgotten while it was worked on.
    sa.text(PENDING),
)
_NEW_REASON = sa.bindparam("new_reason", type_=sa.Text)
FINISH = Statement(
    sa.update(recordings).where(*_THIS_ONE).values(status="done", reason=_NEW_REASON, next_attempt_at=None)
)
_HELD = datetime(9999, 1, 1, tzinfo=UTC)
HOLD = Statement(sa.update(recordings).where(*_THIS_ONE).values(reason=_NEW_REASON, next_attempt_at=_HELD))
"""Done, but for a memory that does not last: still to be done for one that does."""

RELEASE = Statement(sa.update(recordings).where(*_THIS_ONE).values(next_attempt_at=None))
RELEASE_HELD = Statement(
    sa.update(recordings).where(sa.text(PENDING), _r.next_attempt_at >= _HELD).values(reason=None, next_attempt_at=None)
)
CLAIM = Statement(
    sa.update(recordings)
    .where(*_THIS_ONE, _IS_DUE)
    .values(next_attempt_at=sa.bindparam("until", type_=_r.created_at.type))
)
RETRY = Statement(
    sa.update(recordings)
    .where(*_THIS_ONE)
    .values(
        status=sa.bindparam("new_status", type_=sa.Text),
        attempts=_r.attempts + 1,
        reason=_NEW_REASON,
        next_attempt_at=sa.bindparam("retry_at", type_=_r.created_at.type),
    )
)
_REQUEUE = sa.update(recordings).values(status="pending", attempts=0, reason=None, next_attempt_at=None)
OF_TURN = sa.and_(chat_messages.c.session_id == SESSION, chat_messages.c.seq >= _QUESTION, chat_messages.c.turn == TURN)
"""Which messages a turn has."""


_final, _answer = chat_messages.alias("final"), chat_messages.alias("answer")
SAME_TEXT = Statement(
    sa.select(_answer.c.id)
    .select_from(_final)
    .join(answers, sa.and_(answers.c.session_id == _final.c.session_id, answers.c.turn == _final.c.turn))
    .join(_answer, sa.and_(_answer.c.session_id == answers.c.session_id, _answer.c.seq == answers.c.seq))
    .where(
        _final.c.id.in_(sa.bindparam("of_messages", expanding=True)),
        _final.c.final,
        _answer.c.content == _final.c.content,
    ),
    lists=["of_messages"],
)
"""Answers of a turn that its final answer, one of these messages, repeats word for word."""


def due(kind: str, limit: int, session_id: str | None, now: datetime) -> tuple[Statement, dict[str, Any]]:
    """The query for rows that are to be worked on, oldest first, and its parameters."""
    where = {"of_kind": kind, "now": now, "most": limit}
    return (_DUE_OF_ALL, where) if session_id is None else (_DUE_OF_SESSION, where | {"of_session": session_id})


def record(row: dict[str, Any]) -> RecordingRecord:
    more: dict[str, Any] = {
        "agent_id": row["agent_id"] or None,
        "message_id": message_id(row["session_id"], row["seq"]),
        "forgotten": row["forgotten"] or (),
    }
    return RecordingRecord(**{**row, **more})


def queue_row(recording: RecordingRecord) -> dict[str, Any]:
    """The row that `record` reads."""
    more = {"agent_id": recording.agent_id or "", "forgotten": recording.forgotten or None}
    return recording.model_dump(exclude={"message_id"}) | more


def key(recording: RecordingRecord) -> dict[str, Any]:
    """The parameters that name one row in FINISH, HOLD, RELEASE, CLAIM and RETRY."""
    return {
        "of_session": recording.session_id,
        "of_seq": recording.seq,
        "of_kind": recording.kind,
        "of_agent": recording.agent_id or "",
    }


def counts(session_id: str | None) -> tuple[sa.Select[*tuple[Any, ...]], sa.Select[*tuple[Any, ...]]]:
    """The queries for how many rows have each status, and for the newest reason of one that did not succeed."""
    of_session = [] if session_id is None else [_r.session_id == session_id]
    numbers = sa.select(_r.status, sa.func.count().label("number")).where(*of_session).group_by(_r.status)
    reason = (
        sa.select(_r.reason)
        .where(_r.status.in_(("pending", "failed")), _r.reason.is_not(None), *of_session)
        .order_by(_r.created_at.desc())
        .limit(1)
    )
    return numbers, reason


def counted(numbers: Sequence[dict[str, Any]], reasons: Sequence[dict[str, Any]]) -> RecordingCounts:
    found = {row["status"]: row["number"] for row in numbers}
    return RecordingCounts(
        pending=found.get("pending", 0),
        done=found.get("done", 0),
        failed=found.get("failed", 0),
        reason=reasons[0]["reason"] if reasons else None,
    )


def requeue(session_id: str | None, *, done: bool) -> sa.Update:
    statuses = ("pending", "failed", "done") if done else ("pending", "failed")
    statement = _REQUEUE.where(_r.status.in_(statuses))
    return statement if session_id is None else statement.where(_r.session_id == session_id)


def forget(selection: Selection, message_ids: Sequence[str]) -> sa.Update:
    """Marks rows, in whatever state, so that they are never recorded again. message_ids: episodes of these only."""
    where: list[sa.ColumnElement[bool]] = [_r.kind.in_(_kinds(selection, message_ids))]
    if selection.session_id is not None:
        where.append(_r.session_id == selection.session_id)
    if selection.agent_id is not None:
        where.append(_r.agent_id == ("" if selection.agent_id == USER else selection.agent_id))
    if selection.turn is not None:
        where.append(_r.turn == selection.turn)
    if message_ids:
        m = chat_messages.c
        named = sa.select(m.session_id, m.seq).where(m.id.in_(message_ids))
        where.append(sa.tuple_(_r.session_id, _r.seq).in_(named))
    return sa.update(recordings).where(*where).values(status="forgotten", reason=None, next_attempt_at=None)


def forget_fact(
    connection: sa.Connection, session_id: str, agent_id: str, turns_: Sequence[int], words: Sequence[int]
) -> None:
    """What the agent said in these turns must not give a fact with these words again."""
    of_agent = (_r.session_id == session_id, _r.agent_id == agent_id, _r.kind == "extract")
    for row in connection.execute(sa.select(recordings).where(*of_agent, _r.turn.in_(turns_))).mappings().all():
        known: list[list[int]] = row["forgotten"] or []
        if [*words] not in known:
            change = sa.update(recordings).where(*of_agent, _r.seq == row["seq"])
            connection.execute(change.values(forgotten=[*known, [*words]]))


def _kinds(selection: Selection, message_ids: Sequence[str]) -> tuple[str, ...]:
    if message_ids or selection.kind == "episode":
        return ("episode",)
    return ("extract",) if selection.kind == "fact" else ("episode", "extract")
