"""Texts: sentences of Python's own documentation, and long conversations in which facts are said once.

A fact is said by the user, by the agent, or in the result of a tool.
"""

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pydoc_data.topics import topics
from typing import Literal

from massmem.memory.tokens import count_tokens

Source = Literal["user", "agent", "tool"]
SOURCES: tuple[Source, ...] = ("user", "agent", "tool")

_PLACES = (
    "Alder", "Birch", "Cedar", "Dogwood", "Elm", "Fir", "Gingko", "Hazel", "Ironwood", "Judas", "Katsura", "Larch",
    "Maple", "Nutmeg", "Oak", "Poplar", "Quince", "Rowan", "Spruce", "Teak",
)  # fmt: skip
_TOPICS = (
    ("door code", "What is the door code of {}?", "I stand in front of {} and cannot get in, what do I enter?"),
    ("backup host", "What is the backup host of {}?", "Where do the copies of {} go every night?"),
    ("budget number", "What is the budget number of {}?", "Which account pays for {}?"),
    ("site manager", "Who is the site manager of {}?", "Something is broken at {}, whom do I call?"),
)
"""What is stated, how it is asked for in the same words, and in others."""

_CHATTER = (
    "the painters need two more days because of the rain", "nobody has looked at the new chairs so far",
    "the lift was checked and runs again", "we moved the weekly call to the late morning",
    "the heating is a little loud but works", "the second supplier has not written back",
    "the windows on the north side were cleaned", "two boxes of paper are still missing",
    "the form was sent in and is being looked at", "the plants in the hall want more light",
)  # fmt: skip
_CORRECTED = 6
"""Every so many-th fact is stated with another value first."""


@dataclass(frozen=True, slots=True)
class Fact:
    source: Source
    question: str
    value: str
    same_words: bool
    stale: str | None


@dataclass(frozen=True, slots=True)
class Said:
    """What happens next: the user says `text` and the agent answers `reply`, or a tool returns `text`."""

    by_tool: bool
    text: str
    reply: str = ""


def conversation(seed: int, facts: int, tokens: int) -> tuple[list[Said], list[Fact]]:
    """A conversation of about so many tokens, and what is to be asked after it."""
    chance = random.Random(seed)
    pairs = [(place, topic) for place in _PLACES for topic in _TOPICS]
    planted: list[Fact] = []
    steps: list[Said] = []
    for i, (place, (name, same, other)) in enumerate(chance.sample(pairs, facts)):
        source, same_words = SOURCES[i % 3], i // 3 % 2 == 0
        stale = _value(chance) if i % _CORRECTED == 0 else None
        fact = Fact(source, (same if same_words else other).format(place), _value(chance), same_words, stale)
        planted.append(fact)
        for value in filter(None, (stale, fact.value)):
            steps.append(_carrier(chance, source, f"The {name} of {place} is {value}."))
    while sum(count_tokens(step.text) + count_tokens(step.reply) for step in steps) < tokens:
        for _ in range(20):
            idle = Said(by_tool=False, text=_chatter(chance, 8), reply=_chatter(chance, 8))
            steps.insert(chance.randint(0, len(steps)), idle)
    return steps, planted


def _carrier(chance: random.Random, source: Source, fact: str) -> Said:
    before, after = _chatter(chance, 4), _chatter(chance, 4)
    match source:
        case "user":
            return Said(by_tool=False, text=f"{before} {fact} {after}", reply="I see.")
        case "agent":
            return Said(by_tool=False, text=_chatter(chance, 2), reply=f"{before} {fact} {after}")
        case "tool":
            lines = [f"{chance.randint(1, 28):02} ok {chance.choice(_CHATTER)}" for _ in range(12)]
            return Said(by_tool=True, text="\n".join([*lines, fact, *lines[:6]]))


def _chatter(chance: random.Random, sentences: int) -> str:
    chatter = (f"{chance.choice(_CHATTER).capitalize()} (item {chance.randint(100, 999)})." for _ in range(sentences))
    return " ".join(chatter)


def _value(chance: random.Random) -> str:
    return f"{chance.choice('BCDFGHKLMNPRSTVZ')}{chance.randint(10, 99)}-{chance.randint(1_000, 9_999)}"


def sentences() -> list[str]:
    """Return sentences with the words of a real language."""
    parts = (" ".join(part.split()) for text in topics.values() for part in re.split(r"(?<=\.)\s+|\n\n", text))
    return [part for part in parts if len(part.split()) >= 6 and part[0].isalpha()]


def query(chance: random.Random, pool: Sequence[str]) -> str:
    """A question in some of the words of a sentence."""
    words = chance.choice(pool).split()
    return f"What about {' '.join(chance.sample(words, min(8, len(words))))}?"
