"""Words and the forms that they are found by: stems, parts, numbers, spellings. Pure; the only state is caches.

The first form of a word is the same whatever else is known of it. Its other forms stand beside it and never in its
place, so that an index that was made without them goes on answering.
"""

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache

import Stemmer

from massmem.memory.languages import ENGLISH, guess_language

STOP_WORDS = frozenset(
    """
    a an the this that these those of to in on at by for with from as into about over after before during between
    through under up down out off again then than so too very just also only even still and or but nor if because while
    although though until unless is am are was were be been being do does did doing done has have had having will would
    shall should can could may might must i me my mine myself we us our ours ourselves you your yours yourself he him
    his himself she her hers herself it its itself they them their theirs themselves what which who whom whose when
    where why how there here not no yes any some all both each few more most other such own same s t d ll m re ve don't
    doesn't didn't isn't aren't wasn't weren't hasn't haven't hadn't won't wouldn't shouldn't couldn't can't i'm i've
    i'll i'd it's that's what's let's you're tell say said mention mentioned talk talked ask asked discuss discussed
    discussion conversation conversations chat know get got getting got go going went like likely make made thing things
    something anything lot really please kind sort type many much ever give given across throughout
    """.split()  # noqa: SIM905 - a list literal of this length reads badly
)

_MARKS = "\u0300-\u036f\u0591-\u05c7\u064b-\u065f\u0670"
"""Accents, and the vowel signs of Hebrew and Arabic: they are left out of a form that is written without them."""
_INDIC = "\u0900-\u0963\u0966-\u0dff"
"""Letters and signs of the scripts of India: signs are part of their words."""
_WORD = re.compile(rf"(?:[^\W_]|[{_INDIC}])(?:[^\W_]|[{_MARKS}{_INDIC}])*(?:'[^\W_]+)?")
_COMPOUND = re.compile(r"(?<![^\W_])[^\W_]++(?:[-_]++[^\W_]++)+")
_NUMBER = re.compile(r"(?<![^\W_])(\d+(?:[.,']\d+| \d{3}(?!\d))*)([^\W\d_]*)(?![^\W_])")
_HUMP = re.compile(r"(?<=[a-z\d])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_SIGNS = re.compile(f"[{_MARKS}]+")
_UNSPACED = re.compile("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff]+")  # kana and Han, written without spaces
_WITHOUT_SIGNS = str.maketrans({"ø": "o", "đ": "d", "ł": "l", "æ": "ae", "œ": "oe", "ı": "i", "þ": "th", "ð": "d"})
_IN_TWO_LETTERS = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue"})
_NO_UNITS = STOP_WORDS | {"st", "nd", "rd", "th"}
_ALPHABETS = ("abcdefghijklmnopqrstuvwxyz", "абвгдежзийклмнопрстуфхцчшщъыьэюя", "αβγδεζηθικλμνξοπρστυφχψως")

_LONGEST_COMPOUND = 60
"""Characters; what is longer (encoded data) is no name that anybody asks for."""

_LONGEST_NUMBER = 16


def split_words(text: str) -> list[str]:
    """Lower-case words and numbers; split at underscores; Chinese and Japanese as pairs of characters."""
    text = _normalise(text)
    words: list[str] = _WORD.findall(text.lower())
    return words if text.isascii() else [part for word in words for part in _split_unspaced(word)]


def _normalise(text: str) -> str:
    """Return the text with one way to write each character (NFKC), and plain apostrophes."""
    return text if text.isascii() else unicodedata.normalize("NFKC", text).replace("’", "'")


def _split_unspaced(word: str) -> list[str]:
    if not _UNSPACED.search(word):
        return [word]
    return [word[i : i + 2] for i in range(max(1, len(word) - 1))]


def count_unspaced(text: str) -> int:
    """Return how many characters of the text are written without spaces between words."""
    return 0 if text.isascii() else sum(len(run) for run in _UNSPACED.findall(text))


@lru_cache(50_000)
def stem(word: str, language: str = ENGLISH) -> str:
    """Snowball stem of a lower-case word; a possessive 's is dropped."""
    # A stemmer is not safe to share between threads; making one costs 1 us, and the cache sees most words.
    stemmer = Stemmer.Stemmer(language, 0)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] - untyped
    return str(stemmer.stemWord(word.removesuffix("'s").replace("'", "")))  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]


def extract_forms(text: str, language: str = "", drop: frozenset[str] = frozenset()) -> list[tuple[str, ...]]:
    """Return the terms that each content word is found by, in order; then those of names and numbers as wholes.

    language: of the text; "": as it is guessed. drop: words to leave out besides STOP_WORDS.
    """
    text = _normalise(text)
    language = language or guess_language(text)
    words: list[str] = _WORD.findall(text)
    if not text.isascii():
        words = [part for word in words for part in _split_unspaced(word)]
    forms = [
        _forms_of(word, language) for word in words if (lower := word.lower()) not in STOP_WORDS and lower not in drop
    ]
    return [*forms, *_compounds(text), *_numbers(text)]


@lru_cache(50_000)
def _forms_of(word: str, language: str) -> tuple[str, ...]:
    lower = word.lower()
    forms = [stem(lower)]
    if not lower.isascii():
        forms.append(stem(fold(lower)))
        if (in_two_letters := lower.translate(_IN_TWO_LETTERS)) != lower:
            forms.append(stem(fold(in_two_letters)))
    if language != ENGLISH:
        forms.append(fold(stem(lower.rpartition("'")[2] or lower, language)))  # l'école: école
    humps = _HUMP.split(word)
    if len(humps) > 1:
        forms += [stem(part) for hump in humps if (part := hump.lower()) not in STOP_WORDS]
    return tuple(dict.fromkeys(forms))


@lru_cache(10_000)
def fold(word: str) -> str:
    """Return a lower-case word without accents and other signs on its letters."""
    if word.isascii() or _UNSPACED.search(word):
        return word
    plain = _SIGNS.sub("", unicodedata.normalize("NFKD", word.translate(_WITHOUT_SIGNS)).casefold())
    return unicodedata.normalize("NFC", plain)


def _compounds(text: str) -> Iterator[tuple[str, ...]]:
    """Yield the whole of each word in several parts: "loadconfig" for load_config, "checkin" for check-in."""
    if "_" in text or "-" in text:
        for compound in _COMPOUND.findall(text):
            if len(compound) <= _LONGEST_COMPOUND and not compound[0].isdigit():
                yield (stem(fold(compound.lower().replace("_", "").replace("-", ""))),)


def _numbers(text: str) -> Iterator[tuple[str, ...]]:
    """Yield the value of each number with separators or a unit, and the unit: "1000" for 1,000 and 1k; "5", "kg"."""
    for number, unit in _NUMBER.findall(text):
        if number.isdigit() and not unit:
            continue
        *groups, last = re.split(r"[.,' ]", number)
        decimals = f".{last}" if groups and len(last) != 3 else ""
        value = "".join(groups) + (decimals or last)
        unit = unit.lower()
        if unit == "k" and len(value) < _LONGEST_NUMBER:
            yield (f"{round(float(value) * 1000)}",)
        yield (value, stem(fold(unit))) if unit and unit not in _NO_UNITS else (value,)


def respell(word: str) -> set[str]:
    """Return every word that is one edit away from a lower-case word: a letter more, less or another, two swapped."""
    letters = next((alphabet for alphabet in _ALPHABETS if word[0] in alphabet), "")
    splits = [(word[:i], word[i:]) for i in range(len(word) + 1)]
    fewer = {head + tail[1:] for head, tail in splits if tail}
    swapped = {head + tail[1] + tail[0] + tail[2:] for head, tail in splits if len(tail) > 1}
    others = {head + letter + tail[1:] for head, tail in splits if tail for letter in letters}
    more = {head + letter + tail for head, tail in splits for letter in letters}
    return (fewer | swapped | others | more) - {word}
