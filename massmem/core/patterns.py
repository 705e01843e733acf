"""Regular expressions of strangers, matched by RE2 in time that grows with the text alone.

Python's `re` tries every way to match: some patterns take hours for one line, and nothing interrupts it. A pattern may
be that of a user of the service, of a tool server, or of a file with questions. What RE2 cannot match is refused.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, cast

MAX_LENGTH = 2_000
"""Characters of a pattern."""
_MAX_STEPS = 10_000
"""Of a compiled pattern: each may be taken at each character of a text."""
_MAX_MEMORY = 2**21
"""Bytes of a compiled pattern, with what it remembers of a text."""

_TOKEN = re.compile(
    r"\\u(?P<code>[0-9A-Fa-f]{4})|\\(?P<escape>.)|(?P<around>\(\?<?[=!])|(?P<bracket>\[\^?\]|[\[\]])|[^\\\[\](]+|.",
    re.DOTALL,
)
_HALF = re.compile("[\ud800-\udfff]")
_ESCAPES = frozenset("aAbBdDfnprPrsStvwWxz0")
_CLASSES = {"w": r"\p{L}\p{M}\p{N}_", "d": r"\p{Nd}", "s": r"\t-\r \x{85}\x{a0}\x{feff}\p{Z}"}
"""As Python has them; RE2's are those of ASCII."""


class PatternError(ValueError):
    """Why a pattern is not used, for whoever has written it."""


class Pattern:
    """A compiled pattern. One that `compile_pattern` has returned is shared: it has no state."""

    def __init__(self, compiled: Any) -> None:
        self._compiled = compiled
        self.size: int = compiled.programsize
        """Steps that it may take at each character of a text."""

    def search(self, text: str) -> str | None:
        """Return the first match, None when there is none."""
        return next((text[start:end] for start, end in self.find_all(text)), None)

    def fullmatch(self, text: str) -> bool:
        return _is_writable(text) and self._compiled.fullmatch(text) is not None

    def find_all(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield where the matches begin and end, from left to right."""
        yield from (match.span() for match in self._compiled.finditer(text)) if _is_writable(text) else ()


@lru_cache(128)
def compile_pattern(text: str) -> Pattern:
    """Return a pattern ready for use.

    Raises PatternError: it is none, or only an engine that may take for ever could match it.
    """
    import re2  # pyright: ignore[reportMissingTypeStubs]

    if len(text) > MAX_LENGTH:
        raise PatternError(f"it has more than {MAX_LENGTH:,} characters")
    if not _is_writable(text):
        raise PatternError("it holds half of a character")
    engine = cast("Any", re2)
    options = engine.Options()
    options.log_errors, options.max_mem = False, _MAX_MEMORY
    try:
        compiled = engine.compile(_translate(text), options)
    except engine.error as e:
        raise PatternError(_explain(b"".join(e.args).decode("utf-8", "replace"))) from e
    if compiled.programsize > _MAX_STEPS:
        raise PatternError("its repetitions are too large together")
    return Pattern(compiled)


def _is_writable(text: str) -> bool:
    """Whether the text has no half of a character, which UTF-8 and so RE2 cannot have."""
    return text.isascii() or _HALF.search(text) is None


def _explain(reason: str) -> str:
    if "repetition size" in reason or "too large" in reason:
        return "its repetitions are too large: 1,000 times are the most, those within one another together"
    if "escape sequence: \\" in reason and reason[-1:].isdigit():
        return "it refers back to a group, which is not matched here: write out what may stand there"
    return reason


def _translate(text: str) -> str:
    pieces: list[str] = []
    within = False
    """It stands between the brackets of a class."""
    for token in _TOKEN.finditer(text):
        piece, has = token[0], token.groupdict()
        if has["around"] and not within:
            raise PatternError(f"it looks around with {piece}, which is not matched here: leave that out")
        if has["bracket"]:
            piece, within = _step_into(piece, within=within)
        elif has["code"]:
            piece = rf"\x{{{has['code']}}}"
        elif has["escape"]:
            piece = _translate_escape(has["escape"], within=within)
        pieces.append(piece)
    return "".join(pieces)


def _step_into(piece: str, *, within: bool) -> tuple[str, bool]:
    """Return brackets as RE2 reads them, and whether a class is open behind them."""
    if piece in ("[]", "[^]"):  # a class that begins with the bracket
        return (r"\[" + piece[1:-1] + "]", False) if within else (piece[:-1] + r"\]", True)
    if piece == "[":
        return (r"\[", True) if within else ("[", True)
    return ("]", False) if within else (r"\]", False)


def _translate_escape(sign: str, *, within: bool) -> str:
    if sign == "b" and within:
        return r"\x08"
    if sign == "Z":
        return r"\z"
    plain = _CLASSES.get(sign.lower())
    if plain is not None and sign.islower():
        return plain if within else f"[{plain}]"
    if plain is not None and not within:
        return f"[^{plain}]"
    if sign.isascii() and sign.isalpha() and sign not in _ESCAPES:
        raise PatternError(f"it has \\{sign}, which means nothing here")
    return "\\" + sign if sign.isascii() else sign
