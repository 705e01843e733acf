"""Figures of many turns by day and agent: tokens, cost, wins, recalls. A pure fold over turns and their events."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from massmem.core.events import ContextMeasured, Event
from massmem.core.messages import Usage
from massmem.core.transcript import TurnTranscript


@dataclass(slots=True)
class AgentDay:
    """What an agent did on a day."""

    turns: int = 0
    wins: int = 0
    usage: Usage = field(default_factory=Usage)


@dataclass(slots=True)
class Day:
    """What happened on a day."""

    turns: int = 0
    answered: int = 0
    seconds: float = 0.0
    """How long users waited for the answers, all together."""
    agents: dict[str, AgentDay] = field(default_factory=lambda: defaultdict[str, AgentDay](AgentDay))


@dataclass(slots=True)
class Figures:
    """Add each turn with its events."""

    days: dict[str, Day] = field(default_factory=lambda: defaultdict[str, Day](Day))
    """By YYYY-MM-DD, in UTC."""
    turns: int = 0
    """Of all days."""
    names: dict[str, str] = field(default_factory=dict[str, str])
    """What people are shown instead of an agent's id, of the agents that have a name."""
    recalls: int = 0
    """Prompts that held memories."""
    without_recall: int = 0
    """Prompts that held none."""

    def add_turn(self, turn: TurnTranscript, events: Iterable[Event]) -> None:
        """Count a turn, and nothing for messages between turns. events: of the turn."""
        if turn.is_between_turns:
            return
        day = self.days[turn.record.started_at.date().isoformat()]
        self.turns += 1
        day.turns += 1
        if turn.final is not None and turn.seconds is not None:
            day.answered += 1
            day.seconds += turn.seconds
        self.names |= turn.names
        for agent_id, usage in turn.usage_by_agent.items():
            day.agents[agent_id].turns += 1
            day.agents[agent_id].usage += usage
        if turn.record.status == "completed" and turn.record.winner:
            day.agents[turn.record.winner].wins += 1
        for event in events:
            if isinstance(event, ContextMeasured):
                self.recalls += event.recalled > 0
                self.without_recall += event.recalled == 0
