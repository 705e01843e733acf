"""The browsers that the page has let in, and the bytes of each session, which quotas count.

A database that 0013 makes today has both already.
"""

import sqlalchemy as sa
from alembic import op

from massmem.store.schema import metadata

revision = "0014"
down_revision = "0013"

_COUNT = """
UPDATE chat_sessions SET size =
    coalesce((SELECT sum(length(payload)) FROM events WHERE events.session_id = chat_sessions.session_id), 0)
    + coalesce((SELECT sum(length(data)) FROM files WHERE files.session_id = chat_sessions.session_id), 0)
"""


def upgrade() -> None:
    metadata.create_all(op.get_bind(), checkfirst=True)
    if "size" not in {column["name"] for column in sa.inspect(op.get_bind()).get_columns("chat_sessions")}:
        op.add_column("chat_sessions", sa.Column("size", sa.BigInteger, nullable=False, server_default="0"))
        op.execute(_COUNT)
