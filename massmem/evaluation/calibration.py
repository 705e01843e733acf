"""What a team's record of answers and ballots says of its answers: patterns of agreement, and how often each is right.

A record is replayed without any request: first the two agents that `coordination.depth: adaptive` asks, then all.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from massmem.core import events as ev
from massmem.core.messages import Usage
from massmem.core.verdict import Outcomes, Pattern, read_pattern
from massmem.core.voting import Tally


@dataclass(frozen=True, slots=True)
class Replayed:
    """The agreement on a question, and whose answer wins. Without any answer of those agents: no winner, nobody behind."""

    first: Pattern
    """Of the two agents that `coordination.depth: adaptive` asks first."""
    first_winner: str
    full: Pattern
    """Of the whole team, with its ballots."""
    full_winner: str


_NOTHING = Pattern((), 0, 0, voted=False, cut=True, kind="text")


def replay_patterns(
    agents: Sequence[str],
    first: Sequence[str],
    answers: Mapping[str, str],
    ballots: Mapping[str, str],
    cut: Collection[str] = (),
    work_cut: Collection[str] = (),
) -> Replayed:
    """Return how the first agents, and then all, stand to the answer that wins.

    agents: all of the team, in its order; one without answer and ballot has failed. first: those that are asked first.
    answers: by agent, in the order in which they came. ballots: voter to the agent that it voted for. cut: agents whose
    answer lacks its end. work_cut: agents whose work for the answer was cut short.
    """
    tally = Tally()
    tally.apply(ev.TurnStarted(session_id="", turn=1, question="", agents=tuple(agents), seed=0))
    tally.apply(ev.RoundStarted(round=1, agents=tuple(first)))
    numbers = {agent: number for number, agent in enumerate(answers, start=1)}
    submitted = {
        agent: ev.AnswerSubmitted(
            agent_id=agent,
            round=1,
            number=numbers[agent],
            content=text,
            truncated=agent in cut,
            work_cut="time" if agent in work_cut else None,
            usage=Usage(),
        )
        for agent, text in answers.items()
    }
    tally.apply_all(submitted[agent] for agent in first if agent in submitted)
    first_pattern, first_winner = _read_state(tally)
    tally.apply_all(answer for agent, answer in submitted.items() if agent not in first)
    tally.out.update(agent for agent in agents if agent not in answers and agent not in ballots)
    tally.apply(ev.RoundStarted(round=2, agents=tuple(ballots)))
    tally.apply_all(
        ev.BallotCast(agent_id=voter, round=2, choice=choice, reason="", usage=Usage())
        for voter, choice in ballots.items()
    )
    return Replayed(first_pattern, first_winner, *_read_state(tally))


def _read_state(tally: Tally) -> tuple[Pattern, str]:
    if not tally.answers:
        return _NOTHING, ""
    winner = tally.decide_winner().agent_id
    return read_pattern(tally, winner), winner


@dataclass(frozen=True, slots=True)
class Graded:
    """A question with what its answers are worth."""

    group: str
    """Part of the data that it belongs to; empty: it has none."""
    replayed: Replayed
    right_first: bool
    """The answer of `first_winner` is right."""
    right: bool
    """The answer of the whole team is right."""


def count_outcomes(questions: Iterable[Graded]) -> tuple[Outcomes, ...]:
    """Return the questions by part of the data and patterns of agreement, in a fixed order; without those that nobody
    answered, of which there is no answer to be sure of."""
    asked, right_first, right = (Counter[tuple[str, Pattern, Pattern]]() for _ in range(3))
    for one in questions:
        if one.replayed.full_winner:
            key = one.group, one.replayed.first, one.replayed.full
            asked[key] += 1
            right_first[key] += one.right_first
            right[key] += one.right
    return tuple(
        Outcomes(
            group=key[0], first=key[1], full=key[2], asked=asked[key], right_first=right_first[key], right=right[key]
        )
        for key in sorted(asked, key=str)
    )
