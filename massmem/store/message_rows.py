"""Statements that read messages: by place, by id, by turn, and as what was said in a conversation."""

import sqlalchemy as sa

from massmem.messages import clean_text
from massmem.records import MessageRecord, MessageToRecord
from massmem.store import recordings, sessions
from massmem.store.prepared import Row, Statement
from massmem.store.schema import CONVERSATION, SESSION, SUMMARIES, chat_messages, chat_sessions, session_state, turns
from massmem.store.turn_rows import STANDS

_m = chat_messages.c

_LAST = 2**31 - 1
"""More than the seq of any message."""

ANY = sa.select(*[column for column in _m if column.name != "row_id"])
"""As a MessageRecord has them."""

_OF_SESSION = ANY.where(_m.session_id == SESSION)
_MOST = sa.bindparam("most", type_=sa.Integer)
_TALK = (
    _OF_SESSION.where(sa.text(f"({CONVERSATION})"), STANDS, _m.seq < sa.bindparam("before", type_=sa.Integer))
    .order_by(_m.seq.desc())
    .limit(_MOST)
)

PAGE = Statement(_OF_SESSION.where(_m.seq > sa.bindparam("after", type_=sa.Integer)).order_by(_m.seq).limit(_MOST))
BY_ID = Statement(
    ANY.where(_m.id.in_(sa.bindparam("of_messages", expanding=True))).order_by(_m.id), lists=["of_messages"]
)
TO_RECORD = Statement(
    ANY.add_columns(chat_sessions.c.memory_group, session_state.c.params_json, turns.c.winner)
    .join(chat_sessions, chat_sessions.c.session_id == _m.session_id)
    .outerjoin(session_state, session_state.c.session_id == _m.session_id)
    .outerjoin(
        turns, sa.and_(turns.c.session_id == _m.session_id, turns.c.turn == _m.turn, turns.c.status == "completed")
    )
    .where(_m.id.in_(sa.bindparam("of_messages", expanding=True)))
    .order_by(_m.id),
    lists=["of_messages"],
)
OF_TURN = Statement(ANY.where(recordings.OF_TURN).order_by(_m.seq))
TALK = Statement(_TALK)
SAID = Statement(sessions.for_owner(_TALK))
SUMMARY = Statement(
    _OF_SESSION.where(sa.text(SUMMARIES), STANDS, _m.agent_id == sa.bindparam("of_agent", type_=sa.Text))
    .order_by(_m.seq.desc())
    .limit(1)
)


def newest(session_id: str, before: int | None, most: int) -> Row:
    """The parameters of TALK, and with of_owner those of SAID."""
    return {"of_session": clean_text(session_id), "before": _LAST if before is None else before, "most": most}


def to_record(row: Row) -> MessageToRecord:
    group, params, winner = (row.pop(name) for name in ("memory_group", "params_json", "winner"))
    return MessageToRecord(message=MessageRecord(**row), group=group, params=params or {}, winner=winner)
