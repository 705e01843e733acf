"""Tables that nothing reads go: what is in them stands in the log."""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"


def upgrade() -> None:
    present = sa.inspect(op.get_bind()).get_table_names()
    for table in ("ballots", "answers"):
        if table in present:
            op.drop_table(table)
