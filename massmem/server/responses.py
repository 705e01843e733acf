"""Turns as responses: one JSON object when the turn has ended, or server-sent events (WHATWG HTML, section 9.2).

Events are named, numbered, and without what is internal.
"""

from collections.abc import AsyncGenerator, Callable, Collection
from contextlib import aclosing
from functools import partial
from typing import Any, TypeVar

from fastapi import HTTPException
from sse_starlette import EventSourceResponse, ServerSentEvent

from massmem.core import events as ev
from massmem.core.errors import InputError, MassmemError, ProviderUnavailable
from massmem.core.events import now
from massmem.core.outcome import GAVE_UP
from massmem.core.records import SessionRecord
from massmem.core.turn_result import TurnResult
from massmem.server.dependencies import Caller
from massmem.server.errors import RETRY_LATER, RETRY_SOON, TURN_PROBLEMS, RetryLater
from massmem.server.schemas import ChatAnswer, Problem, QueryAnswer
from massmem.server.turns import NumberedEvent
from massmem.session.owners import public_session_id
from massmem.store.lookup import complete_result, fold_turns, read_versions

ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {
        "links": {
            name: {"operationId": name, "parameters": {"session_id": "$response.body#/session_id"}}
            for name in ("history", "follow", "conversation", "memory", "clear")
        }
    },
    **TURN_PROBLEMS,
}
"""The OpenAPI description of answers: which operations read the session, and what can go wrong."""

T = TypeVar("T")
Stream = AsyncGenerator[ServerSentEvent, None]

_MEDIA_TYPE = "text/event-stream"
STREAM: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Events of the turn",
        "content": {
            _MEDIA_TYPE: {
                "schema": {
                    "type": "object",
                    "description": "One event; data is JSON, of the form that its name says.",
                    "properties": {name: {"type": "string"} for name in ("event", "id", "data")},
                }
            }
        },
    }
}
"""The OpenAPI description of streams."""

_PING_SECONDS = 15
"""Proxies cut silent connections."""

_RECONNECT_MILLISECONDS = 1000
"""When a client connects again after a broken stream."""


async def wait_for_result(caller: Caller, session_id: str, events: AsyncGenerator[NumberedEvent, None]) -> TurnResult:
    """Return the result of the turn, as the caller may see it, once it has an answer, waits, or is given up.

    session_id: as the store knows it.

    Raises:
        HTTPException: 502, no agent could answer.
        RetryLater: No provider can be reached, or this process ends and another one finishes the turn.
    """
    result, show = TurnResult(), partial(show_event, is_local=caller.is_local)
    last: ev.Event | None = None
    async with aclosing(events):
        async for _, event in events:
            last = event
            if (public := show(event)) is not None:
                result.feed(public)
    require_answer(None if result.end is None else last)
    return await complete_result(caller.service.team.store, session_id, result, show)


def require_answer(end: ev.Event | None) -> None:
    """Raise, as `wait_for_result`, when the turn has ended with nothing to say to the user. end: None: by itself."""
    match end:
        case ev.TurnInterrupted(by="user"):
            raise HTTPException(409, "the turn was stopped")
        case None | ev.TurnInterrupted():
            raise RetryLater(503, "the service is restarting: ask again under the same Idempotency-Key", RETRY_SOON)
        case ev.TurnFailed(exit_code=code) if code == ProviderUnavailable.exit_code:
            raise RetryLater(503, "no agent can answer now", RETRY_LATER)
        case ev.TurnFailed(message=message, hint=hint) if message == GAVE_UP:
            raise InputError(message, hint)
        case ev.TurnFailed():
            raise HTTPException(502, "no agent could answer")
        case ev.TurnCompleted(form_error=reason) if reason:
            raise HTTPException(502, reason)
        case _:
            pass


async def read_results_of(caller: Caller, session: SessionRecord, numbers: Collection[int]) -> dict[int, TurnResult]:
    """Return what turns of a session came to, by number, as the caller may see it. session: with its real status."""
    store, show = caller.service.team.store, partial(show_event, is_local=caller.is_local)
    versions = await read_versions(store, session.session_id)
    first, last = min(numbers, default=0), max(numbers, default=0)
    turns = await store.list_turns(session.session_id, first - 1, last - first + 1)
    named = [turn for turn in turns if turn.turn in numbers]
    return {result.turn: result for result in await fold_turns(store, session, named, versions, show)}


def make_chat_answer(result: TurnResult, warning: str | None) -> ChatAnswer:
    return ChatAnswer(**_describe_end(result, warning), response=get_text(result))


def make_query_answer(query: str, result: TurnResult, warning: str | None) -> QueryAnswer:
    common = _describe_end(result, warning)
    return QueryAnswer(
        **common,
        query=query,
        content=get_text(result),
        agent_name=common["agent"],
        agents_used=[] if result.answer is None or common["agent"] is None else [common["agent"]],
    )


def _describe_end(result: TurnResult, warning: str | None) -> dict[str, Any]:
    """Return the fields that all answers have."""
    return dict(result) | {
        "waiting_for_param": None if result.waiting_for is None else result.waiting_for.param,
        "agent": None if result.speaker is None else result.name(result.speaker),
        "agent_id": result.speaker,
        "warning": warning,
        "timestamp": result.ended_at or now(),
    }


def get_text(result: TurnResult) -> str:
    return result.text or "Cancelled."


async def stream_response(
    caller: Caller, source: AsyncGenerator[T, None], encode: Callable[[AsyncGenerator[T, None]], Stream]
) -> EventSourceResponse:
    """Return a response that streams what `encode` makes of the source, with a comment now and then.

    The comments keep the connection open. Raises RetryLater: the user has too many streams; and what the source raises
    before its first item.
    """
    service = caller.service
    service.limits.check_streams(caller.sub)
    events = encode(await wait_for_first(source))

    async def count() -> Stream:
        with service.metrics.streams.track_inprogress(), service.limits.hold_stream(caller.sub):
            async with aclosing(events):
                async for event in events:
                    yield event

    return EventSourceResponse(
        count(), headers={"Cache-Control": "no-store"}, media_type=_MEDIA_TYPE, ping=_PING_SECONDS, sep="\n"
    )


async def encode_events(events: AsyncGenerator[NumberedEvent, None], *, is_local: bool = False) -> Stream:
    """Yield the events as their followers may see them. An error becomes an event named `error`.

    is_local: they are for this machine's user, who may see everything but values of params.
    """
    yield ServerSentEvent(retry=_RECONNECT_MILLISECONDS, sep="\n")
    async with aclosing(events):
        try:
            async for number, event in events:
                public = show_event(event, is_local=is_local)
                if public is not None:
                    yield ServerSentEvent(public.model_dump_json(), event=public.type, id=str(number), sep="\n")
        except RetryLater as e:
            yield _encode_problem(e.message)
        except MassmemError as e:
            problem = f"{e.message}: {e.hint}" if is_local else "the turn could not be followed any further"
            yield _encode_problem(problem)


async def wait_for_first(events: AsyncGenerator[T, None]) -> AsyncGenerator[T, None]:
    """Return the same events once the first one is there, so that an error before it can be a response of its own."""
    first = await anext(events, None)

    async def replay() -> AsyncGenerator[T, None]:
        async with aclosing(events):
            if first is not None:
                yield first
                async for event in events:
                    yield event

    return replay()


def show_event(event: ev.Event, *, is_local: bool) -> ev.Event | None:
    """Return the event as this machine's user may see it, or as `hide_internals`."""
    return ev.hide_private_fields(event) if is_local else hide_internals(event)


def hide_internals(event: ev.Event) -> ev.Event | None:
    """Return the event as users of the service may see it, or None when they may not see it.

    Errors of providers may name hosts and keys; arguments and results of tools may quote the service's own files. Users
    see only that an agent failed, and the names of tools.
    """
    match event:
        case ev.Notice():
            return None
        case ev.TurnStarted() | ev.TurnResumed() | ev.TurnAbandoned():
            changes = {"session_id": public_session_id(event.session_id)}
        case ev.AgentFailed():
            changes = {"message": "the agent could not act", "hint": ""}
        case ev.TurnFailed(message=message) if message != GAVE_UP:
            changes = {"message": "no agent could answer", "hint": ""}
        case ev.ToolCalled():
            changes = {"arguments": "", "state": ""}
        case ev.ToolReturned():
            changes = {"content": ""}
        case ev.AgentRetrying():
            changes = {"error": "the request is sent again"}
        case _:
            return ev.hide_private_fields(event)
    return event.model_copy(update=changes)


def _encode_problem(message: str) -> ServerSentEvent:
    return ServerSentEvent(Problem(error=message).model_dump_json(), event="error", sep="\n")
