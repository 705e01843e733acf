"""Where the pauses of model servers are kept: in this process, or in Redis for all that share it."""

import logging
import math
from typing import TYPE_CHECKING

from massmem.core.errors import InputError
from massmem.providers.retry import LocalPauses, Pauses, SharedPauses

if TYPE_CHECKING:
    from massmem.store.redis.server import Server

log = logging.getLogger(__name__)

_PREFIX = "massmem:pause:"


def open_pauses(counted_in: str | None) -> Pauses:
    """Return the pauses that everyone with this `server.limits.counted_in` shares; None: those of this process.

    Imports what it needs: call it in a thread. What cannot be shared is not: the log says why.
    """
    if counted_in is None:
        return LocalPauses()
    try:
        from massmem.store.redis.server import Server

        return SharedPauses(RedisPauses(Server(counted_in)))
    except (InputError, ModuleNotFoundError) as e:
        reason = str(e).replace("store.url", "server.limits.counted_in")
        log.warning("rate limits of model servers are not shared: %s", reason)
        return LocalPauses()


class RedisPauses:
    """The Pauses port. Redis measures the time, so that the clocks of the machines do not matter."""

    def __init__(self, server: "Server") -> None:
        self._server = server

    async def find(self, name: str) -> float:
        return max(0, await self._server.run("PTTL", _PREFIX + name)) / 1000

    async def begin(self, name: str, seconds: float) -> None:
        milliseconds = math.ceil(seconds * 1000)
        if milliseconds > 0:
            key = _PREFIX + name
            new = ("SET", key, "1", "NX", "PX", milliseconds)
            await self._server.run_all([new, ("PEXPIRE", key, milliseconds, "GT")])

    async def close(self) -> None:
        await self._server.close()
