"""`/api/conversation`, `/api/conversations` and `/api/multi-agent/query`."""

from typing import Annotated

from fastapi import APIRouter, Query, Response

from massmem.server.answers import outcome, query_answer
from massmem.server.caller import ANSWERS, PROBLEMS, Authorized, RequestKey, request_name, session_for
from massmem.server.conversations import agents_used, user_name
from massmem.server.schemas import (
    LARGEST_OFFSET,
    MOST_LISTED,
    Conversation,
    ConversationList,
    ConversationMessage,
    ListedConversation,
    QueryAnswer,
    QueryRequest,
    as_json,
)
from massmem.server.turns import Question

router = APIRouter(prefix="/api", tags=["conversations"], responses=PROBLEMS)


@router.get("/conversation/{session_id}", operation_id="conversation", response_model=Conversation)
async def conversation(session_id: str, caller: Authorized) -> Response:
    """A conversation: questions and final answers."""
    conversations = caller.service.conversations
    session = await conversations.session(caller.sub, session_id)
    found = await conversations.newest(caller.sub, session_id)
    messages = [
        ConversationMessage(role="user", content=m.content, timestamp=m.at)
        if m.kind == "user"
        else ConversationMessage(
            role="assistant", content=m.content, timestamp=m.at, agent=m.agent_id or None, citations=[]
        )
        for m in found
    ]
    return as_json(
        Conversation(
            session_id=session_id,
            messages=messages,
            agents_used=agents_used(found),
            created_at=session.created_at,
            message_count=len(messages),
        )
    )


@router.get("/conversations", response_model=ConversationList)
async def conversations(
    caller: Authorized,
    limit: Annotated[int, Query(ge=1, le=MOST_LISTED)] = 50,
    offset: Annotated[int, Query(ge=0, le=LARGEST_OFFSET)] = 0,
) -> Response:
    """The user's conversations, the last used first."""
    page = await caller.service.conversations.page(caller.sub, limit, offset)
    sessions = [
        ListedConversation(
            session_id=user_name(each.session.session_id),
            query=each.session.title,
            created_at=each.session.created_at,
            last_activity=each.session.updated_at,
            message_count=each.said,
            agents_used=page.agents[each.session.session_id],
        )
        for each in page.sessions
    ]
    return as_json(ConversationList(sessions=sessions, total_sessions=page.total, limit=limit, offset=offset))


@router.post("/multi-agent/query", responses=ANSWERS, response_model=QueryAnswer)
async def query(body: QueryRequest, caller: Authorized, key: RequestKey = None) -> Response:
    """Ask the team, and wait for its answer. A session that is not there is made."""
    session_id = session_for(caller, body.session_id, key)
    question = Question(caller.sub, session_id, body.query, request_name(key), body.team)
    found = await outcome(session_id, caller.service.turns.ask(question, live=False))
    return as_json(query_answer(body.query, found, caller.service.warning), nulls=True)
