"""Patterns of strangers matched in time that grows with the text alone."""

import pytest

from massmem.core.patterns import MAX_LENGTH, PatternError, compile_pattern


@pytest.mark.parametrize(
    ("pattern", "text", "fits"),
    [
        (r"\d+", "٣", True),
        (r"\w+\Z", "Müller", True),
        (r"[]a]+", "a]", True),
        (r"(?i)o-\d{5}", "O-12345", True),
        (r"(?P<n>a)b", "ab", True),
        ("a", "ab", False),
        (r"[\u0041-\u005a]+", "AZ", True),
        (r"[\s\S]+", " \n\u3000", True),
        ("a[[]b", "a[b", True),
        (r"[\b]", "\b", True),
        (r"a\/b\-c", "a/b-c", True),
        (r"\p{Greek}+", "αβ", True),
        ("(a|a)*", "a" * 100_000 + "!", False),
        (".*", "\ud800", False),
    ],
    ids=range(14),
)
def test_pattern_of_a_configuration_is_read_as_python(pattern: str, text: str, *, fits: bool):
    assert compile_pattern(pattern).fullmatch(text) == fits


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("(?=a)", "looks around"),
        ("(?<!a)b", "looks around"),
        (r"(a)\1", "refers back"),
        ("a{1001}", "repetitions"),
        ("(a{1000}){1000}", "repetitions"),
        (".{1,1000}.{1,1000}", "repetitions"),
        ("(", "missing"),
        ("a**", "repetition"),
        (r"\Qa", "means nothing"),
        (r"\C", "means nothing"),
        ("x" * (MAX_LENGTH + 1), "characters"),
        ("\ud800", "half of a character"),
    ],
    ids=range(12),
)
def test_pattern_that_is_not_matched_here_is_refused_with_the_reason(pattern: str, why: str):
    with pytest.raises(PatternError, match=why):
        compile_pattern(pattern)


def test_matches_are_where_they_stand_in_the_text():
    assert [*compile_pattern("[äb]+").find_all("xäby b")] == [(1, 3), (5, 6)]
