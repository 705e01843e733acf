"""Pauses of model servers in Redis, for all processes that share it."""

import math

from massmem.store.redis.server import Server

_PREFIX = "massmem:pause:"


class RedisPauses:
    """The Pauses port. Redis measures the time, so that the clocks of the machines do not matter."""

    def __init__(self, url: str) -> None:
        """Connect on first use. Raises InputError: that is not the URL of a Redis server."""
        self._server = Server(url)

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
