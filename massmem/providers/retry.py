"""Sending a request again: when, how long to wait, and when to stop so that an outage is not made worse.

Exponential backoff with full jitter: Marc Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog (2015).
Retry budgets: Finagle's RetryBudget; "Handling Overload" in Google's Site Reliability Engineering (2016).
"""

import asyncio
import math
import random
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from massmem.errors import ProviderError
from massmem.replies import Chunk, FinishChunk, RetryChunk, TextChunk

_WINDOW = 60.0
_FREE_RETRIES = 10
_RETRY_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Seconds throughout. longest_wait: a server that asks for more is not waited for."""

    max_retries: int = 3
    base: float = 0.5
    cap: float = 30.0
    longest_wait: float = 60.0

    def delay(self, retry: int, asked: float | None, jitter: float) -> float:
        """How long to wait before the retry-th retry (from 1). asked: Retry-After. jitter: random in [0, 1).

        A server's wish is a lower bound; up to a tenth is added so that agents refused together do not come back
        together.
        """
        if asked is not None:
            return asked * (1 + 0.1 * jitter)
        return jitter * min(self.cap, self.base * 2.0 ** min(retry - 1, 30))


class RetryBudget:
    """How many retries one endpoint may be sent: 10, plus 10 % of its requests in the last 60 seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._requests: deque[float] = deque()
        self._retries: deque[float] = deque()

    def count_request(self) -> None:
        """Note a first attempt."""
        self._requests.append(self._now())

    def take(self) -> bool:
        """Use up one retry; False when none is left."""
        now = self._now()
        if len(self._retries) >= _FREE_RETRIES + math.floor(_RETRY_SHARE * len(self._requests)):
            return False
        self._retries.append(now)
        return True

    def _now(self) -> float:
        now = self._clock()
        for times in (self._requests, self._retries):
            while times and times[0] <= now - _WINDOW:
                times.popleft()
        return now


@dataclass(frozen=True, slots=True)
class Retrier:
    """Streams a request, again and again while that makes sense. The last two fields are the outside world."""

    policy: RetryPolicy
    budget: RetryBudget
    jitter: Callable[[], float] = random.random
    sleep: Callable[[float], Awaitable[None]] = field(default=asyncio.sleep)

    async def stream(self, attempt: Callable[[], AsyncGenerator[Chunk, None]]) -> AsyncGenerator[Chunk, None]:
        """Yield the chunks of attempt(); when it fails and may pass, a RetryChunk, and then those of another one.

        An attempt may itself announce a further request by a RetryChunk. The FinishChunk's usage counts all requests.

        Raises:
            ProviderError: the last attempt's, with the text that it had streamed as `partial`.
        """
        requests, retries = 0, 0
        self.budget.count_request()
        while True:
            requests += 1
            text: list[str] = []
            try:
                async with aclosing(attempt()) as chunks:
                    async for chunk in chunks:
                        match chunk:
                            case TextChunk():
                                text.append(chunk.text)
                                yield chunk
                            case RetryChunk():
                                requests += 1
                                yield replace(chunk, attempt=requests)
                            case FinishChunk():
                                yield replace(chunk, usage=replace(chunk.usage, requests=requests))
                            case _:
                                yield chunk
                return
            except ProviderError as e:
                failure = e
            failure.partial = failure.partial or "".join(text)
            retries += 1
            delay = self._next_delay(failure, retries)
            yield RetryChunk(failure.message, delay, requests + 1)
            await self.sleep(delay)

    def _next_delay(self, failure: ProviderError, retry: int) -> float:
        """Seconds until the next attempt. Raises `failure`, saying why there is none."""
        if not failure.retryable or self.policy.max_retries == 0:
            raise failure
        if retry > self.policy.max_retries:
            raise _explained(failure, f"Tried {retry} times.") from failure
        asked = failure.retry_after
        if asked is not None and asked > self.policy.longest_wait:
            raise _explained(failure, f"The server asks to wait {asked:.0f} s; not waited for.") from failure
        if not self.budget.take():
            reason = "Not tried again: too many requests to this endpoint failed in the last minute."
            raise _explained(failure, reason) from failure
        return self.policy.delay(retry, asked, self.jitter())


def retry_after(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """Seconds that a server asks to wait, from `retry-after-ms` or `retry-after` (seconds or an HTTP date).

    headers: with lower-case names, or a mapping that ignores case. None when it does not say, or says nonsense.
    """
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    value = headers.get("retry-after")
    seconds = _number(value)
    if seconds is not None or value is None:
        return seconds
    return _seconds_until(value, now or datetime.now(UTC))


def _number(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None


def _seconds_until(text: str, now: datetime) -> float | None:
    try:
        when = parsedate_to_datetime(text)
    except ValueError:
        return None
    when = when if when.tzinfo else when.replace(tzinfo=UTC)
    return max(0.0, (when - now).total_seconds())


def _explained(failure: ProviderError, reason: str) -> ProviderError:
    message = f"{failure.message.rstrip('. ')}. {reason}"
    return type(failure)(message, failure.hint, partial=failure.partial, retry_after=failure.retry_after)
