"""What the answers of teams come to: accuracies, paired differences, what the council made of its members' answers.

The rules that choose among the answers of a council are computed from what it recorded: trying them costs no request.
"""

import math
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean

from massmem.core.evaluation import (
    Bin,
    Council,
    EvaluatedTeam,
    Interval,
    PerQuestion,
    Presentation,
    Share,
    TeamComparison,
)
from massmem.evaluation.items import Item, score
from massmem.evaluation.runner import Result

Z95 = 1.959963984540054
"""The 97.5th percentile of the normal distribution: two-sided 95 %."""

_RESAMPLES = 10_000
_BINS = 10


def wilson_interval(right: int, total: int) -> Interval:
    """Return the 95 % score interval of a share (Wilson 1927): unlike the simple one it is sound near 0 and 1."""
    if total == 0:
        return (0.0, 1.0)
    share, z2 = right / total, Z95**2
    centre = (share + z2 / (2 * total)) / (1 + z2 / total)
    spread = Z95 * math.sqrt(share * (1 - share) / total + z2 / (4 * total**2)) / (1 + z2 / total)
    return (max(0.0, centre - spread), min(1.0, centre + spread))


def mcnemar_p(only_first: int, only_second: int) -> float:
    """Return the exact two-sided p of McNemar's test: how likely so uneven a split is when both are equally good.

    only_first, only_second: questions that only the one, or only the other, answered rightly.
    """
    total = only_first + only_second
    if total == 0:
        return 1.0
    tail = sum(math.comb(total, k) for k in range(min(only_first, only_second) + 1)) / 2**total
    return min(1.0, 2 * tail)


def difference_interval(first: Sequence[bool], second: Sequence[bool]) -> Interval:
    """Return the 95 % interval of the difference of two accuracies on the same questions (paired bootstrap).

    first, second: whether each question was answered rightly, in the same order. The difference is first - second.
    """
    differences = [int(a) - int(b) for a, b in zip(first, second, strict=True)]
    if not differences:
        return (-1.0, 1.0)
    draw, size = random.Random(0), len(differences)
    means = sorted(sum(draw.choices(differences, k=size)) / size for _ in range(_RESAMPLES))
    return (means[int(0.025 * _RESAMPLES)], means[int(0.975 * _RESAMPLES) - 1])


def calibration_bins(confidences: Sequence[float], right: Sequence[bool]) -> list[Bin]:
    """Return the answers in bins of equal width by confidence, empty ones left out."""
    grouped: dict[int, list[tuple[float, bool]]] = {}
    for confidence, is_right in zip(confidences, right, strict=True):
        grouped.setdefault(min(int(confidence * _BINS), _BINS - 1), []).append((confidence, is_right))
    return [
        Bin(
            low=index / _BINS,
            high=(index + 1) / _BINS,
            count=len(pairs),
            confidence=sum(confidence for confidence, _ in pairs) / len(pairs),
            accuracy=sum(is_right for _, is_right in pairs) / len(pairs),
        )
        for index, pairs in sorted(grouped.items())
    ]


def calibration_error(bins: Sequence[Bin]) -> float | None:
    """Return the expected calibration error: the mean gap between confidence and accuracy, weighted by the bins' sizes.

    None without answers.
    """
    total = sum(part.count for part in bins)
    return sum(part.count * abs(part.confidence - part.accuracy) for part in bins) / total if total else None


Values = Mapping[str, str]
"""Agent -> what its answer comes to, "" for nothing, in the order of the agents."""
Ballots = Mapping[str, str]
"""Voter -> the agent that it voted for."""


def choose_first(values: Values, ballots: Ballots) -> str:
    """Return the answer of the first agent."""
    return next(iter(values.values()), "")


def choose_most_given(values: Values, ballots: Ballots) -> str:
    """Return the answer that most agents gave."""
    return choose_most_common(list(values.values()))


def choose_most_voted(values: Values, ballots: Ballots) -> str:
    """Return the answer with most ballots; of equals the one that more agents gave."""
    votes, authors = _count_votes(values, ballots), Counter(values.values())
    return max(filter(None, values.values()), key=lambda value: (votes[value], authors[value]), default="")


def choose_most_supported(values: Values, ballots: Ballots) -> str:
    """Return the answer that most agents gave, ballots deciding between equals."""
    votes, authors = _count_votes(values, ballots), Counter(values.values())
    return max(filter(None, values.values()), key=lambda value: (authors[value], votes[value]), default="")


def choose_by_sum(values: Values, ballots: Ballots) -> str:
    """Return the answer with most authors and ballots, counted together."""
    counts = Counter(values.values()) + _count_votes(values, ballots)
    return max(filter(None, values.values()), key=lambda value: counts[value], default="")


RULES: Mapping[str, Callable[[Values, Ballots], str]] = {
    "the first agent's answer": choose_first,
    "the answer that most gave": choose_most_given,
    "the same, ballots decide between equals": choose_most_supported,
    "the answer with most ballots": choose_most_voted,
    "authors and ballots together": choose_by_sum,
}
"""By name. Each returns the value that it chooses, "" for none; of equals that of the agent that is listed first."""


def choose_most_common(values: Sequence[str]) -> str:
    """Return the most common value, the first of those that are equally common; empty ones do not count."""
    counts = Counter(value for value in values if value)
    return max(counts, key=lambda value: counts[value]) if counts else ""


def _count_votes(values: Values, ballots: Ballots) -> Counter[str]:
    return Counter(values[choice] for choice in ballots.values() if choice in values)


Grade = Callable[[Item, str], bool]
"""Whether an answer is right."""


@dataclass(frozen=True, slots=True)
class Answers:
    """What a team answered, one result per question."""

    name: str
    items: Sequence[Item]
    results: Sequence[Result]
    right: Sequence[bool]


def grade_by_score(item: Item, text: str) -> bool:
    """Return whether the answer is right, for every scorer but `judge`."""
    return score(item, text).right


def report_entrant(answers: Answers, grade: Grade | None = grade_by_score) -> EvaluatedTeam:
    """Return how a team did. grade: of the members' answers; None: they were not graded."""
    results = answers.results
    groups: dict[str, list[bool]] = {}
    for item, is_right in zip(answers.items, answers.right, strict=True):
        groups.setdefault(item.group, []).append(is_right)
    is_council = any(len(result.members) > 1 for result in results)
    costs = [result.usage.cost for result in results if not result.error]
    return EvaluatedTeam(
        name=answers.name,
        accuracy=_share(answers.right),
        groups={name: _share(right) for name, right in sorted(groups.items()) if len(groups) > 1},
        failed=sum(1 for result in results if result.error),
        per_question=PerQuestion(
            tokens=_mean([result.tokens for result in results]),
            seconds=_mean([result.seconds for result in results]),
            requests=_mean([result.usage.requests for result in results]),
        ),
        cost=None if not costs or None in costs else sum(cost or 0.0 for cost in costs),
        council=_report_council(answers, grade) if is_council and grade is not None else None,
    )


def compare(first: Answers, second: Answers) -> TeamComparison:
    """Return how two teams differ on the questions that both were asked."""
    graded = {item.key: is_right for item, is_right in zip(second.items, second.right, strict=True)}
    pairs = [
        (is_right, graded[item.key])
        for item, is_right in zip(first.items, first.right, strict=True)
        if item.key in graded
    ]
    only_first = sum(1 for a, b in pairs if a and not b)
    only_second = sum(1 for a, b in pairs if b and not a)
    return TeamComparison(
        first=first.name,
        second=second.name,
        total=len(pairs),
        only_first=only_first,
        only_second=only_second,
        difference=(only_first - only_second) / len(pairs) if pairs else 0.0,
        interval=difference_interval([a for a, _ in pairs], [b for _, b in pairs]),
        p=mcnemar_p(only_first, only_second),
    )


def _report_council(answers: Answers, grade: Grade) -> Council:
    agents = list(dict.fromkeys(agent for result in answers.results for agent in result.members))
    member_grades: dict[str, list[bool]] = {agent: [] for agent in agents}
    agreement: list[float] = []
    oracle: list[bool] = []
    chosen: list[bool] = []
    rules: dict[str, list[bool]] = {name: [] for name in RULES}
    mended = spoiled = 0
    for item, result, is_final_right in zip(answers.items, answers.results, answers.right, strict=True):
        graded = {agent: grade(item, text) for agent, text in result.members.items()}
        values = {agent: score(item, text).value for agent, text in result.members.items()}
        right = {values[agent] for agent, is_right in graded.items() if is_right}
        for name, choose in RULES.items():
            rules[name].append(choose(values, result.ballots) in right)
        for agent in agents:
            member_grades[agent].append(graded.get(agent, False))
        oracle.append(any(graded.values()))
        if len(values) > 1:
            agreement.append(_mean([float(a == b != "") for a, b in combinations(values.values(), 2)]))
        winner = graded.get(result.winner, False)
        if any(graded.values()) and not all(graded.values()):
            chosen.append(winner)
        mended += is_final_right and not winner
        spoiled += winner and not is_final_right
    rated = [
        (result.confidence, is_right)
        for result, is_right in zip(answers.results, answers.right, strict=True)
        if result.confidence is not None
    ]
    bins = calibration_bins([confidence for confidence, _ in rated], [is_right for _, is_right in rated])
    return Council(
        members={agent: _share(grades) for agent, grades in member_grades.items()},
        agreement=_mean(agreement),
        oracle=_share(oracle),
        chosen=_share(chosen),
        rules={name: _share(right) for name, right in rules.items()},
        presentation=Presentation(mended=mended, spoiled=spoiled),
        bins=bins,
        calibration_error=calibration_error(bins),
    )


def _share(flags: Sequence[bool]) -> Share:
    count, total = sum(flags), len(flags)
    return Share(
        count=count, total=total, value=count / total if total else 0.0, interval=wilson_interval(count, total)
    )


def _mean(numbers: Sequence[float]) -> float:
    return fmean(numbers) if numbers else 0.0
