"""Short forms of the ids of memories: eight letters and digits to type instead of nineteen digits. Pure.

An id times an odd number of 65 bits is another number of 65 bits, which tells the id again, and whose first digits
differ even for neighbours. Written with 32 digits it has 13 of them, of which any unique beginning names the memory.
"""

import re
from collections.abc import Iterable

LENGTH = 8
"""Digits that are shown: among 50,000 memories the chance that any two share them is one in a thousand."""
_SHORTEST = 4
_DIGITS = "0123456789abcdefghjkmnpqrstvwxyz"
_BITS = 65
_FACTOR = 22_801_429_638_646_396_971
"""Odd, and the golden ratio's part of 2**65: numbers in a row are spread evenly."""
_SHORT = re.compile(rf"[{_DIGITS}]{{{_SHORTEST},13}}")


def shorten_id(memory_id: str) -> str:
    """Return the short form; the id of a message, which stands for one without an index, has none and stays."""
    return _write(memory_id)[:LENGTH] if memory_id.isdecimal() else memory_id


def is_short(text: str) -> bool:
    """Return whether the text may be a short form: with more digits it is an id, or the id of a message."""
    return _SHORT.fullmatch(text.lower()) is not None


def find_ids(short: str, ids: Iterable[int]) -> list[str]:
    """Return those of the ids whose long form begins so, as texts."""
    short = short.lower()
    width = 5 * len(short)
    beginning = int(short.translate(str.maketrans(_DIGITS, "0123456789abcdefghijklmnopqrstuv")), 32)
    return [str(i) for i in ids if _mix(i) >> (_BITS - width) == beginning]


def _mix(number: int) -> int:
    return number * _FACTOR & ((1 << _BITS) - 1)


def _write(memory_id: str) -> str:
    number = _mix(int(memory_id))
    return "".join(_DIGITS[number >> shift & 31] for shift in range(_BITS - 5, -1, -5))
