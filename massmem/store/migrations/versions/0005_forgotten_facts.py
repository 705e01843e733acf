"""A fact that was forgotten is not found again when its turn is read once more, while others are."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.add_column("recordings", sa.Column("forgotten", sa.JSON))
