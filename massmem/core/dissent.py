"""Who stands behind the answer of a turn, who does not, and why: from answers and ballots, without another request."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from massmem.core.display import one_line
from massmem.core.election import Answer, Election, allows_own_votes

_EXCERPT = 160
_MAX_SUMMARIZED = 2
"""Agents of the minority that one line names: the answer has to stay on the screen."""


@dataclass(frozen=True, slots=True)
class Position:
    """What one agent answered, and what it voted for."""

    agent_id: str
    answer: str = ""
    """Empty: it has none."""
    choice: str = ""
    """Id of the agent whose answer it voted for; empty: it did not vote."""
    reason: str = ""
    """Of its vote."""
    is_forced: bool = False
    """It could not vote for its own, different result, see `Election.is_forced`."""

    def to_json(self) -> dict[str, Any]:
        return {
            "agent": self.agent_id,
            "answer": self.answer or None,
            "choice": self.choice or None,
            "reason": self.reason or None,
        }


@dataclass(frozen=True, slots=True)
class Dissent:
    """The agents of a turn that answered or voted, by what they think of the winner's answer."""

    agreed: tuple[Position, ...]
    """They gave it or voted for it, see `Election.list_supporters`."""
    minority: tuple[Position, ...]
    """They voted for another answer, or gave one and did not vote."""

    def to_json(self) -> dict[str, Any]:
        """Return `agreed` and `minority`: lists of agent, answer, choice and reason, each null where there is none."""
        return {name: [position.to_json() for position in getattr(self, name)] for name in ("agreed", "minority")}

    def describe_agreement(self) -> str:
        """Return `2 of 3 agents gave or chose this answer`. Who may not choose its own may still prefer it."""
        return f"{len(self.agreed)} of {len(self.agreed) + len(self.minority)} agents gave or chose this answer"

    def summarize(self, name: Callable[[str], str]) -> str:
        """Return `2 of 3 agents gave or chose this answer; critic prefers the answer of writer: It is ...`, one line.

        name: returns what people are shown for an agent.
        """
        shown = self.minority[:_MAX_SUMMARIZED]
        parts = [self.describe_agreement(), *(describe_position(position, name) for position in shown)]
        if more := len(self.minority) - len(shown):
            parts.append(f"{more} more do not")
        return "; ".join(parts)


def describe_position(position: Position, name: Callable[[str], str]) -> str:
    """Return what an agent thinks that does not agree, one line. name: as in `Dissent.summarize`."""
    speaker = name(position.agent_id)
    if position.choice and not position.is_forced:
        chosen = "its own answer" if position.choice == position.agent_id else f"the answer of {name(position.choice)}"
        return f"{speaker} prefers {chosen}: {one_line(position.reason, _EXCERPT)}".removesuffix(": ")
    return f"{speaker} answered: {one_line(position.answer, _EXCERPT)}"


def find_dissent(winner: str, answers: Mapping[str, str], ballots: Mapping[str, tuple[str, str]]) -> Dissent | None:
    """Return who agrees with the winner's answer and who does not; None when nobody else answered or voted.

    answers: the last one of each agent, in the order in which they came. ballots: choice and reason of each voter, as
    far as they stand.
    """
    agents = list(dict.fromkeys([*answers, *ballots]))
    if winner not in answers or len(agents) < 2:
        return None
    numbered = {agent: Answer(agent, number, text) for number, (agent, text) in enumerate(answers.items(), 1)}
    choices = {voter: choice for voter, (choice, _) in ballots.items()}
    election = Election(numbered, choices, own_votes=allows_own_votes(len(agents)))
    agreed = election.list_supporters(numbered[winner])
    positions = [
        Position(agent, answers.get(agent, ""), *ballots.get(agent, ("", "")), is_forced=election.is_forced(agent))
        for agent in agents
    ]
    return Dissent(
        tuple(position for position in positions if position.agent_id in agreed),
        tuple(position for position in positions if position.agent_id not in agreed),
    )
