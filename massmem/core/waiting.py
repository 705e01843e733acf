"""What the agents of a turn have asked the user for, and what came of it: a fold over the turn's events."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from massmem.core.events import (
    Event,
    ParamCleared,
    ParamProvided,
    ParamRequested,
    TurnAbandoned,
    TurnResumed,
    TurnWaiting,
    UserReplied,
)


@dataclass(slots=True)
class Waiting:
    """The params that a turn waits for."""

    open_requests: list[ParamRequested] = field(default_factory=list[ParamRequested])
    """Requests without a value so far, oldest first."""
    request_rounds: dict[str, int] = field(default_factory=dict[str, int])
    """The round in which each agent last asked."""
    replies: Counter[str] = field(default_factory=Counter[str])
    """Replies that were not the value, by param."""
    given_up: set[str] = field(default_factory=set[str])
    """Params that the user was asked for often enough."""
    last_shown: TurnWaiting | None = None
    """The prompt that the user saw last."""
    paused: bool = False
    """Nothing has happened in the turn since that prompt."""

    def apply(self, event: Event) -> None:
        """Take one event in. Events that have nothing to do with the user are ignored."""
        match event:
            case ParamRequested():
                self.open_requests.append(event)
                self.request_rounds[event.agent_id] = event.round
            case UserReplied(param=param):
                self.replies[param] += 1
            case ParamProvided(param=param):
                self._settle(param)
            case ParamCleared(param=param, why=why):
                self._settle(param)
                if why == "gave_up":
                    self.given_up.add(param)
            case TurnResumed(agents=agents):
                self.open_requests = [request for request in self.open_requests if request.agent_id in agents]
                self.paused = False
            case TurnWaiting():
                self.last_shown, self.paused = event, True
            case TurnAbandoned():
                self.open_requests.clear()
            case _:
                pass

    def _settle(self, param: str) -> None:
        self.open_requests = [request for request in self.open_requests if request.param != param]
        self.replies[param] = 0

    @property
    def next_request(self) -> ParamRequested | None:
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


def read_waiting(events: Iterable[Event]) -> Waiting:
    """Return what a turn waits for after these events."""
    waiting = Waiting()
    for event in events:
        waiting.apply(event)
    return waiting
