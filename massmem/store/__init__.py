"""Where sessions live. One adapter per kind of database, imported only when it is used."""

from pathlib import Path

from massmem.errors import InputError
from massmem.store.base import SessionStore

_HINT = "use sqlite:///~/.massmem/massmem.db or postgresql://USER@HOST/DATABASE"


async def open_store(url: str, home: Path) -> SessionStore:
    """Open the store that `url` names and bring its schema up to date; the file and its folder are made when missing.

    home: massmem's folder (~/.massmem), made with mode 0700.

    Raises:
        InputError: the URL is of no known kind, names no file or database, or its kind is not installed.
        HomeError: home or the folder of the database cannot be written.
        StoreVersionError: the database was written by a newer massmem; it is left as it is.
        StoreDamagedError: the database is not one of massmem.
        StoreError: anything else that keeps it from being used.
    """
    match url.partition(":")[0]:
        case "sqlite":
            from massmem.store.sqlite import open_sqlite  # SQLAlchemy takes longer to import than all the rest

            return await open_sqlite(url, home)
        case "postgresql" | "postgres":
            from massmem.store.postgres import open_postgres

            return await open_postgres(url)
        case "redis" | "rediss":
            raise InputError("store.url: redis is not available in this version", _HINT)
        case scheme:
            raise InputError(f"store.url: {scheme!r} is no kind of store that massmem knows", _HINT)
