"""Who runs the turns of a session: one process at a time, on this machine and on any other.

A lease in the store keeps out all others. It expires, so that nobody has to wait for a machine that is gone; from a
process of the same home it is taken as soon as that has died, and not before, whatever the clock says: see Process.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

from massmem.errors import SessionBusyError, StoreError
from massmem.session.process import Process
from massmem.store.base import Lease, SessionStore
from massmem.store.rows import leased

log = logging.getLogger(__name__)

LEASE = 30.0
"""Seconds for which nobody else takes a session whose owner is not heard of: longer than a database restarts."""

_LOOK = 0.2
"""Seconds between two looks at a session that somebody else has."""

_SHORTLY = 0.02
"""Seconds after which to look again at a process that another one may be looking at, too."""


class Ownership:
    """One owner of a session. It is taken by `take`, or by a store's `begin_turn` for `lease`; then until `let_go`.

    lease: who owns it, renewed in time. lost: somebody else has it now.
    """

    def __init__(
        self,
        store: SessionStore,
        process: Process,
        session_id: str,
        on_loss: Callable[[], None] | None = None,
        lease: float = LEASE,
    ) -> None:
        """on_loss: called once when it was lost. lease: seconds. Raises HomeError, StoreError."""
        self.session_id = session_id
        self.lost = False
        self.lease = Lease(process.enter(), lease)
        self._store = store
        self._process = process
        self._on_loss = on_loss
        self._taken = False
        self._timer: asyncio.TimerHandle | None = None
        self._renewing: asyncio.Task[None] | None = None

    @property
    def held(self) -> bool:
        return self._timer is not None

    def check(self) -> None:
        """To be called before anything is written. Raises SessionBusyError when somebody else runs the session now."""
        if self.lost:
            raise leased(self.session_id)

    async def take(self, wait: float = 0) -> None:
        """wait: seconds to wait for whoever has it.

        Raises:
            SessionBusyError: somebody else has it still.
            StoreError: the store cannot be used, or does not know the session.
        """
        until = asyncio.get_running_loop().time() + wait
        while not await self._take():
            if asyncio.get_running_loop().time() >= until:
                raise SessionBusyError(
                    f"another process is running a turn of {self.session_id}",
                    "run this again when it has finished, or with --wait",
                )
            await asyncio.sleep(_LOOK)
        self.taken()

    async def _take(self) -> bool:
        """An expired lease may be a neighbour's whose process was only suspended: so its owner is looked at first."""
        holder = await self._store.lease_owner(self.session_id)
        if holder is not None and self._process.is_neighbour(holder):
            if not await self._is_gone(holder):
                return False
            await self._store.release_lease(self.session_id, holder)
        self.may_be_taken()
        return await self._store.acquire_lease(self.session_id, self.lease.owner, self.lease.seconds)

    async def _is_gone(self, holder: str) -> bool:
        if self._process.is_gone(holder):
            return True
        await asyncio.sleep(_SHORTLY)
        return self._process.is_gone(holder)

    def may_be_taken(self) -> None:
        """The store is about to be told: also when its reply is lost, it is to be let go of."""
        self._taken = True

    def taken(self) -> None:
        """It is ours, from now on."""
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self.lease.seconds / 3, self._renew, loop.time() + self.lease.seconds)

    def gone(self) -> None:
        """It is nobody's any more: the store has let go of it, or has not taken it."""
        self._taken = False
        self._stop()

    async def let_go(self) -> None:
        """The end of this owner."""
        self._stop()
        try:
            if self._taken:
                await self._store.release_lease(self.session_id, self.lease.owner)
        except StoreError as e:  # it expires by itself
            log.warning("the lease of a session was not released: %s", e.message)
        finally:
            self._process.leave(self.lease.owner)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._renewing is not None:
            self._renewing.cancel()
            self._renewing = None

    def _renew(self, sure_until: float) -> None:
        self._renewing = asyncio.create_task(self._keep(sure_until))

    async def _keep(self, sure_until: float) -> None:
        """sure_until: by the clock of the event loop."""
        clock = asyncio.get_running_loop().time
        while True:
            asked = clock()
            try:
                self.lost = not await self._store.renew_lease(self.session_id, self.lease.owner, self.lease.seconds)
                sure_until = asked + self.lease.seconds
            except StoreError as e:
                log.warning("the lease of a session could not be renewed: %s", e.message)
                self.lost = clock() >= sure_until
            if self.lost:
                break
            await asyncio.sleep(self.lease.seconds / 3)
        if self._on_loss is not None:
            self._on_loss()


@asynccontextmanager
async def owned(store: SessionStore, process: Process, session_id: str, wait: float = 0) -> AsyncGenerator[Ownership]:
    """Let nobody else run turns of the session within the block. Raises as Ownership does."""
    mine = Ownership(store, process, session_id)
    try:
        await mine.take(wait)
        yield mine
    finally:
        await mine.let_go()
