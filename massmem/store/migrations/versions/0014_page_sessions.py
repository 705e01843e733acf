"""Tables that came after the first schema; a database that 0013 makes today has them already."""

from alembic import op

from massmem.store.schema import metadata

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    metadata.create_all(op.get_bind(), checkfirst=True)
