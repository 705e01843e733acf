"""A turn that runs in this process, apart from the connection that asked for it, and whoever follows it."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from massmem.events import Event, TurnAbandoned, TurnCompleted, TurnFailed, TurnWaiting
from massmem.server.limits import TooMuch
from massmem.session.session import Session

Ended = TurnCompleted | TurnFailed | TurnWaiting | TurnAbandoned

Numbered = tuple[int, Event]
"""An event and its number in the session's log."""


class Running:
    """question None: a turn that was cut off is taken up. request: the name of the question, "" for none."""

    def __init__(self, request: str = "", question: str | None = None) -> None:
        self.request = request
        self.question = question
        self._events: list[Numbered] = []
        self._error: Exception | None = None
        self._news: asyncio.Event | None = None
        self._ended = asyncio.Event()
        self._session: Session | None = None
        self._stopped = False

    def asks(self, question: str, request: str) -> bool:
        """Whether this is that very request; one without a name is never another one."""
        return bool(request) and (self.request, self.question) == (request, question)

    async def run(self, session: Session) -> AsyncGenerator[Event, None]:
        """Run the turn; its events are kept for whoever follows, and yielded. Raises as the session does."""
        self._session = session
        if self._stopped:
            raise TooMuch(503, "this process is about to end")
        source = session.finish_turn() if self.question is None else session.ask(self.question, self.request)
        async with aclosing(source) as events:
            async for event in events:
                self._events.append((session.seq, event))
                self._wake()
                yield event

    def stop(self) -> None:
        """End the turn where it is; another process goes on with it."""
        self._stopped = True
        if self._session is not None:
            self._session.stop("signal")

    def end(self, error: Exception | None = None) -> None:
        """Nothing more comes. error: raised for whoever follows, after what came."""
        self._error = error
        self._ended.set()
        self._wake()

    async def follow(self, *, live: bool) -> AsyncGenerator[Numbered, None]:
        """The events; live: as they come, else once all are there. Raises what ended the turn."""
        if not live:
            await self._ended.wait()
        seen = 0
        while True:
            while seen < len(self._events):
                yield self._events[seen]
                seen += 1
            if self._ended.is_set():
                break
            if self._news is None:
                self._news = asyncio.Event()
            await self._news.wait()
        if self._error is not None:
            raise self._error

    def _wake(self) -> None:
        if self._news is not None:
            self._news.set()
            self._news = None


def ends(event: Event) -> bool:
    """Nothing more happens in this turn by itself; not so when it was interrupted: another process goes on with it."""
    return isinstance(event, Ended)
