"""Facts and questions in seven languages, among 500 other sentences of each: tests/data/languages.

Per language: 20 facts, as users mention them; a question to each that has none of its words; the parts of 500 other
sentences, which have none of the questions' words; and English questions to some of the facts, by number.
"""

import tomllib
from dataclasses import dataclass
from pathlib import Path

_FOLDER = Path(__file__).parent.parent / "data" / "languages"
_UNSPACED = {"zh": "，", "ja": "、"}
"""Languages that write no space between words, and how they set off a time."""

LANGUAGES = ("de", "fr", "es", "zh", "ja", "ru", "ar")


@dataclass(frozen=True, slots=True)
class LanguageSet:
    facts: tuple[str, ...]
    questions: tuple[str, ...]
    """One to each fact."""
    english: tuple[tuple[str, str], ...]
    """English question, fact."""
    others: tuple[str, ...]


def read_language(language: str) -> LanguageSet:
    """Return the set of a language. language: one of LANGUAGES."""
    data = tomllib.loads((_FOLDER / f"{language}.toml").read_text(encoding="utf-8"))
    if language in _UNSPACED:
        topic = "は" if language == "ja" else ""
        about_others = [f"{name}{topic}{doing}。" for name in data["names"] for doing in data["doings"]]
        about_me = [f"{time}{_UNSPACED[language]}{own}。" for time in data["times"] for own in data["own"]]
    else:
        about_others = [f"{name} {doing}." for name in data["names"] for doing in data["doings"]]
        comma = "," if language == "fr" else ""
        about_me = [f"{time}{comma} {own}." for time in data["times"] for own in data["own"]]
    facts: list[str] = data["facts"]
    english = tuple((question, facts[number - 1]) for number, question in data["english"])
    return LanguageSet(tuple(facts), tuple(data["questions"]), english, (*about_others, *about_me))


def mix(facts: tuple[str, ...], others: tuple[str, ...]) -> list[str]:
    """Return all of them: the facts at even distances among the others, which go round their subjects."""
    texts = [others[i * 7 % len(others)] for i in range(len(others))]
    step = len(texts) // len(facts)
    for i, fact in enumerate(facts):
        texts.insert(i * (step + 1) + step // 2, fact)
    return texts
