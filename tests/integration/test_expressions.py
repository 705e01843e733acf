"""No expression of the product takes more than a bit over linear time, whatever it is fed."""

import re

import pytest

from tests.support.growth import find_slow_text
from tests.support.patterns import Expression, find_expressions, make_texts

EXPRESSIONS = find_expressions()
SHORT_TEXTS = {
    "massmem.memory.claims._RULES": 160,  # a longer sentence is no statement
    "massmem.memory.claims._FORMS": 160,
    "massmem.memory.tokens._PIECES": 0,  # for an engine without backtracking
}
"""Characters of the longest text that an expression is applied to, where that is few."""


def find_slow_match(expression: Expression, longest: int, most: int = 40) -> str | None:
    """most: texts that are tried."""
    texts = [(make.__name__, make) for make in make_texts(expression.pattern, most)]
    longest = SHORT_TEXTS.get(expression.where, longest)
    return find_slow_text(expression.apply, texts, first=250, longest=longest)


def test_every_expression_is_found():
    places = {expression.where.partition(":")[0].rpartition(".")[0] for expression in EXPRESSIONS}
    assert len(EXPRESSIONS) > 250
    assert {"massmem.memory.words", "massmem.core.redact", "massmem.providers.failures"} <= places


@pytest.mark.parametrize("pattern", [r"\s*\n", r"<b>.*?</b>", r"[\w-]*\d", r"x*x*y"])
def test_an_expression_that_looks_at_the_rest_from_everywhere_is_noticed(pattern: str):

    slow = find_slow_match(Expression("here", re.compile(pattern), frozenset({"search"})), 16_000)
    assert slow is not None


@pytest.mark.parametrize("expression", EXPRESSIONS, ids=lambda expression: expression.where)
def test_no_expression_is_worse_than_n_log_n(expression: Expression):
    assert find_slow_match(expression, 16_000) is None


@pytest.mark.full
@pytest.mark.parametrize("expression", EXPRESSIONS, ids=lambda expression: expression.where)
def test_no_expression_is_worse_than_n_log_n_with_a_million_characters(expression: Expression):
    assert find_slow_match(expression, 1_024_000, 400) is None
