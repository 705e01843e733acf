"""Brings a database to the newest schema with Alembic. Imported only when there is something to do."""

from pathlib import Path

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.util import CommandError

from massmem.errors import StoreError

SCRIPTS = Path(__file__).with_name("migrations")


def upgrade(connection: sa.Connection, scripts: Path = SCRIPTS) -> None:
    """Apply every migration that the database lacks, in the transaction that `connection` has begun.

    Raises:
        StoreError: the scripts do not lead from the schema that is there to the newest.
        sqlalchemy.exc.DBAPIError: the database refused one.
    """
    config = Config()
    config.set_main_option("script_location", str(scripts).replace("%", "%%"))
    config.attributes["connection"] = connection
    try:
        command.upgrade(config, "head")
    except CommandError as e:
        raise StoreError(f"the schema cannot be updated: {e}", "install massmem again") from e
