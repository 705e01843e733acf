"""`/api/ai-memory`: conversations as a memory that programs read, list, clear and count. Times in milliseconds."""

from datetime import datetime

from fastapi import APIRouter, Response

from massmem.server.caller import PROBLEMS, TURN_PROBLEMS, Authorized
from massmem.server.schemas import (
    Cleared,
    Memory,
    MemoryAnswer,
    MemoryList,
    MemoryMessage,
    Stats,
    StatsAnswer,
    as_json,
)

router = APIRouter(prefix="/api/ai-memory", tags=["ai-memory"], responses=PROBLEMS)


@router.get("/conversations/{session_id}", operation_id="memory", response_model=MemoryAnswer)
async def memory(session_id: str, caller: Authorized) -> Response:
    """A conversation's messages."""
    conversations = caller.service.conversations
    session = await conversations.session(caller.sub, session_id)
    messages = [
        MemoryMessage(
            role="user" if m.kind == "user" else "assistant", content=m.content, timestamp=_milliseconds(m.at)
        )
        for m in await conversations.newest(caller.sub, session_id)
    ]
    created, updated = _milliseconds(session.created_at), _milliseconds(session.updated_at)
    data = Memory(sessionId=session_id, messages=messages, createdAt=created, updatedAt=updated)
    return as_json(MemoryAnswer(data=data))


@router.get("/conversations", response_model=MemoryList)
async def names(caller: Authorized) -> Response:
    """The ids of the user's conversations, the last used first."""
    return as_json(MemoryList(data=await caller.service.conversations.names(caller.sub)))


@router.delete(
    "/conversations/{session_id}", operation_id="clear", responses={409: TURN_PROBLEMS[409]}, response_model=Cleared
)
async def clear(session_id: str, caller: Authorized) -> Response:
    """Delete a conversation for good, with what is remembered of it."""
    service = caller.service
    await service.removal.remove(await service.conversations.session(caller.sub, session_id))
    return as_json(Cleared(message=f"Conversation {session_id} cleared"))


@router.get("/stats", response_model=StatsAnswer)
async def stats(caller: Authorized) -> Response:
    """How much there is: of the user, and with the scope admin of all users."""
    service = caller.service
    totals = await service.conversations.totals(None if caller.user.admin else caller.sub)
    average = round(totals.messages / totals.conversations) if totals.conversations else 0
    info = service.team.store.info
    data = Stats(
        activeConversations=totals.conversations,
        totalMessages=totals.messages,
        averageMessagesPerConversation=average,
        usingRedis=info.kind == "redis",
        durable=info.durable,
    )
    return as_json(StatsAnswer(data=data))


def _milliseconds(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)
