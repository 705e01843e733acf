"""Events of a turn as server-sent events (WHATWG HTML, section 9.2): named, numbered, without what is internal."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from massmem.errors import MassmemError
from massmem.events import (
    AgentFailed,
    AgentRetrying,
    Event,
    Notice,
    ToolCalled,
    ToolReturned,
    TurnAbandoned,
    TurnFailed,
    TurnResumed,
    TurnStarted,
    shown,
)
from massmem.server.conversations import user_name
from massmem.server.limits import TooMuch
from massmem.server.running import Numbered
from massmem.server.schemas import Problem

HEARTBEAT = 15.0
"""Seconds without an event after which a comment is sent: proxies cut silent connections."""

MEDIA_TYPE = "text/event-stream"
SCHEMA = {
    "type": "object",
    "description": "One event; data is JSON, of the form that its name says.",
    "properties": {name: {"type": "string"} for name in ("event", "id", "data")},
}
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}

_AGAIN = "retry: 1000\n\n"
"""Milliseconds after which a client connects again when the stream has broken."""


def public(event: Event) -> Event | None:
    """The event as a user of the service may see it; None: not at all.

    What a provider says of an error may tell of hosts and keys: it goes to the log of the service alone. So does what
    tools are told and give back, which may be of the service's own files; their names are shown.
    """
    match event:
        case Notice():
            return None
        case TurnStarted(session_id=name) | TurnResumed(session_id=name) | TurnAbandoned(session_id=name):
            instead = {"session_id": user_name(name)}
        case AgentFailed():
            instead = {"message": "the agent could not act", "hint": ""}
        case TurnFailed():
            instead = {"message": "no agent could answer", "hint": ""}
        case ToolCalled():
            instead = {"arguments": ""}
        case ToolReturned():
            instead = {"content": ""}
        case AgentRetrying():
            instead = {"error": "the request is sent again"}
        case _:
            return shown(event)
    return event.model_copy(update=instead)


async def stream(events: AsyncGenerator[Numbered, None]) -> AsyncGenerator[str, None]:
    """The text of a stream. An error after the first event becomes an event of its own, named `error`."""
    yield _AGAIN
    async with aclosing(_with_heartbeats(events)) as beats:
        try:
            async for each in beats:
                text = ": still here\n\n" if each is None else written(*each)
                if text:
                    yield text
        except TooMuch as e:
            yield _problem(e.message)
        except MassmemError:
            yield _problem("the turn could not be followed any further")


def written(seq: int, event: Event) -> str:
    """The lines of one event; empty when it is not for users. Its JSON has no line breaks."""
    told = public(event)
    if told is None:
        return ""
    return f"event: {told.type}\nid: {seq}\ndata: {told.model_dump_json()}\n\n"


async def begun(events: AsyncGenerator[Numbered, None]) -> AsyncGenerator[Numbered, None]:
    """The same events, once there is a first one: what keeps a turn from beginning is raised before any answer."""
    first = await anext(events, None)

    async def rest() -> AsyncGenerator[Numbered, None]:
        async with aclosing(events):
            if first is not None:
                yield first
                async for each in events:
                    yield each

    return rest()


def _problem(message: str) -> str:
    return f"event: error\ndata: {Problem(error=message).model_dump_json()}\n\n"


async def _with_heartbeats(events: AsyncGenerator[Numbered, None]) -> AsyncGenerator[Numbered | None, None]:
    """None whenever nothing has come for a while."""
    async with aclosing(events):
        waiting = asyncio.ensure_future(anext(events, None))
        try:
            while True:
                done, _ = await asyncio.wait({waiting}, timeout=HEARTBEAT)
                if not done:
                    yield None
                    continue
                each = waiting.result()
                if each is None:
                    return
                yield each
                waiting = asyncio.ensure_future(anext(events, None))
        finally:
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
