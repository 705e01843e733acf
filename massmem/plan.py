"""Where a turn stands: who has acted, who asked the user, what is waited for, what remains. Derived from its events."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from massmem.events import Event
from massmem.voting import Tally


@dataclass(frozen=True, slots=True)
class Plan:
    """acted: in this round. asked: what each agent needs that cannot go on. params: all of it, in the order in which
    the user is asked. asks: which time it is that the user is asked for the first of them. remaining: who can act now.
    out: who failed for good. winner: once it is decided.
    """

    round: int
    acted: tuple[str, ...]
    asked: Mapping[str, str]
    params: tuple[str, ...]
    asks: int
    remaining: tuple[str, ...]
    out: tuple[str, ...]
    winner: str | None

    @property
    def waiting_for(self) -> str | None:
        """The param that the user is asked for, once nobody can act without it."""
        return self.params[0] if self.params and not self.remaining else None

    def data(self) -> dict[str, Any]:
        """For session_state.plan_execution; names only, no values."""
        return {
            "round": self.round,
            "acted": list(self.acted),
            "asked": dict(self.asked),
            "params": list(self.params),
            "asks": self.asks,
            "remaining": list(self.remaining),
            "out": list(self.out),
            "winner": self.winner,
        }

    def lines(self) -> list[str]:
        """For people, a line each; none for a turn that waits for nothing and in which nothing remains."""
        parts: list[str] = []
        if self.params:
            times = f" (asked {self.asks} times)" if self.asks > 1 else ""
            parts.append(f"waiting for {self.params[0]}{times}")
            parts += [f"then for {param}" for param in self.params[1:]]
            parts += [f"{agent} needs {param}" for agent, param in self.asked.items()]
        if self.acted and (self.params or self.remaining):
            parts.append(f"round {self.round}, done: {', '.join(self.acted)}")
        if self.remaining:
            parts.append(f"round {self.round}, to do: {', '.join(self.remaining)}")
        return parts


def plan_of(events: Iterable[Event]) -> Plan:
    """The plan of a turn after these events, which are all of it so far."""
    tally = Tally()
    tally.apply_all(events)
    return plan_in(tally)


def plan_in(tally: Tally) -> Plan:
    waiting = tally.waiting
    return Plan(
        round=tally.round,
        acted=tuple(agent for agent in tally.acting if agent in tally.acted),
        asked={request.agent_id: request.param for request in waiting.open},
        params=waiting.params,
        asks=waiting.asked(waiting.params[0]) if waiting.params else 0,
        remaining=() if tally.winner is not None else tally.remaining(),
        out=tuple(agent for agent in tally.agents if agent in tally.out),
        winner=None if tally.winner is None else tally.winner.agent_id,
    )
