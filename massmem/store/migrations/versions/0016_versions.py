"""Versions of turns, and forks that share the memories of their origins.

A database that an earlier migration makes today has all of it already.
"""

import sqlalchemy as sa
from alembic import op

from massmem.store.schema import turns

revision = "0016"
down_revision = "0015"

_COLUMNS = (
    ("turns", sa.Column("parent", sa.Integer)),
    ("turns", sa.Column("withdrawn", sa.Boolean, nullable=False, server_default=sa.false())),
    ("chat_sessions", sa.Column("origins", sa.JSON, nullable=False, server_default="[]")),
)


def upgrade() -> None:
    inspector = sa.inspect(op.get_bind())
    for table, column in _COLUMNS:
        if column.name not in {present["name"] for present in inspector.get_columns(table)}:
            op.add_column(table, column)
    for index in turns.indexes:
        index.create(op.get_bind(), checkfirst=True)
