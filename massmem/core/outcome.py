"""How a turn can end, and the requests of its agents to the user: pure folds over its events."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from massmem.core import events as ev

TurnEnd = ev.TurnCompleted | ev.TurnFailed | ev.TurnInterrupted | ev.TurnWaiting | ev.TurnAbandoned
"""The last event of a turn, or of one run of it."""


def was_cut_off(events: Sequence[ev.Event]) -> bool:
    """Return whether an unfinished turn with these events was ended by a kill, so that its user still waits for it.

    Not so when the user stopped it, or saw it fail.
    """
    # These may also follow the end of a turn.
    steps = [
        event for event in events if not isinstance(event, ev.ContextCompressed | ev.ToolReturned | ev.UsageBooked)
    ]
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
    | ev.UserReplied | ev.WinnerDecided | ev.AgentFailed | ev.DepthDecided | ev.ItemsGiven | ev.ItemsMerged
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
                self._close_requests(param)
            case ev.ParamCleared(param=param, why=why):
                self._close_requests(param)
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

    def _close_requests(self, param: str) -> None:
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

    def ask_number(self, param: str) -> int:
        """Return which time it is that the user is asked for `param` now, from 1."""
        return self.replies[param] + 1


def read_waiting(events: Iterable[ev.Event]) -> Waiting:
    """Return what a turn waits for after these events."""
    waiting = Waiting()
    for event in events:
        waiting.apply(event)
    return waiting
