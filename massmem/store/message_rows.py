"""Statements that read messages: of a session, of a turn, what was said to each other, what stands for the oldest."""

import sqlalchemy as sa

from massmem.store import sessions, turn_rows
from massmem.store.recordings import OF_TURN
from massmem.store.schema import CONVERSATION, SESSION, SUMMARIES, chat_messages

LAST = 2**31 - 1
"""More than the seq of any message."""

ANY = sa.select(*[column for column in chat_messages.c if column.name != "row_id"])
OF_SESSION = ANY.where(chat_messages.c.session_id == SESSION)
TURN_MESSAGES = ANY.where(OF_TURN).order_by(chat_messages.c.seq)
CONVERSATION_OF = (
    OF_SESSION.where(
        sa.text(f"({CONVERSATION})"), turn_rows.STANDS, chat_messages.c.seq < sa.bindparam("before", type_=sa.Integer)
    )
    .order_by(chat_messages.c.seq.desc())
    .limit(sa.bindparam("most", type_=sa.Integer))
)
SAID = sessions.for_owner(CONVERSATION_OF)
SUMMARY = (
    OF_SESSION.where(
        sa.text(SUMMARIES), turn_rows.STANDS, chat_messages.c.agent_id == sa.bindparam("of_agent", type_=sa.Text)
    )
    .order_by(chat_messages.c.seq.desc())
    .limit(1)
)
