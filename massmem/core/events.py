"""The events of a turn, typed. The store, `--output jsonl` and SSE share the same JSON.

Order within one turn:

1. `turn_started` comes first, once. A turn that goes on after it was cut off starts with `turn_resumed` instead.
2. Each round has `round_started`, then for each acting agent `agent_started`, any number of `agent_busy`,
   `web_searched`, `agent_delta` and `agent_retrying`, and exactly one of `answer_submitted`, `ballot_cast`,
   `param_requested` or `agent_failed`. In a round with `early_stop` agents are asked in two waves at most, those in
   `winner_decided.not_asked` not at all. With `coordination.depth: adaptive` the first round may begin with some of the
   agents; `depth_decided` follows their results, and then the rest of the round, unless they are enough.
   Events of different agents interleave, those of one agent do not. `ballots_voided` follows the last of them when
   a new answer came in. When an agent asked the user for a value, `turn_waiting` follows instead and ends the run.
   In a union (`turn_started.shape`) the first round brings `answer_submitted` with items, then `items_merged`, and a
   second round may bring `items_given` with what others say of them. To revise, one agent answers in the first round;
   then rounds of `items_given`, with `items_merged` behind them, and of the author's `answer_submitted` take turns.
3. `winner_decided` comes once, unless no agent answered.
4. A presentation has `agent_started`, deltas, and `agent_failed` when the winner could not write it. One that was to
   be a report may be followed by another one without. Then may come `carry_out_started`, and `agent_busy`.
5. Exactly one of `turn_completed`, `turn_failed`, `turn_interrupted`, `turn_waiting`, `turn_abandoned` comes last.

The user's reply to a turn that waits follows its `turn_resumed`: `user_replied`, then `param_provided` when the reply
was the value, and the round goes on. A turn that is given up instead has `param_cleared` and `turn_abandoned`, and the
message becomes a question of its own. No event holds the value of a param except `user_replied.text`, which is never
shown.

A reply that calls tools is followed by one `tool_called` per call, then by one `tool_returned` per call in the order
in which they end, then by the next reply. A call that is in the log is never run again.

Agents that a limit or `answer_now_requested` cuts off have no result in their round.

`notice`, `answer_now_requested`, `context_measured` and a `tool_returned` from outside a turn may stand anywhere. So
may `context_compressed`, also after the end of the turn, when the next one is prepared. `message_added`, `note_added`,
`memory_changed`, `history_cleared` and `version_chosen` stand outside of turns; `turn_undone` follows the end of its
turn. Events are on disk before they are yielded to a caller.
"""

from typing import Any, Literal

import msgspec

from massmem.core.event_base import AgentEvent, AgentSourceEvent, EventBase, SourceEvent
from massmem.core.event_base import now as now
from massmem.core.items import Check, Item, UnionItem
from massmem.core.messages import Activity, AttachedFile, Citation, PartialReply, Usage
from massmem.core.report import CarriedOut, MeasuredConfidence, Report, VerdictCandidate

SCHEMA_VERSION = 1

Step = Literal["answer", "vote", "present", "items"]
Shape = Literal["vote", "union", "decide", "revise"]
Channel = Literal["text", "reasoning"]
TokenSource = Literal["api", "buffer"]
CompressionReason = Literal["overflow", "threshold", "background", "asked"]
ClearReason = Literal["gave_up", "cancel", "reset", "change", "timeout"]
MemoryAction = Literal["edit", "pin", "unpin", "promote", "demote"]
Limit = Literal["timeout", "cost", "tokens"]
Verdict = Literal["answered", "unsure"]
DepthReason = Literal["asks_for_text", "same", "said_same", "differ", "not_compared", "failed", "not_sure"]
NoVote = Literal["one_round", "timeout", "cost", "tokens", "failed", "no_choice"]
WorkCut = Literal["tool_rounds", "standstill", "time", "cost", "tokens"]
FORMER_DECISIONS = {"no_votes_earliest": "no_vote", "tie_earliest": "tie", "earliest": "no_vote_held"}
"""Decisions of earlier versions, in which the earliest answer won where the votes did not decide."""

Decision = Literal[
    "only_answer", "consensus", "early_stop", "answer_now", "plurality", "tie_support", "tie", "no_vote",
    "no_vote_held", "unanimous", "majority", "union", "decide", "revise",
]  # fmt: skip


class TurnStarted(SourceEvent):
    """The user asked a question."""

    schema_version: int = SCHEMA_VERSION
    session_id: str
    turn: int
    """Number of the turn in its session, from 1."""
    question: str
    agents: tuple[str, ...]
    """Ids in the order of the configuration."""
    names: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    """Of agents for people, by id; some have none."""
    seed: int
    """Fixes every shuffle of the turn."""
    weights: dict[str, float] = msgspec.field(default_factory=dict[str, float])
    """What the voice of each agent counts for, by id, with `coordination.weights: measured`; empty: 1 each."""
    request: str = ""
    """Key under which the client sent the question; the same key is never asked twice. Empty: none."""
    full: bool = False
    """All agents are asked, whatever `coordination.depth` says."""
    answer_schema: dict[str, Any] | None = None
    """The JSON Schema that the final answer has to fit."""
    attachments: tuple[AttachedFile, ...] = ()
    """Pictures, and documents without text, that the question came with; `question` names them."""
    description: str = ""
    """How an agent described them for those that do not see; the end of `question`."""
    usage: Usage = Usage()
    """Of the request for the description."""
    parent: int | None = None
    """The turn that it follows, 0: none; null, in old logs: the one before it. Turns that follow one are versions."""
    withdraws: tuple[int, ...] = ()
    """Turns that are not shown any more, since this one is another version of the first of them."""
    shape: Shape = "vote"
    """How the turn comes to its end, see `coordination.shape`."""
    job: str = ""
    """The job that the team does; empty: it answers a question."""
    variation: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])
    """What the question changed of the team, such as `agent` or `folders`; the turn is resumed with it."""


class TurnResumed(EventBase):
    """A turn that was cut off goes on."""

    session_id: str
    turn: int
    question: str
    agents: tuple[str, ...]
    """Those of the present configuration."""
    names: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    """As in `turn_started`."""
    request: str = ""
    """As in `turn_started`."""
    shape: Shape = "vote"
    """As in `turn_started`."""


class RoundStarted(EventBase):
    """A round begins."""

    round: int
    agents: tuple[str, ...]
    """Those that act in this round; with `early_stop` as far as they are needed, see `winner_decided`. In the first
    round, with `coordination.depth: adaptive`, those that are asked first, see `depth_decided`."""
    final: bool = False
    """Only votes are taken."""
    early_stop: bool = False
    """Agents are asked only while their ballots can change the winner."""


class DepthDecided(EventBase):
    """Whether the agents that were asked first are enough, with `coordination.depth: adaptive`."""

    round: int
    asked: tuple[str, ...]
    """Agents that were asked so far."""
    next: tuple[str, ...] = ()
    """Agents that are asked now, in the same round; empty: those that were asked are enough."""
    reason: DepthReason
    """asks_for_text: the question asks for a text, not for a claim; same: their answers are the same by the rules of
    code; said_same: the first of them says so; differ: they are not the same, or the first of them says so or says
    nothing that can be read; not_compared: code cannot compare them, and asking would cost more than it may save, or
    failed; failed: one gave no answer; not_sure: they agree, or may agree, and that is less sure than
    `coordination.max_error` wants."""
    text: str = ""
    """The same for people, and what differs, as far as the agent that compared the answers says that."""
    usage: Usage = Usage()
    """Of comparing them."""


class AgentStarted(AgentEvent):
    """An agent begins a step."""

    step: Step


class AgentDelta(AgentEvent):
    """A piece of streamed output; the pieces of one agent join to its whole output."""

    channel: Channel
    text: str


class AgentBusy(AgentEvent):
    """The agent's model, which runs on this machine, is busy before its first word; or an agent program works."""

    activity: Activity
    """loading: the model is loaded, or the program started; reading: it reads the prompt; working: see `what`."""
    share: float | None = None
    """How much of it is done, 0 to 1; null when that is not known."""
    what: str = ""
    """What an agent program does, such as `reads src/main.py`."""


class WebSearched(AgentEvent):
    """The agent's provider searches the web, or opens a page."""

    query: str
    """What it looks for, or the address of the page; "" when the provider does not say."""


class AgentRetrying(AgentEvent):
    """A request failed, or its reply cannot be used: it is sent again. Deltas since `agent_started`, or since the last
    `tool_returned`, are void: they do not count, and the reply begins anew."""

    error: str
    delay: float
    """Seconds until it is sent again."""
    attempt: int
    """Number of the request that follows; 0: none was sent yet, since the server wants no requests for so long."""
    fallback: str = ""
    """The model that goes on, since the one before has failed for good (`backend.fallback`); empty: the same one."""


class AnswerSubmitted(AgentSourceEvent):
    """A new current answer of this agent."""

    number: int
    """Of the answer in the turn, counted over all agents from 1."""
    content: str
    reason: str = ""
    """What is wrong with the answers that the agent was shown; empty: it was shown none, or did not say."""
    reasoning: str = ""
    usage: Usage
    truncated: bool = False
    """The end is missing: the provider cut the reply at its limit of tokens, also when it was asked to go on."""
    work_cut: WorkCut | None = None
    """The limit that ended the agent's work with tools; the answer is from what it had."""
    citations: tuple[Citation, ...] = ()
    """Sources of `content`; `[n]` in it names the n-th."""
    fallback: str = ""
    """The model that answered in place of the agent's own, which had failed; empty: its own."""
    items: tuple[Item, ...] | None = None
    """Of a union: what the agent lists; `content` has the same for people."""
    checks: tuple[Check, ...] = ()
    """What the author of a draft did with each point of criticism."""


class ItemsGiven(AgentSourceEvent):
    """An agent criticised a draft, or judged items that it had not found itself."""

    items: tuple[Item, ...] | None = None
    """The criticism."""
    checks: tuple[Check, ...] = ()
    """What it says of the items of others."""
    truncated: bool = False
    """As in `answer_submitted`; the next one as well."""
    fallback: str = ""
    usage: Usage


class ItemsMerged(EventBase):
    """What agents listed, or criticised: what is the same is one item."""

    round: int
    items: tuple[UnionItem, ...]
    by: str = ""
    """The agent that compared those for which code could not tell; empty: nobody was asked."""
    compared: int = 0
    """Pairs that it compared."""
    usage: Usage = Usage()
    """Of comparing them."""


class BallotCast(AgentSourceEvent):
    """An agent voted."""

    choice: str
    """Id of the agent whose answer the ballot is for."""
    reason: str
    reasoning: str = ""
    usage: Usage
    truncated: bool = False
    """As in `answer_submitted`."""
    fallback: str = ""
    """As in `answer_submitted`."""


class AnswerNowRequested(EventBase):
    """The user wants the answer now: the turn ends with what it has, once it has an answer, without a presentation."""


class ParamRequested(AgentSourceEvent):
    """The agent cannot go on without a value that only the user knows."""

    param: str
    prompt: str
    """The agent's question to the user."""
    reasoning: str = ""
    usage: Usage


class BallotsVoided(EventBase):
    """A new answer came in: the ballots of these agents no longer count, and they act again."""

    round: int
    agents: tuple[str, ...]


class AgentFailed(AgentSourceEvent):
    """The agent could not act."""

    step: Step
    error: str
    """Name of the class in massmem.core.errors."""
    message: str
    hint: str = ""
    partial: str = ""
    """Text that was streamed before the failure."""
    out: bool = True
    """The agent takes no further part in this turn."""
    usage: Usage


class WinnerDecided(EventBase):
    """The turn has a winner."""

    agent_id: str
    votes: dict[str, int]
    """Standing ballots per agent id."""
    by: Decision
    """How the winner was decided. early_stop: the ballots of `not_asked` could not change it. answer_now: the user did
    not wait for more answers and ballots. tie_support: of the answers with most votes, more agents gave this one;
    tie: of equal answers that are not cut off the team lists the agent of this one first. unanimous: all answers are
    the same, by code or as `depth_decided` says, majority: those of more than half of the agents; no vote was needed.
    no_vote: agents were asked to vote, and no vote stands; no_vote_held: nobody was asked. In both cases nobody has
    confirmed the answer. union, decide: the agent writes the summary; revise: it wrote the draft; nobody has won.
    """
    not_asked: tuple[str, ...] = ()
    """Agents that were not asked in the last round, or not at all, since `depth_decided` says they are not needed."""
    no_vote: NoVote | None = None
    """Why there are no votes, with `by` no_vote or no_vote_held. one_round: coordination.max_rounds is 1; timeout, cost
    and tokens: that limit was reached; failed: everybody who was asked failed; no_choice: no vote could matter."""


class TurnCompleted(SourceEvent):
    """The turn has its final answer."""

    winner: str
    winner_name: str = ""
    """For people; empty: its id."""
    answer: str
    reasoning: str = ""
    presented: bool
    """The winner wrote the answer in a presentation; false: its own answer is used as it was."""
    usage: Usage
    limit: Limit | None = None
    """The limit that ended the turn early, with the answer it had."""
    confidence: float | None = None
    """How far the council stands behind the answer, 0 to 1; null for an agent alone and without votes."""
    agreement: str = ""
    """How far the agents agree, as far as it is known, one sentence for people; empty for an agent alone."""
    escalated: bool = False
    """A person should look at the answer: it is unsure, see `verdict`."""
    verdict: Verdict | None = "answered"
    """unsure: less sure than coordination.max_error or escalate_below wants; `answer` says so, and what each said.
    null: answers were not compared, see `turn_started.shape`."""
    measured_confidence: MeasuredConfidence | None = None
    """How often answers of this team with such agreement were right; null: too few are known, or of another team."""
    candidates: tuple[VerdictCandidate, ...] = ()
    """With the verdict unsure: what the agents answered, the winner's first."""
    truncated: bool = False
    """The end of `answer` is missing, see `answer_submitted`."""
    same: tuple[str, ...] = ()
    """Agents whose texts say the same, as one of them says, see `depth_decided`; empty: code alone compared answers."""
    data: Any = None
    """The answer as a JSON value, when the question came with a schema."""
    form_error: str = ""
    """Why `answer` is a text although the question came with a schema."""
    work_cut: WorkCut | None = None
    """As in `answer_submitted`, of the winner."""
    citations: tuple[Citation, ...] = ()
    """Sources of `answer`, of all agents from which it took something; `[n]` in it names the n-th."""
    fallback: str = ""
    """As in `answer_submitted`, of the model that wrote `answer`."""
    report: Report | None = None
    """Who says what, with `coordination.presentation: report`."""
    no_facts: bool = False
    """No model reads the turn for facts: it was imported without them."""
    spent: dict[str, Usage] = msgspec.field(default_factory=dict[str, Usage])
    """`usage` of all runs by what it was for, as in all ends of a turn; empty in old logs."""
    carried_out: CarriedOut | None = None
    """What an agent program did in the folder that the user allowed it to change; `answer` ends with it, for people."""


class TurnFailed(EventBase):
    """No agent could answer. The turn stays in the log; `massmem --session-id S` tries it again."""

    message: str
    hint: str = ""
    exit_code: int
    usage: Usage
    spent: dict[str, Usage] = msgspec.field(default_factory=dict[str, Usage])


class TurnInterrupted(EventBase):
    """The turn was stopped from outside; `massmem --session-id S` goes on with it."""

    by: Literal["user", "signal"]
    """user: with Ctrl-C."""
    partials: tuple[PartialReply, ...] = ()
    """What agents had written of replies that did not come to an end."""
    spent: dict[str, Usage] = msgspec.field(default_factory=dict[str, Usage])


class TurnWaiting(EventBase):
    """The turn waits for a value from the user; the next message to the session goes on with it."""

    param: str
    prompt: str
    agents: tuple[str, ...]
    """Those that need the value; the others have done their part of the round."""
    agent_name: str = ""
    """Of the first of them, which asks, for people; empty: its id."""
    asked: int
    """How often the user was asked for this value, this time included."""
    shown: bool = False
    """The user has seen this very prompt before."""
    usage: Usage
    spent: dict[str, Usage] = msgspec.field(default_factory=dict[str, Usage])


class UserReplied(EventBase):
    """The user's reply when asked for a value. Show and log it only through `hide_private_fields`."""

    param: str
    text: str
    """May be the value: it never leaves the store."""
    is_value: bool = True
    """False: no value was given, and the text looks like none; it is shown as other messages are."""
    usage: Usage = Usage()
    """Of the request that read the reply, if there was one."""
    request: str = ""
    """As in `turn_started`."""

    def __repr__(self) -> str:
        return f"UserReplied(param={self.param!r})"


class ParamProvided(EventBase):
    """The value is known. It stands in the session's state, not here."""

    param: str


class ParamCleared(EventBase):
    """The turn no longer waits for the value."""

    param: str
    why: ClearReason
    """gave_up: the user was asked often enough, the agents go on without it; else as in `turn_abandoned`."""


class TurnAbandoned(EventBase):
    """A turn that waited for the user is given up; it stays in the log."""

    session_id: str
    turn: int
    why: ClearReason
    """cancel: the user stopped it; reset: the user starts over, the known values are forgotten; change: the user asked
    something else; timeout: nobody replied for `coordination.waiting_timeout`."""
    usage: Usage
    spent: dict[str, Usage] = msgspec.field(default_factory=dict[str, Usage])


class ContextMeasured(AgentEvent):
    """How full the agent's context window was in its last request."""

    tokens: int
    """Of the prompt."""
    window: int
    """Tokens that the model reads."""
    source: TokenSource
    """api: `tokens` is the provider's count; buffer: it is ours."""
    entries: dict[str, int]
    """Our count per type of entry (massmem.memory.tokens); it may differ from `tokens` when that is the provider's."""
    threshold: float | None = None
    """Share of the window at which the prompt is compressed before it is sent; null: only when the provider refuses."""
    recalled: int = 0
    """Tokens of recalled memories among `entries`."""


class ContextCompressed(AgentEvent):
    """A summary replaced old messages in the agent's prompt; the log keeps them."""

    why: CompressionReason
    before: int
    """Tokens of the prompt before, by our count."""
    after: int
    """Tokens of the prompt after, by our count."""
    window: int | None = None
    """Tokens that the model reads."""
    kept: int
    """Messages that stay verbatim."""
    removed: int
    """Messages of the conversation that the summary stands for."""
    removed_work: int = 0
    """Messages of the agent's work in this step, calls and results, that are no longer sent word for word."""
    work_until: int | None = None
    """Of the step's replies with calls (`tool_called.batch`) the last one that is no longer sent word for word, 0 when
    all of them are; null: the step does not go on with this prompt."""
    summary: str
    until: int | None = None
    """The summary covers the conversation up to the message with this seq; null: only work of this step."""
    by: Literal["model", "extract"]
    """model: a model wrote the summary; extract: code took sentences from the messages."""
    usage: Usage
    truncated: bool = False
    """The model that wrote the summary was cut at its limit of tokens."""


class ToolCalled(AgentSourceEvent):
    """The agent's model calls a tool, which runs once this is on disk. The deltas before it are of the same reply."""

    call_id: str
    """Unique for an agent in its turn."""
    batch: int
    """Number of the reply with calls in this step, from 1; the calls of one batch run at the same time."""
    name: str
    arguments: str
    """A JSON object as text, or what the model wrote instead."""
    text: str = ""
    """Text of the reply beside its calls, with the first of them."""
    reasoning: str = ""
    """As `text`."""
    citations: tuple[Citation, ...] = ()
    """As `text`: the sources of the reply."""
    usage: Usage
    """Of the requests of the step so far."""
    state: str = ""
    """Wanted back by the provider with the call, as it came; always empty outside of the store."""


class ToolReturned(AgentSourceEvent):
    """The result of a tool, word for word; also of one that ran outside a turn."""

    name: str
    """Of the tool."""
    content: str
    call_id: str = ""
    """Of its `tool_called`; empty outside a turn."""
    failed: bool = False
    """`content` says what went wrong."""
    recorded: bool = True
    """It is remembered as a message of its own (memory.recording.record_all_tool_calls)."""


class CarryOutStarted(EventBase):
    """An agent program begins to carry the final answer out; no other run of the turn does that again."""

    agent_id: str
    folder: str
    """Where it may change files and run commands."""
    completed: dict[str, Any]
    """The `turn_completed` that follows, without what was done."""


class MessageAdded(EventBase):
    """A program put a message into the conversation, outside of any turn."""

    role: Literal["user", "agent", "tool", "system"]
    text: str
    metadata: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])


class NoteAdded(EventBase):
    """The user noted something to be remembered, outside of any turn."""

    text: str
    session_only: bool = False
    """No other session recalls it."""


class MemoryChanged(EventBase):
    """The user changed a memory of this session, outside of any turn. The messages that it came from stay."""

    action: MemoryAction
    """edit: it has another text; pin: agents always see it; promote: in every project; unpin, demote: no longer."""
    kind: Literal["episode", "fact"]
    """episode: a passage of a message, word for word; fact: extracted from messages."""
    agent_id: str
    """Whose memory it is; `user` for the user's."""
    turn: int
    """The turn that the memory is from."""
    sources: tuple[int, ...]
    """Numbers in the log of the messages that it came from."""
    old: str
    """Its text before."""
    text: str
    """Its text from now on."""
    by: str
    """Who changed it: `user`, or a user of the HTTP service."""


class HistoryCleared(EventBase):
    """Agents no longer see the conversation before this. The log keeps it, and its memories stay."""

    until: int | None = None
    """They no longer see it up to the message with this seq; null: none of it."""


class TurnUndone(EventBase):
    """The user took the turn back: no agent sees or recalls it. The log keeps it."""

    session_id: str
    turn: int


class VersionChosen(EventBase):
    """The user went to another version of a turn, and what follows it. The log keeps all of them."""

    turn: int
    """The last turn that is shown from now on."""
    withdrawn: tuple[int, ...]
    """Turns that are not shown any more."""
    restored: tuple[int, ...]
    """Turns that are shown again."""


class UsageBooked(EventBase):
    """What was sent for the turn beside its steps, mostly after its end; it adds to `usage` and `spent`."""

    purpose: str
    usage: Usage


class Notice(EventBase):
    """Something that the user should know and that stops nothing."""

    message: str


Event = (
    TurnStarted
    | TurnResumed
    | RoundStarted
    | DepthDecided
    | AgentStarted
    | AgentDelta
    | AgentBusy
    | WebSearched
    | AgentRetrying
    | AnswerSubmitted
    | ItemsGiven
    | ItemsMerged
    | BallotCast
    | ParamRequested
    | BallotsVoided
    | AgentFailed
    | WinnerDecided
    | AnswerNowRequested
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
    | MemoryChanged
    | HistoryCleared
    | TurnUndone
    | VersionChosen
    | ContextMeasured
    | ContextCompressed
    | ToolCalled
    | ToolReturned
    | CarryOutStarted
    | UsageBooked
    | Notice
)

_DECODER = msgspec.json.Decoder(Event)


def decode_event(payload: str | bytes) -> Event:
    """Return an event from its JSON, also of earlier releases. Raises ValueError: it is none."""
    try:
        try:
            return _DECODER.decode(payload)
        except msgspec.ValidationError:
            return read_event(msgspec.json.decode(payload))
    except (msgspec.DecodeError, RecursionError) as e:
        raise ValueError(f"an event cannot be read: {e}") from e


def read_event(fields: Any) -> Event:
    """Return the event with these fields, also of earlier releases. Raises msgspec.ValidationError: there is none."""
    match fields:
        case {"type": "winner_decided", "by": str(by)}:
            fields = {**fields, "by": FORMER_DECISIONS.get(by, by)}
        case {"type": "depth_decided", "difference": text, **others}:
            fields = {**others, "type": "depth_decided", "text": text}
        case _:
            pass
    return msgspec.convert(fields, Event, strict=False)


def hide_private_fields(event: Event) -> Event:
    """Return the event as it may leave the store: no reply, which may be a value, and nothing for providers alone."""
    match event:
        case UserReplied(is_value=True):
            return event.model_copy(update={"text": ""})
        case ToolCalled(state=state) if state:
            return event.model_copy(update={"state": ""})
        case _:
            return event
