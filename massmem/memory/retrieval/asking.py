"""Tells whether a question asks for memory: for what was said, done or decided earlier. Pure.

Such a question is met with what there is, even where nothing resembles it: "What did we decide yesterday?"
"""

import re
from functools import cache
from pathlib import Path

from massmem.memory.words import count_unspaced

_SHORT = 12
"""Words. What a longer question is about can be looked for, and whether that was ever spoken of."""

_SAID = (
    "(said|told|talked|mentioned|discussed|decided|agreed|suggested|recommended|promised|wrote|asked|answered|explained"
    "|did|done|chose|chosen|planned|concluded|spoke|spoken|brought up)"
)
_SAY = (
    f"({_SAID}|say|tell|talk|mention|discuss|decide|agree|suggest|recommend|promise|write|ask|answer|explain|do|choose"
    "|plan|conclude|speak|bring up)"
)


def asks_memory(question: str) -> bool:
    """Return whether the wording asks for what was said or done earlier, in one of a dozen languages."""
    return _read_wordings().search(question.replace("’", "'")) is not None


def is_short(question: str) -> bool:
    """Return whether the question has few words; two characters count as one where no spaces are written."""
    return len(question.split()) + count_unspaced(question) // 2 <= _SHORT


@cache
def _read_wordings() -> re.Pattern[str]:
    lines = Path(__file__).with_name("memory_questions.txt").read_text(encoding="utf-8").splitlines()
    wordings = "|".join(line for line in lines if not line.startswith("#"))
    return re.compile(wordings.replace("<say>", _SAY).replace("<said>", _SAID), re.IGNORECASE)
