"""Sessions and turns as a store returns them, for tests of whoever shows them."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from massmem.core.events import Event
from massmem.core.messages import Usage
from massmem.core.records import MessageRecord, SessionRecord
from massmem.core.transcript import LoggedTurn
from massmem.core.turn_result import TurnResult
from massmem.export import redact_messages
from massmem.session.portable import redact_event
from massmem.store.projection import InsertRow, count_seqs, project
from tests.support.sample_turn import START, event


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


def make_program_turn() -> LoggedTurn:
    """What a program has put into a session before its first question."""
    outside = {"turn": 0, "final": True}
    return LoggedTurn(
        TurnResult(status="completed", started_at=START),
        (
            message(1, "user", "Where is the pump?", turn=0),
            message(2, "assistant", "In hall four.", "", **outside),
            message(3, "tool_result", "Hall H-412, shelf 3.", "ann", turn=0, metadata={"tool": "inventory"}),
        ),
    )


def log_turn(events: Sequence[Event], params: Mapping[str, object] | None = None) -> LoggedTurn:
    """Return the turn of these events as an export has it."""
    messages: list[MessageRecord] = []
    seq = 0
    for e in events:
        seq += count_seqs(e)
        rows = [c.row for c in project("session_a", 1, seq, e) if isinstance(c, InsertRow) and "kind" in c.row]
        messages += [MessageRecord(**row) for row in rows if "role" in row]
    result = TurnResult.of(redact_event(e, params or {}) for e in events)
    return LoggedTurn(result, redact_messages(messages, params or {}))


def make_transcript(*args: Any, **fields: Any) -> LoggedTurn:
    """The turn of `make_events`."""
    return log_turn(make_events(*args, **fields))


def make_events(
    question: str = "Why is the sky blue?",
    answer: str = "The final answer.",
    *,
    cost: float | None = None,
    winner: str = "ann",
    end: Event | None = None,
    start: datetime = START,
    **final: Any,
) -> list[Event]:
    """ann and bob answer; bob votes for himself, ann improves, both vote for ann. cost: of the whole turn.

    end: in the place of the final answer.
    """
    used = Usage(10, 2, cost=None if cost is None else cost / 10)
    whole = {"usage": Usage(70, 30, cost=cost), "confidence": 0.9, "presented": True}
    first = {"session_id": "session_a", "turn": 1, "question": question, "agents": ("ann", "bob"), "seed": 7}

    def act(seconds: float, kind: str, agent: str, round: int, **of_kind: Any) -> Event:
        return event(seconds, kind, agent_id=agent, round=round, usage=used, **of_kind)

    def vote(agent: str, round: int, choice: str) -> Event:
        return act(1.5, "ballot_cast", agent, round, choice=choice, reason=f"{agent} has a reason")

    events = [
        event(0, "turn_started", **first),
        event(0, "round_started", round=1, agents=("ann", "bob")),
        act(0.5, "answer_submitted", "ann", 1, number=1, content="First.", reasoning="Let me think."),
        act(0.6, "answer_submitted", "bob", 1, number=2, content="Second."),
        event(0.7, "round_started", round=2, agents=("ann", "bob")),
        vote("bob", 2, "bob"),
        act(1, "answer_submitted", "ann", 2, number=3, content="Better."),
        event(1, "ballots_voided", round=2, agents=("bob",)),
        event(1, "round_started", round=3, agents=("ann", "bob")),
        vote("ann", 3, "ann"),
        vote("bob", 3, "ann"),
    ]
    decided = event(2, "winner_decided", agent_id=winner, votes={"ann": 2}, by="consensus")
    completed = event(2.5, "turn_completed", winner=winner, answer=answer, **(whole | final))
    events += [decided, completed] if end is None else [end]
    return [e.model_copy(update={"at": e.at - START + start}) for e in events]
