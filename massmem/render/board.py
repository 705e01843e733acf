"""What is going on in a turn, folded from its events. No input, no output, no clock."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, assert_never

from massmem.events import (
    AgentDelta,
    AgentFailed,
    AgentRetrying,
    AgentStarted,
    AnswerSubmitted,
    BallotCast,
    BallotsVoided,
    ContextCompressed,
    ContextMeasured,
    Event,
    HistoryCleared,
    Limit,
    MessageAdded,
    NoteAdded,
    Notice,
    ParamCleared,
    ParamProvided,
    ParamRequested,
    RoundStarted,
    Step,
    ToolCalled,
    ToolReturned,
    TurnAbandoned,
    TurnCompleted,
    TurnFailed,
    TurnInterrupted,
    TurnResumed,
    TurnStarted,
    TurnUndone,
    TurnWaiting,
    UserReplied,
    WinnerDecided,
)
from massmem.messages import Usage

AgentEvent = AgentStarted | AgentDelta | AgentRetrying | AnswerSubmitted | BallotCast | ParamRequested | AgentFailed
ContextEvent = ContextMeasured | ContextCompressed
ToolEvent = ToolCalled | ToolReturned
SessionEvent = MessageAdded | NoteAdded | HistoryCleared | TurnUndone
UserEvent = UserReplied | ParamProvided | ParamCleared | SessionEvent
TurnEnd = TurnCompleted | TurnFailed | TurnInterrupted | TurnWaiting | TurnAbandoned
TurnEvent = TurnStarted | TurnResumed | RoundStarted | BallotsVoided | WinnerDecided | TurnEnd | Notice
Phase = Literal["waiting", "working", "retrying", "answered", "voted", "asking", "failed"]
TurnStatus = Literal["running", "completed", "limit", "failed", "interrupted", "waiting", "abandoned"]

_UNANSWERED: dict[type[TurnEnd], TurnStatus] = {
    TurnInterrupted: "interrupted",
    TurnWaiting: "waiting",
    TurnAbandoned: "abandoned",
}

CHARACTERS_PER_TOKEN = 4
_TAIL = 1_200


@dataclass(slots=True)
class AgentState:
    """One agent in this turn. tail: the end of what it streams now. streamed: characters without a usage yet.

    context: how full its window was when it was last measured, or compressed since. using: the tools that run for it
    now, by the ids of the calls. calls: how many it has made.
    """

    id: str
    phase: Phase = "waiting"
    step: Step | None = None
    started_at: datetime | None = None
    spent: float = 0.0
    usage: Usage = field(default_factory=Usage)
    streamed: int = 0
    tail: str = ""
    thinking: bool = False
    answers: list[AnswerSubmitted] = field(default_factory=list[AnswerSubmitted])
    ballots: list[BallotCast] = field(default_factory=list[BallotCast])
    request: ParamRequested | None = None
    failure: AgentFailed | None = None
    retry: AgentRetrying | None = None
    context: ContextMeasured | None = None
    using: dict[str, str] = field(default_factory=dict[str, str])
    calls: int = 0

    def seconds(self, now: datetime) -> float:
        """Time at work in this turn up to `now`."""
        running = (now - self.started_at).total_seconds() if self.started_at else 0.0
        return self.spent + max(running, 0.0)

    @property
    def tokens(self) -> int:
        """Output tokens; estimated from the characters streamed until the provider has reported."""
        return self.usage.completion + self.streamed // CHARACTERS_PER_TOKEN

    def feed(self, event: AgentEvent) -> None:
        match event:
            case AgentStarted():
                self.phase, self.step, self.started_at, self.retry = "working", event.step, event.at, None
                self._restart()
            case AgentDelta():
                self.phase, self.thinking = "working", event.channel == "reasoning"
                self.streamed += len(event.text)
                self.tail = (self.tail + event.text)[-_TAIL:]
            case AgentRetrying():
                self.phase, self.retry = "retrying", event
                self._restart()
            case AnswerSubmitted():
                self.phase = "answered"
                self.answers.append(event)
                self._stop(event.at, event.usage)
            case BallotCast():
                self.phase = "voted"
                self.ballots.append(event)
                self._stop(event.at, event.usage)
            case ParamRequested():
                self.phase, self.request = "asking", event
                self._stop(event.at, event.usage)
            case AgentFailed():
                self.phase, self.failure = "failed", event
                self._stop(event.at, event.usage)
            case _:
                assert_never(event)

    def feed_context(self, event: ContextEvent) -> None:
        match event:
            case ContextMeasured():
                self.context = event
            case ContextCompressed():
                if self.context is not None:
                    self.context = self.context.model_copy(update={"tokens": event.after, "source": "buffer"})
            case _:
                assert_never(event)

    def feed_tool(self, event: ToolEvent) -> None:
        match event:
            case ToolCalled():
                self.using[event.call_id] = event.name
                self.calls += 1
                self._restart()
            case ToolReturned():
                self.using.pop(event.call_id, None)
            case _:
                assert_never(event)

    def end_presentation(self, at: datetime, usage: Usage) -> None:
        self.phase = "answered"
        self._stop(at, usage)

    def _restart(self) -> None:
        self.tail, self.streamed, self.thinking = "", 0, False

    def _stop(self, at: datetime, usage: Usage) -> None:
        self.spent, self.started_at = self.seconds(at), None
        self.usage += usage
        self.using.clear()
        self._restart()


@dataclass(slots=True)
class Board:
    """The turn that the last `turn_started` or `turn_resumed` began; notices are those of all turns seen."""

    session_id: str = ""
    turn: int = 0
    question: str = ""
    started_at: datetime | None = None
    resumed: bool = False
    round: int = 0
    final_round: bool = False
    agents: dict[str, AgentState] = field(default_factory=dict[str, AgentState])
    winner: WinnerDecided | None = None
    end: TurnEnd | None = None
    notices: list[str] = field(default_factory=list[str])

    def feed(self, event: Event) -> None:
        if isinstance(event, TurnEvent):
            self._turn_event(event)
        elif isinstance(event, AgentEvent):
            self._agent(event.agent_id).feed(event)
        elif isinstance(event, ContextEvent):
            self._agent(event.agent_id).feed_context(event)
        elif isinstance(event, ToolEvent):
            self._agent(event.agent_id).feed_tool(event)
        else:
            _: UserEvent = event  # the user knows what the user said

    def _agent(self, agent_id: str) -> AgentState:
        return self.agents.setdefault(agent_id, AgentState(agent_id))

    def _turn_event(self, event: TurnEvent) -> None:
        match event:
            case TurnStarted() | TurnResumed():
                self._begin(event)
            case RoundStarted():
                self.round, self.final_round = event.round, event.final
                for agent_id in event.agents:
                    self._agent(agent_id).phase = "waiting"
            case BallotsVoided():
                for agent_id in event.agents:
                    self._agent(agent_id).phase = "waiting"
            case WinnerDecided():
                self.winner = event
            case TurnCompleted() | TurnFailed() | TurnInterrupted() | TurnWaiting():
                self._finish(event)
            case TurnAbandoned():
                self.session_id, self.turn = event.session_id, event.turn
                self._finish(event)
            case Notice():
                self.notices.append(event.message)
            case _:
                assert_never(event)

    def _begin(self, event: TurnStarted | TurnResumed) -> None:
        self.session_id, self.turn, self.question = event.session_id, event.turn, event.question
        self.started_at, self.resumed = event.at, isinstance(event, TurnResumed)
        self.round, self.final_round, self.winner, self.end = 0, False, None, None
        self.agents = {agent_id: AgentState(agent_id) for agent_id in event.agents}

    def _finish(self, event: TurnEnd) -> None:
        self.end = event
        for agent in self.agents.values():
            if agent.started_at is not None:
                agent.end_presentation(event.at, self._presentation_usage(event))

    def _presentation_usage(self, event: TurnEnd) -> Usage:
        """No event of the winner reports it: it is what the turn cost beyond the agents' own events."""
        if self.resumed or not isinstance(event, TurnCompleted) or not event.presented:
            return Usage()
        known = sum((agent.usage for agent in self.agents.values()), Usage())
        total = event.usage
        unpriced = total.cost is None or known.cost is None
        return Usage(
            total.prompt - known.prompt,
            total.completion - known.completion,
            total.cached - known.cached,
            total.requests - known.requests,
            total.reported,
            None if unpriced else round((total.cost or 0) - (known.cost or 0), 10),
        )

    @property
    def status(self) -> TurnStatus:
        match self.end:
            case None:
                return "running"
            case TurnCompleted(limit=None):
                return "completed"
            case TurnCompleted():
                return "limit"
            case TurnFailed(exit_code=code):
                return "limit" if code == 4 else "failed"
            case TurnInterrupted() | TurnWaiting() | TurnAbandoned() as end:
                return _UNANSWERED[type(end)]

    @property
    def answer(self) -> str | None:
        return self.end.answer if isinstance(self.end, TurnCompleted) else None

    @property
    def prompt(self) -> str | None:
        """What the user is asked for, when the turn waits."""
        return self.end.prompt if isinstance(self.end, TurnWaiting) else None

    @property
    def confidence(self) -> float | None:
        return self.end.confidence if isinstance(self.end, TurnCompleted) else None

    @property
    def escalated(self) -> bool:
        return isinstance(self.end, TurnCompleted) and self.end.escalated

    @property
    def limit(self) -> Limit | None:
        """The limit that ended the turn with what it had."""
        return self.end.limit if isinstance(self.end, TurnCompleted) else None

    @property
    def failed_agents(self) -> list[AgentFailed]:
        return [agent.failure for agent in self.agents.values() if agent.failure is not None]

    @property
    def votes(self) -> dict[str, int]:
        """Standing ballots per agent: those decided on, or so far."""
        if self.winner is not None:
            return dict(self.winner.votes)
        votes: dict[str, int] = {}
        for agent in self.agents.values():
            if agent.phase == "voted":
                choice = agent.ballots[-1].choice
                votes[choice] = votes.get(choice, 0) + 1
        return votes

    @property
    def usage(self) -> Usage:
        """What the turn has cost so far; final once it has ended."""
        if isinstance(self.end, TurnCompleted | TurnFailed | TurnWaiting | TurnAbandoned):
            return self.end.usage
        return sum((agent.usage for agent in self.agents.values()), Usage())

    def seconds(self, now: datetime) -> float:
        """Time since the turn began, up to its end or `now`."""
        if self.started_at is None:
            return 0.0
        return max(((self.end.at if self.end else now) - self.started_at).total_seconds(), 0.0)
