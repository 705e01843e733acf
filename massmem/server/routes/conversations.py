"""`/api/conversation`, `/api/conversations` and `/api/multi-agent/query`."""

from typing import Annotated

from fastapi import APIRouter, Query

from massmem.core.records import MessageRecord
from massmem.server.conversations import list_agents
from massmem.server.dependencies import Authorized, IdempotencyKey, SessionPath
from massmem.server.errors import PROBLEMS
from massmem.server.responses import ANSWERS, make_query_answer, wait_for_outcome
from massmem.server.schemas import (
    MAX_LIST_LENGTH,
    MAX_OFFSET,
    Conversation,
    ConversationList,
    ConversationMessage,
    ListedConversation,
    QueryAnswer,
    QueryRequest,
)
from massmem.session.owners import public_session_id

router = APIRouter(prefix="/api", tags=["conversations"], responses=PROBLEMS)


@router.get("/conversation/{session_id}", response_model_exclude_none=True)
async def conversation(session_id: SessionPath, caller: Authorized) -> Conversation:
    """A conversation: questions and final answers."""
    conversations = caller.service.conversations
    session = await conversations.find(caller.owner, session_id)
    messages = await conversations.read(session)
    return Conversation(
        session_id=session_id,
        messages=[_show_message(message) for message in messages],
        agents_used=list_agents(messages),
        created_at=session.created_at,
        message_count=len(messages),
    )


@router.get("/conversations")
async def conversations(
    caller: Authorized,
    limit: Annotated[int, Query(ge=1, le=MAX_LIST_LENGTH, description="How many conversations.")] = 50,
    offset: Annotated[int, Query(ge=0, le=MAX_OFFSET, description="How many to skip.")] = 0,
) -> ConversationList:
    """The user's conversations, the last used first."""
    page = await caller.service.conversations.list_page(caller.owner, limit, offset)
    sessions = [
        ListedConversation(
            session_id=public_session_id(listed.session.session_id),
            query=listed.session.display_title,
            created_at=listed.session.created_at,
            last_activity=listed.session.updated_at,
            message_count=listed.conversation_length,
            agents_used=page.agents[listed.session.session_id],
        )
        for listed in page.sessions
    ]
    return ConversationList(sessions=sessions, total_sessions=page.total, limit=limit, offset=offset)


@router.post("/multi-agent/query", responses=ANSWERS)
async def query(body: QueryRequest, caller: Authorized, key: IdempotencyKey = None) -> QueryAnswer:
    """Ask the team, and wait for its answer. An unknown session is created."""
    question = await caller.make_question(body.query, body.session_id, body.team, key)
    outcome = await wait_for_outcome(caller.service.turns.ask(question))
    return make_query_answer(question.session_id, question.text, outcome, caller.service.warning)


def _show_message(message: MessageRecord) -> ConversationMessage:
    content, timestamp = message.public_text, message.created_at
    if message.kind == "user":
        return ConversationMessage(role="user", content=content, timestamp=timestamp)
    agent = message.agent_name or None
    return ConversationMessage(role="assistant", content=content, timestamp=timestamp, agent=agent, citations=[])
