"""`/api/ai-memory`: conversations as a memory that programs read, list, clear and count. Times in milliseconds."""

from datetime import datetime

from fastapi import APIRouter

from massmem.core.records import EVERYBODY
from massmem.server.dependencies import Authorized, SessionPath
from massmem.server.errors import PROBLEMS, TURN_PROBLEMS
from massmem.server.schemas import Cleared, Memory, MemoryAnswer, MemoryList, MemoryMessage, Stats, StatsAnswer

router = APIRouter(prefix="/api/ai-memory", tags=["ai-memory"], responses=PROBLEMS)


@router.get("/conversations/{session_id}")
async def memory(session_id: SessionPath, caller: Authorized) -> MemoryAnswer:
    """A conversation's messages."""
    conversations = caller.service.conversations
    session = await conversations.find(caller.owner, session_id)
    messages = [
        MemoryMessage(
            role="user" if message.kind == "user" else "assistant",
            content=message.public_text,
            timestamp=_to_milliseconds(message.created_at),
        )
        for message in await conversations.read(session)
    ]
    created, updated = _to_milliseconds(session.created_at), _to_milliseconds(session.updated_at)
    return MemoryAnswer(data=Memory(sessionId=session_id, messages=messages, createdAt=created, updatedAt=updated))


@router.get("/conversations")
async def session_ids(caller: Authorized) -> MemoryList:
    """The ids of the user's conversations, the last used first."""
    return MemoryList(data=await caller.service.conversations.list_ids(caller.owner))


@router.delete("/conversations/{session_id}", responses={409: TURN_PROBLEMS[409]})
async def clear(session_id: SessionPath, caller: Authorized) -> Cleared:
    """Delete a conversation for good, with what is remembered of it."""
    conversations = caller.service.conversations
    await conversations.delete(await conversations.find(caller.owner, session_id))
    return Cleared(message=f"Conversation {session_id} cleared")


@router.get("/stats")
async def stats(caller: Authorized) -> StatsAnswer:
    """How much the user has; with the scope admin, how much all users have."""
    service = caller.service
    totals = await service.conversations.count(EVERYBODY if caller.user.is_admin else caller.owner)
    average = round(totals.messages / totals.conversations) if totals.conversations else 0
    store = service.team.store.info
    data = Stats(
        activeConversations=totals.conversations,
        totalMessages=totals.messages,
        averageMessagesPerConversation=average,
        usingRedis=store.kind == "redis",
        durable=store.durable,
    )
    return StatsAnswer(data=data)


def _to_milliseconds(time: datetime) -> int:
    return int(time.timestamp() * 1000)
