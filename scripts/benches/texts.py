"""Texts: sentences of Python's own documentation, and questions in their words."""

import random
import re
from collections.abc import Sequence
from pydoc_data.topics import topics


def sentences() -> list[str]:
    """Return sentences with the words of a real language."""
    parts = (" ".join(part.split()) for text in topics.values() for part in re.split(r"(?<=\.)\s+|\n\n", text))
    return [part for part in parts if len(part.split()) >= 6 and part[0].isalpha()]


def query(chance: random.Random, pool: Sequence[str]) -> str:
    """A question in some of the words of a sentence."""
    words = chance.choice(pool).split()
    return f"What about {' '.join(chance.sample(words, min(8, len(words))))}?"
