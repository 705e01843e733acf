"""What an event means for the derived tables. Pure: the same log always gives the same rows.

Events and messages of a session share one sequence. An event takes one number, or two when it carries the model's
reasoning: the reasoning message comes first (seq - 1), then the event and its message (seq).
"""

import json
from typing import Any, Literal, assert_never

from massmem import events as ev
from massmem.records import MessageKind, SessionStatus
from massmem.store.changes import (
    Insert,
    Place,
    QueueExtraction,
    RowOp,
    SetSession,
    SetTurn,
    VoidBallots,
    episode,
    message,
    reasoning,
    recording,
    tokens,
    used,
)

TITLE_LENGTH = 80
LAST_MESSAGE_LENGTH = 200
HISTORY_CLEARED = "The history was cleared here: the agents are shown nothing of what was said before."

_TurnEvent = ev.TurnStarted | ev.TurnResumed | ev.TurnCompleted | ev.TurnFailed | ev.TurnInterrupted
_UserEvent = ev.TurnWaiting | ev.UserReplied | ev.TurnAbandoned
_SessionEvent = ev.MessageAdded | ev.NoteAdded | ev.HistoryCleared | ev.TurnUndone
_AgentsEvent = ev.AnswerSubmitted | ev.BallotCast | ev.BallotsVoided | ev.AgentFailed | ev.ParamRequested


def numbers_taken(event: ev.Event) -> int:
    """How many sequence numbers the event takes, 1 or 2."""
    match event:
        case ev.AnswerSubmitted() | ev.BallotCast() | ev.ParamRequested() | ev.ToolCalled() | ev.TurnCompleted() if (
            event.reasoning
        ):
            return 2
        case _:
            return 1


def project(session_id: str, turn: int, seq: int, event: ev.Event) -> list[RowOp]:
    """The row operations of one event; seq: the event's own number, the last one that it takes."""
    place = Place(session_id, turn, seq, event.at)
    match event:
        case ev.TurnStarted() | ev.TurnResumed() | ev.TurnCompleted() | ev.TurnFailed() | ev.TurnInterrupted():
            return _of_turn(place, event)
        case ev.AnswerSubmitted() | ev.BallotCast() | ev.BallotsVoided() | ev.AgentFailed() | ev.ParamRequested():
            return _of_agents(place, event)
        case (
            ev.TurnWaiting()
            | ev.UserReplied()
            | ev.TurnAbandoned()
            | ev.MessageAdded()
            | ev.NoteAdded()
            | ev.HistoryCleared()
            | ev.TurnUndone()
        ):
            return _of_user(place, event)
        case ev.WinnerDecided():
            return [SetTurn({"winner": event.agent_id})]
        case ev.ToolCalled() | ev.ToolReturned() | ev.ContextCompressed():
            return _of_context(place, event)
        case (
            ev.RoundStarted()
            | ev.AgentStarted()
            | ev.AgentDelta()
            | ev.AgentRetrying()
            | ev.ContextMeasured()
            | ev.ParamProvided()
            | ev.ParamCleared()
            | ev.Notice()
        ):
            return []
        case _:
            assert_never(event)


def _of_turn(place: Place, event: _TurnEvent) -> list[RowOp]:
    match event:
        case ev.TurnStarted():
            return _turn_started(place, event)
        case ev.TurnResumed():
            going_on = [SetTurn({"status": "running", "ended_at": None}), SetSession(status="active")]
            return [*_request(place, event.request), *going_on]
        case ev.TurnCompleted():
            return _turn_completed(place, event)
        case ev.TurnFailed():
            return _turn_ended(place, "failed")
        case ev.TurnInterrupted():
            return _turn_ended(place, "interrupted")


def _of_user(place: Place, event: _UserEvent | _SessionEvent) -> list[RowOp]:
    match event:
        case ev.TurnWaiting():
            return _turn_waiting(place, event)
        case ev.UserReplied():
            # Not queued to be remembered: it may be a value, which stays in the session.
            said = message(place, "user", event.text, metadata={"param": event.param})
            return [said, *_request(place, event.request)]
        case ev.TurnAbandoned():
            return _turn_ended(place, "abandoned")
        case _:
            return _of_session(place, event)


def _of_session(place: Place, event: _SessionEvent) -> list[RowOp]:
    match event:
        case ev.MessageAdded():
            return _message_added(place, event)
        case ev.NoteAdded():
            said = message(place, "user", event.text, metadata={"note": True})
            return [said, recording(place, "episode", None)]
        case ev.HistoryCleared():
            # Every agent's view begins after it: `latest_summary` finds it under the agent "".
            metadata = {"cleared": True, "until": place.seq}
            return [message(place, "injection", HISTORY_CLEARED, agent=("", 0), metadata=metadata)]
        case ev.TurnUndone():
            return [SetTurn({"status": "undone"}), SetSession(status="completed")]


def _of_context(place: Place, event: ev.ToolCalled | ev.ToolReturned | ev.ContextCompressed) -> list[RowOp]:
    match event:
        case ev.ToolCalled():
            return _tool_called(place, event)
        case ev.ToolReturned():
            return _tool_returned(place, event)
        case ev.ContextCompressed():
            return _context_compressed(place, event)


def _of_agents(place: Place, event: _AgentsEvent) -> list[RowOp]:
    match event:
        case ev.AnswerSubmitted():
            return _answer_submitted(place, event)
        case ev.BallotCast():
            return _ballot_cast(place, event)
        case ev.BallotsVoided():
            return [VoidBallots(event.agents, before=place.seq)]
        case ev.AgentFailed():
            return _agent_failed(place, event)
        case ev.ParamRequested():
            return _param_requested(place, event)


def _turn_started(place: Place, event: ev.TurnStarted) -> list[RowOp]:
    row = {
        "session_id": place.session_id,
        "turn": place.turn,
        "status": "running",
        "question_seq": place.seq,
        "seed": event.seed,
        "started_at": place.at,
    }
    return [
        message(place, "user", event.question),
        *episode(place, None, event.question),
        Insert("turns", row),
        *_request(place, event.request),
        SetSession(
            title=_one_line(event.question, TITLE_LENGTH),
            last_message=_one_line(event.question, LAST_MESSAGE_LENGTH),
            status="active",
        ),
    ]


def _request(place: Place, name: str) -> list[RowOp]:
    if not name:
        return []
    return [Insert("requests", {"session_id": place.session_id, "name": name, "seq": place.seq})]


def _answer_submitted(place: Place, event: ev.AnswerSubmitted) -> list[RowOp]:
    agent = (event.agent_id, event.round)
    row = _action(place, *agent) | {"number": event.number}
    return [
        *reasoning(place, agent, event.reasoning),
        message(place, "assistant", event.content, agent=agent, metadata=used(event.usage)),
        *episode(place, event.agent_id, event.content),
        Insert("answers", row),
    ]


def _ballot_cast(place: Place, event: ev.BallotCast) -> list[RowOp]:
    agent = (event.agent_id, event.round)
    said = json.dumps({"vote": {"reason": event.reason, "choice": event.choice}}, ensure_ascii=False)
    row = _action(place, *agent) | {"choice": event.choice, "void": False}
    return [
        *reasoning(place, agent, event.reasoning),
        message(place, "tool_call", said, agent=agent, metadata=used(event.usage)),
        *episode(place, event.agent_id, event.reason),
        Insert("ballots", row),
    ]


def _param_requested(place: Place, event: ev.ParamRequested) -> list[RowOp]:
    agent = (event.agent_id, event.round)
    said = json.dumps({"ask_user": {"param": event.param, "prompt": event.prompt}}, ensure_ascii=False)
    return [
        *reasoning(place, agent, event.reasoning),
        message(place, "tool_call", said, agent=agent, metadata=used(event.usage)),
    ]


def _agent_failed(place: Place, event: ev.AgentFailed) -> list[RowOp]:
    if not event.partial:
        return []
    metadata = {"partial": True, "error": event.error} | used(event.usage)
    return [
        message(place, "assistant", event.partial, agent=(event.agent_id, event.round), metadata=metadata),
        *episode(place, event.agent_id, event.partial),
    ]


def _tool_called(place: Place, event: ev.ToolCalled) -> list[RowOp]:
    """What the call cost is part of what the step does, which its answer tells."""
    agent = (event.agent_id, event.round)
    said = f"{{{json.dumps(event.name, ensure_ascii=False)}: {_as_json(event.arguments)}}}"
    metadata = {"call": event.call_id, **({"said": event.text} if event.text else {})}
    return [
        *reasoning(place, agent, event.reasoning),
        message(place, "tool_call", said, agent=agent, metadata=metadata),
    ]


def _as_json(arguments: str) -> str:
    """The arguments as the model wrote them when they are JSON, else as a text."""
    try:
        json.loads(arguments)
    except (ValueError, RecursionError):
        return json.dumps(arguments, ensure_ascii=False)
    return arguments


def _tool_returned(place: Place, event: ev.ToolReturned) -> list[RowOp]:
    agent = (event.agent_id, event.round)
    metadata: dict[str, Any] = {"tool": event.name}
    if event.call_id:
        metadata |= {"call": event.call_id, "failed": event.failed}
    return [
        message(place, "tool_result", event.content, agent=agent, metadata=metadata),
        *(episode(place, event.agent_id, event.content) if event.recorded else []),
    ]


def _context_compressed(place: Place, event: ev.ContextCompressed) -> list[RowOp]:
    """The summary as a message that later turns start from; not one of a step alone, which its answer outlives."""
    if event.until is None or not event.summary:
        return []
    metadata = {"summary": True, "until": event.until, "kept": event.kept, "removed": event.removed, "by": event.by}
    agent = (event.agent_id, event.round)
    return [message(place, "injection", event.summary, agent=agent, metadata=metadata | used(event.usage))]


def _turn_completed(place: Place, event: ev.TurnCompleted) -> list[RowOp]:
    agent = (event.winner, 0)
    metadata = {"presented": event.presented, "limit": event.limit, "turn_usage": tokens(event.usage)}
    final = message(place, "assistant", event.answer, agent=agent, final=True, metadata=metadata)
    final.row.update(confidence=event.confidence, escalated=event.escalated)
    ended = {"status": "completed", "winner": event.winner, "answer_seq": place.seq, "ended_at": place.at}
    return [
        *reasoning(place, agent, event.reasoning),
        final,
        # An answer that is shown as it is was recorded when it was submitted.
        *(episode(place, event.winner, event.answer) if event.presented else []),
        recording(place, "complete", event.winner),
        QueueExtraction(place.seq, place.at),
        SetTurn(ended),
        SetSession(last_message=_one_line(event.answer, LAST_MESSAGE_LENGTH), status="completed"),
    ]


def _turn_ended(place: Place, status: Literal["failed", "interrupted", "abandoned"]) -> list[RowOp]:
    ended = SetTurn({"status": status, "ended_at": place.at})
    of_session: SessionStatus = "interrupted" if status == "abandoned" else status
    return [QueueExtraction(place.seq, place.at), ended, SetSession(status=of_session)]


def _turn_waiting(place: Place, event: ev.TurnWaiting) -> list[RowOp]:
    """What the user was asked is part of the conversation, once."""
    waiting: list[RowOp] = [SetTurn({"status": "waiting", "ended_at": place.at}), SetSession(status="waiting")]
    if event.shown:
        return waiting
    metadata = {"waiting_for": event.param, "asked": event.asked}
    prompt = message(place, "assistant", event.prompt, agent=(event.agents[0], 0), final=True, metadata=metadata)
    return [prompt, *waiting, SetSession(last_message=_one_line(event.prompt, LAST_MESSAGE_LENGTH))]


def _message_added(place: Place, event: ev.MessageAdded) -> list[RowOp]:
    """It belongs to the conversation as if it had been said there; nobody has asked to have it remembered."""
    if event.role == "system":
        return [message(place, "system", event.text, metadata=event.metadata)]
    if event.role == "tool":
        return [message(place, "tool_result", event.text, agent=("", 0), metadata=event.metadata)]
    agent = ("", 0) if event.role == "agent" else None
    kind: MessageKind = "user" if agent is None else "assistant"
    said = message(place, kind, event.text, agent=agent, final=agent is not None, metadata=event.metadata)
    return [said, SetSession(last_message=_one_line(event.text, LAST_MESSAGE_LENGTH))]


def _action(place: Place, agent_id: str, round_: int) -> dict[str, Any]:
    return {
        "session_id": place.session_id,
        "seq": place.seq,
        "turn": place.turn,
        "round": round_,
        "agent_id": agent_id,
    }


def _one_line(text: str, length: int) -> str:
    # Four times the length leaves room for runs of blanks, and a question of 10 MB is not split into words.
    return " ".join(text[: 4 * length].split())[:length]
