"""How text and amounts of money are shown to people: safe for a terminal, short, readable."""

import math
import re
from collections.abc import Sequence

_SEQUENCE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor, erase
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)"  # OSC, DCS: title, clipboard
    r"|\x1b[ -/]*[0-OQ-WYZ\\`-~]"  # two-character escapes: reset, character sets
)
_EXCERPT = 160
_INVISIBLE = re.compile("[\u202a-\u202e\u2066-\u2069]")
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


def make_printable(text: str) -> str:
    """Return `text` without anything that a terminal would obey instead of show.

    Escape sequences and bidirectional overrides are removed, other control characters become visible symbols,
    lone surrogates U+FFFD; newline and tab stay. Applying it twice changes nothing more.
    """
    if text.isascii() and text.isprintable():
        return text
    text = _SEQUENCE.sub("", text.replace("\r\n", "\n"))
    return _CONTROL.sub(_symbol, _INVISIBLE.sub("", text))


def one_line(text: str, limit: int = 200) -> str:
    """Return `text` on one printable line: white space folded to single spaces, cut to `limit` characters."""
    folded = " ".join(make_printable(text[: limit * 4]).split())
    return folded if len(folded) <= limit else folded[: limit - 1] + "…"


def format_dollars(amount: float | None) -> str:
    """Return `$12.35`, `$0.04`, `$0.0021` (two digits of what is less than a cent), `$0`, or `price not known`."""
    if amount is None:
        return "price not known"
    if amount >= 0.01:
        return f"${amount:,.2f}"
    return f"${amount:.{1 - math.floor(math.log10(amount))}f}" if amount > 0 else "$0"


def cut_excerpt(text: str, words: Sequence[str], limit: int = _EXCERPT) -> str:
    """Return about `limit` characters of the text on one line, around the first of the words in it."""
    pattern = match_any(words)
    match = pattern.search(text) if pattern else None
    if match is None:
        return one_line(text, limit)
    start = max(match.start() - limit // 3, 0)
    start = text.find(" ", start, match.start()) + 1 if start else 0
    return ("…" if start else "") + one_line(text[start:], limit)


def match_any(words: Sequence[str]) -> re.Pattern[str] | None:
    """Return a pattern for any of the words; None when there is none."""
    return re.compile(rf"\b(?:{'|'.join(map(re.escape, words))})\b", re.IGNORECASE) if words else None


def _symbol(match: re.Match[str]) -> str:
    code = ord(match.group())
    if code < 0x20:
        return chr(0x2400 + code)
    return "␡" if code == 0x7F else "�"
