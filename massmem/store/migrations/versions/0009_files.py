"""What questions came with: pictures, and documents that have to be seen."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"

_KEY = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "files",
        sa.Column("session_id", _KEY, sa.ForeignKey("chat_sessions.session_id", ondelete="CASCADE"), nullable=False),
        sa.Column("hash", _KEY, nullable=False),
        sa.Column("data", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("session_id", "hash"),
    )
