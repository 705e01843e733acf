"""A vote on answers: who may choose which of them, and what the ballots come to. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from massmem.core.short_answers import ShortAnswer, list_keys, read_short_answer

_VOTERS_PER_SPARE = 6
"""In simulated teams of 6 to 9 one ballot mostly differs: with one to spare 24 % are not asked for, without it 17 %."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An agent's current answer."""

    agent_id: str
    number: int
    """Its place among all answers of the turn, from 1."""
    content: str
    truncated: bool = False
    """Its end is missing."""

    short: ShortAnswer = field(init=False, repr=False, compare=False)
    """Made once: every agent of a round compares the answers."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "short", read_short_answer(self.content, truncated=self.truncated))


class Election:
    """A vote on some answers. Answers that are the same are one candidate, and their ballots count together."""

    def __init__(self, answers: Mapping[str, Answer], ballots: Mapping[str, str], *, own_votes: bool) -> None:
        """answers: by agent, in the order of the team. ballots: voter to the author of its choice.
        own_votes: an agent may choose its own answer.

        A ballot for an author without an answer does not count.
        """
        self._answers = answers
        self._keys = list_keys({agent: answer.short for agent, answer in answers.items()})
        earliest: dict[str, Answer] = {}
        for answer in sorted(answers.values(), key=lambda answer: answer.number):
            earliest.setdefault(self._keys[answer.agent_id], answer)
        self.candidates = list(earliest.values())
        """The earliest of those that are the same, in the order in which they were given."""
        self._has_results = any(answer.short.is_bare for answer in answers.values())
        self._own_votes = own_votes
        self._choices = {voter: self._keys[choice] for voter, choice in ballots.items() if choice in answers}
        self._ballots = Counter(self._choices.values())
        self._authors = Counter(self._keys.values())
        listed = list(self._keys.values())
        self._places = {key: listed.index(key) for key in self._authors}

    @property
    def votes(self) -> dict[str, int]:
        """Ballots by the agent whose answer they are for, of the candidates that have any."""
        counted = {candidate.agent_id: self._count_ballots(candidate) for candidate in self.candidates}
        return {agent_id: count for agent_id, count in counted.items() if count}

    def may_choose(self, voter: str, candidate: Answer) -> bool:
        """Whether the voter may vote for the candidate.

        Where own votes are excluded, it may still do so for an answer that another agent gave as well, because a
        majority would have to vote against itself, and for the only candidate.
        """
        is_free = self._own_votes or self.count_authors(candidate) > 1 or len(self.candidates) == 1
        return is_free or not self.gave(voter, candidate)

    def gave(self, agent: str, candidate: Answer) -> bool:
        """Whether the candidate's answer is the agent's own, or the same."""
        return self._keys.get(agent) == self._key(candidate)

    def list_voters(self, candidate: Answer) -> list[str]:
        """Return who voted for the candidate."""
        return [voter for voter, key in self._choices.items() if key == self._key(candidate)]

    def is_forced(self, voter: str) -> bool:
        """Whether the voter had to choose another answer than its own where each states a result of its own.

        Where answers are texts, the choice of another one is a judgement on them, and counts.
        """
        own = self._answers.get(voter)
        return (
            own is not None
            and self._has_results
            and not self.may_choose(voter, own)
            and self._choices.get(voter) != self._key(own)
        )

    def count_choices(self, voter: str) -> int:
        """Return among how many candidates the voter may choose."""
        return sum(self.may_choose(voter, candidate) for candidate in self.candidates)

    def list_leaders(self) -> list[Answer]:
        """Return the candidates with most ballots, the best first.

        Of equals that which more agents gave, then one whose end is not missing, then that of the agent that the team
        lists first. How fast an agent was says nothing for its answer, and would be another agent in the next run.
        """
        ranked = sorted(self.candidates, key=self._rank, reverse=True)
        return [candidate for candidate in ranked if self._count_ballots(candidate) == self._count_ballots(ranked[0])]

    def choose_voters(self, voters: Sequence[str]) -> tuple[str, ...]:
        """Return which of the remaining voters to ask first; none when their ballots cannot change the winner.

        So many of those who may choose the leading answer as would decide the vote if all of them did, with some to
        spare in large teams; all voters, when that is not enough.
        """
        leader = self.list_leaders()[0]
        rivals = [candidate for candidate in self.candidates if candidate is not leader]
        eligible = [voter for voter in voters if self.may_choose(voter, leader)]
        for count in range(len(eligible) + 1):
            rank, others = self._rank(leader, count), [voter for voter in voters if voter not in eligible[:count]]
            if not any(self._can_overtake(rank, rival, others) for rival in rivals):
                return tuple(eligible[: count + len(voters) // _VOTERS_PER_SPARE]) if count else ()
        return tuple(voters)

    def _can_overtake(self, rank: tuple[int, ...], rival: Answer, voters: Sequence[str]) -> bool:
        """Whether the rival comes before this rank when all voters choose it who may."""
        return self._rank(rival, sum(self.may_choose(voter, rival) for voter in voters)) > rank

    def _rank(self, candidate: Answer, more: int = 0) -> tuple[int, ...]:
        """Return what decides between candidates, the highest wins. more: ballots that are added."""
        ballots, place = self._count_ballots(candidate) + more, self._places[self._key(candidate)]
        return ballots, self.count_authors(candidate), not candidate.truncated, -place

    def count_authors(self, candidate: Answer) -> int:
        """Return how many agents gave the candidate's answer."""
        return self._authors[self._key(candidate)]

    def _count_ballots(self, candidate: Answer) -> int:
        return self._ballots[self._key(candidate)]

    def _key(self, answer: Answer) -> str:
        return self._keys[answer.agent_id]

    def has_majority(self, agents: int) -> bool:
        """Whether more than half of so many agents gave the same answer."""
        return max(self._authors.values(), default=0) * 2 > agents

    def list_supporters(self, candidate: Answer) -> set[str]:
        """Return the agents that stand behind the candidate.

        Each agent counts once: one that voted for it, and one that gave it, unless it preferred another answer to it.
        A vote by which an agent had to leave its own, different result does not count: it still says 42, and not 7.
        """
        voters = {voter for voter in self.list_voters(candidate) if not self.is_forced(voter)}
        authors = {agent for agent in self._keys if self.gave(agent, candidate)}
        turned = {agent for agent in authors if agent in self._choices and self.may_choose(agent, candidate)}
        return voters | (authors - turned)


def allows_own_votes(agents: int) -> bool:
    """Whether agents may vote for their own answers. With three or more each would, and nothing would be decided.

    agents: how many take part.
    """
    return agents <= 2
