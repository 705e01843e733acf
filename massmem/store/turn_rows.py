"""Statements about turns: read with their texts, given up, taken back, found by the name of what was asked."""

from collections.abc import Collection
from typing import Any

import sqlalchemy as sa

from massmem.store.additions import UPDATE_TURN
from massmem.store.prepared import Statement
from massmem.store.schema import SESSION, chat_messages, requests, turns

_UNFINISHED = ("running", "failed", "interrupted", "waiting")

_taken_back = turns.alias("taken_back")
STANDS = ~sa.exists().where(
    _taken_back.c.session_id == chat_messages.c.session_id,
    _taken_back.c.turn == chat_messages.c.turn,
    _taken_back.c.status == "undone",
)
"""Of a message: its turn was not undone."""

ABANDON = Statement(UPDATE_TURN.where(turns.c.status.in_(_UNFINISHED)).values(status="abandoned"))
REQUEST = Statement(
    sa.select(requests.c.seq).where(
        requests.c.session_id == SESSION, requests.c.name == sa.bindparam("of_request", type_=sa.Text)
    )
)
_question = chat_messages.alias("question")
_answer = chat_messages.alias("answer")
_TURNS = (
    sa.select(
        turns.c.session_id,
        turns.c.turn,
        _question.c.content.label("question"),
        turns.c.status,
        turns.c.winner,
        _answer.c.content.label("answer"),
        turns.c.seed,
        turns.c.started_at,
        turns.c.ended_at,
    )
    .join(_question, sa.and_(_question.c.session_id == turns.c.session_id, _question.c.seq == turns.c.question_seq))
    .outerjoin(_answer, sa.and_(_answer.c.session_id == turns.c.session_id, _answer.c.seq == turns.c.answer_seq))
    .where(turns.c.session_id == SESSION)
)
LAST = Statement(_TURNS.order_by(turns.c.turn.desc()).limit(1))
PAGE = Statement(
    _TURNS.where(turns.c.turn > sa.bindparam("after", type_=sa.Integer))
    .order_by(turns.c.turn)
    .limit(sa.bindparam("most", type_=sa.Integer))
)
WINNERS = Statement(
    sa.select(turns.c.session_id, turns.c.turn, turns.c.winner).where(
        turns.c.status == "completed", turns.c.session_id.in_(sa.bindparam("of_sessions", expanding=True))
    ),
    lists=["of_sessions"],
)


def undone(among: Collection[tuple[str, int]]) -> sa.Select[*tuple[Any, ...]]:
    """Those of these turns, by session and number, that were taken back."""
    sessions, numbers = ({each[part] for each in among} for part in (0, 1))
    # The first two say nothing new; without them SQLite reads the whole table for the third.
    known = (turns.c.session_id.in_(sorted(sessions)), turns.c.turn.in_(sorted(numbers)))
    wanted = sa.tuple_(turns.c.session_id, turns.c.turn).in_(sorted(among))
    return sa.select(turns.c.turn).where(*known, wanted, turns.c.status == "undone")
