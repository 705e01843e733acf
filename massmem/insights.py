"""What a session, or many, amount to: counts, time, topics, agents and what it cost. A pure fold over their turns."""

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from massmem.messages import Usage
from massmem.records import SessionRecord
from massmem.transcript import Exchange

TOPICS = 8
"""How many words are named as topics."""

_WORD = re.compile(r"[^\W\d_]{4,}")
_SMALL_WORDS = """
about above after again against also although always among another anything around because been before being below
best better between both cannot choose come compare could describe does doing done down during each either else even
ever every example explain find first from further give given goes going good have having help here hers herself
himself https into itself just keep know last least less like list little long look made make many maybe mean might
more most much must myself name need never next nothing once only other ours ourselves over please question really
right said same says shall shorter shorten should show simple since some something still such suggest summarise
summarize sure take tell than thank thanks that their theirs them themselves then there these they thing things think
this those three through time today under until upon used using very want were what when where whether which while
whom whose will with within without word words work would write your yours yourself
aber alle also andere auch beim bitte dann dass dein deine denn dies diese diesem diesen dieser dieses doch durch eine
einem einen einer eines euer gibt habe haben hatte hier ihre immer jede kann kein keine können machen mehr mein meine
mich muss nach nicht noch oder ohne sein seine sich sind über unser unter viel warum welche welcher wenn werden wird
wurde comme dans elle elles leur mais nous pour pourquoi quel quelle sans sont tout vous como cual cuando donde esta
este para pero porque sobre unos
"""
_COMMON = frozenset(_SMALL_WORDS.split())


@dataclass(slots=True)
class _Agent:
    turns: int = 0
    answers: int = 0
    ballots: int = 0
    wins: int = 0
    votes: int = 0
    candidate: int = 0
    usage: Usage = field(default_factory=Usage)


@dataclass(slots=True)
class Insights:
    """Give it each session and all its turns, then ask for `result`."""

    sessions: int = 0
    duration: float = 0.0
    messages: int = 0
    turns: Counter[str] = field(default_factory=Counter[str])
    waited: list[float] = field(default_factory=list[float])
    confidence: list[float] = field(default_factory=list[float])
    escalated: int = 0
    usage: Usage = field(default_factory=Usage)
    cost: float = 0.0
    unpriced: int = 0
    agents: dict[str, _Agent] = field(default_factory=dict[str, _Agent])
    tools: Counter[str] = field(default_factory=Counter[str])
    failed_tools: Counter[str] = field(default_factory=Counter[str])
    words: Counter[str] = field(default_factory=Counter[str])

    def add_session(self, session: SessionRecord) -> None:
        self.sessions += 1
        self.duration += max((session.updated_at - session.created_at).total_seconds(), 0.0)

    def add_turn(self, said: Exchange) -> None:
        record, final = said.record, said.final
        self.messages += len(said.messages)
        if said.added:
            return
        self.turns[record.status] += 1
        self.usage += said.usage
        self.cost = round(self.cost + (said.usage.cost or 0.0), 10)
        self.unpriced += said.usage.cost is None and said.usage.completion > 0
        # Once per question, however often it says the word.
        self.words.update(list(dict.fromkeys(topics_of(record.question))))
        self._add_agents(said)
        self._add_tools(said)
        if final is None:
            return
        if said.seconds is not None:
            self.waited.append(said.seconds)
        if final.confidence is not None:
            self.confidence.append(final.confidence)
        self.escalated += final.escalated

    def _add_agents(self, said: Exchange) -> None:
        decided = said.record.status == "completed"
        for name in said.agents:
            self.agents.setdefault(name, _Agent()).turns += 1
        for name in {m.agent_id for m in said.answers if m.agent_id}:
            self.agents[name].candidate += decided
        for message in said.answers:
            self.agents[message.agent_id or ""].answers += 1
        for ballot in said.ballots:
            self.agents[ballot.agent_id].ballots += 1
        for name, number in said.votes.items():
            self.agents.setdefault(name, _Agent()).votes += number
        for name, used in said.used.items():
            self.agents[name].usage += used
        if decided and said.record.winner:
            self.agents.setdefault(said.record.winner, _Agent()).wins += 1

    def _add_tools(self, said: Exchange) -> None:
        for message in said.messages:
            if message.kind == "tool_result" and "call" in message.metadata:
                name = str(message.metadata.get("tool", ""))
                self.tools[name] += 1
                self.failed_tools[name] += message.metadata.get("failed") is True

    def result(self) -> dict[str, Any]:
        """As JSON. Times in seconds. win_rate: of the turns with an answer of the agent, null when there are none.

        tools: calls of each, most first.

        duration: from the beginning of each session to its last use. cost: in US dollars, null when it is not known of
        all turns; known_cost is that of the others.
        """
        by_use = sorted(self.agents.items(), key=lambda item: (-item[1].wins, -item[1].turns, item[0]))
        return {
            "sessions": self.sessions,
            "message_count": self.messages,
            "turns": sum(self.turns.values()),
            "turns_by_status": dict(self.turns),
            "user_messages": sum(self.turns.values()),
            "assistant_messages": self.turns["completed"],
            "duration": round(self.duration, 3),
            "response_time": _mean(self.waited),
            "topics": self.topics(),
            "agents_used": [name for name, _ in by_use],
            "agents": {name: _agent(agent) for name, agent in by_use},
            "tools": {
                name: {"calls": number, "failed": self.failed_tools[name]} for name, number in self.tools.most_common()
            },
            "confidence": _mean(self.confidence),
            "escalated": self.escalated,
            "tokens": {
                "prompt": self.usage.prompt, "completion": self.usage.completion, "reported": self.usage.reported
            },
            "cost": None if self.unpriced else self.cost,
            "known_cost": self.cost,
            "turns_without_price": self.unpriced,
        }  # fmt: skip

    def topics(self) -> list[str]:
        """The words that most questions have, and of these the first said."""
        return [word for word, _ in self.words.most_common(TOPICS)]


def topics_of(text: str) -> list[str]:
    """The words of a question that may be its topic: four letters at least, none that say nothing."""
    return [word for word in _WORD.findall(text[:20_000].lower()) if word not in _COMMON]


def _agent(agent: _Agent) -> dict[str, Any]:
    return {
        "turns": agent.turns,
        "answers": agent.answers,
        "ballots": agent.ballots,
        "votes_received": agent.votes,
        "wins": agent.wins,
        "win_rate": round(agent.wins / agent.candidate, 4) if agent.candidate else None,
        "tokens": agent.usage.prompt + agent.usage.completion,
        "cost": agent.usage.cost if agent.usage.completion else 0.0,
    }


def _mean(values: list[float]) -> float | None:
    return round(sum(values) / len(values), 4) if values else None
