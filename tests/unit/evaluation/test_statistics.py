"""Intervals and tests, against published values."""

import pytest

from massmem.evaluation.statistics import (
    calibration_bins,
    calibration_error,
    difference_interval,
    mcnemar_p,
    wilson_interval,
)


@pytest.mark.parametrize(
    ("right", "total", "low", "high"),
    [  # Newcombe 1998, table I, method 3
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0000, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_wilson_interval_as_published(right: int, total: int, low: float, high: float):
    interval = wilson_interval(right, total)
    assert (interval.low, interval.high) == (pytest.approx(low, abs=5e-5), pytest.approx(high, abs=5e-5))


def test_nothing_is_known_of_no_answers():
    assert (wilson_interval(0, 0).low, wilson_interval(0, 0).high) == (0.0, 1.0)
    assert (difference_interval([], []).low, difference_interval([], []).high) == (-1.0, 1.0)


@pytest.mark.parametrize(
    ("first", "second", "p"), [(0, 0, 1.0), (8, 3, 0.2265625), (3, 8, 0.2265625), (10, 0, 2 / 1024)]
)
def test_mcnemar_is_the_exact_sign_test(first: int, second: int, p: float):
    assert mcnemar_p(first, second) == pytest.approx(p)


def test_difference_interval_holds_the_difference_and_knows_its_side():
    better, worse = [True] * 80 + [False] * 20, [True] * 50 + [False] * 50
    interval = difference_interval(better, worse)
    assert 0.2 < interval.low < 0.3 < interval.high < 0.4
    mirrored = difference_interval(worse, better)
    assert mirrored.high < 0


def test_difference_interval_of_equal_answers_is_empty():
    assert difference_interval([True, False], [True, False]) == difference_interval([False], [False])


def test_calibration_error_is_the_weighted_gap():
    bins = calibration_bins([0.95, 0.95, 0.5, 0.5], [True, False, True, False])
    assert [(part.count, part.accuracy) for part in bins] == [(2, 0.5), (2, 0.5)]
    assert calibration_error(bins) == pytest.approx(0.5 * 0.45)
    assert calibration_error([]) is None


def test_full_confidence_has_a_bin():
    (part,) = calibration_bins([1.0], [True])
    assert (part.low, part.high) == (0.9, 1.0)
