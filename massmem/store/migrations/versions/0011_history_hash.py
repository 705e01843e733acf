"""The hash of a conversation as a client resends it."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    op.add_column("chat_sessions", sa.Column("history_hash", sa.Text(), nullable=False, server_default=""))
    where = sa.text("user_id IS NOT NULL AND history_hash <> ''")
    op.create_index(
        "ix_chat_sessions_history",
        "chat_sessions",
        ["user_id", "history_hash"],
        sqlite_where=where,
        postgresql_where=where,
    )
