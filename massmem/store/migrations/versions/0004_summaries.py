"""The newest summary of an agent is found without reading the log."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    condition = sa.text("kind = 'injection'")
    op.create_index(
        "ix_chat_messages_summaries",
        "chat_messages",
        ["session_id", "agent_id", "seq"],
        sqlite_where=condition,
        postgresql_where=condition,
    )
