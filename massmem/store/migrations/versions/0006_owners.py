"""Many users on one store: their sessions are found by whose they are, and no question is asked twice."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"

_OWNED = "user_id IS NOT NULL"
_CUT_OFF = "user_id IS NOT NULL AND status IN ('active', 'interrupted')"
_KEY = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    op.create_index(
        "ix_chat_sessions_owner",
        "chat_sessions",
        ["user_id", "updated_at"],
        sqlite_where=sa.text(_OWNED),
        postgresql_where=sa.text(_OWNED),
    )
    op.create_index(
        "ix_chat_sessions_cut_off",
        "chat_sessions",
        ["updated_at"],
        sqlite_where=sa.text(_CUT_OFF),
        postgresql_where=sa.text(_CUT_OFF),
    )
    op.create_table(
        "requests",
        sa.Column("session_id", _KEY, sa.ForeignKey("chat_sessions.session_id", ondelete="CASCADE"), nullable=False),
        sa.Column("name", _KEY, nullable=False),
        sa.Column("seq", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("session_id", "name"),
        sqlite_with_rowid=False,
    )
