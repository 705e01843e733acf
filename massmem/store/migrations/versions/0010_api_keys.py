"""API keys of users of the HTTP service."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"

_KEY = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "api_keys",
        sa.Column("key_hash", _KEY, nullable=False),
        sa.Column("id", _KEY, nullable=False),
        sa.Column("sub", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("last_four", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True)),
        sa.PrimaryKeyConstraint("key_hash"),
    )
