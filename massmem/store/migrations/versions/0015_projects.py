"""The project of each session; those from before belong to none."""

import sqlalchemy as sa
from alembic import op

from massmem.store.schema import CleanText

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    if "project" not in {column["name"] for column in sa.inspect(op.get_bind()).get_columns("chat_sessions")}:
        op.add_column("chat_sessions", sa.Column("project", CleanText, nullable=False, server_default=""))
