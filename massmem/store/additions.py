"""What events add to the tables, as statements that are ready to be sent."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import sqlalchemy as sa

from massmem.events import Event
from massmem.store import changes
from massmem.store.prepared import Insertion, Ready, Row, Statement
from massmem.store.recordings import QUEUE_EXTRACTION
from massmem.store.schema import (
    SESSION,
    TURN,
    answers,
    ballots,
    chat_messages,
    chat_sessions,
    events,
    recordings,
    requests,
    turns,
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

Numbered = tuple[int, Event, str]
"""An event with its place in the log and its JSON."""


@dataclass(frozen=True, slots=True)
class Additions:
    """In the order in which they are sent: rows first, since the changes refer to rows of the same batch.

    rows: by table. messages: what `Dialect.index` takes.
    """

    events: Sequence[Ready]
    rows: Sequence[tuple[str, Sequence[Ready]]]
    changes: Sequence[Ready]
    messages: Sequence[Row]


@dataclass(slots=True)
class _Meaning:
    """What the operations of a batch come to, together."""

    rows: dict[str, list[Row]] = field(default_factory=lambda: {name: [] for name in INSERTIONS})
    turn: Row = field(default_factory=dict[str, Any])
    voids: list[Row] = field(default_factory=list[Row])
    ends: list[Row] = field(default_factory=list[Row])
    session: Row = field(default_factory=lambda: {"new_title": None, "new_last": None, "new_status": None})


def additions(
    dialect: sa.Dialect, turn: tuple[str, int], numbered: Sequence[Numbered], operations: Sequence[changes.RowOp]
) -> Additions:
    """turn: its session and number."""
    where = {"of_session": turn[0], "of_turn": turn[1]}
    rows = [_event_row(*turn, *item) for item in numbered]
    meaning = _meaning(operations)
    messages = meaning.rows["chat_messages"]
    return Additions(
        EVENTS.ready(dialect, rows),
        [(name, insertion.ready(dialect, meaning.rows[name])) for name, insertion in INSERTIONS.items()],
        _changes(dialect, where, meaning, rows[-1]) if operations else (),
        messages,
    )


def _event_row(session_id: str, turn: int, seq: int, event: Event, text: str) -> Row:
    return {"session_id": session_id, "seq": seq, "turn": turn, "type": event.type, "payload": text, "at": event.at}


def _meaning(operations: Iterable[changes.RowOp]) -> _Meaning:
    meaning = _Meaning()
    session = meaning.session
    for operation in operations:
        match operation:
            case changes.Insert(table, row):
                meaning.rows[table].append(row)
            case changes.SetTurn(row):
                meaning.turn |= row
            case changes.VoidBallots(agents, before):
                meaning.voids.append({"agents": agents, "before": before})
            case changes.QueueExtraction(seq, at):
                meaning.ends.append({"end": seq, "at": at})
            case changes.SetSession(title, last_message, status):
                session["new_title"] = session["new_title"] or title
                session["new_last"] = last_message or session["new_last"]
                session["new_status"] = status or session["new_status"]
    return meaning


def _changes(dialect: sa.Dialect, where: Row, meaning: _Meaning, last_event: Row) -> list[Ready]:
    """where: the parameters of_session and of_turn."""
    made = [QUEUE_EXTRACTION.ready(dialect, where | end) for end in meaning.ends]
    if meaning.turn:
        new = {f"new_{name}": value for name, value in meaning.turn.items()}
        made.append(_turn_update(tuple(meaning.turn)).ready(dialect, where | new))
    made += [VOID_BALLOTS.ready(dialect, where | void) for void in meaning.voids]
    added = {"of_session": where["of_session"], "added": len(meaning.rows["chat_messages"]), "at": last_event["at"]}
    return [*made, UPDATE_SESSION.ready(dialect, meaning.session | added)]


@cache
def _turn_update(columns: tuple[str, ...]) -> Statement:
    values = {name: sa.bindparam(f"new_{name}", type_=turns.c[name].type) for name in columns}
    return Statement(UPDATE_TURN.values(values))
