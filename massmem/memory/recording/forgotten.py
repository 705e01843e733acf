"""Facts that the user had forgotten, known again by their words when the same messages are read once more. Pure.

Of the words only numbers are kept: whoever searches the files for what was forgotten finds nothing. A model says the
same thing differently each time, so that most of the words decide, not all.
"""

from collections.abc import Iterable, Sequence
from hashlib import blake2b

from massmem.memory.extraction.task import STEM, telling_words

_SAME = 0.7
"""Share of the words, of the longer of two statements, that makes them the same."""


def word_numbers(text: str) -> tuple[int, ...]:
    """What is kept of a fact that is forgotten."""
    stems = {word.removesuffix("'s")[:STEM] for word in telling_words(text)}
    return tuple(sorted(int.from_bytes(blake2b(stem.encode(), digest_size=4).digest(), "big") for stem in stems))


def is_forgotten(text: str, forgotten: Iterable[Sequence[int]]) -> bool:
    """The text says what one of the forgotten facts said."""
    words = set(word_numbers(text))
    return any(len(words.intersection(other)) >= _SAME * max(len(words), len(other), 1) for other in forgotten)
