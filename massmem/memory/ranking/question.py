"""What the wording of a question tells about the memories that answer it. Pure."""

import re
from calendar import monthrange
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import MAXYEAR, date
from functools import lru_cache

from massmem.memory.ranking import text as analysis

TOLD_WITHIN = 7
"""Days after an event in which people usually tell of it."""


@dataclass(frozen=True, slots=True)
class Question:
    """What the question's wording tells, without looking at any memory.

    terms: stems of its content words. words: all of its words, without "'s", to find names in. about_user: it says
    "my", "I" or "the user". wants_time: it asks when or how long. days: ranges of dates that it names, as ordinals.
    """

    terms: tuple[str, ...]
    words: frozenset[str]
    about_user: bool
    wants_time: bool
    days: tuple[tuple[int, int], ...]


_FIRST_PERSON = re.compile(r"\b(i|me|my|mine|myself|i'm|i've|i'd|i'll|we|us|our|ours)\b", re.IGNORECASE)
_THE_USER = re.compile(r"\bthe user(?:'s)?\b", re.IGNORECASE)
_WHEN = re.compile(
    r"\b(when|what (?:date|day|month|year|time)|which (?:date|day|month|year)|how long"
    r"|how many (?:days|weeks|months|years))\b",
    re.IGNORECASE,
)
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DATE = re.compile(
    rf"(?:\b(\d{{1,2}})(?:st|nd|rd|th)?(?: of)? )?\b({'|'.join(_MONTHS)})[a-z]*\.?"
    r"(?: (\d{1,2})(?:st|nd|rd|th)?)?,? (\d{4})\b",
    re.IGNORECASE,
)
_ISO_DATE = re.compile(r"\b(\d{4})-(\d\d)-(\d\d)\b")
_ROLES = frozenset({"user", "assistant", "system", "tool"})


def analyse(question: str) -> Question:
    text, users = _THE_USER.subn(" ", question.replace("’", "'"))
    about_user = users > 0 or _FIRST_PERSON.search(text) is not None
    terms = tuple(analysis.query_terms(text))
    words = frozenset(word.removesuffix("'s") for word in analysis.words(text))
    return Question(terms, words, about_user, _WHEN.search(text) is not None, days(text))


def days(text: str) -> tuple[tuple[int, int], ...]:
    """Ranges of dates named with their year ("13 March, 2023", "June 2023", "2023-06-09"), and TOLD_WITHIN."""
    named = [
        (int(year), _MONTHS.index(month[:3].lower()) + 1, int(before or after or 0))
        for before, month, after, year in _DATE.findall(text)
    ]
    named += [(int(year), int(month), int(day)) for year, month, day in _ISO_DATE.findall(text)]
    return tuple(found for year, month, day in named if (found := _range(year, month, day)))


def _range(year: int, month: int, day: int) -> tuple[int, int] | None:
    """day 0: the whole month. None: there is no such date."""
    if not (1 <= year < MAXYEAR and 1 <= month <= 12) or day > monthrange(year, month)[1]:
        return None
    first, last = (day, day) if day else (1, monthrange(year, month)[1])
    return date(year, month, first).toordinal(), date(year, month, last).toordinal() + TOLD_WITHIN


def named(question: Question, speakers: Iterable[str]) -> frozenset[str]:
    """Speakers called by their name in the question; roles such as "user" are no names."""
    return frozenset(name for name in speakers if (parts := _name(name)) and question.words.issuperset(parts))


@lru_cache(1000)
def _name(speaker: str) -> tuple[str, ...]:
    """The words of a name; none for a role."""
    return () if speaker.lower() in _ROLES else tuple(analysis.words(speaker))


def query_terms(question: Question, names: Iterable[str]) -> list[str]:
    """Terms to look for: without the names of speakers, who are found as speakers; all if nothing else is left."""
    known = {analysis.stem(word) for name in names for word in analysis.words(name)}
    return [term for term in question.terms if term not in known] or list(question.terms)
