"""The order in which sessions were used, which a clock that is set back does not change.

A database that an earlier migration makes today has it already.
"""

import sqlalchemy as sa
from alembic import op

from massmem.core.records import count_microseconds
from massmem.store.schema import chat_sessions

revision = "0018"
down_revision = "0017"


def upgrade() -> None:
    bind, s = op.get_bind(), chat_sessions.c
    if "used" not in {column["name"] for column in sa.inspect(bind).get_columns("chat_sessions")}:
        op.add_column("chat_sessions", sa.Column("used", sa.BigInteger, nullable=False, server_default="0"))
        for name, time in bind.execute(sa.select(s.session_id, s.updated_at)).all():
            bind.execute(sa.update(chat_sessions).where(s.session_id == name).values(used=count_microseconds(time)))
        op.create_index("ix_chat_sessions_used", "chat_sessions", ["used"])
