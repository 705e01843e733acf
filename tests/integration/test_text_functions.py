"""No public function that takes a text is worse than n log n, whatever the text."""

from itertools import islice

import pytest

from tests.support.growth import find_slow_text
from tests.support.text_functions import PACKAGES, TextFunction, find_text_functions, make_texts

SHORT_TEXTS = {"massmem.memory.words.respell(word)": 30}
"""Characters of the longest text that a function is given, where that is few."""


def find_slow_call(function: TextFunction, longest: int, step: int) -> str | None:
    """step: one in so many texts is tried; which ones depends on the function."""
    most = SHORT_TEXTS.get(function.name, longest)
    texts = islice(make_texts(), len(function.name) % step, None, step)
    return find_slow_text(function.apply, texts, first=1_000, longest=most, enough=1)


def test_the_functions_are_found():
    names = {function.name.partition("(")[0].rpartition(".")[2] for function in find_text_functions()}
    assert {"split_sentences", "redact", "defuse", "count_tokens", "extract_terms", "find_object"} <= names


@pytest.mark.parametrize(("longest", "step"), [(16_000, 3), pytest.param(1_024_000, 1, marks=pytest.mark.full)])
@pytest.mark.parametrize("package", PACKAGES)
def test_no_function_is_worse_than_n_log_n(package: str, longest: int, step: int):
    own = [function for function in find_text_functions() if function.name.startswith(f"massmem.{package}")]
    slow = {function.name: find_slow_call(function, longest, step) for function in own}
    assert {name: text for name, text in slow.items() if text} == {}
