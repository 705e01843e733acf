"""The outcome of a turn, and the requests of its agents to the user: pure folds over its events."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Self

from massmem.core import events as ev
from massmem.core.errors import LimitReached
from massmem.core.messages import Citation, Usage
from massmem.core.report import Report

TurnEnd = ev.TurnCompleted | ev.TurnFailed | ev.TurnInterrupted | ev.TurnWaiting | ev.TurnAbandoned
"""The last event of a turn, or of one run of it."""

OutcomeStatus = Literal["running", "completed", "limit", "failed", "interrupted", "waiting", "abandoned"]
"""How a turn ended; limit: a limit ended it, or the winner's work with tools, with the answer it had or without one."""


NO_VERDICT: dict[str, Any] = {"verdict": None, "measured_confidence": None, "candidates": []}
"""The fields of a verdict where there is no answer."""


@dataclass(slots=True)
class TurnOutcome:
    """The outcome of the last turn among the events that were fed in."""

    session_id: str = ""
    turn: int = 0
    question: str = ""
    names: dict[str, str] = field(default_factory=dict[str, str])
    """Of agents for people, by id; some have none."""
    answered: list[str] = field(default_factory=list[str])
    """Ids of the agents that submitted an answer, in order."""
    failures: list[ev.AgentFailed] = field(default_factory=list[ev.AgentFailed])
    winner: ev.WinnerDecided | None = None
    end: TurnEnd | None = None
    """None while the turn runs."""

    @classmethod
    def of(cls, events: Iterable[ev.Event]) -> Self:
        """Return the outcome after these events."""
        outcome = cls()
        for event in events:
            outcome.feed(event)
        return outcome

    def name(self, agent_id: str) -> str:
        """Return what people are shown for the agent."""
        return self.names.get(agent_id, agent_id)

    def feed(self, event: ev.Event) -> None:
        """Take one event in. Events that do not bear on the outcome are ignored."""
        match event:
            case ev.TurnStarted() | ev.TurnResumed():
                self.session_id, self.turn, self.question = event.session_id, event.turn, event.question
                self.names = {**(self.names if isinstance(event, ev.TurnResumed) else {}), **event.names}
                self.answered, self.failures = [], []
                self.winner, self.end = None, None
            case ev.AnswerSubmitted(agent_id=agent_id):
                if agent_id not in self.answered:
                    self.answered.append(agent_id)
            case ev.AgentFailed():
                self.failures.append(event)
            case ev.WinnerDecided():
                self.winner = event
            case ev.TurnAbandoned(session_id=session_id, turn=turn):
                self.session_id, self.turn, self.end = session_id, turn, event
            case ev.TurnCompleted() | ev.TurnFailed() | ev.TurnInterrupted() | ev.TurnWaiting():
                self.end = event
            case _:
                pass

    @property
    def status(self) -> OutcomeStatus:
        match self.end:
            case None:
                return "running"
            case ev.TurnCompleted(limit=limit, work_cut=work_cut):
                return "completed" if limit is None and work_cut is None else "limit"
            case ev.TurnFailed(exit_code=code):
                return "limit" if code == LimitReached.exit_code else "failed"
            case ev.TurnInterrupted():
                return "interrupted"
            case ev.TurnWaiting():
                return "waiting"
            case ev.TurnAbandoned():
                return "abandoned"

    @property
    def answer(self) -> str | None:
        """The final answer; None when there is none."""
        return self.end.answer if isinstance(self.end, ev.TurnCompleted) else None

    @property
    def citations(self) -> tuple[Citation, ...]:
        """Sources of the answer: `[n]` in it names the n-th."""
        return self.end.citations if isinstance(self.end, ev.TurnCompleted) else ()

    @property
    def data(self) -> Any:
        """The answer as a JSON value, when the question came with a schema."""
        return self.end.data if isinstance(self.end, ev.TurnCompleted) else None

    @property
    def prompt(self) -> str | None:
        """The question to the user, when the turn waits."""
        return self.end.prompt if isinstance(self.end, ev.TurnWaiting) else None

    @property
    def waiting_for(self) -> str | None:
        """The param that the user is asked for, when the turn waits."""
        return self.end.param if isinstance(self.end, ev.TurnWaiting) else None

    @property
    def agent_id(self) -> str | None:
        """The agent that speaks to the user: the winner, or the first that waits for a param."""
        match self.end:
            case ev.TurnCompleted(winner=winner):
                return winner
            case ev.TurnWaiting(agents=agents):
                return next(iter(agents), None)
            case _:
                return None

    @property
    def fallback(self) -> str:
        """The model that wrote the answer in place of the winner's own; "" for its own."""
        return self.end.fallback if isinstance(self.end, ev.TurnCompleted) else ""

    @property
    def report(self) -> Report | None:
        """The report of the council, where one was made."""
        return self.end.report if isinstance(self.end, ev.TurnCompleted) else None

    @property
    def agreement(self) -> str:
        """How far the agents agree, as far as it is known, for people; "" for an agent alone."""
        return self.end.agreement if isinstance(self.end, ev.TurnCompleted) else ""

    @property
    def confidence(self) -> float | None:
        """From 0 to 1 (see massmem.core.voting); None without an answer, for an agent alone and when nobody voted."""
        return self.end.confidence if isinstance(self.end, ev.TurnCompleted) else None

    @property
    def lacks_votes(self) -> bool:
        """Whether everybody who was asked to vote failed to."""
        return self.winner is not None and self.winner.by == "no_vote"

    @property
    def escalated(self) -> bool:
        return isinstance(self.end, ev.TurnCompleted) and self.end.escalated

    def dump_verdict(self) -> dict[str, Any]:
        """Return verdict, measured confidence and candidates of the answer as JSON."""
        end = self.end
        return end.model_dump(mode="json", include=set(NO_VERDICT)) if isinstance(end, ev.TurnCompleted) else NO_VERDICT

    @property
    def is_truncated(self) -> bool:
        """Whether the end of the answer is missing."""
        return isinstance(self.end, ev.TurnCompleted) and self.end.truncated

    @property
    def limit(self) -> ev.Limit | None:
        """The limit that ended the turn with the answer it had."""
        return self.end.limit if isinstance(self.end, ev.TurnCompleted) else None

    @property
    def work_cut(self) -> ev.WorkCut | None:
        """The limit that ended the winner's work with tools."""
        return self.end.work_cut if isinstance(self.end, ev.TurnCompleted) else None

    @property
    def usage(self) -> Usage | None:
        """Of the turn; None while it runs and after an interruption, which nobody added up."""
        return None if self.end is None or isinstance(self.end, ev.TurnInterrupted) else self.end.usage


def was_cut_off(events: Sequence[ev.Event]) -> bool:
    """Return whether an unfinished turn with these events was ended by a kill, so that its user still waits for it.

    Not so when the user stopped it, or saw it fail.
    """
    # These may also follow the end of a turn.
    steps = [event for event in events if not isinstance(event, ev.ContextCompressed | ev.ToolReturned)]
    match steps[-1:]:
        case [ev.TurnInterrupted(by="user")] | [ev.TurnFailed()]:
            return False
        case _:
            return True


MAX_DEATHS = 3
"""A turn is resumed twice after its process died; then it may be what kills the process."""
GAVE_UP = "the process that worked on this question died again and again, so that it is given up"

_Progress = (
    ev.AnswerSubmitted | ev.BallotCast | ev.ToolCalled | ev.ToolReturned | ev.ContextCompressed | ev.ParamRequested
    | ev.UserReplied | ev.WinnerDecided | ev.AgentFailed | ev.DepthDecided
)  # fmt: skip
"""Steps that need not be done again when the turn is resumed."""


def count_deaths(events: Iterable[ev.Event]) -> int:
    """Return how often in a row the process of a turn died before it got any further."""
    deaths = 0
    for event in events:
        if isinstance(event, ev.TurnStarted | ev.TurnResumed):
            deaths += 1
        elif isinstance(event, TurnEnd | _Progress):
            deaths = 0
    return deaths


@dataclass(slots=True)
class Waiting:
    """The params that a turn waits for."""

    open_requests: list[ev.ParamRequested] = field(default_factory=list[ev.ParamRequested])
    """Requests without a value so far, oldest first."""
    request_rounds: dict[str, int] = field(default_factory=dict[str, int])
    """The round in which each agent last asked."""
    replies: Counter[str] = field(default_factory=Counter[str])
    """Replies that were not the value, by param."""
    given_up: set[str] = field(default_factory=set[str])
    """Params that the user was asked for often enough."""
    last_shown: ev.TurnWaiting | None = None
    """The prompt that the user saw last."""
    paused: bool = False
    """Nothing has happened in the turn since that prompt."""

    def apply(self, event: ev.Event) -> None:
        """Take one event in. Events that have nothing to do with the user are ignored."""
        match event:
            case ev.ParamRequested():
                self.open_requests.append(event)
                self.request_rounds[event.agent_id] = event.round
            case ev.UserReplied(param=param):
                self.replies[param] += 1
            case ev.ParamProvided(param=param):
                self._settle(param)
            case ev.ParamCleared(param=param, why=why):
                self._settle(param)
                if why == "gave_up":
                    self.given_up.add(param)
            case ev.TurnResumed(agents=agents):
                self.open_requests = [request for request in self.open_requests if request.agent_id in agents]
                self.paused = False
            case ev.TurnWaiting():
                self.last_shown, self.paused = event, True
            case ev.TurnAbandoned():
                self.open_requests.clear()
            case _:
                pass

    def _settle(self, param: str) -> None:
        self.open_requests = [request for request in self.open_requests if request.param != param]
        self.replies[param] = 0

    @property
    def next_request(self) -> ev.ParamRequested | None:
        """The request that the user is asked next; None: the turn waits for nothing."""
        return self.open_requests[0] if self.open_requests else None

    @property
    def params(self) -> tuple[str, ...]:
        """Every param that the user is still to be asked for, in order."""
        return tuple(dict.fromkeys(request.param for request in self.open_requests))

    @property
    def agents(self) -> tuple[str, ...]:
        """The agents that cannot go on yet."""
        return tuple(dict.fromkeys(request.agent_id for request in self.open_requests))

    def agents_on_hold(self, round_: int) -> set[str]:
        """Return the agents that asked in this round and do not act in it while any request is open.

        They go on together: the user is asked for everything first.
        """
        if not self.open_requests:
            return set()
        return {agent for agent, request_round in self.request_rounds.items() if request_round == round_}

    def agents_needing(self, param: str) -> tuple[str, ...]:
        """Return the agents that asked for `param`."""
        return tuple(request.agent_id for request in self.open_requests if request.param == param)

    def ask_number(self, param: str) -> int:
        """Return which time it is that the user is asked for `param` now, from 1."""
        return self.replies[param] + 1


def read_waiting(events: Iterable[ev.Event]) -> Waiting:
    """Return what a turn waits for after these events."""
    waiting = Waiting()
    for event in events:
        waiting.apply(event)
    return waiting
