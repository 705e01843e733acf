"""Adding events to the log: the statements that store them and all that they mean, in the caller's transaction.

Every statement finds its rows by an index: the cost does not grow with the log. Statements that a turn sends are made
once, here and in the other modules of this package: SQLAlchemy takes 0.1 ms to build one, and a turn sends about 50.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby
from typing import NamedTuple

import sqlalchemy as sa
from sqlalchemy import exc

from massmem.core.errors import SessionBusyError
from massmem.core.events import EVENT, Event, TurnResumed, TurnStarted
from massmem.core.records import LogEntry
from massmem.store import projection
from massmem.store.log_format import EncodedEvent
from massmem.store.projection import InsertRow, QueueExtraction, UpdateSession, UpdateTurn, VoidBallots
from massmem.store.schema import (
    IS_NO_DELTA,
    SESSION,
    TURN,
    CleanText,
    UtcDateTime,
    answers,
    ballots,
    chat_messages,
    chat_sessions,
    events,
    recordings,
    requests,
    turns,
)
from massmem.store.sql.database import Database, Row
from massmem.store.sql.queue import QUEUE_EXTRACTION, build_queue_row

_r = recordings.c
_LAST_POSITION = (
    sa.select(_r.position).where(_r.session_id == SESSION, _r.kind == "episode").order_by(_r.seq.desc()).limit(1)
)
_LAST_NUMBERS = sa.select(
    sa.select(sa.func.max(events.c.seq)).where(events.c.session_id == SESSION).scalar_subquery().label("seq"),
    _LAST_POSITION.scalar_subquery().label("position"),
)
_TURN_BEGAN = sa.select(sa.func.max(events.c.at)).where(
    events.c.session_id == SESSION,
    events.c.turn == TURN,
    sa.text(IS_NO_DELTA),
    events.c.type.in_(("turn_started", "turn_resumed")),
)
_INSERT_EVENTS = sa.insert(events)
# In this order: answers, ballots and turns refer to messages.
_INSERTS = {table.name: sa.insert(table) for table in (chat_messages, turns, answers, ballots, recordings, requests)}
UPDATE_TURN = sa.update(turns).where(turns.c.session_id == SESSION, turns.c.turn == TURN)
_VOID_BALLOTS = (
    sa.update(ballots)
    .where(
        ballots.c.session_id == SESSION,
        ballots.c.turn == TURN,
        ballots.c.agent_id.in_(sa.bindparam("agents", expanding=True)),
        ballots.c.seq < sa.bindparam("before", type_=sa.Integer),
    )
    .values(void=True)
)
_UPDATE_SESSION = (
    sa.update(chat_sessions)
    .where(chat_sessions.c.session_id == SESSION)
    .values(
        title=sa.func.coalesce(
            sa.func.nullif(chat_sessions.c.title, ""), sa.bindparam("new_title", type_=CleanText), ""
        ),
        last_message=sa.func.coalesce(sa.bindparam("new_message", type_=CleanText), chat_sessions.c.last_message),
        status=sa.func.coalesce(sa.bindparam("new_status", type_=sa.Text), chat_sessions.c.status),
        message_count=chat_sessions.c.message_count + sa.bindparam("added", type_=sa.Integer),
        updated_at=sa.bindparam("at", type_=UtcDateTime),
    )
)


class NumberedEvent(NamedTuple):
    """An event with its number in the log and its JSON."""

    seq: int
    event: Event
    json: str


@dataclass(slots=True)
class _Changes:
    """What a batch of events changes in the derived tables."""

    rows: dict[str, list[Row]] = field(default_factory=lambda: {table: [] for table in _INSERTS})
    turn: Row = field(default_factory=Row)
    voids: list[VoidBallots] = field(default_factory=list[VoidBallots])
    extractions: list[QueueExtraction] = field(default_factory=list[QueueExtraction])
    session: Row = field(default_factory=lambda: {"new_title": None, "new_message": None, "new_status": None})
    empty: bool = True

    def add(self, change: projection.Change) -> None:
        self.empty = False
        match change:
            case InsertRow(table, row):
                self.rows[table].append(row)
            case UpdateTurn(values):
                self.turn |= values
            case VoidBallots():
                self.voids.append(change)
            case QueueExtraction():
                self.extractions.append(change)
            case UpdateSession(title, last_message, status):
                session = self.session
                session["new_title"] = session["new_title"] or title
                session["new_message"] = last_message or session["new_message"]
                session["new_status"] = status or session["new_status"]


def append_events(
    connection: sa.Connection, database: Database, session_id: str, turn: int, batch: Sequence[EncodedEvent]
) -> list[int]:
    """Store events after the newest of the session. Returns their sequence numbers.

    Raises StoreError for an unknown session, SessionBusyError for a turn that was begun already.
    """
    database.dialect.lock_session(connection, session_id)
    seq, position = connection.execute(_LAST_NUMBERS, {"of_session": session_id}).one()
    seq = seq or 0
    numbered: list[NumberedEvent] = []
    for event, text in batch:
        seq += projection.count_seqs(event)
        numbered.append(NumberedEvent(seq, event, text))
    changes = _collect_changes(session_id, turn, numbered)
    _number_episodes(changes.rows["recordings"], -1 if position is None else position)
    _store(connection, database, (session_id, turn), numbered, changes)
    return [event.seq for event in numbered]


def restore_events(connection: sa.Connection, database: Database, session_id: str, entries: Sequence[LogEntry]) -> None:
    """Store entries of another store's log under their own numbers, and its queue as it is there."""
    for turn, turn_entries in groupby(entries, key=lambda entry: entry.turn):
        numbered = [
            NumberedEvent(entry.seq, EVENT.validate_json(entry.payload), entry.payload) for entry in turn_entries
        ]
        changes = _collect_changes(session_id, turn, numbered)
        changes.rows["recordings"].clear()
        changes.extractions.clear()
        _store(connection, database, (session_id, turn), numbered, changes)
    rows = [build_queue_row(recording) for entry in entries for recording in entry.recordings]
    if rows:
        connection.execute(_INSERTS["recordings"], rows)


def _collect_changes(session_id: str, turn: int, numbered: Iterable[NumberedEvent]) -> _Changes:
    changes = _Changes()
    for seq, event, _ in numbered:
        for change in projection.project(session_id, turn, seq, event):
            changes.add(change)
    return changes


def _number_episodes(rows: Iterable[Row], last: int) -> None:
    """last: the position of the session's newest episode so far, -1 for none."""
    for row in rows:
        if row["kind"] == "episode":
            last += 1
            row["position"] = last


def _store(
    connection: sa.Connection,
    database: Database,
    key: tuple[str, int],
    numbered: Sequence[NumberedEvent],
    changes: _Changes,
) -> None:
    """key: session id and turn."""
    session_id, turn = key
    _set_response_times(connection, key, numbered, changes.rows["chat_messages"])
    rows = [
        {"session_id": session_id, "seq": seq, "turn": turn, "type": event.type, "payload": text, "at": event.at}
        for seq, event, text in numbered
    ]
    with database.require_session(session_id):
        connection.execute(_INSERT_EVENTS, rows)
    for table, insert in _INSERTS.items():
        if changes.rows[table]:
            _insert_rows(connection, database, insert, changes.rows[table])
    database.dialect.index_messages(connection, changes.rows["chat_messages"])
    if not changes.empty:
        _update_rows(connection, {"of_session": session_id, "of_turn": turn}, changes, numbered[-1].event.at)


def _insert_rows(connection: sa.Connection, database: Database, insert: sa.Insert, rows: Sequence[Row]) -> None:
    try:
        connection.execute(insert, rows)
    except exc.IntegrityError as e:
        if insert.table is turns and database.dialect.is_duplicate(e.orig):
            raise SessionBusyError(
                "this turn of the session was begun already, by another process",
                "wait until it has ended, then ask again",
            ) from e
        raise


def _update_rows(connection: sa.Connection, key: Row, changes: _Changes, at: datetime) -> None:
    """key: the parameters of_session and of_turn. at: the time of the newest event."""
    for extraction in changes.extractions:
        connection.execute(QUEUE_EXTRACTION, key | {"end": extraction.seq, "at": extraction.at})
    if changes.turn:
        connection.execute(UPDATE_TURN, key | changes.turn)
    for void in changes.voids:
        connection.execute(_VOID_BALLOTS, key | {"agents": void.agents, "before": void.before})
    added = len(changes.rows["chat_messages"])
    connection.execute(_UPDATE_SESSION, {**changes.session, **key, "added": added, "at": at})


def _set_response_times(
    connection: sa.Connection, key: tuple[str, int], numbered: Sequence[NumberedEvent], messages: Iterable[Row]
) -> None:
    """Note with each final answer how many seconds the user waited for it."""
    for row in messages:
        if row["final"]:
            began = _find_turn_begin(connection, key, [item.event for item in numbered if item.seq < row["seq"]])
            if began is not None:
                row["metadata"]["response_time"] = round((row["created_at"] - began).total_seconds(), 3)


def _find_turn_begin(connection: sa.Connection, key: tuple[str, int], batch: Sequence[Event]) -> datetime | None:
    """Return when the turn was begun or last resumed. batch: the events before the answer that are not stored yet."""
    begins = [event for event in batch if isinstance(event, TurnStarted | TurnResumed)]
    times = [event.at for event in begins]
    if not any(isinstance(event, TurnStarted) for event in begins):
        stored = connection.execute(_TURN_BEGAN, {"of_session": key[0], "of_turn": key[1]}).scalar()
        times += [stored] if stored is not None else []
    return max(times, default=None)
