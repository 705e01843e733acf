"""What became of a question, as one answer."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import datetime

from fastapi import HTTPException

from massmem.errors import ProviderUnavailable
from massmem.events import (
    AnswerSubmitted,
    Event,
    TurnAbandoned,
    TurnCompleted,
    TurnFailed,
    TurnResumed,
    TurnStarted,
    TurnWaiting,
    now,
)
from massmem.server.conversations import user_name
from massmem.server.limits import TooMuch
from massmem.server.running import Numbered
from massmem.server.schemas import ChatAnswer, QueryAnswer, Status

_GIVEN_UP = "What was asked is given up."


@dataclass(slots=True)
class Outcome:
    """The last turn that its events are of. answered: agents that proposed an answer."""

    session_id: str
    turn: int = 0
    end: TurnCompleted | TurnFailed | TurnWaiting | TurnAbandoned | None = None
    answered: dict[str, None] = field(default_factory=dict[str, None])

    def feed(self, event: Event) -> None:
        match event:
            case TurnStarted(turn=turn) | TurnResumed(turn=turn):
                self.turn, self.end = turn, None
                self.answered.clear()
            case AnswerSubmitted(agent_id=agent):
                self.answered[agent] = None
            case TurnCompleted() | TurnFailed() | TurnWaiting() | TurnAbandoned():
                self.end = event
            case _:
                pass

    @property
    def status(self) -> Status:
        match self.end:
            case TurnWaiting():
                return "waiting"
            case TurnAbandoned():
                return "abandoned"
            case _:
                return "completed"

    @property
    def text(self) -> str:
        match self.end:
            case TurnCompleted(answer=answer):
                return answer
            case TurnWaiting(prompt=prompt):
                return prompt
            case _:
                return _GIVEN_UP

    @property
    def agent(self) -> str | None:
        match self.end:
            case TurnCompleted(winner=winner):
                return winner
            case TurnWaiting(agents=agents):
                return next(iter(agents), None)
            case _:
                return None

    @property
    def waiting_for(self) -> str | None:
        return self.end.param if isinstance(self.end, TurnWaiting) else None

    @property
    def confidence(self) -> float | None:
        return self.end.confidence if isinstance(self.end, TurnCompleted) else None

    @property
    def escalated(self) -> bool:
        return isinstance(self.end, TurnCompleted) and self.end.escalated

    @property
    def at(self) -> datetime:
        return now() if self.end is None else self.end.at


async def outcome(session_id: str, events: AsyncGenerator[Numbered, None]) -> Outcome:
    """Wait for the end of the turn.

    Raises:
        HTTPException: 502 no agent could answer, or 503 none can now.
        TooMuch: this process ends, and another one finishes the turn.
    """
    found = Outcome(user_name(session_id))
    async with aclosing(events):
        async for _, event in events:
            found.feed(event)
    match found.end:
        case None:
            raise TooMuch(503, "the service is restarting: ask again under the same Idempotency-Key")
        case TurnFailed(exit_code=code) if code == ProviderUnavailable.exit_code:
            raise TooMuch(503, "no agent can answer now", 5)
        case TurnFailed():
            raise HTTPException(502, "no agent could answer")
        case _:
            return found


def chat_answer(found: Outcome, warning: str) -> ChatAnswer:
    return ChatAnswer(
        session_id=found.session_id,
        response=found.text,
        status=found.status,
        waiting_for_param=found.waiting_for,
        turn=found.turn,
        agent=found.agent,
        confidence=found.confidence,
        escalated=found.escalated,
        warning=warning or None,
        timestamp=found.at,
    )


def query_answer(query: str, found: Outcome, warning: str) -> QueryAnswer:
    return QueryAnswer(
        session_id=found.session_id,
        query=query,
        content=found.text,
        agent_name=found.agent,
        agent=found.agent,
        agents_used=list(found.answered) or ([found.agent] if found.agent else []),
        waiting_for_param=found.waiting_for,
        status=found.status,
        confidence=found.confidence,
        escalated=found.escalated,
        warning=warning or None,
        timestamp=found.at,
    )
