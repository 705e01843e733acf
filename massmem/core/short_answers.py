"""The short answer in a text: its normalised words, the number that it ends in, the letter that it chooses."""

import re
import string
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

_NUMBER = re.compile(r"(?:(?<![\w)])-)?[$€£]?(?P<digits>\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?)")
_MARKED = re.compile(r"^####[ \t]*(\S.{0,60})\s*\Z|\\boxed\{([^{}]+)\}", re.MULTILINE)
"""How data sets mark the final answer: GSM8K in the last line (elsewhere it is a heading), MATH."""
_LAST_LINE = re.compile(
    r"(?:(?:so|thus|hence|therefore),?\s+)?(?:the\s+)?(?:(?:final|correct|right)\s+)?answer(?:\s+is\s*+:?+|\s*+:)\s*+"
    r"(?P<stated>\S.{0,60})|(?P<bare>[$€£]?-?\d[\d,]*(?:\.\d+)?%?|[A-Z]|yes|no|true|false)",
    re.IGNORECASE,
)
"""The last line of an answer that states its result."""
_BARE = re.compile(r"[A-Z]|yes|no|true|false", re.IGNORECASE)
_FIRST_WORD = re.compile(r"\(?[A-Z](?=[).:,*])|(?:yes|no|true|false)\b", re.IGNORECASE)
"""A letter that is set apart, as in `B) Paris`, or a verdict, as in `No, it is not`."""
_STATED = re.compile(
    r"\b(?:answer|choice|option)\b(?:\s{1,9}is)?\s{0,9}:?\s{0,9}[*_(\"'`]{0,9}([A-Z])\b(?!')", re.IGNORECASE
)


def normalise(text: str) -> str:
    """Return the text without what does not make a difference: case, space, punctuation at the ends of words."""
    words = unicodedata.normalize("NFKC", text).casefold().split()
    stripped = (word.strip("\"'`*_.,;:!?") for word in words)
    return " ".join(word for word in stripped if word)


@dataclass(frozen=True, slots=True)
class ShortAnswer:
    """The result of an answer."""

    key: str
    """Equal for two answers that differ in case, space and punctuation alone.

    Of an answer that states its result, the result alone counts, however it was derived: `#### 42`, `\\boxed{42}`, a
    last line such as `Answer: 42`, or a last line that is nothing but a number, a letter, yes, no, true or false.
    """
    is_bare: bool
    """The result is a number, a letter, yes, no, true or false, and nothing else."""
    last_line: str

    def match_result(self, bare: Iterable[str]) -> str | None:
        """Return which of some bare results this answer ends in: by its last number or its first word."""
        word = _FIRST_WORD.match(self.last_line)
        named = (read_number(self.last_line), word and word[0].strip(" ()*").casefold())
        return next((result for result in named if result and result in bare), None)


def read_short_answer(text: str, *, truncated: bool = False) -> ShortAnswer:
    """Return what the text comes to. truncated: its end is missing, and with it the result."""
    lines = [line for line in map(_strip_marks, text.splitlines()) if line]
    last_line = lines[-1] if lines and not truncated else ""
    result = _find_result(text, last_line)
    if result is None:
        return ShortAnswer(normalise(text), False, last_line)
    number = read_number(result) if _NUMBER.fullmatch(result.removesuffix("%")) else None
    is_bare = number is not None or _BARE.fullmatch(result) is not None
    return ShortAnswer(number or normalise(result), is_bare, result)


def list_keys(answers: Mapping[str, ShortAnswer]) -> dict[str, str]:
    """Return a key for each answer to one question, by the keys of the mapping: equal for answers that are the same.

    Where one answer is a bare result, the others are about such a result too: `240 sheets of paper` and a text that
    ends in `which makes 240` are then the same as `240`. Without any, words that stand beside a number tell answers
    apart: `Paris, 1889` is not `London, 1889`.
    """
    bare = {answer.key for answer in answers.values() if answer.is_bare}
    return {
        name: answer.key if answer.is_bare or not bare else answer.match_result(bare) or answer.key
        for name, answer in answers.items()
    }


def _find_result(text: str, last_line: str) -> str | None:
    """Return the result that the text marks or that its last line states; None when it does neither."""
    if marked := _MARKED.findall(text):
        return _strip_marks("".join(marked[-1]))
    stated = _LAST_LINE.fullmatch(last_line)
    return _strip_marks(stated["stated"] or stated["bare"]) if stated else None


def _strip_marks(line: str) -> str:
    """Return the line without Markdown, brackets and the dot at its end."""
    return line.strip(" \t*_`#>()[]\\.").replace("\\%", "%").replace("\\$", "$")


def read_number(text: str) -> str | None:
    """Return the number that the text ends in, as plain digits; a marked one (`#### 42`, `\\boxed{42}`) goes before."""
    text = unicodedata.normalize("NFKC", text).replace("−", "-")
    marked = _MARKED.findall(text)
    for part in [*("".join(groups) for groups in marked[-1:]), text]:
        numbers = list(_NUMBER.finditer(part))
        if numbers:
            number = Decimal(numbers[-1]["digits"].replace(",", ""))
            plain = format(number, "f")
            plain = plain.rstrip("0").rstrip(".") if "." in plain else plain
            return f"-{plain}" if numbers[-1][0].startswith("-") and number else plain
    return None


def read_choice(text: str, choices: Sequence[str]) -> str:
    """Return the letter that the text chooses, "" when it chooses none.

    In this order: what it calls its answer, a letter alone or in brackets, the only choice whose words it has.
    """
    labels = string.ascii_uppercase[: len(choices)]
    marked = ["".join(groups).strip(" ().") for groups in _MARKED.findall(text)]
    stated = [letter.upper() for letter in _STATED.findall(text)]
    alone = re.findall(r"^[^\w\n]*([A-Z])[^\w\n]*$", text, re.MULTILINE)
    bracketed = re.findall(r"[(*]([A-Z])[)*]", text) or re.findall(r"^[^\w\n]*([A-Z])[).:]", text, re.MULTILINE)
    for letters in (marked, stated, alone, bracketed):
        known = [letter for letter in letters if letter in labels]
        if known:
            return known[-1]
    plain = f" {normalise(text)} "
    named = [label for label, choice in zip(labels, choices, strict=True) if f" {normalise(choice)} " in plain]
    return named[0] if len(named) == 1 else ""
