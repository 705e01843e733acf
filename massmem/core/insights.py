"""Statistics of one session or many, and figures by day and agent. Pure folds over turns and their events."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import PurePath
from typing import Any

from massmem.core.events import ContextMeasured, Event
from massmem.core.messages import Usage
from massmem.core.records import SessionRecord
from massmem.core.redact import redact
from massmem.core.turn_result import AgentResult, TurnResult

MAX_TOPICS = 8

MAX_SEQUENCES, MAX_STEPS = 5, 4
"""Sequences of tools that are named, and tools of each."""

_WORD = re.compile(r"[^\W\d_]{4,}")
_STOP_WORD_TEXT = """
about above after again against also although always among another anything around because been before being below
best better between both cannot choose come compare could describe does doing done down during each either else even
ever every example explain find first from further give given goes going good have having help here hers herself
himself https into itself just keep know last least less like list little long look made make many maybe mean might
more most much must myself name need never next nothing once only other ours ourselves over please question really
redacted right said same says shall shorter shorten should show simple since some something still such suggest summarise
summarize sure take tell than thank thanks that their theirs them themselves then there these they thing things think
this those three through time today under until upon used using very want were what when where whether which while
whom whose will with within without word words work would write your yours yourself
aber alle also andere auch beim bitte dann dass dein deine denn dies diese diesem diesen dieser dieses doch durch eine
einem einen einer eines euer gibt habe haben hatte hier ihre immer jede kann kein keine können machen mehr mein meine
mich muss nach nicht noch oder ohne sein seine sich sind über unser unter viel warum welche welcher wenn werden wird
wurde comme dans elle elles leur mais nous pour pourquoi quel quelle sans sont tout vous como cual cuando donde esta
este para pero porque sobre unos
"""
_STOP_WORDS = frozenset(_STOP_WORD_TEXT.split())


AgentKey = tuple[str, str]
"""The configuration of a team, and the id of an agent: teams may have agents of one id that have nothing in common."""


def name_teams(agents: Iterable[AgentKey]) -> dict[AgentKey, str]:
    """Return what tells each agent from those of other teams with its id: the file of its team; "" when it is alone."""
    teams: dict[str, list[str]] = {}
    for team, agent_id in agents:
        teams.setdefault(agent_id, []).append(team)
    names: dict[AgentKey, str] = {}
    for agent_id, paths in teams.items():
        files = [PurePath(path).name for path in paths]
        for path, file in zip(paths, files, strict=True):
            names[path, agent_id] = "" if len(paths) == 1 else file if files.count(file) == 1 else path
    return names


@dataclass(slots=True)
class AgentCounts:
    turns: int = 0
    answers: int = 0
    ballots: int = 0
    wins: int = 0
    votes_received: int = 0
    completed_turns: int = 0
    """Completed turns for which the agent had an answer."""
    usage: Usage = field(default_factory=Usage)

    def to_json(self) -> dict[str, Any]:
        return {
            "turns": self.turns,
            "answers": self.answers,
            "ballots": self.ballots,
            "votes_received": self.votes_received,
            "wins": self.wins,
            "win_rate": round(self.wins / self.completed_turns, 4) if self.completed_turns else None,
            "tokens": self.usage.prompt + self.usage.completion,
            "cost": self.usage.cost if self.usage.completion else 0.0,
        }


@dataclass(slots=True)
class Insights:
    """Add each session and all its turns, then call `to_json`."""

    sessions: int = 0
    duration: float = 0.0
    """Seconds."""
    messages: int = 0
    turns: Counter[str] = field(default_factory=Counter[str])
    """By status."""
    answered: int = 0
    response_times: list[float] = field(default_factory=list[float])
    """Seconds."""
    confidence: list[float] = field(default_factory=list[float])
    escalated: int = 0
    usage: Usage = field(default_factory=Usage)
    spent: dict[str, Usage] = field(default_factory=dict[str, Usage])
    """By what it was for."""
    cost: float = 0.0
    """US dollars of the turns whose cost is known."""
    unpriced: int = 0
    team: str = ""
    """The configuration of the session that was added last."""
    agents: dict[AgentKey, AgentCounts] = field(default_factory=lambda: defaultdict[AgentKey, AgentCounts](AgentCounts))
    names: dict[AgentKey, str] = field(default_factory=dict[AgentKey, str])
    """Of agents for people; some have none."""
    used: dict[str, None] = field(default_factory=dict[str, None])
    """Names of agents whose answer was shown."""
    asked: Counter[bool] = field(default_factory=Counter[bool])
    """Requests of agents for a value, and (True) replies of the user."""
    tools: Counter[str] = field(default_factory=Counter[str])
    failed_tools: Counter[str] = field(default_factory=Counter[str])
    sequences: Counter[tuple[str, ...]] = field(default_factory=Counter[tuple[str, ...]])
    """Tools that an agent called after one another in a turn."""
    good_sequences: Counter[tuple[str, ...]] = field(default_factory=Counter[tuple[str, ...]])
    """Those in which no call failed, of turns that were completed."""
    words: Counter[str] = field(default_factory=Counter[str])
    """Of questions. Those that most have are the topics; of equal ones the earliest come first."""

    def add_session(self, session: SessionRecord) -> None:
        """Count a session; its turns are added one by one."""
        self.sessions += 1
        self.messages += session.message_count
        self.team = session.config_path
        self.duration += max((session.updated_at - session.created_at).total_seconds(), 0.0)

    def add_turn(self, turn: TurnResult) -> None:
        """Count a turn of the session that was added last."""
        self.turns[turn.status] += 1
        self.usage += turn.usage
        self.spent |= {key: usage + self.spent.get(key, Usage()) for key, usage in turn.spent.items()}
        self.cost = round(self.cost + (turn.usage.cost or 0.0), 10)
        self.unpriced += turn.usage.cost is None and turn.usage.completion > 0
        # Once per question, however often the question has the word.
        self.words.update(dict.fromkeys(extract_topics(turn.question), 1))
        for agent in turn.agents:
            self._add_agent(agent, turn)
        self.asked.update(exchange.agent is None for exchange in turn.asked)
        if turn.answer is None:
            return
        self.used |= {turn.name(turn.winner or ""): None}
        self.answered += 1
        if turn.seconds is not None:
            self.response_times.append(turn.seconds)
        if turn.confidence is not None:
            self.confidence.append(turn.confidence)
        self.escalated += turn.escalated

    def _add_agent(self, agent: AgentResult, turn: TurnResult) -> None:
        self.names |= {(self.team, agent.id): agent.name}
        counts = self.agents[self.team, agent.id]
        counts.turns += 1
        counts.completed_turns += bool(agent.answers) and turn.answer is not None
        counts.answers += len(agent.answers)
        counts.ballots += len(agent.ballots)
        counts.votes_received += turn.votes.get(agent.id, 0)
        counts.usage += agent.usage
        counts.wins += turn.sure_winner == agent.id
        has_failed = False
        for use in agent.tools:
            self.tools[use.name] += 1
            self.failed_tools[use.name] += use.failed
            has_failed |= use.failed
        names = [name for name, _ in groupby(use.name for use in agent.tools)]
        if len(names) > 1:
            sequence = tuple(names[:MAX_STEPS])
            self.sequences[sequence] += 1
            self.good_sequences[sequence] += turn.answer is not None and not has_failed

    def to_json(self) -> dict[str, Any]:
        """Return everything as JSON.

        Times are in seconds; `duration` is from the start of each session to its last use. `win_rate` is the share of
        the completed turns for which the agent had an answer, null when there are none. `cost` is in US dollars, null
        when it is not known of all turns; `known_cost` is that of the others. `saved` is what caching saved. Agents of
        one id in several teams have the file of their team behind it. Tools with most calls come first. A sequence has
        succeeded when none of its calls failed and the turn was completed.
        """
        ranking = sorted(self.agents.items(), key=lambda item: (-item[1].wins, -item[1].turns, item[0][::-1]))
        suffixes = {key: f" ({team})" if team else "" for key, team in name_teams(self.agents).items()}
        shown = {key: self.names.get(key, key[1]) + suffixes[key] for key, _ in ranking}
        return {
            "sessions": self.sessions,
            "message_count": self.messages,
            "turns": sum(self.turns.values()),
            "turns_by_status": dict(self.turns),
            "user_messages": sum(self.turns.values()) + self.asked[True],
            "assistant_messages": self.answered + self.asked[False],
            "duration": round(self.duration, 3),
            "response_time": _mean(self.response_times),
            "topics": [word for word, _ in self.words.most_common(MAX_TOPICS)],
            "agents_used": list(self.used),
            "agents": {key[1] + suffixes[key]: {"name": shown[key], **counts.to_json()} for key, counts in ranking},
            "tools": {
                name: {"calls": calls, "failed": self.failed_tools[name]} for name, calls in self.tools.most_common()
            },
            "tool_sequences": [
                {"tools": [*sequence], "times": times, "succeeded": self.good_sequences[sequence]}
                for sequence, times in self.sequences.most_common(MAX_SEQUENCES)
            ],
            "confidence": _mean(self.confidence),
            "escalated": self.escalated,
            "tokens": {
                "prompt": self.usage.prompt, "completion": self.usage.completion, "cached": self.usage.cached,
                "reported": self.usage.reported,
            },
            "spent": {key: {"tokens": u.prompt + u.completion, "cost": u.cost} for key, u in self.spent.items()},
            "cost": None if self.unpriced else self.cost,
            "known_cost": self.cost,
            "saved": self.usage.saved,
            "turns_without_price": self.unpriced,
        }  # fmt: skip


def extract_topics(text: str) -> list[str]:
    """Return the words of a question that may be its topic: four letters at least, no stop words, no secrets."""
    return [word for word in _WORD.findall(redact(text[:20_000]).lower()) if word not in _STOP_WORDS]


def _mean(values: list[float]) -> float | None:
    return round(sum(values) / len(values), 4) if values else None


@dataclass(slots=True)
class Figures:
    """Add each turn with its events."""

    days: dict[str, Insights] = field(default_factory=lambda: defaultdict[str, Insights](Insights))
    """By YYYY-MM-DD, in UTC."""
    turns: int = 0
    """Of all days."""
    recalls: int = 0
    """Prompts that held memories."""
    without_recall: int = 0
    """Prompts that held none."""

    def add_turn(self, turn: TurnResult, events: Iterable[Event], team: str = "") -> None:
        """Count a turn. events: of the turn. team: its configuration."""
        assert turn.started_at is not None
        day = self.days[turn.started_at.date().isoformat()]
        self.turns, day.team = self.turns + 1, team
        day.add_turn(turn)
        for event in events:
            if isinstance(event, ContextMeasured):
                self.recalls += event.recalled > 0
                self.without_recall += event.recalled == 0
