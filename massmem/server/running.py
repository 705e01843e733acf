"""A turn that runs in this process, apart from the connection that asked for it, and whoever follows it."""

import asyncio
from collections.abc import AsyncGenerator

from massmem.events import Event, TurnAbandoned, TurnCompleted, TurnFailed, TurnWaiting

Ended = TurnCompleted | TurnFailed | TurnWaiting | TurnAbandoned

Numbered = tuple[int, Event]
"""An event and its number in the session's log."""


class Running:
    """question None: a turn that was cut off is taken up. request: the name of the question, "" for none."""

    def __init__(self, request: str = "", question: str | None = None) -> None:
        self.request = request
        self.question = question
        self._events: list[Numbered] = []
        self._done = False
        self._error: Exception | None = None
        self._news = asyncio.Event()

    def add(self, seq: int, event: Event) -> None:
        self._events.append((seq, event))
        self._wake()

    def end(self, error: Exception | None = None) -> None:
        """Nothing more comes. error: raised for whoever follows, after what came."""
        self._done, self._error = True, error
        self._wake()

    async def follow(self, after: int = 0) -> AsyncGenerator[Numbered, None]:
        """Events with a number > after, as they come. Raises what ended the turn."""
        seen = 0
        while True:
            news = self._news
            while seen < len(self._events):
                seq, event = self._events[seen]
                seen += 1
                if seq > after:
                    yield seq, event
            if self._done:
                if self._error is not None:
                    raise self._error
                return
            if seen == len(self._events):
                await news.wait()

    def _wake(self) -> None:
        self._news.set()
        self._news = asyncio.Event()


def ends(event: Event) -> bool:
    """Nothing more happens in this turn by itself; not so when it was interrupted: another process goes on with it."""
    return isinstance(event, Ended)
