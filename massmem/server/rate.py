"""How many requests a name has sent within a minute, counted in this process or in Redis by the same rule.

The rule is the sliding window counter of `limits`: requests of this minute count whole, those of the minute before
by the share of it that lies within the last sixty seconds. A burst at the turn of a minute gains nothing.
"""

import math
import time
from collections import Counter
from collections.abc import Callable

from limits import RateLimitItemPerMinute
from limits.aio.storage import Storage
from limits.aio.strategies import SlidingWindowCounterRateLimiter
from limits.errors import ConfigurationError, StorageError
from limits.storage import storage_from_string

from massmem.errors import InputError, StoreUnavailable

_MINUTE = 60
_PATIENCE = 2.0
"""Seconds that a Redis may take to answer: every request waits for it."""


class Counted:
    """In this process. A request costs the same however many names there are; `limits` looks through all of them."""

    def __init__(self, most: int, clock: Callable[[], float] = time.time) -> None:
        self._most = most
        self._clock = clock
        self._minute = 0
        self._before: Counter[str] = Counter()
        self._now: Counter[str] = Counter()

    async def hit(self, name: str) -> int | None:
        """Count a request: None, or, when there were too many, the seconds after which there is room for one."""
        minute, elapsed = divmod(self._clock(), _MINUTE)
        if minute != self._minute:
            self._before = self._now if minute == self._minute + 1 else Counter()
            self._now, self._minute = Counter(), int(minute)
        now, before = self._now[name], self._before[name]
        if math.floor(before * (1 - elapsed / _MINUTE) + now) < self._most:
            self._now[name] += 1
            return None
        if now < self._most:  # room comes as the minute before moves out of sight
            return _after(_MINUTE * (1 - (self._most - now) / before) - elapsed)
        return _after(_MINUTE - elapsed)


class Shared:
    """In Redis, for all processes that name it."""

    def __init__(self, most: int, storage: Storage) -> None:
        self._rate = SlidingWindowCounterRateLimiter(storage)
        self._most = RateLimitItemPerMinute(most)

    async def hit(self, name: str) -> int | None:
        """As in the process. Raises StoreUnavailable."""
        try:
            if await self._rate.hit(self._most, name):
                return None
            window = await self._rate.get_window_stats(self._most, name)
        except StorageError as e:
            raise StoreUnavailable(
                f"requests cannot be counted: {type(e.storage_error).__name__}", "see server.limits.counted_in"
            ) from e
        return _after(window.reset_time - time.time())


Rate = Counted | Shared


def rate(most: int, place: str | None) -> Rate:
    """most: requests in a minute. place: a Redis, None: this process. Raises InputError when it is no such place."""
    return Counted(most) if place is None else Shared(most, _storage(place))


def _after(seconds: float) -> int:
    """Whole seconds, and more than so many: at the very moment there is no room yet."""
    return max(0, math.floor(seconds + 1e-6)) + 1


def _storage(url: str) -> Storage:
    patience = {"socket_timeout": _PATIENCE, "socket_connect_timeout": _PATIENCE}
    try:
        found = storage_from_string(f"async+{url}", implementation="redispy", wrap_exceptions=True, **patience)
    except ConfigurationError as e:
        raise InputError("server.limits.counted_in names no place to count in", "use redis://HOST:PORT") from e
    assert isinstance(found, Storage)  # it was asked for by "async+"
    return found
