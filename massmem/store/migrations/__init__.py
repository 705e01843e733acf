"""Brings a database to the newest schema with Alembic. Imported only when there is something to do."""

from pathlib import Path

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.util import CommandError

from massmem.core.errors import StoreError
from massmem.store.schema import EARLIER

SCRIPTS = Path(__file__).parent


def run_migrations(connection: sa.Connection, scripts: Path | None = None) -> None:
    """Apply every migration that the database lacks, in the transaction that `connection` has begun.

    scripts: None for those of this release.

    Raises:
        StoreError: the scripts do not lead from the schema that is there to the newest.
        sqlalchemy.exc.DBAPIError: the database refused one.
    """
    config = Config()
    config.set_main_option("script_location", str(scripts or SCRIPTS).replace("%", "%%"))
    config.attributes["connection"] = connection
    if sa.inspect(connection).has_table("alembic_version"):
        is_earlier = sa.column("version_num").in_(EARLIER)
        connection.execute(sa.delete(sa.table("alembic_version")).where(is_earlier))  # the first migration is next
    try:
        command.upgrade(config, "head")
    except CommandError as e:
        raise StoreError(f"the schema cannot be updated: {e}", "install massmem again") from e
