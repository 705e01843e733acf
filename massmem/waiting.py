"""What the agents of a turn have asked the user for, and what has come of it: a fold over the turn's events."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from massmem.events import (
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
    """open: requests without a value yet, in the order in which they were made. replies: messages that did not bring
    it, by param. given_up: params that the user was asked for often enough. last: what the user was shown last.
    paused: nothing has happened in the turn since. rounds: the round in which an agent last asked.
    """

    open: list[ParamRequested] = field(default_factory=list[ParamRequested])
    rounds: dict[str, int] = field(default_factory=dict[str, int])
    replies: Counter[str] = field(default_factory=Counter[str])
    given_up: set[str] = field(default_factory=set[str])
    last: TurnWaiting | None = None
    paused: bool = False

    def apply(self, event: Event) -> None:
        """Take one event in. Events that have nothing to do with the user are passed over."""
        match event:
            case ParamRequested():
                self.open.append(event)
                self.rounds[event.agent_id] = event.round
            case UserReplied(param=param):
                self.replies[param] += 1
            case ParamProvided(param=param):
                self._settle(param)
            case ParamCleared(param=param, why=why):
                self._settle(param)
                if why == "gave_up":
                    self.given_up.add(param)
            case TurnResumed(agents=agents):
                self.open = [request for request in self.open if request.agent_id in agents]
                self.paused = False
            case TurnWaiting():
                self.last, self.paused = event, True
            case TurnAbandoned():
                self.open.clear()
            case _:
                pass

    def _settle(self, param: str) -> None:
        self.open = [request for request in self.open if request.param != param]
        self.replies[param] = 0

    @property
    def request(self) -> ParamRequested | None:
        """What the user is asked for next; None: nothing is waited for."""
        return self.open[0] if self.open else None

    @property
    def params(self) -> tuple[str, ...]:
        """Everything that is still to be asked for, in order."""
        return tuple(dict.fromkeys(request.param for request in self.open))

    @property
    def agents(self) -> tuple[str, ...]:
        """Who cannot go on yet."""
        return tuple(dict.fromkeys(request.agent_id for request in self.open))

    def held(self, round_: int) -> set[str]:
        """Who does not act in this round now: the user is asked for everything first, without a wait in between."""
        return {agent for agent, asked in self.rounds.items() if asked == round_} if self.open else set()

    def needing(self, param: str) -> tuple[str, ...]:
        return tuple(request.agent_id for request in self.open if request.param == param)

    def asked(self, param: str) -> int:
        """Which time it is that the user is asked for it now, from 1."""
        return self.replies[param] + 1


def waiting_of(events: Iterable[Event]) -> Waiting:
    """What a turn waits for after these events."""
    waiting = Waiting()
    for event in events:
        waiting.apply(event)
    return waiting
