"""Sending a request again: when, how long to wait, and when to stop so that an outage is not made worse.

Exponential backoff with full jitter: Marc Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog (2015).
Retry budgets: Finagle's RetryBudget; "Handling Overload" in Google's Site Reliability Engineering (2016).
Pauses: for how long an endpoint wants no requests, known to all who would send it some.
"""

import asyncio
import hashlib
import hmac
import logging
import math
import random
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Protocol, Self

from massmem.config.models import BackendConfig
from massmem.core.errors import DeadlineExceeded, ProviderError, RateLimited, StoreError
from massmem.core.messages import Chunk, FinishChunk, RetryChunk, TextChunk, Usage
from massmem.providers.endpoints import Endpoint
from massmem.providers.pricing import Price

log = logging.getLogger(__name__)

_WINDOW = 60.0
"""Seconds that a budget looks back."""
_FREE_RETRIES = 10
_RETRY_SHARE = 0.1
_DEADLINE_FACTOR = 3
"""A whole reply may take so many times the seconds without progress."""
_MAX_PAUSE = 300.0
"""Seconds. A limit may be raised, or a bill be paid, long before a server's day is over."""

_PATIENCE = 2.0
"""Seconds that the shared server may take; every request to a model waits for it."""
_ALONE = 10.0
"""Seconds until it is asked again after a failure."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often one request is retried, and how long to wait. All times are seconds."""

    max_retries: int = 3
    base: float = 0.5
    """The longest wait before the first retry; it doubles with each further one."""
    cap: float = 30.0
    """The longest wait that massmem chooses."""
    longest_wait: float = 60.0
    """A server that asks for more is not waited for."""
    deadline: float = math.inf
    """Seconds for a whole reply, retries included."""
    model: str = "the model"
    """As messages name it."""

    @classmethod
    def of(cls, backend: BackendConfig) -> Self:
        """Return the policy that a backend configures."""
        deadline = backend.deadline or _DEADLINE_FACTOR * backend.timeout
        return cls(backend.max_retries, deadline=deadline, model=f"{backend.type} ({backend.model or 'usual model'})")

    def delay(self, retry: int, retry_after: float | None, jitter: float) -> float:
        """Return the seconds to wait before the retry-th retry (from 1).

        retry_after: what the server asks for; it is a lower bound, and up to a tenth is added so that agents that were
        refused together do not come back together. jitter: random in [0, 1).
        """
        if retry_after is not None:
            return retry_after * (1 + 0.1 * jitter)
        return jitter * min(self.cap, self.base * 2.0 ** min(retry - 1, 30))


class RetryBudget:
    """How many retries one endpoint may be sent: 10, plus 10 % of its requests in the last 60 seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._requests: deque[float] = deque()
        self._retries: deque[float] = deque()

    def count_request(self) -> None:
        """Note a first attempt."""
        self._requests.append(self._drop_old())

    def take(self) -> bool:
        """Use up one retry; return False when none is left."""
        now = self._drop_old()
        if len(self._retries) >= _FREE_RETRIES + math.floor(_RETRY_SHARE * len(self._requests)):
            return False
        self._retries.append(now)
        return True

    def _drop_old(self) -> float:
        """Forget what is older than the window; return the time."""
        now = self._clock()
        for times in (self._requests, self._retries):
            while times and times[0] <= now - _WINDOW:
                times.popleft()
        return now


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
        """0: the server has answered last."""

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
            if not self._alone_until:
                reason = e.message if isinstance(e, StoreError) else f"no answer in {_PATIENCE:g} s"
                log.warning("rate limits of model servers are not shared for now: %s", reason)
            self._alone_until = self._clock() + _ALONE
            return None
        self._alone_until = 0.0
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


@dataclass(slots=True)
class _Sent:
    requests: int = 0
    text: list[str] = field(default_factory=list[str])
    """Of the last request."""

    def begin(self) -> None:
        """Count a request."""
        self.requests += 1
        self.text = []

    def count(self, chunk: Chunk, price: Price) -> Chunk:
        """Return the chunk with the number, or the usage and cost, of all requests."""
        match chunk:
            case TextChunk():
                self.text.append(chunk.text)
                return chunk
            case RetryChunk():
                self.requests += 1
                return replace(chunk, attempt=self.requests)
            case FinishChunk():
                usage = replace(chunk.usage, requests=self.requests + max(chunk.usage.requests - 1, 0))
                return FinishChunk(chunk.reason, price.add_cost(usage))
            case _:
                return chunk


@dataclass(frozen=True, slots=True)
class Retrier:
    """Streams a request, with retries while they make sense."""

    policy: RetryPolicy
    budget: RetryBudget
    price: Price = field(default_factory=Price)
    pause: Pause | None = None
    """None: nobody else sends requests to this endpoint."""
    jitter: Callable[[], float] = random.random
    sleep: Callable[[float], Awaitable[None]] = field(default=asyncio.sleep)

    async def stream(
        self, attempt: Callable[[], AsyncGenerator[Chunk, None]], deadline: float | None = None
    ) -> AsyncGenerator[Chunk, None]:
        """Yield the chunks of attempt(); after a transient failure a RetryChunk, and then those of another attempt.

        While the endpoint wants no requests, nothing is sent: RetryChunks with attempt 0 say for how long.

        An attempt may itself announce a further request by a RetryChunk. The usage in the FinishChunk counts all
        requests and has their cost.

        deadline: seconds for all of it, where the request has less than the policy allows.

        Raises:
            DeadlineExceeded: it took longer.
            ProviderError: the last attempt's, with the text that it had streamed as `partial`.
        """
        sent, retries = _Sent(), 0
        seconds = min(self.policy.deadline, math.inf if deadline is None else deadline)
        end = asyncio.get_running_loop().time() + seconds
        self.budget.count_request()
        while True:
            async for chunk in self._wait_for_endpoint(end):
                yield chunk
            sent.begin()
            try:
                async with aclosing(attempt()) as attempted, aclosing(_receive_until(end, attempted)) as chunks:
                    async for chunk in chunks:
                        yield sent.count(chunk, self.price)
                return
            except ProviderError as e:
                failure = e
            except TimeoutError as e:
                raise DeadlineExceeded(
                    f"{self.policy.model}: the reply was not complete after {seconds:g} s",
                    "backend.deadline sets how long a whole reply may take.",
                    partial="".join(sent.text),
                ) from e
            failure.partial = failure.partial or "".join(sent.text)
            retries += 1
            if failure.usage is not None:
                failure.usage = self.price.add_cost(failure.usage)
            delay = await self._next_delay(failure, retries)
            if asyncio.get_running_loop().time() + delay >= end:
                raise _add_reason(failure, f"No time is left of {seconds:g} s to try again.") from failure
            yield RetryChunk(failure.message, delay, sent.requests + 1, failure.usage or Usage())
            await self.sleep(delay)

    async def _wait_for_endpoint(self, end: float) -> AsyncGenerator[RetryChunk, None]:
        """Wait until the endpoint takes requests again, and yield for how long.

        end: by the event loop's clock. Raises RateLimited: that is too long.
        """
        while self.pause is not None and (seconds := await self.pause.find()):
            delay = self.policy.delay(1, seconds, self.jitter())
            model = self.policy.model
            if seconds > self.policy.longest_wait or asyncio.get_running_loop().time() + delay >= end:
                message = f"{model}: the server asks all to wait {seconds:.0f} s; not waited for, nothing was sent"
                raise RateLimited(message, "run the same command again then", retry_after=seconds)
            yield RetryChunk(f"{model}: the server asks all to wait {seconds:.1f} s", delay, 0)
            await self.sleep(delay)

    async def _next_delay(self, failure: ProviderError, retry: int) -> float:
        """Return the seconds until the next attempt, and let nobody else send one before the server wants it.

        Raises `failure`, with the reason, when there is none.
        """
        if self.pause is not None and failure.retryable and failure.retry_after:
            await self.pause.begin(failure.retry_after)
        if not failure.retryable or self.policy.max_retries == 0:
            raise failure
        if retry > self.policy.max_retries:
            raise _add_reason(failure, f"Tried {retry} times.") from failure
        wait = failure.retry_after
        if wait is not None and wait > self.policy.longest_wait:
            raise _add_reason(failure, f"The server asks to wait {wait:.0f} s; not waited for.") from failure
        if not self.budget.take():
            reason = "Not tried again: too many requests to this endpoint failed in the last minute."
            raise _add_reason(failure, reason) from failure
        return self.policy.delay(retry, wait, self.jitter())


async def _receive_until(end: float, chunks: AsyncGenerator[Chunk, None]) -> AsyncGenerator[Chunk, None]:
    """Yield the chunks that arrive before `end` on the event loop's clock. Raises TimeoutError at `end`."""
    while True:
        async with asyncio.timeout_at(None if end == math.inf else end):
            chunk = await anext(chunks, None)
        if chunk is None:
            return
        yield chunk


def _add_reason(failure: ProviderError, reason: str) -> ProviderError:
    message = f"{failure.message.rstrip('. ')}. {reason}"
    error = type(failure)(message, failure.hint, partial=failure.partial, retry_after=failure.retry_after)
    error.usage = failure.usage
    return error
