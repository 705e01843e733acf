"""One JSON object: {"schema_version", "session", "turns": [...]}, a turn per line. Nothing is left out."""

import json
from typing import Any

from massmem.records import MessageRecord, SessionRecord
from massmem.transcript import Exchange

SCHEMA_VERSION = 1


def head(session: SessionRecord) -> str:
    return f'{{"schema_version": {SCHEMA_VERSION}, "session": {_dumped(session.model_dump(mode="json"))}, "turns": ['


def turn(said: Exchange, first: bool, detailed: bool) -> str:
    """detailed makes no difference here."""
    return ("" if first else ",") + "\n" + _dumped(turn_object(said))


def tail() -> str:
    return "\n]}\n"


def turn_object(said: Exchange) -> dict[str, Any]:
    """A turn as JSON. `messages` have the fields of a chat history: role, content, timestamp, agent_type."""
    record, final, usage = said.record, said.final, said.usage
    return {
        "turn": record.turn,
        "status": record.status,
        "question": record.question,
        "answer": None if final is None else final.content,
        "asked": [{"agent": who or None, "content": text} for who, text in said.dialogue],
        "plan": list(said.plan),
        "winner": record.winner,
        "confidence": None if final is None else final.confidence,
        "escalated": final is not None and final.escalated,
        "votes": said.votes,
        "ballots": [
            {"agent": b.agent_id, "round": b.round, "choice": b.choice, "reason": b.reason, "stands": b.stands}
            for b in said.ballots
        ],
        "rounds": said.rounds,
        "seconds": said.seconds,
        "tokens": {"prompt": usage.prompt, "completion": usage.completion, "reported": usage.reported},
        "cost": usage.cost,
        "started_at": record.started_at.isoformat(),
        "ended_at": None if record.ended_at is None else record.ended_at.isoformat(),
        "messages": [_message(m) for m in said.messages],
    }


def _message(message: MessageRecord) -> dict[str, Any]:
    return {
        "id": message.id,
        "role": message.role,
        "kind": message.kind,
        "agent_type": message.agent_id,
        "round": message.round,
        "final": message.final,
        "content": message.content,
        "timestamp": message.created_at.isoformat(),
        "metadata": message.metadata,
    }


def _dumped(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
