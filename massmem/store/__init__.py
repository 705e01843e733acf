"""Where sessions live. One adapter per kind of database, imported only when it is used."""

from pathlib import Path

from massmem.errors import InputError
from massmem.store.base import SessionStore

_LATER = {"postgresql", "postgres", "redis", "rediss"}


async def open_store(url: str, home: Path) -> SessionStore:
    """Open the store that `url` names and bring its schema up to date; the file and its folder are made when missing.

    home: massmem's folder (~/.massmem), made with mode 0700.

    Raises:
        InputError: the URL is of no known kind, or names no file.
        HomeError: home or the folder of the database cannot be written.
        StoreVersionError: the database was written by a newer massmem; it is left as it is.
        StoreDamagedError: the file is not a massmem database.
        StoreError: anything else that keeps it from being used.
    """
    scheme = url.partition(":")[0]
    if scheme == "sqlite":
        from massmem.store.sqlite import open_sqlite  # SQLAlchemy takes longer to import than all the rest

        return await open_sqlite(url, home)
    if scheme in _LATER:
        raise InputError(f"store.url: {scheme} is not available in this version", "use sqlite:///~/.massmem/massmem.db")
    raise InputError(
        f"store.url: {scheme!r} is no kind of store that massmem knows", "use sqlite:///~/.massmem/massmem.db"
    )
