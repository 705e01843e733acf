"""What an answer comes down to, and whether that is right.

A long answer is reduced to a short value first: its last number, the letter that it chooses, its normalised text. Equal
values are the same answer, for comparing the members of a team and for the majority of several samples.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from massmem.core.short_answers import normalise, read_choice, read_number
from massmem.evaluation.items import Item
from massmem.tools.answer_schema import FormError, read_value


@dataclass(frozen=True, slots=True)
class Score:
    """Of one answer."""

    right: bool
    value: str
    """What the answer comes down to; "" when nothing of the kind is in it."""


def score(item: Item, text: str) -> Score:
    """Return whether the text answers the question rightly. Of the scorer `judge`, only the value is known here."""
    match item.scorer:
        case "contains":
            return _score_contained(item.expected, text)
        case "regex":
            return _score_patterns(item.expected, text)
        case "schema":
            return _score_form(item, text)
        case "judge":
            return Score(False, normalise(text))
        case "number" | "choice" | "exact":
            value = _reduce(item, text)
            return Score(value != "" and value in {_reduce(item, expected) for expected in item.expected}, value)


def _reduce(item: Item, text: str) -> str:
    match item.scorer:
        case "number":
            return read_number(text) or ""
        case "choice":
            return text if text in item.expected else read_choice(text, item.choices)
        case _:
            return normalise(text)


def _score_contained(expected: Sequence[str], text: str) -> Score:
    plain = f" {normalise(text)} "
    hits = [answer for answer in map(normalise, expected) if f" {answer} " in plain]
    return Score(bool(hits), hits[0] if hits else plain.strip())


def _score_patterns(patterns: Sequence[str], text: str) -> Score:
    hits = [match[0] for pattern in patterns if (match := re.search(pattern, text.strip())) is not None]
    return Score(bool(hits), hits[0] if hits else normalise(text))


def _score_form(item: Item, text: str) -> Score:
    try:
        value = read_value(text, item.schema or {})
    except FormError:
        return Score(False, normalise(text))
    return Score(True, json.dumps(value, sort_keys=True, ensure_ascii=False))
