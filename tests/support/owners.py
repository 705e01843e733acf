"""A session that another process is said to run a turn of."""

import asyncio
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from massmem.session.lease import ProcessLock
from massmem.store import open_store
from massmem.store.ports import SessionStore


@contextmanager
def taken(home: Path, session_id: str) -> Generator[None]:
    """home: massmem's folder, with the database in it. For tests that run no event loop."""
    process = ProcessLock(home)
    owner = process.add_owner()
    _in_store(home, lambda store: store.acquire_lease(session_id, owner, 600))
    try:
        yield
    finally:
        _in_store(home, lambda store: store.release_lease(session_id, owner))
        process.close()


def _in_store(home: Path, change: Callable[[SessionStore], Awaitable[object]]) -> None:
    async def run() -> None:
        store = await open_store(f"sqlite:///{home / 'massmem.db'}", home)
        await change(store)
        await store.close()

    asyncio.run(run())
