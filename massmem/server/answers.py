"""Answers to questions as one JSON object, sent when the turn has ended."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import datetime
from typing import Any, TypedDict

from fastapi import HTTPException

from massmem.core.errors import ProviderUnavailable
from massmem.core.events import TurnFailed, TurnInterrupted, now
from massmem.core.outcome import TurnOutcome
from massmem.server.conversations import public_session_id
from massmem.server.errors import RETRY_LATER, RETRY_SOON, TURN_PROBLEMS, RetryLater
from massmem.server.schemas import ChatAnswer, QueryAnswer, Status
from massmem.server.turns import NumberedEvent

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


async def wait_for_outcome(events: AsyncGenerator[NumberedEvent, None]) -> TurnOutcome:
    """Return the outcome of the turn once it has an answer, waits for the user, or is abandoned.

    Raises:
        HTTPException: 502, no agent could answer.
        RetryLater: No provider can be reached, or this process ends and another one finishes the turn.
    """
    outcome = TurnOutcome()
    async with aclosing(events):
        async for _, event in events:
            outcome.feed(event)
    match outcome.end:
        case None | TurnInterrupted():
            raise RetryLater(503, "the service is restarting: ask again under the same Idempotency-Key", RETRY_SOON)
        case TurnFailed(exit_code=code) if code == ProviderUnavailable.exit_code:
            raise RetryLater(503, "no agent can answer now", RETRY_LATER)
        case TurnFailed():
            raise HTTPException(502, "no agent could answer")
        case _:
            return outcome


def make_chat_answer(session_id: str, outcome: TurnOutcome, warning: str | None) -> ChatAnswer:
    """session_id: as the store knows it."""
    common = _common_fields(session_id, outcome)
    return ChatAnswer(**common, response=_text(outcome), turn=outcome.turn, warning=warning)


def make_query_answer(session_id: str, query: str, outcome: TurnOutcome, warning: str | None) -> QueryAnswer:
    """session_id: as the store knows it."""
    agent = outcome.agent_id
    return QueryAnswer(
        **_common_fields(session_id, outcome),
        query=query,
        content=_text(outcome),
        agent_name=agent,
        agents_used=outcome.answered or ([agent] if agent else []),
        warning=warning,
    )


class _CommonFields(TypedDict):
    session_id: str
    status: Status
    waiting_for_param: str | None
    agent: str | None
    confidence: float | None
    escalated: bool
    timestamp: datetime


def _common_fields(session_id: str, outcome: TurnOutcome) -> _CommonFields:
    status = outcome.status
    return {
        "session_id": public_session_id(session_id),
        "status": status if status in ("waiting", "abandoned") else "completed",
        "waiting_for_param": outcome.waiting_for,
        "agent": outcome.agent_id,
        "confidence": outcome.confidence,
        "escalated": outcome.escalated,
        "timestamp": now() if outcome.end is None else outcome.end.at,
    }


def _text(outcome: TurnOutcome) -> str:
    """Return the answer, or what the user is asked for."""
    return outcome.answer or outcome.prompt or "Cancelled."
