"""Adding events to the log: the statements of the one transaction that stores them and all that they mean.

Every statement finds its rows by an index, so that the cost does not grow with the log.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import sqlalchemy as sa
from pydantic_core import PydanticSerializationError
from sqlalchemy import exc

from massmem.errors import SessionBusyError, StoreError
from massmem.events import EVENT, Event
from massmem.messages import clean_text
from massmem.store import projection, sqlite
from massmem.store.recordings import LAST_POSITION, QUEUE_EXTRACTION
from massmem.store.schema import (
    SESSION,
    TURN,
    answers,
    ballots,
    chat_messages,
    chat_sessions,
    events,
    recordings,
    turns,
)

# Built once: SQLAlchemy finds the compiled form of a statement by its parts, the parameters come with each call.
# Newest rows come first and the first match ends the search: the second is as cheap as the first.
LAST = sa.select(
    sa.select(sa.func.max(events.c.seq)).where(events.c.session_id == SESSION).scalar_subquery(),
    LAST_POSITION.scalar_subquery(),
)
INSERT_EVENTS = sa.insert(events)
INSERTS = {  # in this order: answers, ballots and turns refer to messages
    "chat_messages": sa.insert(chat_messages),
    "turns": sa.insert(turns),
    "answers": sa.insert(answers),
    "ballots": sa.insert(ballots),
    "recordings": sa.insert(recordings),
}
UPDATE_TURN = sa.update(turns).where(turns.c.session_id == SESSION, turns.c.turn == TURN)
VOID_BALLOTS = (
    sa.update(ballots)
    .where(
        ballots.c.session_id == SESSION,
        ballots.c.turn == TURN,
        ballots.c.agent_id.in_(sa.bindparam("agents", expanding=True)),
        ballots.c.seq < sa.bindparam("before", type_=sa.Integer),
    )
    .values(void=True)
)
UPDATE_SESSION = (
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

Payload = tuple[Event, str]
"""An event and its JSON."""


def payload(event: Event) -> Payload:
    """The event as it is stored: without characters that a database refuses."""
    try:
        text = event.model_dump_json()
    except PydanticSerializationError:  # a lone surrogate
        text = ""
    if text and "\\u0000" not in text:
        return event, text
    event = EVENT.validate_python(_clean(event.model_dump()))
    return event, event.model_dump_json()


def append(connection: sa.Connection, session_id: str, turn: int, batch: Sequence[Payload]) -> list[int]:
    """Store the batch within the transaction of `connection`, which must hold the write lock of the session.

    Returns the sequence numbers. Raises StoreError for an unknown session, SessionBusyError for a turn that was
    begun already.
    """
    seq, position = connection.execute(LAST, {"of_session": session_id}).one()
    seq = seq or 0
    seqs: list[int] = []
    operations: list[projection.RowOp] = []
    for event, _ in batch:
        seq += projection.numbers_taken(event)
        seqs.append(seq)
        operations += projection.project(session_id, turn, seq, event)
    rows = [_event_row(session_id, turn, seq, *item) for seq, item in zip(seqs, batch, strict=True)]
    try:
        connection.execute(INSERT_EVENTS, rows)
    except exc.IntegrityError as e:
        if sqlite.is_missing_parent(e.orig):
            raise StoreError(
                f"session {session_id!r} is not in the store: it was deleted meanwhile, or never created",
                "see the sessions with: massmem --list-sessions",
            ) from e
        raise
    if operations:
        _number(operations, position)
        _apply(connection, {"of_session": session_id, "of_turn": turn}, operations, rows[-1])
    return seqs


def _event_row(session_id: str, turn: int, seq: int, event: Event, text: str) -> dict[str, Any]:
    return {"session_id": session_id, "seq": seq, "turn": turn, "type": event.type, "payload": text, "at": event.at}


def _apply(
    connection: sa.Connection,
    where: dict[str, Any],
    operations: Iterable[projection.RowOp],
    last_event: dict[str, Any],
) -> None:
    """where: the parameters of_session and of_turn. Rows come first: changes refer to rows of the same batch."""
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in INSERTS}
    session: dict[str, Any] = {"new_title": None, "new_last": None, "new_status": None}
    turn: dict[str, Any] = {}
    voids: list[dict[str, Any]] = []
    ends: list[dict[str, Any]] = []
    for operation in operations:
        match operation:
            case projection.Insert(table, row):
                rows[table].append(row)
            case projection.SetTurn(row):
                turn |= row
            case projection.VoidBallots(agents, before):
                voids.append({"agents": agents, "before": before})
            case projection.QueueExtraction(seq, at):
                ends.append({"end": seq, "at": at})
            case projection.SetSession(title, last_message, status):
                session["new_title"] = session["new_title"] or title
                session["new_last"] = last_message or session["new_last"]
                session["new_status"] = status or session["new_status"]
    _insert(connection, rows)
    for end in ends:
        connection.execute(QUEUE_EXTRACTION, where | end)
    if turn:
        connection.execute(UPDATE_TURN.values(**turn), where)
    for void in voids:
        connection.execute(VOID_BALLOTS, where | void)
    session |= {"of_session": where["of_session"], "added": len(rows["chat_messages"]), "at": last_event["at"]}
    connection.execute(UPDATE_SESSION, session)


def _number(operations: Iterable[projection.RowOp], last: int | None) -> None:
    """Give the episodes among the rows their positions. last: that of the session's newest episode so far."""
    position = -1 if last is None else last
    for operation in operations:
        match operation:
            case projection.Insert("recordings", {"kind": "episode"} as row):
                position += 1
                row["position"] = position
            case _:
                pass


def _insert(connection: sa.Connection, rows: dict[str, list[dict[str, Any]]]) -> None:
    for name, statement in INSERTS.items():
        if not rows[name]:
            continue
        try:
            connection.execute(statement, rows[name])
        except exc.IntegrityError as e:
            if name == "turns" and sqlite.is_duplicate(e.orig):
                raise SessionBusyError(
                    "this turn of the session was begun already, by another process",
                    "wait until it has ended, then ask again",
                ) from e
            raise


def _clean(value: Any) -> Any:
    match value:
        case str():
            return clean_text(value)
        case dict():
            return {_clean(key): _clean(item) for key, item in value.items()}  # pyright: ignore[reportUnknownVariableType]
        case list() | tuple():
            return [_clean(item) for item in value]  # pyright: ignore[reportUnknownVariableType]
        case _:
            return value
