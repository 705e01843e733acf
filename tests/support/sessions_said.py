"""Sessions and turns as a store returns them, for tests of whoever shows them."""

from datetime import timedelta
from typing import Any

from massmem.core.records import MessageRecord, SessionRecord, TurnRecord
from massmem.core.transcript import TurnTranscript, build_transcript
from tests.support.sample_turn import START


def session_record(**fields: Any) -> SessionRecord:
    known: dict[str, Any] = {
        "session_id": "session_a",
        "title": "Why is the sky blue?",
        "status": "completed",
        "message_count": 8,
        "model": "gpt-5-mini",
        "created_at": START,
        "updated_at": START + timedelta(minutes=5),
    }
    return SessionRecord(**(known | fields))


def turn_record(turn: int = 1, ended: float | None = 5.0, **fields: Any) -> TurnRecord:
    known: dict[str, Any] = {
        "session_id": "session_a",
        "turn": turn,
        "question": "Why is the sky blue?",
        "status": "completed",
        "winner": "ann",
        "answer": "The final answer.",
        "seed": 7,
        "started_at": START,
        "ended_at": None if ended is None else START + timedelta(seconds=ended),
    }
    return TurnRecord(**(known | fields))


def message(
    seq: int, kind: str, content: str, agent: str | None = None, round: int = 0, **fields: Any
) -> MessageRecord:
    known: dict[str, Any] = {
        "id": f"{seq:032x}",
        "session_id": "session_a",
        "seq": seq,
        "turn": 1,
        "round": round,
        "kind": kind,
        "role": "user" if kind == "user" else "assistant",
        "agent_id": agent,
        "content": content,
        "created_at": START + timedelta(seconds=seq),
    }
    return MessageRecord(**(known | fields))


def make_program_turn() -> TurnTranscript:
    """What a program has put into a session before its first question."""
    record = turn_record(turn=0, question="", winner=None, answer=None)
    told = {"turn": 0, "final": True}
    return build_transcript(
        record,
        [
            message(1, "user", "Where is the pump?", turn=0),
            message(2, "assistant", "In hall four.", "", **told),
            message(3, "tool_result", "Hall H-412, shelf 3.", "ann", turn=0, metadata={"tool": "inventory"}),
        ],
    )


def make_transcript(
    question: str = "Why is the sky blue?",
    answer: str | None = "The final answer.",
    cost: float | None = None,
    **record: Any,
) -> TurnTranscript:
    """ann and bob answer; bob votes for himself, ann improves, both vote for ann. cost: of the whole turn."""

    def ballot(seq: int, agent: str, round: int, choice: str) -> MessageRecord:
        content = f'{{"vote": {{"reason": "{agent} has a reason", "choice": "{choice}"}}}}'
        return message(seq, "tool_call", content, agent, round, metadata=used)

    each = None if cost is None else cost / 10
    used = {"usage": {"prompt": 10, "completion": 2, "reported": True, "cost": each}}
    whole = {"turn_usage": {"prompt": 70, "completion": 30, "reported": True, "cost": cost}, "response_time": 2.5}
    final = {"final": True, "confidence": 0.9, "escalated": False, "metadata": whole}
    return build_transcript(
        turn_record(question=question, answer=answer, **record),
        [
            message(1, "user", question),
            message(2, "reasoning", "Let me think.", "ann", 1),
            message(3, "assistant", "First.", "ann", 1, metadata=used),
            message(4, "assistant", "Second.", "bob", 1),
            ballot(5, "bob", 2, "bob"),
            message(6, "assistant", "Better.", "ann", 2, metadata=used),
            ballot(7, "ann", 3, "ann"),
            ballot(8, "bob", 3, "ann"),
            *([] if answer is None else [message(9, "assistant", answer, "ann", **final)]),
        ],
    )
