"""What the answers of teams come to: accuracies, paired differences, what the council made of its members' answers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean

from massmem.evaluation.items import Item
from massmem.evaluation.results import Result
from massmem.evaluation.rules import RULES
from massmem.evaluation.scorers import score
from massmem.evaluation.statistics import (
    Bin,
    Interval,
    calibration_bins,
    calibration_error,
    difference_interval,
    mcnemar_p,
    wilson_interval,
)

Grade = Callable[[Item, str], bool]
"""Whether an answer is right."""


@dataclass(frozen=True, slots=True)
class Share:
    """How many of how many, with the 95 % interval of the share."""

    count: int
    total: int

    @property
    def value(self) -> float:
        return self.count / self.total if self.total else 0.0

    @property
    def interval(self) -> Interval:
        return wilson_interval(self.count, self.total)


@dataclass(frozen=True, slots=True)
class CouncilReport:
    """What happened between the members' answers and the final ones. Shares are of the questions that fit."""

    members: dict[str, Share]
    """Right answers of each agent."""
    agreement: float
    """Mean share of pairs of agents whose answers come to the same."""
    oracle: Share
    """Questions that at least one agent answered rightly: no way to choose among their answers does better."""
    chosen: Share
    """Of the questions with right and wrong answers: the winner's was right."""
    rules: dict[str, Share]
    """Right answers of each rule on the same answers and ballots, see `massmem.evaluation.rules`."""
    presentation_mended: int
    """The winner's answer was wrong, the final one right."""
    presentation_spoiled: int
    """The winner's answer was right, the final one wrong."""
    bins: list[Bin]
    """By confidence."""
    calibration_error: float | None
    """Expected calibration error; None when no answer has a confidence."""


@dataclass(frozen=True, slots=True)
class EntrantReport:
    """How a team did."""

    name: str
    accuracy: Share
    groups: dict[str, Share]
    failed: int
    """Questions without an answer, which count as wrong."""
    tokens: float
    """Mean of a question, prompt and reply."""
    seconds: float
    """The same."""
    requests: float
    """The same."""
    cost: float | None
    """US dollars for all questions; None: no known price."""
    council: CouncilReport | None = None
    """None for one agent alone."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two teams on the same questions."""

    first: str
    second: str
    total: int
    only_first: int
    """Questions that only the first team answered rightly."""
    only_second: int
    difference: float
    """Of the accuracies, first - second."""
    interval: Interval
    """95 %, paired bootstrap."""
    p: float
    """McNemar, exact, two-sided."""


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


def report_entrant(answers: Answers, grade: Grade | None = grade_by_score) -> EntrantReport:
    """Return how a team did. grade: of the members' answers; None: they were not graded."""
    results = answers.results
    groups: dict[str, list[bool]] = {}
    for item, is_right in zip(answers.items, answers.right, strict=True):
        groups.setdefault(item.group, []).append(is_right)
    is_council = any(len(result.members) > 1 for result in results)
    costs = [result.usage.cost for result in results if not result.error]
    return EntrantReport(
        name=answers.name,
        accuracy=_share(answers.right),
        groups={name: _share(right) for name, right in sorted(groups.items()) if len(groups) > 1},
        failed=sum(1 for result in results if result.error),
        tokens=_mean([result.tokens for result in results]),
        seconds=_mean([result.seconds for result in results]),
        requests=_mean([result.usage.requests for result in results]),
        cost=None if not costs or None in costs else sum(cost or 0.0 for cost in costs),
        council=_report_council(answers, grade) if is_council and grade is not None else None,
    )


def compare(first: Answers, second: Answers) -> Comparison:
    """Return how two teams differ on the questions that both were asked."""
    graded = {item.key: is_right for item, is_right in zip(second.items, second.right, strict=True)}
    pairs = [
        (is_right, graded[item.key])
        for item, is_right in zip(first.items, first.right, strict=True)
        if item.key in graded
    ]
    only_first = sum(1 for a, b in pairs if a and not b)
    only_second = sum(1 for a, b in pairs if b and not a)
    return Comparison(
        first=first.name,
        second=second.name,
        total=len(pairs),
        only_first=only_first,
        only_second=only_second,
        difference=(only_first - only_second) / len(pairs) if pairs else 0.0,
        interval=difference_interval([a for a, _ in pairs], [b for _, b in pairs]),
        p=mcnemar_p(only_first, only_second),
    )


def _report_council(answers: Answers, grade: Grade) -> CouncilReport:
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
    return CouncilReport(
        members={agent: _share(grades) for agent, grades in member_grades.items()},
        agreement=_mean(agreement),
        oracle=_share(oracle),
        chosen=_share(chosen),
        rules={name: _share(right) for name, right in rules.items()},
        presentation_mended=mended,
        presentation_spoiled=spoiled,
        bins=bins,
        calibration_error=calibration_error(bins),
    )


def _share(flags: Sequence[bool]) -> Share:
    return Share(sum(flags), len(flags))


def _mean(numbers: Sequence[float]) -> float:
    return fmean(numbers) if numbers else 0.0
