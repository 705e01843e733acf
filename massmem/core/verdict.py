"""What a turn claims: how far its agents agree, how often such an answer was right, and whether that is sure enough.

The one place for it: a running turn, an evaluation and a replay of recorded answers take the same path. A calibration
counts how a team did on questions with known answers, by pattern of agreement; `massmem eval --calibrate` writes it.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from operator import itemgetter
from typing import Annotated, Literal, Self

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, model_validator

from massmem.core import events as ev
from massmem.core.citations import remove_marks
from massmem.core.messages import Citation
from massmem.core.report import MeasuredConfidence, VerdictCandidate
from massmem.core.text import one_line
from massmem.core.voting import Dissent, Tally

LATE_ROUND_FACTOR = 0.9
"""Share of the confidence that each round beyond the second leaves: somebody was not convinced at first."""

MIN_ASKED = 30
"""Questions of a calibration that a share of right answers needs before it is said."""

Count = Annotated[int, Field(ge=0, le=1_000_000_000)]

Kind = Literal["number", "choice", "text"]
"""What an answer comes to. choice: a letter, yes, no, true or false."""

Rank = tuple[float, int, bool]
"""How much speaks for an answer of a team without calibration, the highest most: the share of the agents behind it,
their number, its end is there. With one see `Calibration.estimate`."""

_BORROWED = 30
"""Questions that those with like patterns come to, beside the pattern's own."""
_NEAR = 1.0
"""Difference of two patterns in what speaks for their answers, in logits, at which they say much of each other."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """How the agents of a turn stand to an answer."""

    behind: tuple[str, ...]
    """Agents that gave it or voted for it, sorted by id."""
    against: Count
    """How many came to another result or prefer another answer."""
    uncompared: Count
    """How many gave a text of which nobody has said whether it says the same."""
    voted: bool
    """There are ballots."""
    cut: bool
    """Its end is missing, or the work for it was cut short."""
    kind: Kind

    @property
    def rank(self) -> Rank:
        known = len(self.behind) + self.against + self.uncompared or 1
        return round(len(self.behind) / known, 6), len(self.behind), not self.cut

    @property
    def agrees(self) -> bool:
        """All of at least two agents stand behind it."""
        return len(self.behind) > 1 and not self.against and not self.uncompared

    @property
    def shape(self) -> tuple[int, int, int, bool, bool, Kind]:
        """Without the names of the agents."""
        return len(self.behind), self.against, self.uncompared, self.voted, self.cut, self.kind


def read_pattern(tally: Tally, winner: str) -> Pattern:
    """Return how the agents stand to this agent's answer, as far as the turn has come."""
    answer, dissent = tally.answers[winner], tally.find_dissent(winner)
    # One bare result is enough: the others are about such a result, too, see `list_keys`.
    shorts = [one.short for one in (answer, *tally.answers.values())]
    results = [short.result.kind for short in shorts if short.result and short.is_bare]
    kind: Kind = "text" if not results else "choice" if results[0] in ("letter", "word") else "number"
    behind = (winner,) if dissent is None else tuple(sorted(position.agent for position in dissent.agreed))
    against, uncompared = (0, 0) if dissent is None else (len(dissent.minority), len(dissent.uncompared))
    is_cut = answer.truncated or answer.work_cut is not None
    return Pattern(behind, against, uncompared, bool(tally.ballots), is_cut, kind)


class _Counts(BaseModel):
    """Counts of a file that people can edit: what cannot be is refused."""

    model_config = ConfigDict(frozen=True)

    @model_validator(mode="after")
    def _check(self) -> Self:
        counts = {name: count for name, count in self if isinstance(count, int)}
        if max(counts.values(), default=0) > counts.get("asked", 0):
            raise ValueError("more answers were right than there were questions")
        return self


class Outcomes(_Counts):
    """Questions of a calibration whose answers have the same patterns of agreement."""

    group: str
    """Part of the data; empty: it has no parts."""
    first: Pattern
    """Of the two agents that `coordination.depth: adaptive` asks first."""
    full: Pattern
    """Of the whole team."""
    asked: Count
    right_first: Count
    """How often the answer of those two was right; where they differ, that of the one that is asked first."""
    right: Count
    """How often the answer of the whole team was right."""


class Member(_Counts):
    """One agent in a calibration."""

    asked: Count
    right: Count


Threshold = tuple[float, float]
"""The estimates above which an answer of the whole team, and one of the first two, is sure enough: -1 all, 1 none."""

_Place = tuple[tuple[bool, Kind, bool], float]
"""Of like patterns: whether of the first, kind, ballots; and what speaks for their answers, in logits: the voices
behind them, less those for others."""


class Calibration(_Counts):
    """How often a team was right, by how its agents agreed: counts only, no texts."""

    fingerprint: str
    """Of the team's agents, prompts and coordination: a team that would answer otherwise has another one."""
    team: str
    data: str
    """Name of the file with the questions."""
    created_at: AwareDatetime
    outcomes: tuple[Outcomes, ...]
    members: dict[str, Member]
    """By agent id."""
    alternatives: Annotated[float, Field(ge=1, le=1e6)] = 1.0
    """Of so many pairs of wrong answers to a question, one is the same."""
    first: tuple[str, ...] = ()
    """The two whose agreement says most for their price; empty: it was written before that was known."""

    @cached_property
    def voices(self) -> dict[str, float]:
        return weigh_voices(self.members, self.alternatives)

    def measure(self, pattern: Pattern, *, of_first: bool, first_agree: bool | None) -> MeasuredConfidence | None:
        """Return how often answers with such agreement were right; None with fewer than `MIN_ASKED` questions.

        Patterns with the same agents count, else those with the same numbers of agents; always of the same kind of
        answer, because a team that is good at numbers need not be good at texts.

        of_first: the two that were asked first were enough. first_agree: see `Tally`.
        """
        rows = [
            (one.first, one.asked, one.right_first) if of_first else (one.full, one.asked, one.right)
            for one in self.outcomes
            if of_first or first_agree in (None, one.first.agrees)
        ]
        for is_named in (True, False):
            close = [row[1:] for row in rows if (row[0] == pattern if is_named else row[0].shape == pattern.shape)]
            asked, right = (sum(column) for column in zip(*close, strict=True)) if close else (0, 0)
            if asked >= MIN_ASKED:
                low, high = (round(bound, 4) for bound in wilson_interval(right, asked))
                return MeasuredConfidence(right=right, asked=asked, low=low, high=high, group=pattern.kind)
        return None

    def estimate(self, pattern: Pattern, *, of_first: bool, without: bool = True) -> float:
        """Return how often answers with this pattern are right, by the questions but one.

        of_first: see `measure`. without: the answer to the one that is left out is right, which gives the least.
        """
        asked, right, near_asked, near_right = self.count_alike(pattern, of_first=of_first)
        return (right - without + _BORROWED * (near_right - without) / (near_asked - 1)) / (asked - 1 + _BORROWED)

    def count_alike(self, pattern: Pattern, *, of_first: bool) -> tuple[int, int, float, float]:
        """Return questions and right answers of this pattern, then of all for whose answers nearly as much speaks.

        The nearest of these count most. Two questions are added, one of which is right.
        """
        own, near = self._counts
        kind, speaks = self._place(pattern, of_first=of_first)
        near_asked, near_right = 2.0, 1.0
        for (other_kind, other), counts in near.items():
            if other_kind == kind:
                weight = math.exp(-(((other - speaks) / _NEAR) ** 2) / 2)
                near_asked, near_right = near_asked + weight * counts["asked"], near_right + weight * counts["right"]
        counts = own.get((of_first, pattern), Counter())
        return counts["asked"], counts["right"], near_asked, near_right

    @cached_property
    def _counts(self) -> tuple[dict[tuple[bool, Pattern], Counter[str]], dict[_Place, Counter[str]]]:
        """Questions and right answers by pattern and by place, of the whole team, and of the two first that agree."""
        own, near = dict[tuple[bool, Pattern], Counter[str]](), dict[_Place, Counter[str]]()
        for one in self.outcomes:
            rows = [(False, one.full, one.right)] + [(True, one.first, one.right_first)] * one.first.agrees
            for of_first, pattern, right in rows:
                own.setdefault((of_first, pattern), Counter()).update(asked=one.asked, right=right)
                near.setdefault(self._place(pattern, of_first=of_first), Counter()).update(asked=one.asked, right=right)
        return own, near

    def _place(self, pattern: Pattern, *, of_first: bool) -> _Place:
        behind = sum(self.voices.get(agent, 1.0) for agent in pattern.behind)
        others = [math.exp(voice) for agent, voice in self.voices.items() if agent not in pattern.behind] or [math.e]
        against = math.log1p(pattern.against * sum(others) / len(others))
        return (of_first, pattern.kind, pattern.voted), round(behind - against - 0.5 * pattern.cut, 1)

    def find_threshold(self, max_error: float, *, adaptive: bool) -> Threshold | None:
        """Return the lowest threshold with (wrong + 1) / (answered + 1) <= max_error among the questions of the
        calibration that would be answered, each estimated without itself; None when there is none.

        Jackknife-minmax (Barber et al. 2021): as a new answer is estimated as if the question that speaks most for it
        were missing, the probability that a question which is exchangeable with these is answered, and wrongly, is at
        most (wrong + 1) / (questions + 1). The stricter rule here aims at the share of wrong answers among those that
        are given.

        adaptive: the two first agents are enough where they agree and that is sure enough. They never are when a tenth
        more of the questions is answered without that.
        """
        most, threshold = 0.0, None
        for of_first in (True, False)[not adaptive :]:
            steps = sorted(step for one in self.outcomes for step in self._list_steps(one, adaptive=of_first))
            answered, wrong, bound = sum(step[1] for step in steps), sum(step[2] for step in steps), -1.0
            for estimate, same in groupby(steps, key=itemgetter(0)):
                if (wrong + 1) / (answered + 1) <= max_error:
                    break
                bound = estimate
                for _, fewer, fewer_wrong in same:
                    answered, wrong = answered - fewer, wrong - fewer_wrong
            if answered > most:
                most, threshold = 1.1 * answered, (bound, bound if of_first else 1.0)
        return threshold

    def _list_steps(self, one: Outcomes, *, adaptive: bool) -> Iterator[tuple[float, int, int]]:
        """Yield below which threshold how many more of these questions are answered, and how many more wrongly."""
        both, none = min(one.right, one.right_first), one.asked - max(one.right, one.right_first)
        counts = (True, True, both), (False, True, one.right - both), (True, False, one.right_first - both)
        for right_first, right, asked in (*counts, (False, False, none)):
            full, first = self.estimate(one.full, of_first=False, without=right), -math.inf
            if adaptive and one.first.agrees:
                first = self.estimate(one.first, of_first=True, without=right_first)
            yield max(full, first), asked, asked * (not (right_first if first >= full else right))
            if -math.inf < first < full:
                yield first, 0, asked * (right - right_first)

    def is_sure(self, pattern: Pattern, threshold: Threshold | None, *, of_first: bool) -> bool:
        return threshold is not None and self.estimate(pattern, of_first=of_first) > threshold[of_first]

    def count_right(self, one: Outcomes, threshold: Threshold | None, *, adaptive: bool) -> int | None:
        """Return how many of these answers are right; None: they are not sure enough."""
        if adaptive and one.first.agrees and self.is_sure(one.first, threshold, of_first=True):
            return one.right_first
        return one.right if self.is_sure(one.full, threshold, of_first=False) else None

    def knows(self, kind: Kind) -> bool:
        """Whether enough of its questions were answered so: to a question of another kind they say nothing."""
        return sum(one.asked for one in self.outcomes if one.full.kind == kind) >= MIN_ASKED


def weigh_voices(members: Mapping[str, Member], alternatives: float) -> dict[str, float]:
    """Return the weight of each agent's voice, in quarters: finer ones would be noise; none is below zero.

    The logarithm of its odds of being right, the best rule for agents that err independently (Nitzan and Paroush 1982),
    times the alternatives (see `Calibration`): where the wrong seldom say the same, one that is mostly wrong has a
    voice, too. One right and one wrong answer are added, so that no agent weighs without bound.
    """
    odds = {agent: (one.right + 1) / (one.asked - one.right + 1) for agent, one in members.items()}
    return {agent: max(0.0, round(4 * math.log(odds[agent] * alternatives)) / 4) for agent in members}


@dataclass(frozen=True, slots=True)
class Policy:
    """How sure an answer has to be."""

    calibration: Calibration | None = None
    """Of the team as it is; None: there is none."""
    max_error: float | None = None
    escalate_below: float | None = None
    """See `CoordinationConfig`, as `max_error`."""
    adaptive: bool = False
    """Two agents are asked first."""

    def is_sure(
        self, pattern: Pattern, decision: ev.WinnerDecided | None, confidence: float | None, *, of_first: bool = True
    ) -> bool:
        """Whether the answer may stand as it is. Without a bound every answer may.

        decision: None: the first agents agree, and the others need not be asked. confidence: see `compute_confidence`.
        of_first: see `Calibration.measure`.
        """
        if self.calibration is not None and self.max_error is not None:
            threshold = self.calibration.find_threshold(self.max_error, adaptive=self.adaptive)
            is_known = self.calibration.knows(pattern.kind)
            return is_known and self.calibration.is_sure(pattern, threshold, of_first=of_first)
        bound = self.escalate_below
        if bound is None and self.max_error is not None:
            bound = 1 - self.max_error
        if bound is None:
            return True
        return (decision is None or decision.by != "no_vote") and (confidence is None or confidence >= bound)

    def judge(self, tally: Tally) -> "Judgement":
        """Return what the turn claims, once its winner is decided."""
        decision, calibration = tally.winner, self.calibration
        assert decision is not None
        supporters = tally.count_supporters(decision.agent_id)
        confidence = compute_confidence(decision, len(tally.council), tally.round, supporters)
        if tally.depth is not None and tally.depth.reason == "asks_for_text":
            return Judgement(confidence)  # it claims nothing that could be wrong
        pattern = read_pattern(tally, decision.agent_id)
        measured = None
        if calibration is not None:
            measured = calibration.measure(pattern, of_first=tally.is_enough, first_agree=tally.first_agree)
        if self.is_sure(pattern, decision, confidence, of_first=tally.is_enough):
            return Judgement(confidence, measured)
        return Judgement(confidence, measured, tuple(_list_candidates(tally, decision.agent_id)))


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a turn claims of its answer."""

    confidence: float | None
    """See `compute_confidence`."""
    measured: MeasuredConfidence | None = None
    candidates: tuple[VerdictCandidate, ...] = ()
    """Of an unsure turn, the winner's first."""

    @property
    def verdict(self) -> ev.Verdict:
        return "unsure" if self.candidates else "answered"


def _list_candidates(tally: Tally, winner: str) -> Iterator[VerdictCandidate]:
    """Yield results, or texts; of those only the winner's has the numbers of its sources."""
    for answer, agents in tally.list_candidates(winner):
        marks = 0 if answer.agent_id == winner else len(answer.citations)
        text = answer.short.last_line if answer.short.is_bare else remove_marks(answer.content, marks)
        yield VerdictCandidate(answer=text, agents=agents)


_SHORT, _EXCERPT = 80, 300
"""Characters of an answer that stands in a list; and of one that is not the winner's."""


def write_unsure(
    candidates: tuple[VerdictCandidate, ...], citations: tuple[Citation, ...], name: Callable[[str], str]
) -> tuple[str, tuple[Citation, ...]]:
    """Return the answer of an unsure turn: that it is not sure, and what the agents answered; and its sources.

    citations: of the winner's answer. name: returns what people are shown for an agent.
    """
    names = [", ".join(map(name, candidate.agents)) for candidate in candidates]
    listed = [f"- {one_line(one.answer, _EXCERPT)} ({by})" for one, by in zip(candidates, names, strict=True)]
    if all(len(candidate.answer) <= _SHORT for candidate in candidates):
        head, parts = "", ["Not sure. The agents' answers:", "", *listed]
    else:
        head = f"Not sure. This is the answer of {names[0]}:\n\n"
        others = ["", "Other answers:", "", *listed[1:]] if listed[1:] else []
        parts = [head + candidates[0].answer, *others]
    return "\n".join(parts), tuple(_move(citation, len(head)) for citation in citations)


def _move(citation: Citation, by: int) -> Citation:
    """Return the citation of a text that begins `by` characters later; 0: nowhere."""
    if not by or citation.start is None or citation.end is None:
        return replace(citation, start=None, end=None)
    return replace(citation, start=citation.start + by, end=citation.end + by)


def describe_measured_confidence(measured: MeasuredConfidence) -> str:
    """Return `answers of this team with such agreement were right 71 % of the time (150 questions, 63-78)`."""
    share, low, high = (f"{100 * part:.0f}" for part in (measured.right / measured.asked, measured.low, measured.high))
    return (
        f"answers of this team with such agreement were right {share} % of the time "
        f"({measured.asked} questions, {low}-{high})"
    )


Z95 = 1.959963984540054
"""The 97.5th percentile of the normal distribution: two-sided 95 %."""


def wilson_interval(right: int, total: int) -> tuple[float, float]:
    """Return the 95 % score interval of a share (Wilson 1927): unlike the simple one it is sound near 0 and 1."""
    if total == 0:
        return (0.0, 1.0)
    share, z2 = right / total, Z95**2
    centre = (share + z2 / (2 * total)) / (1 + z2 / total)
    spread = Z95 * math.sqrt(share * (1 - share) / total + z2 / (4 * total**2)) / (1 + z2 / total)
    return (max(0.0, centre - spread), min(1.0, centre + spread))


def compute_confidence(decision: ev.WinnerDecided, agents: int, rounds: int, supporters: int) -> float | None:
    """Return how far the council stands behind the winner's answer, from 0 to 1; None when nobody compared answers.

    (supporters / agents) * LATE_ROUND_FACTOR ** (rounds - 2), with an exponent of at least 0. An agent that failed, did
    not vote or was not asked counts as not convinced. For an agent alone, and for answers on which nobody voted, any
    number would be made up.

    agents: all of the turn that were needed, failed ones too. rounds: how many the turn took. supporters: of the
    winner's answer, see `Election.list_supporters`.
    """
    unconfirmed = decision.by in ("no_vote", "no_vote_held") or (decision.by == "answer_now" and not decision.votes)
    if agents < 2 or unconfirmed:
        return None
    return round(min(supporters / agents, 1.0) * LATE_ROUND_FACTOR ** max(rounds - 2, 0), 4)


NO_VOTE: Mapping[ev.NoVote, str] = {
    "one_round": "no vote was held: coordination.max_rounds is 1",
    "timeout": "the time was up before a vote",
    "cost": "the cost limit was reached before a vote",
    "tokens": "the token limit was reached before a vote",
    "failed": "nobody could vote",
    "no_choice": "no vote could have changed the winner",
}


def describe_agreement(
    decision: ev.WinnerDecided,
    dissent: Dissent | None,
    agents: int,
    name: str,
    *,
    presented: bool,
    not_needed: Sequence[str] = (),
) -> str:
    """Return what is known of how far the agents agree, one sentence; "" for an agent alone.

    agents: all of the turn that were needed. name: of the winner. presented: it wrote the final answer from all
    answers. not_needed: names of the agents that were not, see `depth_decided`.
    """
    if agents < 2:
        return ""
    if dissent is None:
        return f"the only answer of {agents} agents"
    positions = (*dissent.agreed, *dissent.others)
    total, reason = len(positions), ""
    if decision.no_vote is not None:
        reason = f" ({NO_VOTE[decision.no_vote]})"
    if len(dissent.agreed) == 1 and dissent.uncompared and not dissent.minority and not decision.votes:
        origin = "the final answer is written from them" if presented else f"that of {name} is shown"
        parts = [f"{total} answers, not compared{reason}", origin]
    elif decision.votes and not all(position.is_free for position in dissent.agreed):
        cast, answers = sum(decision.votes.values()), sum(bool(position.answer) for position in positions)
        votes = f"{decision.votes.get(decision.agent_id, 0)} of {_count(cast, 'vote')}"
        parts = [f"{name}'s answer got {votes} (nobody may choose its own)"]
        if presented:
            parts.append(f"the final text was written from {_ALL.get(answers, f'all {answers}')}")
    else:
        parts = [f"{len(dissent.agreed)} of {total} agents gave or chose this answer{reason}"]
        if dissent.uncompared:
            parts.append(f"{_count(len(dissent.uncompared), 'answer')} not compared")
    if agents > total:
        parts.append(f"{_count(agents - total, 'agent')} gave no answer")
    if not_needed:
        parts.append(f"{_join_names(not_needed, 'was', 'were')} not needed")
    return "; ".join(parts)


_ALL = {2: "both", 3: "all three"}
_DEPTHS: Mapping[ev.DepthReason, str] = {
    "asks_for_text": "{alone} asked, for a text",
    "same": "{asked} gave the same answer",
    "said_same": "{asked} say the same, as {first} finds",
    "differ": "{asked} differ",
    "not_compared": "the answers of {asked} are not compared",
    "failed": "an answer of {asked} is missing",
    "not_sure": "{asked} are not enough to be sure",
}


def describe_depth(
    reason: ev.DepthReason, asked: Sequence[str], others: Sequence[str], *, enough: bool, difference: str = ""
) -> str:
    """Return `red and green gave the same answer; blue was not needed`, or `red and green differ: blue is asked`.

    asked: names of the agents that were asked. others: of those that are not needed, when that is enough, else of those
    that are asked now. difference: what differs, as the first agent says.
    """
    alone = _join_names(asked, "alone was", "alone were")
    text = _DEPTHS[reason].format(asked=_join_names(asked), first=asked[0], alone=alone)
    if enough:
        return f"{text}; {_join_names(others, 'was', 'were')} not needed"
    return f"{text}{difference and f' ({difference})'}: {_join_names(others, 'is', 'are')} asked"


def _join_names(names: Sequence[str], one: str = "", more: str = "") -> str:
    """Return `red`, `red and green` or `red, green and blue`, and the verb for one or more of them."""
    joined = " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))
    return f"{joined} {one if len(names) == 1 else more}".strip()


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def describe_share(confidence: float | None, votes: Mapping[str, int], *, escalated: bool) -> str:
    """Return `agreement 67%`, and whether the answer is unsure; "" where neither is known.

    Not of split votes: `agreement 100%` beside `2 of 3 votes` would be read as a contradiction, though an agent that
    may not vote for its own answer stands behind it.
    """
    share = f"agreement {confidence:.0%}" if confidence is not None and len(votes) < 2 else ""
    return ", ".join(filter(None, (share, "not sure" if escalated else "")))
