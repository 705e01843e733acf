"""Who runs the turns of a session: one process at a time, on this machine and on any other.

Two means together. A file lock in the home, which the system lets go of when its process dies, keeps out the other
processes of this home. A lease in the store keeps out those of other homes and machines; it expires, so that nobody
has to wait for a machine that is gone.
"""

import asyncio
import logging
import os
import secrets
import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from filelock import FileLock, Timeout

from massmem.errors import SessionBusyError, StoreError
from massmem.home import make_file, make_folder, unwritable
from massmem.store.base import SessionStore

log = logging.getLogger(__name__)

LEASE = 30.0
"""Seconds for which nobody else takes a session whose owner is not heard of: longer than a database restarts."""

_LOOK = 0.2
"""Seconds between two looks at a session that somebody else has."""


@dataclass(slots=True)
class Ownership:
    """Held from `owned` until the end of its block, unless it is lost to somebody else."""

    session_id: str
    lost: bool = False

    def check(self) -> None:
        """To be called before anything is written. Raises SessionBusyError when somebody else runs the session now."""
        if self.lost:
            raise SessionBusyError(
                f"another process has taken over {self.session_id}: the store could not be reached for {LEASE:g} s",
                "see what became of the question with: massmem sessions show",
            )


@asynccontextmanager
async def owned(
    store: SessionStore,
    home: Path,
    session_id: str,
    *,
    wait: float = 0,
    on_loss: Callable[[], None] | None = None,
    lease: float = LEASE,
) -> AsyncGenerator[Ownership]:
    """Run the turns of the session alone, within the block.

    home: where the lock files are, in `locks/`. wait: seconds to wait for whoever has it. on_loss: called once when it
    was lost within the block. lease: seconds, renewed in time.

    Raises:
        SessionBusyError: somebody else has it still.
        StoreError: the store cannot be used, or does not know the session.
    """
    folder, shared = home / "locks", store.info.durable
    if shared:
        make_folder(folder)
    owner = f"{_name(folder) if shared else 'this process'}:{secrets.token_hex(8)}"
    until = asyncio.get_running_loop().time() + wait
    async with AsyncExitStack() as stack:
        if shared:  # what is in the memory of this process is nobody else's
            await _lock(FileLock(folder / f"{session_id}.lock", mode=0o600), session_id, until, stack)
        held = _Held(store, session_id, owner, lease)
        await held.take(until)
        stack.push_async_callback(held.let_go)
        mine = Ownership(session_id)
        renewing = asyncio.create_task(held.keep(mine, on_loss))
        stack.push_async_callback(_end, renewing)
        yield mine


async def _lock(lock: FileLock, session_id: str, until: float, stack: AsyncExitStack) -> None:
    while True:
        try:
            lock.acquire(blocking=False)
        except Timeout as e:
            await _wait(session_id, until, e)
        else:
            stack.callback(lock.release)
            return


@dataclass(frozen=True, slots=True)
class _Held:
    store: SessionStore
    session_id: str
    owner: str
    seconds: float

    async def take(self, until: float) -> None:
        while not await self.store.acquire_lease(self.session_id, self.owner, self.seconds):
            holder = await self.store.lease_owner(self.session_id)
            if holder is not None and _home_of(holder) == _home_of(self.owner):
                # The file lock of this home is ours: whoever took the lease from here did not live to let go of it.
                await self.store.release_lease(self.session_id, holder)
            else:
                await _wait(self.session_id, until, None)

    async def keep(self, mine: Ownership, on_loss: Callable[[], None] | None) -> None:
        clock = asyncio.get_running_loop().time
        sure_until = clock() + self.seconds
        while not mine.lost:
            await asyncio.sleep(self.seconds / 3)
            asked = clock()
            try:
                mine.lost = not await self.store.renew_lease(self.session_id, self.owner, self.seconds)
                sure_until = asked + self.seconds
            except StoreError as e:
                log.warning("the lease of a session could not be renewed: %s", e.message)
                mine.lost = clock() >= sure_until
        if on_loss is not None:
            on_loss()

    async def let_go(self) -> None:
        try:
            await self.store.release_lease(self.session_id, self.owner)
        except StoreError as e:  # it expires by itself
            log.warning("the lease of a session was not released: %s", e.message)


async def _wait(session_id: str, until: float, cause: Exception | None) -> None:
    if asyncio.get_running_loop().time() >= until:
        raise SessionBusyError(
            f"another process is running a turn of {session_id}", "run this again when it has finished, or with --wait"
        ) from cause
    await asyncio.sleep(_LOOK)


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


def _name(folder: Path) -> str:
    """Of this home on this machine: a number that was drawn for the home, because two containers may share a path."""
    path, new = folder / "home", folder / f"home-{secrets.token_hex(4)}"
    try:
        if not path.exists():
            make_file(new)
            new.write_text(secrets.token_hex(16))
            with suppress(FileExistsError):
                os.link(new, path)  # whole, or not at all
            new.unlink()
        drawn = path.read_text()
    except OSError as e:
        raise unwritable(path, e) from e
    return sha256(f"{socket.gethostname()}\0{drawn}".encode()).hexdigest()[:16]


def _home_of(owner: str) -> str:
    return owner.partition(":")[0]
