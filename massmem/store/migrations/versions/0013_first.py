"""The first schema. Until the first release it is what schema.py declares; then it is written out here and stays."""

from alembic import op

from massmem.store.schema import message_search, metadata

revision = "0013"
down_revision = None


def upgrade() -> None:
    bind = op.get_bind()
    metadata.create_all(bind, checkfirst=False)
    if bind.dialect.name == "postgresql":
        message_search.create(bind)
