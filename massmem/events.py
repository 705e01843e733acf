"""What happens in a turn, as typed events. The same JSON goes to the store, to `--output jsonl` and over SSE.

Order within one turn:

1. `turn_started` first, once; a turn that is taken up again after a kill starts with `turn_resumed` instead.
2. per round: `round_started`, then for each acting agent `agent_started`, any number of `agent_delta` and
   `agent_retrying`, and exactly one of `answer_submitted`, `ballot_cast`, `param_requested` or `agent_failed`. Events
   of different agents interleave, those of one agent do not. `ballots_voided` follows the last of them when a new
   answer came in. When an agent asked the user for something, `turn_waiting` follows instead, and ends the run.
3. `winner_decided` once, unless no agent answered.
4. with a presentation: `agent_started`, deltas, and `agent_failed` when the winner could not write it.
5. exactly one of `turn_completed`, `turn_failed`, `turn_interrupted`, `turn_waiting`, `turn_abandoned`, last.

What the user says to a turn that waits follows its `turn_resumed`: `user_replied`, then `param_provided` when that was
the value, and the round goes on. A turn that is given up instead has `param_cleared` and `turn_abandoned`, and the
message is asked as a question of its own. Values of params stand in no event but `user_replied.text`, which nobody
shows.

A reply that calls tools is followed by one `tool_called` for each call, then by a `tool_returned` for each, in the
order in which they end, then by the next reply; what is in the log is not called again.

`notice`, `context_measured` and a `tool_returned` from outside a turn may stand anywhere; `context_compressed` too,
also after the end of the turn, when the next one is prepared for. `message_added`, `note_added` and `history_cleared`
stand outside of turns, `turn_undone` after the end of its own. An event that was yielded to a caller is on disk.
"""

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from massmem.messages import Usage
from massmem.session_events import EventBase, HistoryCleared, MessageAdded, NoteAdded, Notice, TurnUndone
from massmem.session_events import now as now
from massmem.tool_events import ToolCalled, ToolReturned

SCHEMA_VERSION = 1

Step = Literal["answer", "vote", "present"]
Channel = Literal["text", "reasoning"]
CountedBy = Literal["api", "buffer"]
CompressionReason = Literal["overflow", "threshold", "background", "asked"]
Cleared = Literal["gave_up", "cancel", "reset", "change", "timeout"]
Limit = Literal["timeout", "cost", "tokens"]
Decision = Literal["only_answer", "consensus", "plurality", "tie_earliest", "no_votes_earliest"]


class TurnStarted(EventBase):
    """seed fixes every shuffle of the turn. agents: ids in configuration order.

    request: the name under which this was asked and is never asked again, "" for none; also of what follows.
    """

    type: Literal["turn_started"] = "turn_started"
    schema_version: int = SCHEMA_VERSION
    session_id: str
    turn: int
    question: str
    agents: tuple[str, ...]
    seed: int
    request: str = ""


class TurnResumed(EventBase):
    """The turn was cut off and goes on; `agents` are those of the present configuration."""

    type: Literal["turn_resumed"] = "turn_resumed"
    session_id: str
    turn: int
    question: str
    agents: tuple[str, ...]
    request: str = ""


class RoundStarted(EventBase):
    """agents: those that act in this round. final: only votes are taken."""

    type: Literal["round_started"] = "round_started"
    round: int
    agents: tuple[str, ...]
    final: bool = False


class AgentStarted(EventBase):
    type: Literal["agent_started"] = "agent_started"
    agent_id: str
    round: int
    step: Step


class AgentDelta(EventBase):
    """A piece of streamed output; pieces of one agent join to what it said."""

    type: Literal["agent_delta"] = "agent_delta"
    agent_id: str
    round: int
    channel: Channel
    text: str


class AgentRetrying(EventBase):
    """The request failed and is sent again after `delay` seconds; deltas since `agent_started` are void.

    Where a tool has been used since then, only those after its `tool_returned`.
    """

    type: Literal["agent_retrying"] = "agent_retrying"
    agent_id: str
    round: int
    error: str
    delay: float
    attempt: int


class AnswerSubmitted(EventBase):
    """A new current answer of this agent. number: 1 for the first answer of the turn, counted over all agents."""

    type: Literal["answer_submitted"] = "answer_submitted"
    agent_id: str
    round: int
    number: int
    content: str
    reasoning: str = ""
    usage: Usage


class BallotCast(EventBase):
    """choice: the id of the agent whose answer the ballot is for."""

    type: Literal["ballot_cast"] = "ballot_cast"
    agent_id: str
    round: int
    choice: str
    reason: str
    reasoning: str = ""
    usage: Usage


class ParamRequested(EventBase):
    """The agent cannot go on without a value that only the user knows. prompt: how it would ask for it."""

    type: Literal["param_requested"] = "param_requested"
    agent_id: str
    round: int
    param: str
    prompt: str
    reasoning: str = ""
    usage: Usage


class BallotsVoided(EventBase):
    """A new answer came in: these agents' ballots no longer count, they act again."""

    type: Literal["ballots_voided"] = "ballots_voided"
    round: int
    agents: tuple[str, ...]


class AgentFailed(EventBase):
    """The agent could not act. out: it takes no further part in this turn. error: the class name in massmem.errors."""

    type: Literal["agent_failed"] = "agent_failed"
    agent_id: str
    round: int
    step: Step
    error: str
    message: str
    hint: str = ""
    partial: str = ""
    out: bool = True
    usage: Usage


class WinnerDecided(EventBase):
    """votes: standing ballots per agent id. by: how the winner came about."""

    type: Literal["winner_decided"] = "winner_decided"
    agent_id: str
    votes: dict[str, int]
    by: Decision


class TurnCompleted(EventBase):
    """limit is set when the turn ended early with what it had.

    confidence: how far the council stands behind the answer (see massmem.voting), None for an agent alone.
    escalated: that is below coordination.escalate_below, so somebody should look at the answer.
    """

    type: Literal["turn_completed"] = "turn_completed"
    winner: str
    answer: str
    reasoning: str = ""
    presented: bool
    usage: Usage
    limit: Limit | None = None
    confidence: float | None = None
    escalated: bool = False


class TurnFailed(EventBase):
    """No agent could answer; the turn is kept and `massmem --session-id S` tries it again."""

    type: Literal["turn_failed"] = "turn_failed"
    message: str
    hint: str = ""
    exit_code: int
    usage: Usage


class TurnInterrupted(EventBase):
    """Stopped from outside; it goes on where it was with `massmem --session-id S`. by user: Ctrl-C."""

    type: Literal["turn_interrupted"] = "turn_interrupted"
    by: Literal["user", "signal"]


class TurnWaiting(EventBase):
    """The turn waits for the user, who is asked for one value; it goes on with the next message to the session.

    agents: those that need it; the others have done their part of the round. asked: how often the user was asked for
    this value, with this time. shown: the user has seen this very prompt before.
    """

    type: Literal["turn_waiting"] = "turn_waiting"
    param: str
    prompt: str
    agents: tuple[str, ...]
    asked: int
    shown: bool = False
    usage: Usage


class UserReplied(EventBase):
    """What the user said when asked for a value; usage: of the request that read it, if it took one.

    Whoever shows or logs events leaves `text` out: it may be the value.
    """

    type: Literal["user_replied"] = "user_replied"
    param: str
    text: str = Field(repr=False)
    usage: Usage = Usage()
    request: str = ""


class ParamProvided(EventBase):
    """The value is known; it stands in the session's state, not here."""

    type: Literal["param_provided"] = "param_provided"
    param: str


class ParamCleared(EventBase):
    """The value is no longer waited for.

    why: gave_up, asked often enough, the agents go on without it; or what became of the turn, see turn_abandoned.
    """

    type: Literal["param_cleared"] = "param_cleared"
    param: str
    why: Cleared


class TurnAbandoned(EventBase):
    """A turn that waited for the user is given up; it stays in the log.

    why: the user said so (cancel), wants to start over (reset, the known values are forgotten too) or asked something
    else (change); or nobody replied for `coordination.waiting_timeout` (timeout).
    """

    type: Literal["turn_abandoned"] = "turn_abandoned"
    session_id: str
    turn: int
    why: Cleared
    usage: Usage


class ContextMeasured(EventBase):
    """How full the agent's context window was in its last request, in tokens.

    source: api, the provider's own count of the prompt; buffer, ours. entries: our count per type of entry
    (see massmem.memory.buffer), which may differ from `tokens` when that is the provider's. threshold: the share of
    the window at which it is compressed before a request is sent; None: only when the provider refuses one. recalled:
    of the entries, what memory had on the question.
    """

    type: Literal["context_measured"] = "context_measured"
    agent_id: str
    round: int
    tokens: int
    window: int
    source: CountedBy
    entries: dict[str, int]
    threshold: float | None = None
    recalled: int = 0


class ContextCompressed(EventBase):
    """Old messages were replaced by a summary in what the agent's model is sent; the log keeps them.

    before, after: tokens of the prompt, by our count; window: what the model reads. kept, removed: messages that stay
    verbatim, and that the summary stands for.
    until: the summary covers the conversation up to the message with this seq; None: only work of this very step.
    by: a model wrote the summary, or code took sentences from the messages.
    """

    type: Literal["context_compressed"] = "context_compressed"
    agent_id: str
    round: int
    why: CompressionReason
    before: int
    after: int
    window: int | None = None
    kept: int
    removed: int
    summary: str
    until: int | None = None
    by: Literal["model", "extract"]
    usage: Usage


Event = Annotated[
    TurnStarted
    | TurnResumed
    | RoundStarted
    | AgentStarted
    | AgentDelta
    | AgentRetrying
    | AnswerSubmitted
    | BallotCast
    | ParamRequested
    | BallotsVoided
    | AgentFailed
    | WinnerDecided
    | TurnCompleted
    | TurnFailed
    | TurnInterrupted
    | TurnWaiting
    | UserReplied
    | ParamProvided
    | ParamCleared
    | TurnAbandoned
    | MessageAdded
    | NoteAdded
    | HistoryCleared
    | TurnUndone
    | ContextMeasured
    | ContextCompressed
    | ToolCalled
    | ToolReturned
    | Notice,
    Field(discriminator="type"),
]

EVENT: TypeAdapter[Event] = TypeAdapter(Event)
"""Parses and dumps any event: `EVENT.validate_json(text)`, `EVENT.dump_json(event)`."""


def shown(event: Event) -> Event:
    """The event as it may leave the store: without what the user replied, which may be a value."""
    return event.model_copy(update={"text": ""}) if isinstance(event, UserReplied) else event


def named(event: Event, request: str, question: str) -> Event:
    """The event with the name under which the question was asked, when it is what the question has become."""
    match event:
        case TurnStarted(question=text) | TurnResumed(question=text) | UserReplied(text=text) if text == question:
            return event.model_copy(update={"request": request}) if request else event
        case _:
            return event
