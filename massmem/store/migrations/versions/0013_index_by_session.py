"""The index of a session's messages has the name that operators look for: idx_chat_messages_session_id."""

from alembic import op

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.execute("ALTER INDEX ix_chat_messages_turn RENAME TO idx_chat_messages_session_id")
        return
    op.drop_index("ix_chat_messages_turn", "chat_messages")
    op.create_index("idx_chat_messages_session_id", "chat_messages", ["session_id", "turn", "seq"])
