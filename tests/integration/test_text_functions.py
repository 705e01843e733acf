"""No public function that takes a text is worse than n log n, whatever the text."""

import pytest

from tests.support.growth import find_slow_text
from tests.support.text_functions import TextFunction, find_text_functions, make_texts

FUNCTIONS = find_text_functions()
SHORT_TEXTS = {"massmem.memory.words.respell(word)": 30}
"""Characters of the longest text that a function is given, where that is few."""


def find_slow_call(function: TextFunction, longest: int) -> str | None:
    most = SHORT_TEXTS.get(function.name, longest)
    return find_slow_text(function.apply, make_texts(), first=1_000, longest=most, enough=1)


def test_the_functions_are_found():
    names = {function.name.partition("(")[0].rpartition(".")[2] for function in FUNCTIONS}
    assert {"split_sentences", "redact", "defuse", "count_tokens", "extract_terms", "find_object"} <= names


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.name)
def test_no_function_is_worse_than_n_log_n(function: TextFunction):
    assert find_slow_call(function, 16_000) is None


@pytest.mark.full
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.name)
def test_no_function_is_worse_than_n_log_n_with_a_million_characters(function: TextFunction):
    assert find_slow_call(function, 1_024_000) is None
