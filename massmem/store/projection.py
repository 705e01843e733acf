"""Changes of the derived tables by an event. Pure: the same log always gives the same rows.

Events and messages of a session share one sequence. An event takes one number, or two when it carries the model's
reasoning: the reasoning message comes first (seq - 1), then the event and its message (seq).
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import singledispatch
from typing import Any, Literal, get_args

from massmem.core import events as ev
from massmem.core.ids import make_message_id
from massmem.core.messages import AttachedFile, Citation, split_question
from massmem.core.records import MessageKind, RecordingKind, SessionStatus, is_worth_recording
from massmem.core.redact import redact
from massmem.core.voting import FIRST_RESTART

TITLE_LENGTH = 80
LAST_MESSAGE_LENGTH = 200
HISTORY_CLEARED = "The history was cleared here: the agents are shown nothing of what was said before."
HISTORY_PRUNED = "The history was pruned here: the agents are shown only the newest messages of what was said before."
WITHOUT_FACTS = "imported without facts"

Table = Literal["chat_messages", "turns", "recordings", "requests"]


@dataclass(frozen=True, slots=True)
class InsertRow:
    table: Table
    row: dict[str, Any]


@dataclass(frozen=True, slots=True)
class UpdateTurn:
    """New values for columns of the turn's row."""

    values: dict[str, Any]


@dataclass(frozen=True, slots=True)
class WithdrawTurns:
    """These turns of the session are shown no longer, or again."""

    turns: tuple[int, ...]
    withdrawn: bool = True


@dataclass(frozen=True, slots=True)
class UpdateSession:
    """None leaves a column as it is. Texts are redacted when they are asked for: an import needs the last one alone."""

    __match_args__ = ("title", "last_message", "status")
    title_text: str | None = None
    message_text: str | None = None
    status: SessionStatus | None = None

    @property
    def title(self) -> str | None:
        """Set only while the session has none."""
        return self.title_text and _one_line(self.title_text, TITLE_LENGTH)

    @property
    def last_message(self) -> str | None:
        return self.message_text and _one_line(self.message_text, LAST_MESSAGE_LENGTH)


@dataclass(frozen=True, slots=True)
class QueueExtraction:
    """Queue the extraction of facts for each agent, from its messages since the last extraction up to `seq`."""

    seq: int
    time: datetime
    done_as: str | None = None
    """Why it is done already; None: it is to be done."""


Change = InsertRow | UpdateTurn | WithdrawTurns | UpdateSession | QueueExtraction
"""A change of the derived tables."""


@dataclass(frozen=True, slots=True)
class LogPosition:
    """Where an event stands in the log."""

    session_id: str
    turn: int
    seq: int
    time: datetime


_SilentEvent = (
    ev.AgentStarted
    | ev.DepthDecided
    | ev.ItemsGiven
    | ev.ItemsMerged
    | ev.AgentDelta
    | ev.AgentBusy
    | ev.WebSearched
    | ev.AgentRetrying
    | ev.ContextMeasured
    | ev.BallotsVoided
    | ev.ParamProvided
    | ev.ParamCleared
    | ev.AnswerNowRequested
    | ev.CarryOutStarted
    | ev.UsageBooked
    | ev.Notice
)

SILENT_TYPES = frozenset(event.type for event in get_args(_SilentEvent))
"""Types of events that change no table."""


def measure_event(event: ev.Event, payload: str) -> int:
    """Return the bytes that an event takes, with those of the files that its question came with."""
    files = event.attachments if isinstance(event, ev.TurnStarted) else ()
    return len(payload.encode()) + sum(file.size for file in files)


def count_seqs(event: ev.Event) -> int:
    """Return how many sequence numbers the event takes, 1 or 2."""
    match event:
        case ev.AnswerSubmitted() | ev.BallotCast() | ev.ParamRequested() | ev.ToolCalled() | ev.TurnCompleted() if (
            event.reasoning
        ):
            return 2
        case _:
            return 1


def project(session_id: str, turn: int, seq: int, event: ev.Event) -> list[Change]:
    """Return what one event changes. seq: the event's own number, the last one that it takes."""
    changes = _project(event, LogPosition(session_id, turn, seq, event.at))
    if not isinstance(event, ev.SourceEvent):
        return changes
    marks = {"imported": True} if event.imported else {}
    if not event.remember:
        # The messages are marked, so that no later extraction reads them. The end of a turn still queues the
        # extraction: other agents of the turn may be remembered.
        marks |= {"remember": False}
        changes = [change for change in changes if not (isinstance(change, InsertRow) and change.table == "recordings")]
    for change in changes:
        if isinstance(change, InsertRow) and change.table == "chat_messages":
            change.row["metadata"] |= marks
    return changes


def fold_session(events: Iterable[ev.Event]) -> UpdateSession:
    """Return what the events of a turn make of the row of their session."""
    row = UpdateSession()
    for change in (change for event in events for change in project("", 0, 1, event)):
        if isinstance(change, UpdateSession):
            row = UpdateSession(None, change.message_text or row.message_text, change.status or row.status)
    return row


@singledispatch
def _project(event: ev.Event, _position: LogPosition) -> list[Change]:
    raise TypeError(f"nothing says what {event.type} changes")


@_project.register
def _(_event: _SilentEvent, _position: LogPosition) -> list[Change]:
    return []


@_project.register
def _(event: ev.RoundStarted, position: LogPosition) -> list[Change]:
    # What the agents have done so far becomes facts beside the round in which they act again.
    return [QueueExtraction(position.seq, position.time)] if event.round >= FIRST_RESTART else []


@_project.register
def _(event: ev.MemoryChanged, position: LogPosition) -> list[Change]:
    """The change becomes a message, and a job as of its memory: what forgets that forgets the change, too."""
    change = {name: getattr(event, name) for name in ("action", "kind", "agent_id", "turn", "old", "by")}
    change["message_ids"] = [make_message_id(position.session_id, seq) for seq in event.sources]
    job = _recording(position, "episode", None if event.agent_id == "user" else event.agent_id)
    job.row["turn"] = event.turn
    return [_message(position, "system", event.text, metadata={"memory_change": change}), job]


@_project.register
def _(event: ev.TurnStarted, position: LogPosition) -> list[Change]:
    row = {
        "session_id": position.session_id,
        "turn": position.turn,
        "status": "running",
        "question_seq": position.seq,
        "seed": event.seed,
        "started_at": position.time,
        "parent": event.parent,
    }
    asked, texts, _ = split_question(event.question, event.attachments)
    asked = asked or ", ".join(name for name, _ in texts)
    return [
        _message(position, "user", event.question, metadata=_list_attachments(event.attachments)),
        *_episode(position, None, event.question),
        InsertRow("turns", row),
        WithdrawTurns(event.withdraws),
        *_request(position, event.request),
        UpdateSession(asked, asked, status="active"),
    ]


def _list_attachments(files: Sequence[AttachedFile]) -> dict[str, Any]:
    return {"attachments": [asdict(file) for file in files]} if files else {}


@_project.register
def _(event: ev.TurnWaiting, position: LogPosition) -> list[Change]:
    """The question to the user becomes part of the conversation, once."""
    waiting: list[Change] = [
        UpdateTurn({"status": "waiting", "ended_at": position.time}),
        UpdateSession(status="waiting"),
    ]
    if event.shown:
        return waiting
    metadata = {"waiting_for": event.param, **_name_agent(event.agent_name)}
    prompt = _message(position, "assistant", event.prompt, agent=(event.agents[0], 0), final=True, metadata=metadata)
    return [prompt, *waiting, UpdateSession(message_text=event.prompt)]


@_project.register
def _(event: ev.TurnCompleted, position: LogPosition) -> list[Change]:
    agent = (event.winner, 0)
    # An answer that is shown as it is was recorded when it was submitted; lists and drafts are not.
    is_new = event.presented or event.verdict is None
    metadata = {"presented": is_new, **_list_citations(event.citations), **_name_agent(event.winner_name)}
    final = _message(position, "assistant", event.answer, agent=agent, final=True, metadata=metadata)
    final.row.update(confidence=event.confidence, escalated=event.escalated)
    # An unsure turn is remembered as one that nobody won: all its answers are labelled as not chosen.
    winner = "" if event.verdict == "unsure" else event.winner
    ended = {"status": "completed", "winner": winner, "answer_seq": position.seq, "ended_at": position.time}
    return [
        *_reasoning(position, agent, event.reasoning),
        final,
        *(_episode(position, event.winner, event.answer) if is_new else []),
        _recording(position, "complete", winner),
        QueueExtraction(position.seq, position.time, WITHOUT_FACTS if event.no_facts else None),
        UpdateTurn(ended),
        UpdateSession(message_text=event.answer, status="completed"),
    ]


@_project.register
def _(event: ev.TurnFailed | ev.TurnInterrupted | ev.TurnAbandoned, position: LogPosition) -> list[Change]:
    status: SessionStatus = "failed" if isinstance(event, ev.TurnFailed) else "interrupted"
    return [
        QueueExtraction(position.seq, position.time),
        UpdateTurn({"status": event.type.removeprefix("turn_"), "ended_at": position.time}),
        UpdateSession(status=status),
    ]


@_project.register
def _(event: ev.TurnResumed, position: LogPosition) -> list[Change]:
    resumed = [UpdateTurn({"status": "running", "ended_at": None}), UpdateSession(status="active")]
    return [*_request(position, event.request), *resumed]


@_project.register
def _(_event: ev.TurnUndone, position: LogPosition) -> list[Change]:
    """Nobody won it any more: whoever carries out the job deletes its memories."""
    undone = [UpdateTurn({"status": "undone"}), UpdateSession(status="completed")]
    return [_recording(position, "complete", None), *undone]


@_project.register
def _(event: ev.VersionChosen, _position: LogPosition) -> list[Change]:
    return [
        WithdrawTurns(event.withdrawn),
        WithdrawTurns(event.restored, withdrawn=False),
        UpdateSession(status="completed"),
    ]


@_project.register
def _(event: ev.WinnerDecided, _position: LogPosition) -> list[Change]:
    return [UpdateTurn({"winner": event.agent_id})]


@_project.register
def _(event: ev.UserReplied, position: LogPosition) -> list[Change]:
    # Not queued for recording: the reply may be a value, which stays in the session.
    metadata = {"param": event.param} | ({} if event.is_value else {"is_value": False})
    return [_message(position, "user", event.text, metadata=metadata), *_request(position, event.request)]


@_project.register
def _(event: ev.NoteAdded, position: LogPosition) -> list[Change]:
    metadata = {"note": True, **({"session_only": True} if event.session_only else {})}
    return [_message(position, "user", event.text, metadata=metadata), _recording(position, "episode", None)]


@_project.register
def _(event: ev.HistoryCleared, position: LogPosition) -> list[Change]:
    # Every agent's history begins after it: `get_latest_summary` finds it under the agent "".
    text, last = (HISTORY_CLEARED, position.seq) if event.until is None else (HISTORY_PRUNED, event.until)
    metadata = {"cleared": True, "until": last}
    return [_message(position, "injection", text, agent=("", 0), metadata=metadata)]


@_project.register
def _(event: ev.AnswerSubmitted, position: LogPosition) -> list[Change]:
    agent = (event.agent_id, event.round)
    return [
        *_reasoning(position, agent, event.reasoning),
        _message(position, "assistant", event.content, agent=agent, metadata=_list_citations(event.citations)),
        *_episode(position, event.agent_id, event.content),
    ]


@_project.register
def _(event: ev.BallotCast, position: LogPosition) -> list[Change]:
    agent = (event.agent_id, event.round)
    call = json.dumps({"vote": {"reason": event.reason, "choice": event.choice}}, ensure_ascii=False)
    return [
        *_reasoning(position, agent, event.reasoning),
        _message(position, "tool_call", call, agent=agent),
    ]


@_project.register
def _(event: ev.ParamRequested, position: LogPosition) -> list[Change]:
    agent = (event.agent_id, event.round)
    call = json.dumps({"ask_user": {"param": event.param, "prompt": event.prompt}}, ensure_ascii=False)
    return [
        *_reasoning(position, agent, event.reasoning),
        _message(position, "tool_call", call, agent=agent, metadata={"asks_for": event.param}),
    ]


@_project.register
def _(event: ev.AgentFailed, position: LogPosition) -> list[Change]:
    if not event.partial:
        return []
    agent = (event.agent_id, event.round)
    return [
        _message(position, "assistant", event.partial, agent=agent, metadata={"partial": True}),
        *_episode(position, event.agent_id, event.partial),
    ]


@_project.register
def _(event: ev.ToolCalled, position: LogPosition) -> list[Change]:
    """The message has no usage: the cost of the call is part of the step, which its answer tells."""
    agent = (event.agent_id, event.round)
    call = f"{{{json.dumps(event.name, ensure_ascii=False)}: {_as_json(event.arguments)}}}"
    metadata = {"call": event.call_id, **({"said": event.text} if event.text else {})}
    return [
        *_reasoning(position, agent, event.reasoning),
        _message(position, "tool_call", call, agent=agent, metadata=metadata),
    ]


@_project.register
def _(event: ev.ToolReturned, position: LogPosition) -> list[Change]:
    agent = (event.agent_id, event.round)
    metadata: dict[str, Any] = {"tool": event.name}
    if event.call_id:
        metadata |= {"call": event.call_id, "failed": event.failed}
    return [
        _message(position, "tool_result", event.content, agent=agent, metadata=metadata),
        *(_episode(position, event.agent_id, event.content) if event.recorded else []),
    ]


@_project.register
def _(event: ev.ContextCompressed, position: LogPosition) -> list[Change]:
    """A summary that later turns start from becomes a message; one within a step does not outlive the step."""
    if event.until is None or not event.summary:
        return []
    metadata = {
        "summary": True,
        "until": event.until,
        "kept": event.kept,
        "removed": event.removed,
        "by": event.by,
    }
    return [_message(position, "injection", event.summary, agent=(event.agent_id, event.round), metadata=metadata)]


@_project.register
def _(event: ev.MessageAdded, position: LogPosition) -> list[Change]:
    """The message joins the conversation as if it had been said there. It is not queued for recording."""
    if event.role == "system":
        return [_message(position, "system", event.text, metadata=event.metadata)]
    if event.role == "tool":
        return [_message(position, "tool_result", event.text, agent=("", 0), metadata=event.metadata)]
    agent = ("", 0) if event.role == "agent" else None
    kind: MessageKind = "user" if agent is None else "assistant"
    added = _message(position, kind, event.text, agent=agent, final=agent is not None, metadata=event.metadata)
    return [added, UpdateSession(message_text=event.text)]


def _message(
    position: LogPosition,
    kind: MessageKind,
    content: str,
    *,
    agent: tuple[str, int] | None = None,
    final: bool = False,
    metadata: Mapping[str, Any] | None = None,
) -> InsertRow:
    """agent: its id and the round; None: the user or the system."""
    seq = position.seq - 1 if kind == "reasoning" else position.seq
    agent_id, round_ = agent or (None, 0)
    row = {
        "id": make_message_id(position.session_id, seq),
        "session_id": position.session_id,
        "seq": seq,
        "turn": position.turn,
        "round": round_,
        "kind": kind,
        "role": kind if kind in ("user", "system") else "assistant",
        "agent_id": agent_id,
        "content": content,
        "final": final,
        "tokens": None,
        "confidence": None,
        "escalated": False,
        "metadata": dict(metadata or {}),
        "created_at": position.time,
    }
    return InsertRow("chat_messages", row)


def _reasoning(position: LogPosition, agent: tuple[str, int], text: str) -> list[Change]:
    """The message before the event's own; none without a text."""
    return [_message(position, "reasoning", text, agent=agent)] if text else []


def _recording(position: LogPosition, kind: RecordingKind, agent_id: str | None) -> InsertRow:
    """A row of the queue. The position of an episode depends on the queue so far: the store sets it."""
    row = {
        "session_id": position.session_id,
        "seq": position.seq,
        "kind": kind,
        "agent_id": agent_id or "",
        "turn": position.turn,
        "position": None,
        "created_at": position.time,
    }
    return InsertRow("recordings", row)


def _episode(position: LogPosition, agent_id: str | None, text: str) -> list[Change]:
    """A row of the queue for the text word for word; none when it is not worth it."""
    return [_recording(position, "episode", agent_id)] if is_worth_recording(text) else []


def _request(position: LogPosition, name: str) -> list[Change]:
    """name: of the question, under which it is asked only once; "" for none."""
    if not name:
        return []
    return [InsertRow("requests", {"session_id": position.session_id, "name": name, "seq": position.seq})]


def _name_agent(name: str) -> dict[str, str]:
    return {"agent_type": name} if name else {}


def _list_citations(citations: Sequence[Citation]) -> dict[str, Any]:
    return {"citations": [asdict(citation) for citation in citations]} if citations else {}


def _as_json(arguments: str) -> str:
    """Return the arguments as the model wrote them when they are JSON, else as a JSON string."""
    try:
        json.loads(arguments)
    except (ValueError, RecursionError):
        return json.dumps(arguments, ensure_ascii=False)
    return arguments


def _one_line(text: str, length: int) -> str:
    """Return the beginning of a text for lists, which are read by programs and pasted into reports: without secrets."""
    # Four times the length leaves room for runs of blanks, and a question of 10 MB is not split into words.
    return " ".join(redact(text[: 4 * length]).split())[:length]
