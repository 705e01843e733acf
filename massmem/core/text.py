"""How text and amounts of money are shown: safe for a terminal, short, readable; how quoted markup is made harmless.

Markup is found however it is disguised: other alphabets, wide or invisible characters.
"""

import json
import math
import re
import unicodedata
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

_SEQUENCE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor, erase
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)"  # OSC, DCS: title, clipboard
    r"|\x1b[ -/]*[0-OQ-WYZ\\`-~]"  # two-character escapes: reset, character sets
)
_INVISIBLE = re.compile("[\u202a-\u202e\u2066-\u2069]")
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
_NOT_IN_JSON = re.compile("[\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def make_printable(text: str) -> str:
    """Return `text` without anything that a terminal would obey instead of show.

    Escape sequences and bidirectional overrides are removed, other control characters become visible symbols,
    lone surrogates U+FFFD; newline and tab stay. Applying it twice changes nothing more.
    """
    if text.isascii() and text.replace("\n", "").replace("\t", "").isprintable():
        return text
    text = _SEQUENCE.sub("", text.replace("\r\n", "\n"))
    return _CONTROL.sub(_symbol, _INVISIBLE.sub("", text))


def dump_json(value: Any, indent: int | None = None) -> str:
    """Return a value as JSON, on one line without `indent`, in which no terminal finds anything to obey."""
    return escape_json(json.dumps(value, ensure_ascii=False, indent=indent, default=str))


def escape_json(text: str) -> str:
    """Return JSON with escapes for what JSON allows in texts, and a terminal obeys."""
    return _NOT_IN_JSON.sub(lambda match: f"\\u{ord(match.group()):04x}", text)


def trim_value(text: str) -> str:
    """Return a setting without the blanks, line breaks and quotes around it, as files and shells hand it over."""
    text = text.strip(" \t\r\n\ufeff\xa0\u200b")
    is_quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "\"'"
    return text[1:-1].strip() if is_quoted else text


def shorten(text: str, limit: int) -> str:
    """Return `text`, or its beginning and `…`, in at most `limit` characters."""
    return text if len(text) <= limit else f"{text[: limit - 1].rstrip()}…"


def is_web_address(text: str) -> bool:
    """Return whether it begins like an address of the web: with http:// or https://, in any case."""
    return text.lower().startswith(("http://", "https://"))


def one_line(text: str, limit: int = 200) -> str:
    """Return `text` on one printable line: white space folded to single spaces, cut to `limit` characters."""
    return shorten(" ".join(make_printable(text[: limit * 4]).split()), limit)


def format_dollars(amount: float | None) -> str:
    """Return `$12.35`, `$0.04`, `$0.0021` (two digits of what is less than a cent), `$0`, or `price not known`."""
    if amount is None:
        return "price not known"
    if amount >= 0.01:
        return f"${amount:,.2f}"
    return f"${amount:.{1 - math.floor(math.log10(amount))}f}" if amount > 0 else "$0"


def cut_excerpt(text: str, words: Sequence[str], limit: int = 160) -> str:
    """Return about `limit` characters of the text on one line, around the first of the words in it."""
    pattern = match_any(words)
    match = pattern.search(text) if pattern else None
    if match is None:
        return one_line(text, limit)
    start = max(match.start() - limit // 3, 0)
    start = text.find(" ", start, match.start()) + 1 if start else 0
    return ("…" if start else "") + one_line(text[start:], limit)


def match_any(words: Sequence[str]) -> re.Pattern[str] | None:
    return re.compile(rf"\b(?:{'|'.join(map(re.escape, words))})\b", re.IGNORECASE) if words else None


def _symbol(match: re.Match[str]) -> str:
    code = ord(match.group())
    if code < 0x20:
        return chr(0x2400 + code)
    return "␡" if code == 0x7F else "�"


_OPENING = "‹〈⟨❮˂ᐸ≺⧼❬"

_SAME_LOOK = str.maketrans({
    **dict.fromkeys(_OPENING, "<"), **dict.fromkeys("›〉⟩❯˃ᐳ≻⧽❭", ">"),
    **dict.fromkeys("【〔⟦⁅❲⦋", "["), **dict.fromkeys("】〕⟧⁆❳⦌", "]"),
    **dict.fromkeys("⁄∕⧸╱", "/"), **dict.fromkeys("∣ǀ❘│ⵏ┃￨", "|"), **dict.fromkeys("∶꞉ː˸։", ":"), "‗": "_",
    **dict(zip("аеорсухіѕјԛԝһӏвкмнтгԁɡıӕ", "aeopcyxisjqwhlbkmhtrdgia", strict=True)),
    **dict(zip("αεορικντυχηωγβ", "aeopikvtuxnwyb", strict=True)),
})  # fmt: skip
"""Small characters that look like another one, which Unicode's compatibility forms do not join."""
_SAME_CAPITAL = str.maketrans("ΑΒΕΖΗΙΚΜΝΟΡΤΥΧ", "ABEZHIKMNOPTYX")

_TAG_NAMES = (
    r"memor(?:y|ies)|answers?|notes|given|message|results?|sys(?:tem)?|user|assistant|human|developer|instructions?"
    r"|tools?|tool_\w+|functions?|function_\w+|invoke|(?:start|end)_of_turn|im_(?:start|end)|think(?:ing)?|img|iframe|s>"
)
_RULES: tuple[tuple[re.Pattern[str], Callable[[str], str]], ...] = (
    # A tag or a token of a chat template.
    (re.compile(rf"(?P<mark><)(?=[<\s]{{0,50}}+\s*+/?+\s*+(?:(?:{_TAG_NAMES})(?![a-z])|s>)|\s*+\|)"), lambda _: "‹"),
    # [INST], and labels such as [From agent_b Turn 1].
    (re.compile(r"(?P<mark>\[)(?=\s*+/?+\s*+inst\b|\s*+from\b.{0,100}?\bturn\b)"), lambda _: "("),
    (re.compile(r"\brelevant\s+(?P<mark>memor(?:y|ies))\b"), lambda text: f"({text})"),
    # A turn of another speaker.
    (re.compile(r"(?<![\w-])(?:human|assistant|system|developer|user)\s*(?P<mark>:)(?=\s|$)"), lambda _: " -"),
    # Images and links: a reader would load them, or click.
    (re.compile(r"(?P<mark>!)(?=\[)"), lambda _: ""),
    (re.compile(r"\](?P<mark>\()"), lambda _: " ("),
)
_MAY_MATCH = re.compile(r"[<\[]|relevant|(?:human|assistant|system|developer|user)\s*:", re.IGNORECASE)


_TAG_BRACKET = re.compile(f"[<＜﹤≮{_OPENING}]")


def has_tag_bracket(text: str) -> bool:
    """Return whether the text has a character that looks like the opening bracket of a tag: quick to see."""
    return _TAG_BRACKET.search(text) is not None


def defuse(text: str) -> str:
    """Return the text with tags, labels, role markers, images and links made harmless; the rest as it is."""
    if not _MAY_MATCH.search(find_look(text)):  # most texts: each rule would look anew
        return text
    for pattern, replace in _RULES:
        text = replace_marks(text, pattern, replace)
    return text


def find_look(text: str) -> str:
    """Return what the text looks like, in lower case."""
    return text.lower() if text.isascii() else "".join(map(_look_of, text))


def replace_marks(text: str, pattern: re.Pattern[str], replace: Callable[[str], str]) -> str:
    """Return the text with every `mark` group replaced. pattern: matches what the text looks like, in lower case."""
    matches = [match.span("mark") for match in pattern.finditer(find_look(text))]
    if not matches:
        return text
    # The place in the text of each character of what it looks like.
    places = range(len(text)) if text.isascii() else [i for i, c in enumerate(text) for _ in _look_of(c)]
    start, parts = 0, list[str]()
    for first, end in matches:
        last = places[end - 1] + 1
        parts += [text[start : places[first]], replace(text[places[first] : last])]
        start = last
    return "".join([*parts, text[start:]])


@lru_cache(4096)
def _look_of(character: str) -> str:
    """Return what a character looks like: nothing, for one that cannot be seen or only decorates another."""
    if unicodedata.category(character) in ("Mn", "Me", "Cf", "Cs", "Co"):
        return ""
    plain = unicodedata.normalize("NFKD", character).translate(_SAME_CAPITAL).lower()
    return "".join(c for c in plain if unicodedata.category(c) not in ("Mn", "Me")).translate(_SAME_LOOK)
