"""Values that the user is asked for: what a valid value is, how to find it in a reply, how to ask for it.

The rules here read a reply without a model when it fits the configured form in exactly one way. In doubt they find
nothing: a question mistaken for a value is worse than one request to a model.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Literal, assert_never

from massmem.core.patterns import compile_pattern

Value = str | int | float | bool
ParamType = Literal["string", "integer", "number", "boolean", "date", "email"]


@dataclass(frozen=True, slots=True)
class ParamSpec:
    """A value that agents may ask the user for."""

    description: str = ""
    type: ParamType = "string"
    pattern: str | None = None
    """Regular expression that a whole value must match."""
    values: tuple[str, ...] = ()
    """The only allowed values; empty: any."""
    examples: tuple[str, ...] = ()
    mapping: tuple[str, ...] = ()
    """Other names that users have for it."""


CONFIRMATION = "confirm_"
"""Begins the names of params that stand for the user's permission of one tool call."""

MAX_VALUE_LENGTH = 1_000
"""Characters."""

MAX_REPLY_LENGTH = 2_000
"""Characters; a longer message is no reply to a question, and no rule looks for a value in it."""

_EMAIL = re.compile(r"[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){1,8}")
_NUMBER = re.compile(r"(?<![\w.,+-])[-+]?\d{1,18}(?:\.\d{1,18})?(?![\w,]|[.-]\d)")
_ISO_DATE = re.compile(r"(?<![\d-])\d{4}-\d{2}-\d{2}(?![\d-])")
_DOTTED_DATE = re.compile(r"(?<![\d.])(\d{1,2})\.\s?(\d{1,2})\.\s?(\d{4})(?!\d)")
_ENDS_JOINED = re.compile(r"\w[-./@]?\Z")
_STARTS_JOINED = re.compile(r"[-./@]?\w")
_WORD = re.compile(r"[^\W_]+")
_YES = frozenset({"yes", "y", "true", "on", "yeah", "yep", "sure", "ok", "okay"})
_NO = frozenset({"no", "n", "false", "off", "nope", "nah"})
# A message with one of these may mean the opposite of the value in it.
_NEGATIONS = frozenset(
    {"not", "never", "isn", "don", "doesn", "wasn", "instead", "rather", "forget", "cancel", "reset"}
)
_CANCEL = frozenset({"cancel", "abort", "stop", "quit", "never mind", "nevermind", "forget it"})
_RESET = frozenset({"reset", "start over", "start again", "start anew"})
_FORMS: Mapping[ParamType, str] = {
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "yes or no",
    "date": "a date such as 2026-03-31",
    "email": "an email address",
}


def parse_value(spec: ParamSpec, raw: object) -> Value | None:
    """Return `raw` as a value of this param in its stored form; None when it is not valid."""
    if isinstance(raw, str):
        raw = raw.strip()
    value = _convert(spec.type, raw)
    if isinstance(value, str) and spec.pattern is not None and not compile_pattern(spec.pattern).fullmatch(value):
        return None
    if value is None or not spec.values:
        return value
    allowed = next((value for value in spec.values if value.casefold() == str(raw).casefold()), None)
    return None if allowed is None else _convert(spec.type, allowed)


def _convert(kind: ParamType, raw: object) -> Value | None:
    match kind:
        case "string":
            return raw if isinstance(raw, str) and 0 < len(raw) <= MAX_VALUE_LENGTH and raw.isprintable() else None
        case "email":
            return raw if isinstance(raw, str) and _EMAIL.fullmatch(raw) else None
        case "integer" | "number":
            return _parse_number(kind, raw)
        case "boolean":
            word = str(raw).casefold()
            return raw if isinstance(raw, bool) else True if word in _YES else False if word in _NO else None
        case "date":
            return _parse_date(raw)
        case _:
            assert_never(kind)


def _parse_number(kind: Literal["integer", "number"], raw: object) -> int | float | None:
    if isinstance(raw, bool):
        return None
    if isinstance(raw, str):
        if not _NUMBER.fullmatch(raw):
            return None
        raw = float(raw) if "." in raw else int(raw)
    if not isinstance(raw, int | float) or not math.isfinite(raw):
        return None
    if kind == "number":
        return raw
    return int(raw) if raw == int(raw) else None


def _parse_date(raw: object) -> str | None:
    text = raw if isinstance(raw, str) else ""
    if dotted := _DOTTED_DATE.fullmatch(text):
        day, month, year = dotted.groups()
        text = f"{year}-{int(month):02}-{int(day):02}"
    if not _ISO_DATE.fullmatch(text):
        return None
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError:
        return None


def find_value(name: str, spec: ParamSpec, message: str) -> Value | None:
    """Return the value in a user's reply when a rule finds exactly one; None: ask a model.

    The rules, in this order: the whole message is the value; it names the param ("order number: 12345"); it is a short
    statement with one value of the configured form. Questions and negations are left to the model.
    """
    text = message.strip()
    if len(text) > MAX_REPLY_LENGTH:
        return None
    if _has_form(spec) and (value := parse_value(spec, text.strip("\"'`.!"))) is not None:
        return value
    if "?" in text or _NEGATIONS & set(_split_words(text)):
        return None
    if (value := _find_after_name(name, spec, text)) is not None:
        return value
    return find_single(spec, text) if len(_split_words(text)) <= _max_words(spec) else None


def _has_form(spec: ParamSpec) -> bool:
    return spec.type != "string" or spec.pattern is not None or bool(spec.values)


def _max_words(spec: ParamSpec) -> int:
    """Return how long a message may be: a longer one may hold a value by chance, the weaker its form the sooner."""
    if spec.pattern is not None or spec.type in ("email", "date"):
        return MAX_REPLY_LENGTH
    return 4 if spec.type == "boolean" else 12


def _find_after_name(name: str, spec: ParamSpec, text: str) -> Value | None:
    """Return the value after the param's name, or after another name that the configuration gives it."""
    words = {name, name.replace("_", " "), *(word.strip() for word in spec.mapping if word.strip())}
    names = "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))
    after = re.search(
        rf"(?i)(?<!\w)(?:{names})\s{{0,3}}(?:[:=]|\bis\b|\bare\b)\s{{0,3}}(.{{1,{MAX_VALUE_LENGTH}}})", text
    )
    if after is None:
        return None
    rest = after.group(1).strip("\"'` ")
    value = parse_value(spec, rest)
    if value is None or isinstance(value, str):
        value = parse_value(spec, rest.rstrip("\"'`.!, "))
    return value if value is not None or not _has_form(spec) else find_single(spec, rest)


def find_single(spec: ParamSpec, text: str) -> Value | None:
    """Return the value in `text` when there is exactly one."""
    values = {value for raw in _find_candidates(spec, text) if (value := parse_value(spec, raw)) is not None}
    return values.pop() if len(values) == 1 else None


def _find_candidates(spec: ParamSpec, text: str) -> Iterable[str]:
    if spec.values:
        return _find_allowed(spec.values, text)
    match spec.type:
        case "string":
            return () if spec.pattern is None else _find_matches(spec.pattern, text)
        case "email":
            return (m.group() for m in _EMAIL.finditer(text))
        case "integer" | "number":
            return (m.group() for m in _NUMBER.finditer(text.rstrip(".!")))
        case "boolean":
            return _split_words(text)
        case "date":
            return (m.group() for pattern in (_ISO_DATE, _DOTTED_DATE) for m in pattern.finditer(text))
        case _:
            assert_never(spec.type)


def _find_allowed(values: Iterable[str], text: str) -> Iterator[str]:
    """Yield the allowed values in `text`, longest first: "pro" inside "pro plus" does not count."""
    rest = text.casefold()
    for value in sorted(values, key=len, reverse=True):
        pattern = rf"(?<!\w){re.escape(value.casefold())}(?!\w)"
        if re.search(pattern, rest):
            rest = re.sub(pattern, " ", rest)
            yield value


def _find_matches(pattern: str, text: str) -> Iterator[str]:
    """Yield the matches that are whole words: NO-12345-6 has neither O-12345 nor 12345."""
    for start, end in compile_pattern(pattern).find_all(text):
        joined = _ENDS_JOINED.search(text[:start][-2:]) or _STARTS_JOINED.match(text[end:][:2])
        if start < end and not joined:
            yield text[start:end]


def _split_words(text: str) -> list[str]:
    return _WORD.findall(text.casefold())


def detect_intent(message: str) -> Literal["cancel", "reset"] | None:
    """Return whether the whole message is a plain wish to stop, or to start over."""
    text = " ".join(message.casefold().strip(" /.!\t\n\"'").split())
    if text in _RESET:
        return "reset"
    return "cancel" if text in _CANCEL else None


def show_name(name: str) -> str:
    """Return what people are shown of a param: its name, or what stands for the user's permission of a call."""
    return "a yes or no" if name.startswith(CONFIRMATION) else name


def describe_form(spec: ParamSpec) -> str:
    """Return what a value looks like, for people: `a whole number`, `one of: basic, pro`."""
    if spec.values:
        return f"one of: {', '.join(spec.values)}"
    return _FORMS[spec.type]


def build_question(name: str, spec: ParamSpec, prompt: str, asked: int) -> str:
    """Return the question to the user: `prompt` as it is; then with a description; from the third time with examples.

    asked: which time it is, from 1.
    """
    if asked == 1:
        return prompt
    if name.startswith(CONFIRMATION):
        return f"I could not read that as yes or no. {prompt}"
    description = spec.description.strip().rstrip(".") or name.replace("_", " ")
    description = description[:1].lower() + description[1:]
    form = describe_form(spec)
    parts = [f"I could not read that. I need {description}{f': {form}' if form != _FORMS['string'] else ''}."]
    if asked > 2 and spec.examples:
        parts.append(f"For example: {', '.join(spec.examples[:3])}.")
    if asked > 2:
        parts.append('Say "cancel" to give the question up.')
    return " ".join([*parts, prompt])
