"""`/api/v1/chat`: questions and answers, as one JSON object or as a stream of events, and what was said before."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from fastapi.responses import StreamingResponse

from massmem.server import sse
from massmem.server.answers import chat_answer, outcome
from massmem.server.caller import (
    ANSWERS,
    PROBLEMS,
    TURN_PROBLEMS,
    Authorized,
    Caller,
    LastEvent,
    RequestKey,
    request_name,
    session_for,
)
from massmem.server.running import Numbered
from massmem.server.schemas import MOST_HISTORY, ChatAnswer, ChatRequest, History, as_json, history_as_json
from massmem.server.turns import Question

router = APIRouter(prefix="/api/v1/chat", tags=["chat"], responses=PROBLEMS)

_STREAM: dict[int | str, dict[str, Any]] = {
    200: {"content": {sse.MEDIA_TYPE: {"schema": sse.SCHEMA}}, "description": "Events of the turn"}
}


@router.post("", responses=ANSWERS, response_model=ChatAnswer)
async def chat(body: ChatRequest, caller: Authorized, key: RequestKey = None) -> Response:
    """Ask, or reply to what was asked for, and wait for the answer. A session that is not there is made."""
    question = _question(body, caller, key)
    found = await outcome(question.session_id, caller.service.turns.ask(question, live=False))
    return as_json(chat_answer(found, caller.service.warning), nulls=True)


@router.post("/stream", responses={**_STREAM, **TURN_PROBLEMS}, response_class=StreamingResponse)
async def chat_stream(
    body: ChatRequest, caller: Authorized, key: RequestKey = None, last: LastEvent = None
) -> StreamingResponse:
    """The same as a stream of events. With Last-Event-ID nothing is asked: the stream goes on after that event."""
    question = _question(body, caller, key)
    if last is not None:
        return await _follow(caller, body.session_id or "", last)
    return await _streamed(caller, caller.service.turns.ask(question))


@router.get("/stream/{session_id}", operation_id="follow", responses=_STREAM, response_class=StreamingResponse)
async def follow(session_id: str, caller: Authorized, last: LastEvent = None) -> StreamingResponse:
    """The events of the session after Last-Event-ID, those of its log first, to the end of the turn under way."""
    return await _follow(caller, session_id, last or 0)


@router.get("/history/{session_id}", operation_id="history", response_model=History)
async def history(
    session_id: str, caller: Authorized, limit: Annotated[int, Query(ge=1, le=MOST_HISTORY)] = 50
) -> Response:
    """The newest messages, oldest first."""
    found = await caller.service.conversations.newest(caller.sub, session_id, limit)
    return history_as_json(session_id, found)


def _question(body: ChatRequest, caller: Caller, key: str | None) -> Question:
    session_id = session_for(caller, body.session_id, key)
    return Question(caller.sub, session_id, body.message, request_name(key), body.team)


async def _follow(caller: Caller, name: str, after: int) -> StreamingResponse:
    session = await caller.service.conversations.session(caller.sub, name)
    return await _streamed(caller, caller.service.turns.follow(session.session_id, after))


async def _streamed(caller: Caller, events: AsyncGenerator[Numbered, None]) -> StreamingResponse:
    service = caller.service
    service.limits.check_streams(caller.sub)
    begun = await sse.begun(events)

    async def counted() -> AsyncGenerator[str, None]:
        with service.metrics.streams.track_inprogress(), service.limits.stream(caller.sub):
            async with aclosing(sse.stream(begun)) as texts:
                async for text in texts:
                    yield text

    return StreamingResponse(counted(), media_type=sse.MEDIA_TYPE, headers=sse.HEADERS)
