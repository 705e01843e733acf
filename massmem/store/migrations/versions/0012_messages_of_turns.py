"""An index of the messages of a turn: reading an old turn of a long session no longer reads all that came after it."""

from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    op.create_index("ix_chat_messages_turn", "chat_messages", ["session_id", "turn", "seq"])
