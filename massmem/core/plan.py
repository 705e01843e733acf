"""Where a turn stands: which agents have acted, what the user is asked for, what remains. Derived from its events."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from massmem.core.events import Event
from massmem.core.voting import Tally


@dataclass(frozen=True, slots=True)
class Plan:
    """The progress of a turn."""

    round: int
    acted: tuple[str, ...]
    """Agents that have acted in this round."""
    asked: Mapping[str, str]
    """The param that each waiting agent needs, by agent."""
    params: tuple[str, ...]
    """All params that agents need, in the order in which the user is asked."""
    asks: int
    """Which time it is that the user is asked for the first of them."""
    remaining: tuple[str, ...]
    """Agents that can act now."""
    out: tuple[str, ...]
    """Agents that failed for good."""
    winner: str | None
    """None until it is decided."""

    @property
    def waiting_for(self) -> str | None:
        """The param that the user is asked for, once no agent can act without it."""
        return self.params[0] if self.params and not self.remaining else None

    def to_json(self) -> dict[str, Any]:
        """Return the plan as session_state.plan_execution stores it: names only, no values."""
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

    def describe(self) -> list[str]:
        """Return the plan as lines for people; none when the turn waits for nothing and nothing remains."""
        lines: list[str] = []
        if self.params:
            times = f" (asked {self.asks} times)" if self.asks > 1 else ""
            lines.append(f"waiting for {self.params[0]}{times}")
            lines += [f"then for {param}" for param in self.params[1:]]
            lines += [f"{agent} needs {param}" for agent, param in self.asked.items()]
        if self.acted and (self.params or self.remaining):
            lines.append(f"round {self.round}, done: {', '.join(self.acted)}")
        if self.remaining:
            lines.append(f"round {self.round}, to do: {', '.join(self.remaining)}")
        return lines


def read_plan(events: Iterable[Event]) -> Plan:
    """Return the plan of a turn from all its events so far."""
    tally = Tally()
    tally.apply_all(events)
    return build_plan(tally)


def build_plan(tally: Tally) -> Plan:
    """Return the plan of a turn from its tally."""
    waiting = tally.waiting
    return Plan(
        round=tally.round,
        acted=tuple(agent for agent in tally.acting if agent in tally.acted),
        asked={request.agent_id: request.param for request in waiting.open_requests},
        params=waiting.params,
        asks=waiting.ask_number(waiting.params[0]) if waiting.params else 0,
        remaining=() if tally.winner is not None else tally.remaining_actors(),
        out=tuple(agent for agent in tally.agents if agent in tally.out),
        winner=None if tally.winner is None else tally.winner.agent_id,
    )
