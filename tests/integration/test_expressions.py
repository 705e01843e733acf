"""No expression of the product takes more than a bit over linear time, whatever it is fed."""

import re
import time

import pytest

from tests.support.patterns import Expression, find_expressions, make_texts

EXPRESSIONS = find_expressions()
SHORT_TEXTS = {
    "massmem.memory.plain_statements._RULES": 160,  # a longer sentence is no statement
    "massmem.memory.plain_statements._FORMS": 160,
    "massmem.memory.tokens._PIECES": 0,  # for an engine without backtracking
}
"""Characters of the longest text that an expression is applied to, where that is few."""
STEP = 4
LEAST_SECONDS = 0.02
"""Of CPU: what takes less is noise."""
MAX_RATIO = 9.0
"""Of the times of two sizes, one of them `STEP` times the other: 4 when it is linear, 16 when it is quadratic."""


def measure(expression: Expression, text: str) -> float:
    started = time.process_time()
    expression.apply(text)
    return time.process_time() - started


def find_slow_text(expression: Expression, longest: int, most: int = 40) -> str | None:
    """Return a description of a text for which the time grows faster than n log n, None when there is none.

    most: texts that are tried.
    """
    for make in make_texts(expression.pattern, most):
        size, before = 250, measure(expression, make(250))
        while size * STEP <= longest:
            size *= STEP
            seconds = measure(expression, make(size))
            if seconds > LEAST_SECONDS:
                # What else the machine does makes one of two measurements longer, hardly ever the same way twice.
                before = max(before, measure(expression, make(size // STEP)))
                seconds = min(seconds, measure(expression, make(size)))
                if seconds > LEAST_SECONDS and seconds > MAX_RATIO * before:
                    return f"{make.__name__}: {size:,} characters take {seconds:.3f} s, a quarter {before:.4f} s"
                break
            before = seconds
    return None


def test_every_expression_is_found():
    places = {expression.where.partition(":")[0].rpartition(".")[0] for expression in EXPRESSIONS}
    assert len(EXPRESSIONS) > 250
    assert {"massmem.memory.text_analysis", "massmem.core.redact", "massmem.providers.failures"} <= places


@pytest.mark.parametrize("pattern", [r"\s*\n", r"<b>.*?</b>", r"[\w-]*\d", r"x*x*y"])
def test_an_expression_that_looks_at_the_rest_from_everywhere_is_noticed(pattern: str):

    slow = find_slow_text(Expression("here", re.compile(pattern), frozenset({"search"})), 16_000)
    assert slow is not None


@pytest.mark.parametrize("expression", EXPRESSIONS, ids=lambda expression: expression.where)
def test_no_expression_is_worse_than_n_log_n(expression: Expression):
    assert find_slow_text(expression, SHORT_TEXTS.get(expression.where, 16_000)) is None


@pytest.mark.full
@pytest.mark.parametrize("expression", EXPRESSIONS, ids=lambda expression: expression.where)
def test_no_expression_is_worse_than_n_log_n_with_a_million_characters(expression: Expression):
    assert find_slow_text(expression, SHORT_TEXTS.get(expression.where, 1_024_000), 400) is None
