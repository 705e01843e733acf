"""No expression of the product takes more than a bit over linear time, whatever it is fed."""

import pkgutil
import re

import pytest

import massmem
from tests.support.growth import find_slow_text
from tests.support.patterns import Expression, find_expressions, make_texts

PACKAGES = [module.name for module in pkgutil.iter_modules(massmem.__path__)]
SHORT_TEXTS = {
    "massmem.core.short_answers._OPENING": 150,  # its caller cuts the text
    "massmem.memory.claims._RULES": 160,  # a longer sentence is no statement
    "massmem.memory.claims._FORMS": 160,
    "massmem.memory.tokens._PIECES": 0,  # for an engine without backtracking
}
"""Characters of the longest text that an expression is applied to, where that is few."""


def find_slow_match(expression: Expression, longest: int, most: int) -> str | None:
    """most: texts that are tried."""
    texts = [(make.__name__, make) for make in make_texts(expression.pattern, most)]
    longest = SHORT_TEXTS.get(expression.where, longest)
    return find_slow_text(expression.apply, texts, first=250, longest=longest)


def test_every_expression_is_found():
    expressions = find_expressions()
    places = {expression.where.partition(":")[0].rpartition(".")[0] for expression in expressions}
    assert len(expressions) > 250
    assert {expression.where.split(".")[1].partition(":")[0] for expression in expressions} <= set(PACKAGES)
    assert {"massmem.memory.words", "massmem.core.redact", "massmem.providers.failures"} <= places


@pytest.mark.parametrize("pattern", [r"\s*\n", r"<b>.*?</b>", r"[\w-]*\d", r"x*x*y"])
def test_an_expression_that_looks_at_the_rest_from_everywhere_is_noticed(pattern: str):
    slow = find_slow_match(Expression("here", re.compile(pattern), frozenset({"search"})), 16_000, 40)
    assert slow is not None


@pytest.mark.parametrize(
    ("longest", "most"), [(16_000, 40), pytest.param(1_024_000, 400, marks=pytest.mark.full)], ids=["short", "long"]
)
@pytest.mark.parametrize("package", PACKAGES)
def test_no_expression_is_worse_than_n_log_n(package: str, longest: int, most: int):
    own = [e for e in find_expressions() if re.match(rf"massmem\.{package}\b", e.where)]
    slow = {expression.where: find_slow_match(expression, longest, most) for expression in own}
    assert {where: text for where, text in slow.items() if text} == {}
