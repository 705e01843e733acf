"""Adding events to the log: the statements of the one transaction that stores them and all that they mean.

Every statement finds its rows by an index, so that the cost does not grow with the log.
"""

from collections.abc import Iterable, Sequence
from functools import cache
from itertools import groupby
from typing import Any

import sqlalchemy as sa
from sqlalchemy import exc

from massmem.errors import SessionBusyError
from massmem.events import EVENT, Event
from massmem.records import LogEntry
from massmem.store import changes, projection
from massmem.store.dialect import Dialect
from massmem.store.prepared import Insertion, Row, Statement
from massmem.store.recordings import LAST_POSITION, QUEUE_EXTRACTION, queue_row
from massmem.store.rows import Payload, missing
from massmem.store.schema import (
    SESSION,
    TURN,
    WITHOUT_DELTAS,
    answers,
    ballots,
    chat_messages,
    chat_sessions,
    events,
    recordings,
    requests,
    turns,
)

# Newest rows come first and the first match ends the search: the second is as cheap as the first.
LAST = Statement(
    sa.select(
        sa.select(sa.func.max(events.c.seq)).where(events.c.session_id == SESSION).scalar_subquery().label("seq"),
        LAST_POSITION.scalar_subquery().label("position"),
    )
)
EVENTS = Insertion(events)
# In this order: answers, ballots and turns refer to messages.
INSERTIONS = {table.name: Insertion(table) for table in (chat_messages, turns, answers, ballots, recordings, requests)}
UPDATE_TURN = sa.update(turns).where(turns.c.session_id == SESSION, turns.c.turn == TURN)
VOID_BALLOTS = Statement(
    sa.update(ballots)
    .where(
        ballots.c.session_id == SESSION,
        ballots.c.turn == TURN,
        ballots.c.agent_id.in_(sa.bindparam("agents", expanding=True)),
        ballots.c.seq < sa.bindparam("before", type_=sa.Integer),
    )
    .values(void=True),
    lists=["agents"],
)
UPDATE_SESSION = Statement(
    sa.update(chat_sessions)
    .where(chat_sessions.c.session_id == SESSION)
    .values(
        title=sa.func.coalesce(sa.func.nullif(chat_sessions.c.title, ""), sa.bindparam("new_title", type_=sa.Text), ""),
        last_message=sa.func.coalesce(sa.bindparam("new_last", type_=sa.Text), chat_sessions.c.last_message),
        status=sa.func.coalesce(sa.bindparam("new_status", type_=sa.Text), chat_sessions.c.status),
        message_count=chat_sessions.c.message_count + sa.bindparam("added", type_=sa.Integer),
        updated_at=sa.bindparam("at", type_=chat_sessions.c.updated_at.type),
    )
)
BEGUN = Statement(
    sa.select(sa.func.max(events.c.at)).where(
        events.c.session_id == SESSION,
        events.c.turn == TURN,
        sa.text(WITHOUT_DELTAS),
        events.c.type.in_(("turn_started", "turn_resumed")),
        events.c.seq < sa.bindparam("before", type_=sa.Integer),
    )
)
"""When the turn was begun, or last taken up."""

Numbered = tuple[int, Event, str]
"""An event with its place in the log and its JSON."""


def append(
    connection: sa.Connection, dialect: Dialect, session_id: str, turn: int, batch: Sequence[Payload]
) -> list[int]:
    """Store the batch within the transaction of `connection`.

    Returns the sequence numbers. Raises StoreError for an unknown session, SessionBusyError for a turn that was
    begun already.
    """
    dialect.lock(connection, session_id)
    ((seq, position),) = LAST.all(connection, {"of_session": session_id})
    seq = seq or 0
    numbered: list[Numbered] = []
    for event, text in batch:
        seq += projection.numbers_taken(event)
        numbered.append((seq, event, text))
    operations = _operations(session_id, turn, numbered)
    _number(operations, position)
    _store(connection, dialect, (session_id, turn), numbered, operations)
    return [seq for seq, _, _ in numbered]


def restore(connection: sa.Connection, dialect: Dialect, session_id: str, entries: Sequence[LogEntry]) -> None:
    """Store entries of another store's log under their own numbers, and its queue as it is there."""
    for turn, of_turn in groupby(entries, key=lambda entry: entry.turn):
        numbered = [(entry.seq, EVENT.validate_json(entry.payload), entry.payload) for entry in of_turn]
        operations = [op for op in _operations(session_id, turn, numbered) if not _is_queueing(op)]
        _store(connection, dialect, (session_id, turn), numbered, operations)
    rows = [queue_row(row) for entry in entries for row in entry.recordings]
    if rows:
        INSERTIONS["recordings"].insert(connection, rows)


def _operations(session_id: str, turn: int, numbered: Iterable[Numbered]) -> list[changes.RowOp]:
    return [op for seq, event, _ in numbered for op in projection.project(session_id, turn, seq, event)]


def _is_queueing(operation: changes.RowOp) -> bool:
    match operation:
        case changes.QueueExtraction() | changes.Insert("recordings"):
            return True
        case _:
            return False


def _store(
    connection: sa.Connection,
    dialect: Dialect,
    turn: tuple[str, int],
    numbered: Sequence[Numbered],
    operations: Sequence[changes.RowOp],
) -> None:
    """turn: its session and number."""
    rows = [_event_row(*turn, *item) for item in numbered]
    try:
        EVENTS.insert(connection, rows)
    except exc.IntegrityError as e:
        if dialect.is_missing_parent(e.orig):
            raise missing(turn[0]) from e
        raise
    if operations:
        _apply(connection, dialect, {"of_session": turn[0], "of_turn": turn[1]}, operations, rows[-1])


def _event_row(session_id: str, turn: int, seq: int, event: Event, text: str) -> dict[str, Any]:
    return {"session_id": session_id, "seq": seq, "turn": turn, "type": event.type, "payload": text, "at": event.at}


def _apply(
    connection: sa.Connection,
    dialect: Dialect,
    where: dict[str, Any],
    operations: Iterable[changes.RowOp],
    last_event: dict[str, Any],
) -> None:
    """where: the parameters of_session and of_turn. Rows come first: changes refer to rows of the same batch."""
    rows: dict[str, list[Row]] = {name: [] for name in INSERTIONS}
    session: dict[str, Any] = {"new_title": None, "new_last": None, "new_status": None}
    turn: dict[str, Any] = {}
    voids: list[dict[str, Any]] = []
    ends: list[dict[str, Any]] = []
    for operation in operations:
        match operation:
            case changes.Insert(table, row):
                rows[table].append(row)
            case changes.SetTurn(row):
                turn |= row
            case changes.VoidBallots(agents, before):
                voids.append({"agents": agents, "before": before})
            case changes.QueueExtraction(seq, at):
                ends.append({"end": seq, "at": at})
            case changes.SetSession(title, last_message, status):
                session["new_title"] = session["new_title"] or title
                session["new_last"] = last_message or session["new_last"]
                session["new_status"] = status or session["new_status"]
    _time(connection, where, rows["chat_messages"])
    _insert(connection, dialect, rows)
    for end in ends:
        QUEUE_EXTRACTION.change(connection, where | end)
    if turn:
        new = {f"new_{name}": value for name, value in turn.items()}
        _turn_update(tuple(turn)).change(connection, where | new)
    for void in voids:
        VOID_BALLOTS.change(connection, where | void)
    session |= {"of_session": where["of_session"], "added": len(rows["chat_messages"]), "at": last_event["at"]}
    UPDATE_SESSION.change(connection, session)


@cache
def _turn_update(columns: tuple[str, ...]) -> Statement:
    values = {name: sa.bindparam(f"new_{name}", type_=turns.c[name].type) for name in columns}
    return Statement(UPDATE_TURN.values(values))


def _number(operations: Iterable[changes.RowOp], last: int | None) -> None:
    """Give the episodes among the rows their positions. last: that of the session's newest episode so far."""
    position = -1 if last is None else last
    for operation in operations:
        match operation:
            case changes.Insert("recordings", {"kind": "episode"} as row):
                position += 1
                row["position"] = position
            case _:
                pass


def _time(connection: sa.Connection, where: dict[str, Any], messages: Iterable[dict[str, Any]]) -> None:
    """Note with a final answer how many seconds the user waited for it."""
    for row in messages:
        if row["final"]:
            ((begun,),) = BEGUN.all(connection, where | {"before": row["seq"]})
            if begun is not None:
                row["metadata"]["response_time"] = round((row["created_at"] - begun).total_seconds(), 3)


def _insert(connection: sa.Connection, dialect: Dialect, rows: dict[str, list[dict[str, Any]]]) -> None:
    for name, insertion in INSERTIONS.items():
        try:
            insertion.insert(connection, rows[name])
        except exc.IntegrityError as e:
            if name == "turns" and dialect.is_duplicate(e.orig):
                raise SessionBusyError(
                    "this turn of the session was begun already, by another process",
                    "wait until it has ended, then ask again",
                ) from e
            raise
    dialect.index(connection, rows["chat_messages"])
