"""What a turn has come to: a pure fold over its events."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Self

from massmem.core.errors import LimitReached
from massmem.core.events import (
    AgentFailed,
    AnswerSubmitted,
    ContextCompressed,
    Event,
    Limit,
    ToolReturned,
    TurnAbandoned,
    TurnCompleted,
    TurnFailed,
    TurnInterrupted,
    TurnResumed,
    TurnStarted,
    TurnWaiting,
    WinnerDecided,
    WorkCut,
)
from massmem.core.messages import Usage

TurnEnd = TurnCompleted | TurnFailed | TurnInterrupted | TurnWaiting | TurnAbandoned
"""The last event of a turn, or of one run of it."""

OutcomeStatus = Literal["running", "completed", "limit", "failed", "interrupted", "waiting", "abandoned"]
"""How a turn ended; limit: a limit ended it, or the winner's work with tools, with the answer it had or without one."""


@dataclass(slots=True)
class TurnOutcome:
    """The outcome of the last turn among the events that were fed in."""

    session_id: str = ""
    turn: int = 0
    question: str = ""
    names: dict[str, str] = field(default_factory=dict[str, str])
    """What people are shown instead of an agent's id, of the agents that have a name."""
    answered: list[str] = field(default_factory=list[str])
    """Ids of the agents that submitted an answer, in order."""
    failures: list[AgentFailed] = field(default_factory=list[AgentFailed])
    winner: WinnerDecided | None = None
    end: TurnEnd | None = None
    """None while the turn runs."""

    @classmethod
    def of(cls, events: Iterable[Event]) -> Self:
        """Return the outcome after these events."""
        outcome = cls()
        for event in events:
            outcome.feed(event)
        return outcome

    def name(self, agent_id: str) -> str:
        """Return what people are shown for the agent."""
        return self.names.get(agent_id, agent_id)

    def feed(self, event: Event) -> None:
        """Take one event in. Events that do not bear on the outcome are ignored."""
        match event:
            case TurnStarted() | TurnResumed():
                self.session_id, self.turn, self.question = event.session_id, event.turn, event.question
                self.names = {**(self.names if isinstance(event, TurnResumed) else {}), **event.names}
                self.answered, self.failures = [], []
                self.winner, self.end = None, None
            case AnswerSubmitted(agent_id=agent_id):
                if agent_id not in self.answered:
                    self.answered.append(agent_id)
            case AgentFailed():
                self.failures.append(event)
            case WinnerDecided():
                self.winner = event
            case TurnAbandoned(session_id=session_id, turn=turn):
                self.session_id, self.turn, self.end = session_id, turn, event
            case TurnCompleted() | TurnFailed() | TurnInterrupted() | TurnWaiting():
                self.end = event
            case _:
                pass

    @property
    def status(self) -> OutcomeStatus:
        match self.end:
            case None:
                return "running"
            case TurnCompleted(limit=limit, work_cut=work_cut):
                return "completed" if limit is None and work_cut is None else "limit"
            case TurnFailed(exit_code=code):
                return "limit" if code == LimitReached.exit_code else "failed"
            case TurnInterrupted():
                return "interrupted"
            case TurnWaiting():
                return "waiting"
            case TurnAbandoned():
                return "abandoned"

    @property
    def answer(self) -> str | None:
        """The final answer; None when there is none."""
        return self.end.answer if isinstance(self.end, TurnCompleted) else None

    @property
    def data(self) -> Any:
        """The answer as a JSON value, when the question came with a schema."""
        return self.end.data if isinstance(self.end, TurnCompleted) else None

    @property
    def prompt(self) -> str | None:
        """What the user is asked for, when the turn waits."""
        return self.end.prompt if isinstance(self.end, TurnWaiting) else None

    @property
    def waiting_for(self) -> str | None:
        """The param that the user is asked for, when the turn waits."""
        return self.end.param if isinstance(self.end, TurnWaiting) else None

    @property
    def agent_id(self) -> str | None:
        """The agent that speaks to the user: the winner, or the first that waits for a param."""
        match self.end:
            case TurnCompleted(winner=winner):
                return winner
            case TurnWaiting(agents=agents):
                return next(iter(agents), None)
            case _:
                return None

    @property
    def confidence(self) -> float | None:
        """From 0 to 1 (see massmem.core.voting); None without an answer, for an agent alone and when nobody voted."""
        return self.end.confidence if isinstance(self.end, TurnCompleted) else None

    @property
    def lacks_votes(self) -> bool:
        """Whether everybody who was asked to vote failed to."""
        return self.winner is not None and self.winner.by == "no_vote"

    @property
    def escalated(self) -> bool:
        return isinstance(self.end, TurnCompleted) and self.end.escalated

    @property
    def is_truncated(self) -> bool:
        """Whether the end of the answer is missing."""
        return isinstance(self.end, TurnCompleted) and self.end.truncated

    @property
    def limit(self) -> Limit | None:
        """The limit that ended the turn with the answer it had."""
        return self.end.limit if isinstance(self.end, TurnCompleted) else None

    @property
    def work_cut(self) -> WorkCut | None:
        """What ended the winner's work with tools before it ended it itself."""
        return self.end.work_cut if isinstance(self.end, TurnCompleted) else None

    @property
    def usage(self) -> Usage | None:
        """What the turn cost; None while it runs and after an interruption, which nobody added up."""
        return None if self.end is None or isinstance(self.end, TurnInterrupted) else self.end.usage


def was_cut_off(events: Sequence[Event]) -> bool:
    """Return whether an unfinished turn with these events was ended by a kill, so that its user still waits for it.

    Not so when the user stopped it, or saw it fail.
    """
    # These may also follow the end of a turn.
    steps = [event for event in events if not isinstance(event, ContextCompressed | ToolReturned)]
    match steps[-1:]:
        case [TurnInterrupted(by="user")] | [TurnFailed()]:
            return False
        case _:
            return True
