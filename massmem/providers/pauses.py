"""Pauses: for how long an endpoint wants no requests, known to all who would send it some."""

import asyncio
import hashlib
import hmac
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from massmem.core.errors import StoreError
from massmem.providers.presets import Endpoint

log = logging.getLogger(__name__)

_MAX_PAUSE = 300.0
"""Seconds. A limit may be raised, or a bill be paid, long before a server's day is over."""

_PATIENCE = 2.0
"""Seconds that the shared server may take; every request to a model waits for it."""
_ALONE = 10.0
"""Seconds until it is asked again after a failure."""


class Pauses(Protocol):
    """The pauses of endpoints, by the names that `Pause` gives them."""

    async def find(self, name: str) -> float:
        """Return the seconds for which nothing may be sent; 0: it may be sent now."""
        ...

    async def begin(self, name: str, seconds: float) -> None:
        """Let nobody send anything for so many seconds. A pause that lasts longer stays."""
        ...

    async def close(self) -> None: ...


class LocalPauses:
    """Pauses of this process."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._ends: dict[str, float] = {}

    async def find(self, name: str) -> float:
        return max(0.0, self._ends.get(name, 0.0) - self._clock())

    async def begin(self, name: str, seconds: float) -> None:
        self._ends[name] = max(self._ends.get(name, 0.0), self._clock() + seconds)

    async def close(self) -> None:
        self._ends.clear()


class SharedPauses:
    """Pauses of all processes that share a server; while it is away, those of this process."""

    def __init__(self, shared: Pauses, clock: Callable[[], float] = time.monotonic) -> None:
        self._shared, self._local = shared, LocalPauses(clock)
        self._clock = clock
        self._alone_until = 0.0
        self._is_alone = False

    async def find(self, name: str) -> float:
        return await self._local.find(name) or await self._ask(lambda: self._shared.find(name)) or 0.0

    async def begin(self, name: str, seconds: float) -> None:
        await self._local.begin(name, seconds)
        await self._ask(lambda: self._shared.begin(name, seconds))

    async def close(self) -> None:
        await self._shared.close()

    async def _ask(self, question: Callable[[], Awaitable[float | None]]) -> float | None:
        """Return the server's answer, None when it is away. The log says so once."""
        if self._clock() < self._alone_until:
            return None
        try:
            async with asyncio.timeout(_PATIENCE):
                answer = await question()
        except (StoreError, TimeoutError) as e:
            if not self._is_alone:
                reason = e.message if isinstance(e, StoreError) else f"no answer in {_PATIENCE:g} s"
                log.warning("rate limits of model servers are not shared for now: %s", reason)
            self._is_alone = True
            self._alone_until = self._clock() + _ALONE
            return None
        self._is_alone = False
        return answer


@dataclass(frozen=True, slots=True)
class Pause:
    """The pause of one model at one endpoint, for one key."""

    pauses: Pauses
    name: str
    """Tells nothing of the key."""

    @classmethod
    def of(cls, endpoint: Endpoint, pauses: Pauses) -> "Pause":
        """Return the pause of this endpoint. Servers count the requests of each model by itself."""
        what = f"{endpoint.base_url}\n{endpoint.model}"
        return cls(pauses, hmac.new(endpoint.key.encode(), what.encode(), hashlib.sha256).hexdigest()[:32])

    async def find(self) -> float:
        """Return the seconds that are left of it."""
        return await self.pauses.find(self.name)

    async def begin(self, seconds: float) -> None:
        """Let nobody send anything for so many seconds, five minutes at most."""
        await self.pauses.begin(self.name, min(seconds, _MAX_PAUSE))
