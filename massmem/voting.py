"""Who acts next and who wins: the rules of a turn as pure functions of its events.

The same fold serves the running turn and one that is taken up again after a kill, so the two cannot differ.
"""

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from massmem.events import (
    AgentFailed,
    AnswerSubmitted,
    BallotCast,
    BallotsVoided,
    Decision,
    Event,
    ParamRequested,
    RoundStarted,
    TurnResumed,
    TurnStarted,
    UserReplied,
    WinnerDecided,
)
from massmem.messages import Candidate, Usage
from massmem.waiting import Waiting


def label(index: int) -> str:
    """0 -> A, 25 -> Z, 26 -> AA, as spreadsheets name columns."""
    text = ""
    while index >= 0:
        text = chr(ord("A") + index % 26) + text
        index = index // 26 - 1
    return text


LATE = 0.9
"""What each round beyond the second leaves of the confidence: somebody was not convinced at first."""


def confidence(votes: Mapping[str, int], winner: str, agents: int, rounds: int) -> float | None:
    """How far the council stands behind the winner's answer, from 0 to 1; None for an agent alone.

    (ballots for the winner / agents) * LATE ** (rounds - 2), of which the exponent is at least 0. An agent that failed
    or did not vote counts as not convinced. When nobody voted, the winner stands for its own answer. An agent alone is
    compared with nobody: any number would be made up.

    votes: standing ballots per agent. agents: all of the turn, failed ones too. rounds: how many the turn took.
    """
    if agents < 2:
        return None
    ballots = votes.get(winner, 0) if votes else 1
    return round(min(ballots / agents, 1.0) * LATE ** max(rounds - 2, 0), 4)


@dataclass(frozen=True, slots=True)
class Answer:
    """An agent's current answer. number: its place among all answers of the turn, from 1."""

    agent_id: str
    number: int
    content: str


@dataclass(slots=True)
class Tally:
    """What has happened in a turn, as far as it decides what happens next.

    visible: the answers as they stood when the round began; what agents of this round are shown.
    acting: who acts in this round. acted: who of them has; missed: who of them failed to. out: who takes no
    further part. waiting: what was asked of the user; who asked has not acted.
    """

    agents: tuple[str, ...] = ()
    seed: int = 0
    round: int = 0
    answers: dict[str, Answer] = field(default_factory=dict[str, Answer])
    visible: dict[str, Answer] = field(default_factory=dict[str, Answer])
    ballots: dict[str, str] = field(default_factory=dict[str, str])
    acting: tuple[str, ...] = ()
    acted: set[str] = field(default_factory=set[str])
    missed: set[str] = field(default_factory=set[str])
    out: set[str] = field(default_factory=set[str])
    fresh_answer: bool = False
    winner: WinnerDecided | None = None
    number: int = 0
    usage: Usage = field(default_factory=Usage)
    waiting: Waiting = field(default_factory=Waiting)

    def apply(self, event: Event) -> None:
        """Take one event in. Events that decide nothing are passed over."""
        match event:
            case TurnStarted(agents=agents, seed=seed):
                self.agents, self.seed = agents, seed
            case TurnResumed(agents=agents):
                self._resume(agents)
            case RoundStarted(round=number, agents=agents) if number > self.round:
                self.round, self.acting = number, agents
                self.visible = dict(self.answers)
                self.acted, self.missed, self.fresh_answer = set(), set(), False
            case AnswerSubmitted():
                self._answer(event)
            case BallotCast(agent_id=agent, choice=choice, usage=usage):
                self.ballots[agent] = choice
                self.acted.add(agent)
                self.usage += usage
            case BallotsVoided(agents=agents):
                self.ballots = {a: choice for a, choice in self.ballots.items() if a not in agents}
            case AgentFailed():
                self._failure(event)
            case WinnerDecided():
                self.winner = event
            case ParamRequested(usage=usage) | UserReplied(usage=usage):
                self.usage += usage
            case _:
                pass
        self.waiting.apply(event)

    def apply_all(self, events: Iterable[Event]) -> None:
        for event in events:
            self.apply(event)

    def _resume(self, agents: tuple[str, ...]) -> None:
        # A failed agent gets another chance, unless the turn only waited; and the team may have changed since.
        self.agents = agents
        if not self.waiting.paused:
            self.out.clear()
            self.missed.clear()
        self.acting = tuple(a for a in self.acting if a in agents)
        self.ballots = {a: choice for a, choice in self.ballots.items() if a in agents}

    def _answer(self, event: AnswerSubmitted) -> None:
        self.number = max(self.number, event.number)
        self.answers[event.agent_id] = Answer(event.agent_id, event.number, event.content)
        self.acted.add(event.agent_id)
        self.fresh_answer = True
        self.usage += event.usage

    def _failure(self, event: AgentFailed) -> None:
        self.usage += event.usage
        if event.step != "present":
            self.missed.add(event.agent_id)
            if event.out:
                self.out.add(event.agent_id)

    def live(self) -> tuple[str, ...]:
        return tuple(a for a in self.agents if a not in self.out)

    def remaining(self) -> tuple[str, ...]:
        """Who can and still has to act in the round that is under way."""
        done = self.acted | self.missed | self.out | self.waiting.held(self.round)
        return tuple(a for a in self.acting if a not in done)

    def next_actors(self) -> tuple[str, ...]:
        """Who acts in the next round: every live agent in the first, then those without a standing ballot."""
        return tuple(a for a in self.live() if a not in self.ballots)

    def voided(self) -> tuple[str, ...]:
        """Whose ballots a new answer of this round voids. The first round has no ballots."""
        return tuple(self.ballots) if self.fresh_answer else ()

    def decided(self) -> bool:
        """No further round is needed: every live agent's ballot stands, or there is nothing to choose."""
        if len(self.answers) == 1 and len(self.live()) <= 1:
            return True
        return all(a in self.ballots for a in self.live())

    def decide(self) -> WinnerDecided:
        """The winner: most standing ballots; ties go to the earliest answer. Needs one answer at least."""
        votes = Counter(choice for choice in self.ballots.values() if choice in self.answers)
        most = max(votes.values(), default=0)
        tied = [a for a in self.answers.values() if votes[a.agent_id] == most]
        winner = min(tied, key=lambda a: a.number)
        return WinnerDecided(agent_id=winner.agent_id, votes=dict(votes), by=self._by(most, len(tied)))

    def _by(self, most: int, tied: int) -> Decision:
        if len(self.answers) == 1:
            return "only_answer"
        if most == 0:
            return "no_votes_earliest"
        if tied > 1:
            return "tie_earliest"
        return "consensus" if self.decided() else "plurality"

    def candidates(self, for_agent: str, answers: Sequence[Answer]) -> tuple[Candidate, ...]:
        """`answers` without names, in an order that is this agent's own and fixed for the turn.

        The order depends on the turn's seed and the agent alone: an answer that did not change keeps its place, which
        keeps the prompt's prefix, and no answer stands first for everyone.
        """
        order = sorted(answers, key=lambda a: a.agent_id)
        random.Random(f"{self.seed}:{for_agent}").shuffle(order)
        return tuple(Candidate(label(i), a.agent_id, a.content) for i, a in enumerate(order))
