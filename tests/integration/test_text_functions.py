"""No public function that takes a text is worse than n log n, whatever the text."""

import time

import pytest

from tests.support.text_functions import TextFunction, find_text_functions, make_texts

FUNCTIONS = find_text_functions()
SHORT_TEXTS = {"massmem.memory.words.respell(word)": 30}
"""Characters of the longest text that a function is given, where that is few."""
STEP = 4
LEAST_SECONDS = 0.03
"""Of CPU: what takes less is noise."""
MAX_RATIO = 9.0
"""Of the times of two sizes: 4 when it is linear, 16 when it is quadratic."""


def measure(function: TextFunction, text: str) -> float:
    started = time.process_time()
    function.apply(text)
    return time.process_time() - started


def find_slow_text(function: TextFunction, longest: int) -> str | None:
    for name, make in make_texts():
        size, before = 1_000, measure(function, make(1_000))
        while size * STEP <= longest:
            size *= STEP
            seconds = measure(function, make(size))
            if seconds > LEAST_SECONDS and seconds > MAX_RATIO * before:
                before = max(before, measure(function, make(size // STEP)))
                seconds = min(seconds, measure(function, make(size)))
                if seconds > LEAST_SECONDS and seconds > MAX_RATIO * before:
                    return f"{name}: {size:,} characters take {seconds:.3f} s, a quarter {before:.4f} s"
            if seconds > 1:
                break
            before = seconds
    return None


def test_the_functions_are_found():
    names = {function.name.partition("(")[0].rpartition(".")[2] for function in FUNCTIONS}
    assert {"split_sentences", "redact", "defuse", "count_tokens", "extract_terms", "find_object"} <= names


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.name)
def test_no_function_is_worse_than_n_log_n(function: TextFunction):
    assert find_slow_text(function, SHORT_TEXTS.get(function.name, 16_000)) is None


@pytest.mark.full
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.name)
def test_no_function_is_worse_than_n_log_n_with_a_million_characters(function: TextFunction):
    assert find_slow_text(function, SHORT_TEXTS.get(function.name, 1_024_000)) is None
