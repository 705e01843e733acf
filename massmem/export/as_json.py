"""One JSON object, {"schema_version", "session", "turns": [...]}, with a turn per line and every step."""

import json
from base64 import b64encode
from dataclasses import asdict
from typing import Any

from massmem.core.attachments import Attachment
from massmem.core.records import MessageRecord, SessionRecord
from massmem.core.transcript import TurnTranscript

SCHEMA_VERSION = 1
END = "\n]}\n"


def write_start(session: SessionRecord) -> str:
    return f'{{"schema_version": {SCHEMA_VERSION}, "session": {_dump(session.model_dump(mode="json"))}, "turns": ['


def write_turn(turn: TurnTranscript, first: bool, detailed: bool) -> str:
    return ("" if first else ",") + "\n" + _dump(turn_to_dict(turn))


def turn_to_dict(turn: TurnTranscript) -> dict[str, Any]:
    """Return a turn as JSON. `messages` have the fields of a chat history: role, content, timestamp, agent_type."""
    record, final, usage = turn.record, turn.final, turn.usage
    return {
        "turn": record.turn,
        "status": record.status,
        "question": record.question,
        "answer": None if final is None else final.content,
        "names": turn.names,
        "asked": [{"agent": agent or None, "content": text} for agent, text in turn.dialogue],
        "plan": list(turn.plan),
        "winner": record.winner,
        "confidence": None if final is None else final.confidence,
        "escalated": final is not None and final.escalated,
        "votes": turn.votes,
        "dissent": None if (dissent := turn.dissent) is None else dissent.to_json(),
        "ballots": [
            {"agent": b.agent_id, "round": b.round, "choice": b.choice, "reason": b.reason, "stands": b.stands}
            for b in turn.ballots
        ],
        "rounds": turn.rounds,
        "seconds": turn.seconds,
        "tokens": {"prompt": usage.prompt, "completion": usage.completion, "reported": usage.reported},
        "cost": usage.cost,
        "started_at": record.started_at.isoformat(),
        "ended_at": None if record.ended_at is None else record.ended_at.isoformat(),
        **({"files": [_file_to_dict(attachment) for attachment in turn.attachments]} if turn.attachments else {}),
        "messages": [_message_to_dict(message, turn) for message in turn.messages],
    }


def _file_to_dict(attachment: Attachment) -> dict[str, Any]:
    return {**asdict(attachment.file), "data": b64encode(attachment.data).decode()}


def _message_to_dict(message: MessageRecord, turn: TurnTranscript) -> dict[str, Any]:
    return {
        "id": message.id,
        "role": message.role,
        "kind": message.kind,
        "agent_type": turn.name(message.agent_id) if message.agent_id else message.agent_name or None,
        "agent_id": message.agent_id,
        "round": message.round,
        "final": message.final,
        "content": message.content,
        "timestamp": message.created_at.isoformat(),
        "metadata": message.metadata,
    }


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
