"""Adding events to the log: the statements of the one transaction that stores them and all that they mean.

Every statement finds its rows by an index, so that the cost does not grow with the log.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby

import sqlalchemy as sa
from sqlalchemy import exc

from massmem.errors import SessionBusyError
from massmem.events import EVENT, TurnResumed, TurnStarted
from massmem.records import LogEntry
from massmem.store import changes, projection
from massmem.store.additions import INSERTIONS, Additions, Numbered, additions
from massmem.store.dialect import Dialect
from massmem.store.prepared import Statement, send
from massmem.store.recordings import LAST_POSITION, queue_row
from massmem.store.rows import Payload, missing
from massmem.store.schema import SESSION, TURN, WITHOUT_DELTAS, events

# Newest rows come first and the first match ends the search: the second is as cheap as the first.
LAST = Statement(
    sa.select(
        sa.select(sa.func.max(events.c.seq)).where(events.c.session_id == SESSION).scalar_subquery().label("seq"),
        LAST_POSITION.scalar_subquery().label("position"),
    )
)
BEGUN = Statement(
    sa.select(sa.func.max(events.c.at)).where(
        events.c.session_id == SESSION,
        events.c.turn == TURN,
        sa.text(WITHOUT_DELTAS),
        events.c.type.in_(("turn_started", "turn_resumed")),
    )
)
"""When the turn was begun, or last taken up, as the log has it."""


@dataclass(frozen=True, slots=True)
class _Made:
    """last: the newest event and episode of the session, for which this was made."""

    last: list[int | None]
    numbers: list[int]
    additions: Additions


class Appending:
    """Events that are to be stored with one transaction, alone or with other changes."""

    def __init__(self, dialect: Dialect, session_id: str, turn: int, batch: Sequence[Payload]) -> None:
        self._dialect = dialect
        self._session_id = session_id
        self._turn = turn
        self._batch = batch
        self._made: _Made | None = None

    def ahead(self, connection: sa.Connection) -> None:
        """Make ready, before the transaction, what would keep others waiting in it. May be left out."""
        self._made = self._make(connection, self._last(connection))

    def store(self, connection: sa.Connection) -> list[int]:
        """Within the transaction. Returns the sequence numbers.

        Raises StoreError for an unknown session, SessionBusyError for a turn that was begun already.
        """
        self._dialect.lock(connection, self._session_id)
        last, made = self._last(connection), self._made
        if made is None or made.last != last:  # the session has grown since
            made = self._make(connection, last)
        _send(connection, self._dialect, self._session_id, made.additions)
        return made.numbers

    def _last(self, connection: sa.Connection) -> list[int | None]:
        return LAST.all(connection, {"of_session": self._session_id})[0]

    def _make(self, connection: sa.Connection, last: list[int | None]) -> _Made:
        seq, position = last[0] or 0, last[1]
        numbered: list[Numbered] = []
        for event, text in self._batch:
            seq += projection.numbers_taken(event)
            numbered.append((seq, event, text))
        turn = (self._session_id, self._turn)
        operations = _operations(turn, numbered)
        _number(operations, position)
        made = _additions(connection, turn, numbered, operations)
        return _Made(last, [seq for seq, _, _ in numbered], made)


def restore(connection: sa.Connection, dialect: Dialect, session_id: str, entries: Sequence[LogEntry]) -> None:
    """Store entries of another store's log under their own numbers, and its queue as it is there."""
    for turn, of_turn in groupby(entries, key=lambda entry: entry.turn):
        numbered = [(entry.seq, EVENT.validate_json(entry.payload), entry.payload) for entry in of_turn]
        operations = [op for op in _operations((session_id, turn), numbered) if not _is_queueing(op)]
        _send(connection, dialect, session_id, _additions(connection, (session_id, turn), numbered, operations))
    rows = [queue_row(row) for entry in entries for row in entry.recordings]
    if rows:
        INSERTIONS["recordings"].insert(connection, rows)


def _operations(turn: tuple[str, int], numbered: Iterable[Numbered]) -> list[changes.RowOp]:
    """turn: its session and number."""
    return [op for seq, event, _ in numbered for op in projection.project(*turn, seq, event)]


def _is_queueing(operation: changes.RowOp) -> bool:
    match operation:
        case changes.QueueExtraction() | changes.Insert("recordings"):
            return True
        case _:
            return False


def _additions(
    connection: sa.Connection,
    turn: tuple[str, int],
    numbered: Sequence[Numbered],
    operations: Sequence[changes.RowOp],
) -> Additions:
    """With each final answer, how many seconds the user waited for it."""
    for operation in operations:
        match operation:
            case changes.Insert("chat_messages", {"final": True} as row):
                begun = _begun(connection, turn, [item for item in numbered if item[0] < row["seq"]])
                if begun is not None:
                    row["metadata"]["response_time"] = round((row["created_at"] - begun).total_seconds(), 3)
            case _:
                pass
    return additions(connection.dialect, turn, numbered, operations)


def _begun(connection: sa.Connection, turn: tuple[str, int], before: Sequence[Numbered]) -> datetime | None:
    """When the turn was begun, or last taken up. before: what is being added and not in the log yet."""
    here = [event for _, event, _ in before if isinstance(event, TurnStarted | TurnResumed)]
    times = [event.at for event in here]
    if not any(isinstance(event, TurnStarted) for event in here):
        stored = BEGUN.all(connection, {"of_session": turn[0], "of_turn": turn[1]})
        times += [at for (at,) in stored if at is not None]
    return max(times, default=None)


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


def _send(connection: sa.Connection, dialect: Dialect, session_id: str, made: Additions) -> None:
    try:
        send(connection, made.events)
    except exc.IntegrityError as e:
        if dialect.is_missing_parent(e.orig):
            raise missing(session_id) from e
        raise
    for name, rows in made.rows:
        try:
            send(connection, rows)
        except exc.IntegrityError as e:
            if name == "turns" and dialect.is_duplicate(e.orig):
                raise SessionBusyError(
                    "this turn of the session was begun already, by another process",
                    "wait until it has ended, then ask again",
                ) from e
            raise
    dialect.index(connection, made.messages)
    send(connection, made.changes)
