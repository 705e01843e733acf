"""Intervals and tests for shares of right answers. Pure functions of counts and of right/wrong lists."""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

Z95 = 1.959963984540054
"""The 97.5th percentile of the normal distribution: two-sided 95 %."""

_RESAMPLES = 10_000
_BINS = 10


@dataclass(frozen=True, slots=True)
class Interval:
    """A range that holds the true value in 95 % of such samples."""

    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Bin:
    """Answers of similar confidence."""

    low: float
    high: float
    count: int
    confidence: float
    """Mean."""
    accuracy: float


def wilson_interval(right: int, total: int) -> Interval:
    """Return the 95 % score interval of a share (Wilson 1927): unlike the simple one it is sound near 0 and 1."""
    if total == 0:
        return Interval(0.0, 1.0)
    share, z2 = right / total, Z95**2
    centre = (share + z2 / (2 * total)) / (1 + z2 / total)
    spread = Z95 * math.sqrt(share * (1 - share) / total + z2 / (4 * total**2)) / (1 + z2 / total)
    return Interval(max(0.0, centre - spread), min(1.0, centre + spread))


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
        return Interval(-1.0, 1.0)
    draw, size = random.Random(0), len(differences)
    means = sorted(sum(draw.choices(differences, k=size)) / size for _ in range(_RESAMPLES))
    return Interval(means[int(0.025 * _RESAMPLES)], means[int(0.975 * _RESAMPLES) - 1])


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
