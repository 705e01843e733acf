"""Questions and answers as JSON objects or streams of events, and what was said, in three forms.

`/api/v1/chat`; `/api/conversation`, `/api/conversations` and `/api/multi-agent/query`; and `/api/ai-memory`, with times
in milliseconds.
"""

from collections.abc import AsyncGenerator
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Query
from sse_starlette import EventSourceResponse

from massmem.config.variation import Variation
from massmem.core.citations import read_citations
from massmem.core.errors import InputError
from massmem.core.records import EVERYBODY, MessageRecord, SessionFilter, SessionRecord
from massmem.server import schemas
from massmem.server.dependencies import (
    Authorized,
    Caller,
    CheckedRoute,
    IdempotencyKey,
    LastEventId,
    Limit,
    Offset,
    SessionPath,
)
from massmem.server.errors import PROBLEMS, TURN_PROBLEMS
from massmem.server.responses import (
    ANSWERS,
    STREAM,
    encode_events,
    make_chat_answer,
    make_query_answer,
    read_results_of,
    stream_response,
    wait_for_result,
)
from massmem.server.turns import ClientQuestion, NumberedEvent
from massmem.session.owners import public_session_id

_MAX_MESSAGES = 10_000
"""Messages of a conversation that is read whole."""

_chat = APIRouter(route_class=CheckedRoute, prefix="/api/v1/chat", tags=["chat"])
_conversations = APIRouter(route_class=CheckedRoute, prefix="/api", tags=["conversations"])
_memory = APIRouter(route_class=CheckedRoute, prefix="/api/ai-memory", tags=["ai-memory"])


@_chat.post("", responses=ANSWERS)
async def chat(body: schemas.ChatRequest, caller: Authorized, key: IdempotencyKey = None) -> schemas.ChatAnswer:
    """Ask, or reply to what was asked for, and wait for the answer. An unknown session is created."""
    question = await _read_question(caller, body, body.message, key)
    result = await wait_for_result(caller, question.session_id, caller.service.turns.ask(question))
    return make_chat_answer(result, caller.service.warning)


@_chat.post("/stream", responses={**STREAM, **TURN_PROBLEMS}, response_class=EventSourceResponse)
async def chat_stream(
    body: schemas.ChatRequest, caller: Authorized, key: IdempotencyKey = None, last: LastEventId = None
) -> EventSourceResponse:
    """The same as a stream of events. With Last-Event-ID nothing is asked: the stream goes on after that event."""
    if last is not None:
        return await follow(body.session_id or "", caller, last)
    question = await _read_question(caller, body, body.message, key)
    return await _stream(caller, caller.service.turns.ask(question))


@_chat.get("/stream/{session_id}", responses=STREAM, response_class=EventSourceResponse)
async def follow(session_id: SessionPath, caller: Authorized, last: LastEventId = None) -> EventSourceResponse:
    """The events of the session after Last-Event-ID, those of its log first, to the end of the turn under way."""
    session = await caller.sessions.get(session_id)
    return await _stream(caller, caller.service.turns.follow(session.session_id, last or 0))


@_chat.post("/{session_id}/now", status_code=204)
async def answer_now(session_id: SessionPath, caller: Authorized) -> None:
    """Let the turn under way end with the answers that it has, or with the first one: no further round or vote."""
    session = await caller.sessions.get(session_id)
    (await caller.service.turns.find_running(session.session_id)).answer_now()


@_chat.post("/{session_id}/stop", status_code=204)
async def stop(session_id: SessionPath, caller: Authorized) -> None:
    """Stop the turn under way, without an answer; the next question goes on. Whoever waits for the answer gets 409."""
    session = await caller.sessions.get(session_id)
    (await caller.service.turns.find_running(session.session_id)).stop("user")


@_chat.post("/{session_id}/continue", status_code=204, responses={409: TURN_PROBLEMS[409]})
async def continue_turn(session_id: SessionPath, caller: Authorized) -> None:
    """Go on with a turn that was stopped or has failed, in the background; its events can be followed."""
    session = await caller.sessions.get(session_id)
    await caller.service.turns.continue_turn(session.session_id, caller.owner)


@_chat.get("/history/{session_id}", response_model_exclude_none=True)
async def history(
    session_id: SessionPath,
    caller: Authorized,
    limit: Annotated[
        int, Query(ge=1, le=schemas.MAX_HISTORY_LENGTH, description="How many messages, the newest ones.")
    ] = 50,
) -> schemas.History:
    """The newest messages, oldest first."""
    session = await caller.sessions.get(session_id)
    read = await _read(caller, session, limit)
    results = await read_results_of(caller, session, {message.turn for message in read})
    messages = [
        schemas.HistoryMessage(
            role=message.speaker,
            content=message.public_text,
            agent=message.agent_name or None,
            agent_id=message.agent_id or None,
            confidence=message.confidence,
            citations=[*read_citations(message.metadata)] or None,
            result=results.get(message.turn) if message.final else None,
            timestamp=message.created_at,
        )
        for message in read
    ]
    return schemas.History(session_id=session_id, messages=messages, count=len(messages))


async def _read_question(
    caller: Caller, body: schemas.AskRequest, content: schemas.Content, key: str | None
) -> ClientQuestion:
    if isinstance(body, schemas.ChatRequest) and body.user_id not in (None, caller.sub):
        raise InputError("user_id is another user's than the token's", "leave it out: the token names the user")
    if (body.model or body.folder) and not caller.is_local:
        raise InputError("models and folders are chosen by whoever runs the service", "leave model and folder out")
    question = await caller.make_question(content, body.session_id, body.team, key, body.project)
    change = Variation(body.agent, body.model, (body.folder,) if body.folder else (), body.job, body.mode).apply
    return replace(question, full=body.full, replaces=body.replaces, change=change)


@_conversations.get("/conversation/{session_id}", response_model_exclude_none=True)
async def conversation(session_id: SessionPath, caller: Authorized) -> schemas.Conversation:
    """A conversation: questions and final answers."""
    session = await caller.sessions.get(session_id)
    messages = await _read(caller, session)
    return schemas.Conversation(
        session_id=session_id,
        messages=[_show_message(message) for message in messages],
        agents_used=list(dict.fromkeys(m.agent_name for m in messages if m.agent_name and m.final)),
        created_at=session.created_at,
        message_count=len(messages),
    )


@_conversations.get("/conversations")
async def conversations(
    caller: Authorized,
    limit: Limit = 50,
    offset: Offset = 0,
) -> schemas.ConversationList:
    """The user's conversations, the last used first."""
    page = await caller.sessions.list_conversations(limit, offset)
    ids = [listed.session.session_id for listed in page.sessions]
    winners = sorted((await caller.service.team.store.get_winner_names(ids)).items())
    sessions = [
        schemas.ListedConversation(
            session_id=public_session_id(listed.session.session_id),
            query=listed.session.display_title,
            created_at=listed.session.created_at,
            last_activity=listed.session.updated_at,
            message_count=listed.conversation_length,
            agents_used=list(dict.fromkeys(name for (i, _), name in winners if i == listed.session.session_id)),
        )
        for listed in page.sessions
    ]
    return schemas.ConversationList(sessions=sessions, total_sessions=page.total, limit=limit, offset=offset)


@_conversations.post("/multi-agent/query", responses=ANSWERS)
async def query(body: schemas.QueryRequest, caller: Authorized, key: IdempotencyKey = None) -> schemas.QueryAnswer:
    """Ask the team, and wait for its answer. An unknown session is created."""
    question = await _read_question(caller, body, body.query, key)
    result = await wait_for_result(caller, question.session_id, caller.service.turns.ask(question))
    return make_query_answer(question.text, result, caller.service.warning)


@_memory.get("/conversations/{session_id}")
async def memory(session_id: SessionPath, caller: Authorized) -> schemas.MemoryAnswer:
    """A conversation's messages."""
    session = await caller.sessions.get(session_id)
    messages = [
        schemas.MemoryMessage(
            role=message.speaker,
            content=message.public_text,
            timestamp=_to_milliseconds(message.created_at),
        )
        for message in await _read(caller, session)
    ]
    created, updated = _to_milliseconds(session.created_at), _to_milliseconds(session.updated_at)
    return schemas.MemoryAnswer(
        data=schemas.Memory(sessionId=session_id, messages=messages, createdAt=created, updatedAt=updated)
    )


@_memory.get("/conversations")
async def session_ids(caller: Authorized) -> schemas.MemoryList:
    """The ids of the user's conversations, the last used first."""
    page = await caller.sessions.list_conversations()
    return schemas.MemoryList(data=[public_session_id(listed.session.session_id) for listed in page.sessions])


@_memory.delete("/conversations/{session_id}", responses={409: TURN_PROBLEMS[409]})
async def clear(session_id: SessionPath, caller: Authorized) -> schemas.Cleared:
    """Delete a conversation for good, with what is remembered of it."""
    await caller.service.delete_session(await caller.sessions.get(session_id))
    return schemas.Cleared(message=f"Conversation {session_id} cleared")


@_memory.get("/stats")
async def stats(caller: Authorized) -> schemas.StatsAnswer:
    """How much the user has; with the scope admin, how much all users have."""
    service = caller.service
    owner, store = EVERYBODY if caller.user.is_admin else caller.owner, service.team.store
    criteria = SessionFilter(owner=owner, has_messages=True)
    number, messages = (await store.count_sessions(criteria)).sessions, await store.count_messages(criteria)
    average = round(messages / number) if number else 0
    data = schemas.Stats(
        activeConversations=number,
        totalMessages=messages,
        averageMessagesPerConversation=average,
        usingRedis=store.info.kind == "redis",
        durable=store.info.durable,
    )
    return schemas.StatsAnswer(data=data)


async def _read(caller: Caller, session: SessionRecord, limit: int = _MAX_MESSAGES) -> list[MessageRecord]:
    """Return the newest questions and final answers of the session, oldest first."""
    return (await caller.service.team.store.read_conversation(session.session_id, None, limit))[::-1]


async def _stream(caller: Caller, events: AsyncGenerator[NumberedEvent, None]) -> EventSourceResponse:
    return await stream_response(caller, events, partial(encode_events, is_local=caller.is_local))


def _show_message(message: MessageRecord) -> schemas.ConversationMessage:
    sources = [citation.url for citation in read_citations(message.metadata)]
    return schemas.ConversationMessage(
        role=message.speaker,
        content=message.public_text,
        timestamp=message.created_at,
        agent=message.agent_name or None,
        citations=None if message.speaker == "user" else sources,
    )


def _to_milliseconds(time: datetime) -> int:
    return int(time.timestamp() * 1000)


router = APIRouter(responses=PROBLEMS)
for _routes in (_chat, _conversations, _memory):
    router.include_router(_routes)
