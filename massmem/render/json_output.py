"""A turn as JSON for programs: every event as a line, or one object at the end."""

from collections.abc import Callable
from typing import Any

from massmem.core.events import EVENT, SCHEMA_VERSION, AgentFailed, Event, TurnFailed, TurnWaiting, hide_reply_text
from massmem.core.messages import Usage
from massmem.render import Renderer
from massmem.render.turn_view import AgentView, TurnView


class JsonlRenderer(Renderer):
    """Writes each event as one line, so that a reader gets it at once."""

    def __init__(self, write: Callable[[str], object]) -> None:
        """write: writes text and flushes it."""
        self._write = write

    def feed(self, event: Event) -> None:
        self._write(EVENT.dump_json(hide_reply_text(event)).decode() + "\n")


def turn_to_dict(view: TurnView) -> dict[str, Any]:
    """Return what `--output json` prints.

    Times are in seconds. `data` is the answer as a JSON value, when the question came with a schema. `truncated` tells
    whether the end of the answer is missing, `work_cut` what ended an agent's work with tools before it did itself.
    `votes` are the standing ballots per agent id; the ballots of `not_asked` could not change the winner. `agreement`
    says in one sentence what is known of how far the agents agree. `dissent` has who `agreed` with the answer, the
    `minority`, and whose answers are `uncompared`, with their own answers, votes and reasons; null for an agent alone,
    and when this run did not see the turn from its beginning. `confidence` is from 0 to 1, null for an agent alone and
    when nobody voted (see massmem.core.voting); `escalated` tells whether it is below the configured bound. `usage` is
    the whole turn's, with the presentation, which no event of an agent reports.
    """
    outcome = view.outcome
    end = outcome.end.at if outcome.end is not None else view.started_at
    return {
        "schema_version": SCHEMA_VERSION,
        "status": outcome.status,
        "session_id": outcome.session_id,
        "turn": outcome.turn,
        "question": outcome.question,
        "answer": outcome.answer,
        "data": outcome.data,
        "truncated": outcome.is_truncated,
        "waiting_for": _waiting_to_dict(view),
        "limit": outcome.limit,
        "work_cut": outcome.work_cut,
        "winner": outcome.winner.agent_id if outcome.winner else None,
        "decided_by": outcome.winner.by if outcome.winner else None,
        "votes": view.votes,
        "not_asked": list(outcome.winner.not_asked) if outcome.winner else [],
        "agreement": outcome.agreement or None,
        "dissent": None if (dissent := view.dissent) is None else dissent.to_json(),
        "confidence": outcome.confidence,
        "escalated": outcome.escalated,
        "rounds": view.round,
        "agents": [_agent_to_dict(agent, outcome.name(agent.id)) for agent in view.agents.values()],
        "usage": usage_to_dict(view.usage),
        "seconds": round(view.seconds(end), 3) if end is not None else 0.0,
        "notices": list(view.notices),
        "errors": _errors(view),
    }


def usage_to_dict(usage: Usage) -> dict[str, Any]:
    """Return tokens, requests, and in US dollars `cost`, null when a price is not known, and what caching `saved`."""
    return {
        "prompt": usage.prompt,
        "completion": usage.completion,
        "cached": usage.cached,
        "reasoning": usage.reasoning,
        "requests": usage.requests,
        "reported": usage.reported,
        "cost": usage.cost,
        "saved": usage.saved,
    }


def _waiting_to_dict(view: TurnView) -> dict[str, Any] | None:
    """Return what the user is asked for; the next message to the session is read as the reply."""
    end = view.outcome.end
    return {"param": end.param, "prompt": end.prompt, "asked": end.asked} if isinstance(end, TurnWaiting) else None


def _agent_to_dict(agent: AgentView, name: str) -> dict[str, Any]:
    return {
        "id": agent.id,
        "name": name,
        "answers": [
            {"round": e.round, "number": e.number, "content": e.content, "work_cut": e.work_cut} for e in agent.answers
        ],
        "ballots": [{"round": e.round, "choice": e.choice, "reason": e.reason} for e in agent.ballots],
        "usage": usage_to_dict(agent.usage),
        "error": _failure_to_dict(agent.failure) if agent.failure is not None else None,
        "seconds": round(agent.spent, 3),
    }


def _failure_to_dict(event: AgentFailed) -> dict[str, Any]:
    return {"type": event.error, "step": event.step, "round": event.round, "error": event.message, "fix": event.hint}


def _errors(view: TurnView) -> list[dict[str, Any]]:
    errors = [{"agent": failure.agent_id, **_failure_to_dict(failure)} for failure in view.agent_failures]
    end = view.outcome.end
    if isinstance(end, TurnFailed):
        errors.append({"agent": None, "type": "TurnError", "error": end.message, "fix": end.hint})
    return errors
