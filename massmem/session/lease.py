"""The right to run the turns of a session: one process at a time, on this machine and on any other.

A lease in the store keeps all other processes out. It expires, so that nobody waits for a machine that is gone.
Processes of the same home need not wait for that: each holds the lock of a file of its own while it runs, and the
system frees the lock when the process dies. So a lease of this home is taken over as soon as its process is dead, and
never before, whatever the clock says.
"""

import asyncio
import logging
import secrets
import socket
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from hashlib import sha256
from pathlib import Path

from filelock import FileLock, Timeout

from massmem.config.home import explain_write_error, make_folder, write_once
from massmem.core.errors import MassmemError, SessionBusyError, StoreError
from massmem.core.records import SessionRecord
from massmem.store.ports import SessionStore

log = logging.getLogger(__name__)

LEASE_SECONDS = 30.0
"""Seconds until the lease of a silent owner expires: longer than a database takes to restart."""

_POLL = 0.2
"""Seconds between two attempts to acquire a lease that somebody else holds."""

_LOCK_CHECK = 0.02
"""Seconds after which a process is checked again: a third process may be checking it right now."""

_STALE_AFTER = 86_400.0
"""Age in seconds from which the lock file of a dead process is removed."""


class ProcessLock:
    """Names the owners of leases in this process, and tells which owners of the same home are gone.

    The name of an owner is HOME:PROCESS:NUMBER, which no other process has.
    """

    def __init__(self, home: Path | None) -> None:
        """home: nothing is written before the first owner. None: no other process can use the store."""
        self._folder = None if home is None else home / "locks"
        self._home = ""
        self._lock: FileLock | None = None
        self._name = secrets.token_hex(8)
        self._owners: set[str] = set()
        self._count = 0

    def add_owner(self) -> str:
        """Return the name of a new owner. Raises HomeError, StoreError: the home cannot be written."""
        if self._folder is not None and not (self._lock is not None and self._path(self._name).exists()):
            if self._lock is not None:
                self._lock.release()
            self._lock = self._acquire_lock(self._folder)
        self._count += 1
        owner = f"{self._home}:{self._name}:{self._count}"
        self._owners.add(owner)
        return owner

    def remove_owner(self, owner: str) -> None:
        """Declare the owner gone: whatever lease it holds may be taken over."""
        self._owners.discard(owner)

    def is_same_home(self, owner: str) -> bool:
        """Return whether the owner is of this home, so that `is_gone` can tell about it."""
        return owner.partition(":")[0] == self._home

    def is_gone(self, owner: str) -> bool:
        """Return whether an owner of this home was removed, or its process has ended."""
        _, _, rest = owner.partition(":")
        process = rest.partition(":")[0]
        if process == self._name:
            return owner not in self._owners
        if self._folder is None or not process.isalnum():
            return False
        return _is_free(self._path(process))

    def close(self) -> None:
        """Release the lock: all owners of this process are gone."""
        lock, self._lock = self._lock, None
        if lock is not None:
            with suppress(OSError):  # a file that stays is removed later, see _remove_stale
                self._path(self._name).unlink()
            lock.release()

    def _acquire_lock(self, folder: Path) -> FileLock:
        make_folder(folder)
        self._home = _home_id(folder)
        _remove_stale(folder)
        lock = FileLock(self._path(self._name), mode=0o600)
        try:
            lock.acquire()
        except OSError as e:
            raise explain_write_error(folder, e) from e
        return lock

    def _path(self, process: str) -> Path:
        assert self._folder is not None  # without a folder there are no lock files
        return self._folder / f"process_{process}.lock"


class Lease:
    """A session's lease, from `acquire` until `release`; renewed in the background meanwhile."""

    def __init__(
        self,
        store: SessionStore,
        process: ProcessLock,
        session_id: str,
        on_loss: Callable[[], None] | None = None,
        seconds: float = LEASE_SECONDS,
    ) -> None:
        """on_loss: called once when somebody else has taken the lease. Raises HomeError, StoreError."""
        self.session_id = session_id
        self.owner = process.add_owner()
        self._seconds = seconds
        self._store = store
        self._process = process
        self._on_loss = on_loss
        self._may_be_held = False
        self._renewal: asyncio.Task[None] | None = None

    async def acquire(self, wait: float) -> None:
        """Acquire the lease. wait: seconds to wait for its present owner.

        Raises:
            SessionBusyError: somebody else still holds it.
            StoreError: the store cannot be used, or does not know the session.
        """
        clock = asyncio.get_running_loop().time
        until = clock() + wait
        while not await self._try_to_acquire():
            if clock() >= until:
                raise SessionBusyError(
                    f"another process is running a turn of {self.session_id}",
                    "run this again when it has finished, or with --wait",
                )
            await asyncio.sleep(_POLL)
        self._renewal = asyncio.create_task(self._renew(clock() + self._seconds))

    async def release(self) -> None:
        """Release the lease, and retire its owner."""
        self._stop_renewal()
        try:
            if self._may_be_held:
                await self._store.release_lease(self.session_id, self.owner)
        except StoreError as e:  # it expires by itself
            log.warning("the lease of a session was not released: %s", e.message)
        finally:
            self._process.remove_owner(self.owner)

    def mark_released(self) -> None:
        """The store has released the lease, together with the last events of a turn."""
        self._may_be_held = False
        self._stop_renewal()

    async def _try_to_acquire(self) -> bool:
        """An expired lease may belong to a suspended process of this home: so its owner is checked first."""
        self._may_be_held = True  # also when the reply of the store is lost
        if await self._store.acquire_lease(self.session_id, self.owner, self._seconds, if_free=True):
            return True
        holder = await self._store.get_lease_owner(self.session_id)
        if holder is not None and self._process.is_same_home(holder):
            if not await self._is_gone(holder):
                return False
            await self._store.release_lease(self.session_id, holder)
        return await self._store.acquire_lease(self.session_id, self.owner, self._seconds)

    async def _is_gone(self, holder: str) -> bool:
        if self._process.is_gone(holder):
            return True
        await asyncio.sleep(_LOCK_CHECK)
        return self._process.is_gone(holder)

    async def _renew(self, valid_until: float) -> None:
        """valid_until: by the clock of the event loop."""
        clock = asyncio.get_running_loop().time
        lost = False
        while not lost:
            await asyncio.sleep(self._seconds / 3)
            requested = clock()
            try:
                lost = not await self._store.renew_lease(self.session_id, self.owner, self._seconds)
                valid_until = requested + self._seconds
            except StoreError as e:
                log.warning("the lease of a session could not be renewed: %s", e.message)
                lost = clock() >= valid_until
        if self._on_loss is not None:
            self._on_loss()

    def _stop_renewal(self) -> None:
        if self._renewal is not None:
            self._renewal.cancel()
            self._renewal = None


@asynccontextmanager
async def hold_lease(
    store: SessionStore, process: ProcessLock, session_id: str, wait: float = 0
) -> AsyncGenerator[Lease]:
    """Hold the session's lease within the block. Raises as `Lease.acquire`."""
    lease = Lease(store, process, session_id)
    try:
        await lease.acquire(wait)
        yield lease
    finally:
        await lease.release()


def is_owner_gone(home: Path, owner: str) -> bool:
    """Return whether the owner of a lease was a process of this home that has ended. False: nobody here can tell."""
    folder = home / "locks"
    home_id, _, rest = owner.partition(":")
    process = rest.partition(":")[0]
    try:
        is_ours = (folder / "home").exists() and home_id == _home_id(folder) and process.isalnum()
        return is_ours and _is_free(folder / f"process_{process}.lock")
    except MassmemError:  # the home cannot be written: a lock of it cannot be tried
        return False


async def mark_interrupted(store: SessionStore, home: Path, session: SessionRecord) -> SessionRecord:
    """Return the session with the status that it really has: a killed process leaves it active in the store."""
    if session.status != "active":
        return session
    owner = await store.get_lease_owner(session.session_id)
    if owner is not None and not await asyncio.to_thread(is_owner_gone, home, owner):
        return session
    return session.model_copy(update={"status": "interrupted"})


def _is_free(path: Path) -> bool:
    """Return whether nobody holds the lock of this file; remove the file then."""
    if not path.exists():
        return True
    lock = FileLock(path)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        return False
    except OSError as e:
        raise explain_write_error(path, e) from e
    with suppress(OSError):
        path.unlink()
    lock.release()
    return True


def _remove_stale(folder: Path) -> None:
    for path in folder.glob("process_*.lock"):
        with suppress(OSError, MassmemError):  # one of another user stays
            if time.time() - path.stat().st_mtime > _STALE_AFTER:
                _is_free(path)


def _home_id(folder: Path) -> str:
    """Return an id of this home on this machine.

    It holds a random number drawn for the home, because two containers may use the same path.
    """
    path = folder / "home"
    try:
        if not path.exists():
            write_once(path, secrets.token_hex(16))
        number = path.read_text()
    except OSError as e:
        raise explain_write_error(path, e) from e
    return sha256(f"{socket.gethostname()}\0{number}".encode()).hexdigest()[:16]
