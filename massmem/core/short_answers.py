"""The short answer in a text: its normalised words, the number that it ends in, the letter that it chooses."""

import re
import string
import unicodedata
from collections.abc import Sequence
from decimal import Decimal

_NUMBER = re.compile(r"(?:(?<![\w)])-)?[$€£]?(?P<digits>\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?)")
_MARKED = re.compile(r"^####[ \t]*(\S.{0,60})\s*\Z|\\boxed\{([^{}]+)\}", re.MULTILINE)
"""How data sets mark the final answer: GSM8K in the last line (elsewhere it is a heading), MATH."""
_LAST_LINE = re.compile(
    r"(?:(?:so|thus|hence|therefore),?\s+)?(?:the\s+)?(?:(?:final|correct|right)\s+)?answer(?:\s+is\s*:?|\s*:)\s*"
    r"(?P<stated>\S.{0,60})|(?P<bare>[$€£]?-?\d[\d,]*(?:\.\d+)?%?|[A-Z]|yes|no|true|false)",
    re.IGNORECASE,
)
"""The last line of an answer that states its result."""
_STATED = re.compile(r"\b(?:answer|choice|option)\b(?:\s+is)?\s*:?\s*[*_(\"'`]*([A-Z])\b(?!')", re.IGNORECASE)


def normalise(text: str) -> str:
    """Return the text without what does not make a difference: case, space, punctuation at the ends of words."""
    words = unicodedata.normalize("NFKC", text).casefold().split()
    stripped = (word.strip("\"'`*_.,;:!?") for word in words)
    return " ".join(word for word in stripped if word)


def find_short_answer(text: str) -> str:
    """Return what tells answers apart: equal for two that differ in case, space and punctuation alone.

    Of an answer that states its result, the result alone counts, however it was derived: `#### 42`, `\\boxed{42}`, a
    last line such as `Answer: 42`, or a last line that is nothing but a number, a letter, yes, no, true or false.
    """
    result = _find_result(text)
    if result is None:
        return normalise(text)
    return (read_number(result) if _NUMBER.fullmatch(result) else None) or normalise(result)


def _find_result(text: str) -> str | None:
    """Return the result that the text marks or that its last line states; None when it does neither."""
    if marked := _MARKED.findall(text):
        return _strip_marks("".join(marked[-1]))
    lines = [line for line in map(_strip_marks, text.splitlines()) if line]
    stated = _LAST_LINE.fullmatch(lines[-1]) if lines else None
    return _strip_marks(stated["stated"] or stated["bare"]) if stated else None


def _strip_marks(line: str) -> str:
    """Return the line without Markdown, brackets and the dot at its end."""
    return line.strip(" \t*_`#>()[]\\.")


def read_number(text: str) -> str | None:
    """Return the number that the text ends in, as plain digits; a marked one (`#### 42`, `\\boxed{42}`) goes before."""
    text = unicodedata.normalize("NFKC", text).replace("−", "-")
    marked = _MARKED.findall(text)
    for part in [*("".join(groups) for groups in marked[-1:]), text]:
        numbers = list(_NUMBER.finditer(part))
        if numbers:
            number = Decimal(numbers[-1]["digits"].replace(",", ""))
            plain = format(number.normalize(), "f")
            return f"-{plain}" if numbers[-1][0].startswith("-") and number else plain
    return None


def read_choice(text: str, choices: Sequence[str]) -> str:
    """Return the letter that the text chooses, "" when it chooses none.

    In this order: what it calls its answer, a letter alone or in brackets, the only choice whose words it has.
    """
    labels = string.ascii_uppercase[: len(choices)]
    marked = ["".join(groups).strip(" ().") for groups in _MARKED.findall(text)]
    stated = [letter.upper() for letter in _STATED.findall(text)]
    alone = re.findall(r"^\W*([A-Z])\W*$", text, re.MULTILINE)
    bracketed = re.findall(r"[(*]([A-Z])[)*]", text) or re.findall(r"^\W*([A-Z])[).:]", text, re.MULTILINE)
    for letters in (marked, stated, alone, bracketed):
        known = [letter for letter in letters if letter in labels]
        if known:
            return known[-1]
    plain = f" {normalise(text)} "
    named = [label for label, choice in zip(labels, choices, strict=True) if f" {normalise(choice)} " in plain]
    return named[0] if len(named) == 1 else ""
