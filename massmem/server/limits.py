"""How much one user, and all of them, may ask for: requests in a minute, questions and streams at the same time."""

from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager

from massmem.config.service import LimitsConfig
from massmem.server.rate import rate
from massmem.session.new_session import owner_hash

SOON = 1
"""Seconds after which to try again what was refused because something else was under way."""


class TooMuch(Exception):
    """status: 429, the user asks for too much; 503, all of them do. retry_after: seconds."""

    def __init__(self, status: int, message: str, retry_after: int = SOON) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.retry_after = retry_after


class Limits:
    def __init__(self, config: LimitsConfig) -> None:
        """Raises InputError when there is no such place to count in."""
        self._config = config
        self._rate = rate(config.requests, config.counted_in)
        self._turns: Counter[str] = Counter()
        self._streams: Counter[str] = Counter()

    async def request(self, sub: str) -> None:
        """Count a request. Raises TooMuch; StoreUnavailable when requests are counted elsewhere, and it is away."""
        wait = await self._rate.hit(owner_hash(sub))
        if wait is not None:
            raise TooMuch(429, "too many requests", wait)

    @contextmanager
    def turn(self, sub: str) -> Generator[None]:
        """A question is under way in the block. Raises TooMuch."""
        if self._turns[sub] >= self._config.turns_per_user:
            raise TooMuch(429, "too many questions at the same time")
        if self._turns.total() >= self._config.turns:
            raise TooMuch(503, "the service is busy")
        with _counted(self._turns, sub):
            yield

    def check_streams(self, sub: str) -> None:
        """Raises TooMuch when the user may open no further event stream."""
        if self._streams[sub] >= self._config.streams_per_user:
            raise TooMuch(429, "too many open streams")

    @contextmanager
    def stream(self, sub: str) -> Generator[None]:
        """An event stream is open in the block."""
        with _counted(self._streams, sub):
            yield


@contextmanager
def _counted(counter: Counter[str], name: str) -> Generator[None]:
    counter[name] += 1
    try:
        yield
    finally:
        counter[name] -= 1
        if not counter[name]:
            del counter[name]
