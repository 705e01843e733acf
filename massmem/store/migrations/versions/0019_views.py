"""The views for people with an SQL prompt."""

import sqlalchemy as sa
from alembic import op

from massmem.store.schema import VIEWS

revision = "0019"
down_revision = "0018"


def upgrade() -> None:
    inspector = sa.inspect(op.get_bind())
    for statement in VIEWS if not inspector.has_table("conversations") else ():
        op.execute(statement)
