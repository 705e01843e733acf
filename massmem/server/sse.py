"""Turns as server-sent events (WHATWG HTML, section 9.2): named, numbered, without what is internal."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from sse_starlette import EventSourceResponse, ServerSentEvent

from massmem.core.errors import MassmemError
from massmem.core.events import (
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
    hide_reply_text,
)
from massmem.server.conversations import public_session_id
from massmem.server.errors import RetryLater
from massmem.server.schemas import Problem
from massmem.server.turns import NumberedEvent

MEDIA_TYPE = "text/event-stream"
SCHEMA = {
    "type": "object",
    "description": "One event; data is JSON, of the form that its name says.",
    "properties": {name: {"type": "string"} for name in ("event", "id", "data")},
}

_PING_SECONDS = 15
"""Proxies cut silent connections."""

_RECONNECT_MILLISECONDS = 1000
"""When a client connects again after a broken stream."""


def stream_response(events: AsyncGenerator[ServerSentEvent, None], drain_seconds: float) -> EventSourceResponse:
    """Return a response that streams `events`, with a comment now and then to keep the connection open.

    drain_seconds: how long the stream may go on when the process shuts down. By default the library would cut it at
    once; a turn ends its own streams with `turn_interrupted`.
    """
    return EventSourceResponse(
        events,
        headers={"Cache-Control": "no-store"},
        media_type=MEDIA_TYPE,
        ping=_PING_SECONDS,
        sep="\n",
        shutdown_grace_period=drain_seconds,
    )


async def encode_events(events: AsyncGenerator[NumberedEvent, None]) -> AsyncGenerator[ServerSentEvent, None]:
    """Yield the events as their followers may see them. An error becomes an event named `error`."""
    yield ServerSentEvent(retry=_RECONNECT_MILLISECONDS, sep="\n")
    async with aclosing(events):
        try:
            async for number, event in events:
                public = hide_internals(event)
                if public is not None:
                    yield ServerSentEvent(public.model_dump_json(), event=public.type, id=str(number), sep="\n")
        except RetryLater as e:
            yield _encode_problem(e.message)
        except MassmemError:
            yield _encode_problem("the turn could not be followed any further")


async def wait_for_first(events: AsyncGenerator[NumberedEvent, None]) -> AsyncGenerator[NumberedEvent, None]:
    """Return the same events once the first one is there, so that an error before it can be a response of its own."""
    first = await anext(events, None)

    async def replay() -> AsyncGenerator[NumberedEvent, None]:
        async with aclosing(events):
            if first is not None:
                yield first
                async for event in events:
                    yield event

    return replay()


def hide_internals(event: Event) -> Event | None:
    """Return the event as users of the service may see it, or None when they may not see it.

    Errors of providers may name hosts and keys; arguments and results of tools may quote the service's own files. Users
    see only that an agent failed, and the names of tools.
    """
    match event:
        case Notice():
            return None
        case TurnStarted() | TurnResumed() | TurnAbandoned():
            changes = {"session_id": public_session_id(event.session_id)}
        case AgentFailed():
            changes = {"message": "the agent could not act", "hint": ""}
        case TurnFailed():
            changes = {"message": "no agent could answer", "hint": ""}
        case ToolCalled():
            changes = {"arguments": ""}
        case ToolReturned():
            changes = {"content": ""}
        case AgentRetrying():
            changes = {"error": "the request is sent again"}
        case _:
            return hide_reply_text(event)
    return event.model_copy(update=changes)


def _encode_problem(message: str) -> ServerSentEvent:
    return ServerSentEvent(Problem(error=message).model_dump_json(), event="error", sep="\n")
