"""`/api/v1/chat`: questions and answers, as one JSON object or as a stream of events, and the history of a session."""

from collections.abc import AsyncGenerator
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Query
from sse_starlette import EventSourceResponse

from massmem.server.dependencies import Authorized, Caller, IdempotencyKey, LastEventId, SessionPath
from massmem.server.errors import PROBLEMS, TURN_PROBLEMS
from massmem.server.responses import (
    ANSWERS,
    STREAM,
    encode_events,
    make_chat_answer,
    stream_response,
    wait_for_outcome,
)
from massmem.server.schemas import MAX_HISTORY_LENGTH, ChatAnswer, ChatRequest, History, HistoryMessage
from massmem.server.turns import NumberedEvent

router = APIRouter(prefix="/api/v1/chat", tags=["chat"], responses=PROBLEMS)


@router.post("", responses=ANSWERS)
async def chat(body: ChatRequest, caller: Authorized, key: IdempotencyKey = None) -> ChatAnswer:
    """Ask, or reply to what was asked for, and wait for the answer. An unknown session is created."""
    question = await caller.make_question(body.message, body.session_id, body.team, key)
    outcome = await wait_for_outcome(caller.service.turns.ask(question))
    return make_chat_answer(question.session_id, outcome, caller.service.warning)


@router.post("/stream", responses={**STREAM, **TURN_PROBLEMS}, response_class=EventSourceResponse)
async def chat_stream(
    body: ChatRequest, caller: Authorized, key: IdempotencyKey = None, last: LastEventId = None
) -> EventSourceResponse:
    """The same as a stream of events. With Last-Event-ID nothing is asked: the stream goes on after that event."""
    if last is not None:
        return await follow(body.session_id or "", caller, last)
    question = await caller.make_question(body.message, body.session_id, body.team, key)
    return await _stream(caller, caller.service.turns.ask(question))


@router.get("/stream/{session_id}", responses=STREAM, response_class=EventSourceResponse)
async def follow(session_id: SessionPath, caller: Authorized, last: LastEventId = None) -> EventSourceResponse:
    """The events of the session after Last-Event-ID, those of its log first, to the end of the turn under way."""
    session = await caller.service.conversations.find(caller.owner, session_id)
    return await _stream(caller, caller.service.turns.follow(session.session_id, last or 0))


@router.post("/{session_id}/now", status_code=204)
async def answer_now(session_id: SessionPath, caller: Authorized) -> None:
    """Let the turn under way end with the answers that it has, or with the first one: no further round or vote."""
    session = await caller.service.conversations.find(caller.owner, session_id)
    await caller.service.turns.answer_now(session.session_id)


@router.post("/{session_id}/stop", status_code=204)
async def stop(session_id: SessionPath, caller: Authorized) -> None:
    """Stop the turn under way, without an answer; the next question goes on. Whoever waits for the answer gets 409."""
    session = await caller.service.conversations.find(caller.owner, session_id)
    await caller.service.turns.stop_turn(session.session_id)


@router.post("/{session_id}/continue", status_code=204, responses={409: TURN_PROBLEMS[409]})
async def continue_turn(session_id: SessionPath, caller: Authorized) -> None:
    """Go on with a turn that was stopped or has failed, in the background; its events can be followed."""
    session = await caller.service.conversations.find(caller.owner, session_id)
    await caller.service.turns.continue_turn(session.session_id, caller.owner)


@router.get("/history/{session_id}", response_model_exclude_none=True)
async def history(
    session_id: SessionPath,
    caller: Authorized,
    limit: Annotated[int, Query(ge=1, le=MAX_HISTORY_LENGTH, description="How many messages, the newest ones.")] = 50,
) -> History:
    """The newest messages, oldest first."""
    conversations = caller.service.conversations
    messages = [
        HistoryMessage(
            role="user" if message.kind == "user" else "assistant",
            content=message.public_text,
            confidence=message.confidence,
            agent=message.agent_name or None,
            agent_id=message.agent_id or None,
            timestamp=message.created_at,
        )
        for message in await conversations.read(await conversations.find(caller.owner, session_id), limit)
    ]
    return History(session_id=session_id, messages=messages, count=len(messages))


async def _stream(caller: Caller, events: AsyncGenerator[NumberedEvent, None]) -> EventSourceResponse:
    return await stream_response(caller, events, partial(encode_events, is_local=caller.is_local))
