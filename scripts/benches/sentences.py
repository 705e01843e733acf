"""Texts for benches: sentences of Python's own documentation, with the words of a real language."""

import re
from collections.abc import Sequence
from pydoc_data.topics import topics
from random import Random


def sentences() -> list[str]:
    found = (" ".join(part.split()) for text in topics.values() for part in re.split(r"(?<=\.)\s+|\n\n", text))
    return [part for part in found if len(part.split()) >= 6 and part[0].isalpha()]


def query(random: Random, pool: Sequence[str]) -> str:
    """A question in some of the words of a sentence."""
    words = random.choice(pool).split()
    return f"What about {' '.join(random.sample(words, min(8, len(words))))}?"
