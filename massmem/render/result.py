"""A finished turn as one JSON object, the output of `--output json`."""

from typing import Any

from massmem.events import SCHEMA_VERSION, AnswerSubmitted, BallotCast, TurnFailed, TurnWaiting
from massmem.messages import Usage
from massmem.render.board import AgentState, Board


def turn_object(board: Board) -> dict[str, Any]:
    """What `--output json` prints. Times in seconds; `votes` are the standing ballots per agent id.

    `confidence` is from 0 to 1, null for an agent alone (see massmem.voting); `escalated`: below the configured bound.

    `usage` is the whole turn's and includes the presentation, which no single event of an agent reports.
    """
    ended = board.end.at if board.end is not None else board.started_at
    return {
        "schema_version": SCHEMA_VERSION,
        "status": board.status,
        "session_id": board.session_id,
        "turn": board.turn,
        "question": board.question,
        "answer": board.answer,
        "waiting_for": _waiting(board),
        "limit": board.limit,
        "winner": board.winner.agent_id if board.winner else None,
        "decided_by": board.winner.by if board.winner else None,
        "votes": board.votes,
        "confidence": board.confidence,
        "escalated": board.escalated,
        "rounds": board.round,
        "agents": [_agent(agent) for agent in board.agents.values()],
        "usage": usage_object(board.usage),
        "seconds": round(board.seconds(ended), 3) if ended is not None else 0.0,
        "notices": list(board.notices),
        "errors": _errors(board),
    }


def _waiting(board: Board) -> dict[str, Any] | None:
    """What the user is asked for, when the turn waits; the next message to the session is read as the reply."""
    end = board.end
    return {"param": end.param, "prompt": end.prompt, "asked": end.asked} if isinstance(end, TurnWaiting) else None


def usage_object(usage: Usage) -> dict[str, Any]:
    """Tokens, requests, and `cost` in US dollars, null when a price is not known."""
    return {
        "prompt": usage.prompt,
        "completion": usage.completion,
        "cached": usage.cached,
        "requests": usage.requests,
        "reported": usage.reported,
        "cost": usage.cost,
    }


def _agent(agent: AgentState) -> dict[str, Any]:
    return {
        "id": agent.id,
        "answers": [_answer(event) for event in agent.answers],
        "ballots": [_ballot(event) for event in agent.ballots],
        "usage": usage_object(agent.usage),
        "error": _error(agent) if agent.failure is not None else None,
        "seconds": round(agent.spent, 3),
    }


def _answer(event: AnswerSubmitted) -> dict[str, Any]:
    return {"round": event.round, "number": event.number, "content": event.content}


def _ballot(event: BallotCast) -> dict[str, Any]:
    return {"round": event.round, "choice": event.choice, "reason": event.reason}


def _error(agent: AgentState) -> dict[str, Any]:
    event = agent.failure
    assert event is not None
    return {"type": event.error, "step": event.step, "round": event.round, "error": event.message, "fix": event.hint}


def _errors(board: Board) -> list[dict[str, Any]]:
    errors = [{"agent": a.id, **_error(a)} for a in board.agents.values() if a.failure is not None]
    if isinstance(board.end, TurnFailed):
        errors.append({"agent": None, "type": "TurnError", "error": board.end.message, "fix": board.end.hint})
    return errors
