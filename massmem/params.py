"""Values that a user gives when asked: what is one, where it stands in a message, and how to ask for it. Pure.

What can be told by rule is told here, without a model: a reply that fits the configured form in exactly one way. In
doubt nothing is found, since a question that was taken for a value is worse than one request to a model.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import date
from typing import Literal, assert_never

from massmem.config.models import ParamConfig, ParamType

Value = str | int | float | bool

LONGEST = 1_000
"""Characters of a value."""

MOST_READ = 2_000
"""Characters of a message in which a value is looked for; a longer one is no reply to a question."""

_FEW_WORDS = 12
_FEWEST_WORDS = 4
_EMAIL = re.compile(r"[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){1,8}")
_NUMBER = re.compile(r"(?<![\w.,+-])[-+]?\d{1,18}(?:\.\d{1,18})?(?![\w,]|[.-]\d)")
_ISO_DATE = re.compile(r"(?<![\d-])\d{4}-\d{2}-\d{2}(?![\d-])")
_DOTTED_DATE = re.compile(r"(?<![\d.])(\d{1,2})\.\s?(\d{1,2})\.\s?(\d{4})(?!\d)")
_ENDS_JOINED = re.compile(r"\w[-./@]?\Z")
_STARTS_JOINED = re.compile(r"[-./@]?\w")
_WORD = re.compile(r"[^\W_]+")
_YES = frozenset({"yes", "y", "true", "on", "yeah", "yep", "sure", "ok", "okay"})
_NO = frozenset({"no", "n", "false", "off", "nope", "nah"})
# A message with one of these may say the contrary of what its values say.
_TURNED = frozenset({"not", "never", "isn", "don", "doesn", "wasn", "instead", "rather", "forget", "cancel", "reset"})
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


def checked(spec: ParamConfig, raw: object) -> Value | None:
    """`raw` as a value of this param, in the form in which it is kept; None when it is none."""
    if isinstance(raw, str):
        raw = raw.strip()
    value = _typed(spec.type, raw)
    if isinstance(value, str) and spec.pattern is not None and not re.fullmatch(spec.pattern, value):
        return None
    if value is None or not spec.values:
        return value
    same = (allowed for allowed in spec.values if allowed.casefold() == str(raw).casefold())
    known = next(same, None)
    return None if known is None else _typed(spec.type, known)


def _typed(kind: ParamType, raw: object) -> Value | None:
    match kind:
        case "string":
            return raw if isinstance(raw, str) and 0 < len(raw) <= LONGEST and raw.isprintable() else None
        case "email":
            return raw if isinstance(raw, str) and _EMAIL.fullmatch(raw) else None
        case "integer" | "number":
            return _number(kind, raw)
        case "boolean":
            return _boolean(raw)
        case "date":
            return _date(raw)
        case _:
            assert_never(kind)


def _number(kind: Literal["integer", "number"], raw: object) -> int | float | None:
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


def _boolean(raw: object) -> bool | None:
    if isinstance(raw, bool):
        return raw
    word = str(raw).casefold()
    return True if word in _YES else False if word in _NO else None


def _date(raw: object) -> str | None:
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


def found(name: str, spec: ParamConfig, message: str) -> Value | None:
    """The value in a user's reply, when a rule finds exactly one; None: ask a model.

    Three ways, in this order: the whole message is the value; it names the param ("order number: 12345"); it is a
    statement with one value of the configured form in it. A question, and what says "not", is left to the model.
    """
    text = message.strip()
    if len(text) > MOST_READ:
        return None
    if _has_form(spec) and (value := checked(spec, text.strip("\"'`.!"))) is not None:
        return value
    if "?" in text or _TURNED & set(_words(text)):
        return None
    if (value := _named(name, spec, text)) is not None:
        return value
    return _only(spec, text) if len(_words(text)) <= _most_words(spec) else None


def _has_form(spec: ParamConfig) -> bool:
    """Not every text is a value."""
    return spec.type != "string" or spec.pattern is not None or bool(spec.values)


def _most_words(spec: ParamConfig) -> int:
    """A message of more words may have a value in it by chance: the weaker the form, the sooner."""
    if spec.pattern is not None or spec.type in ("email", "date"):
        return MOST_READ
    return _FEWEST_WORDS if spec.type == "boolean" else _FEW_WORDS


def _named(name: str, spec: ParamConfig, text: str) -> Value | None:
    """The value after the param's name, or after one of the words that the configuration maps to it."""
    names = "|".join(re.escape(word) for word in sorted(_called(name, spec), key=len, reverse=True))
    after = re.search(rf"(?i)(?<!\w)(?:{names})\s{{0,3}}(?:[:=]|\bis\b|\bare\b)\s{{0,3}}(.{{1,{LONGEST}}})", text)
    if after is None:
        return None
    rest = after.group(1).strip("\"'` ")
    value = checked(spec, rest)
    if value is None or isinstance(value, str):
        value = checked(spec, rest.rstrip("\"'`.!, "))
    return value if value is not None or not _has_form(spec) else _only(spec, rest)


def _called(name: str, spec: ParamConfig) -> set[str]:
    return {name, name.replace("_", " "), *(word.strip() for word in spec.mapping if word.strip())}


def _only(spec: ParamConfig, text: str) -> Value | None:
    values = {value for raw in _candidates(spec, text) if (value := checked(spec, raw)) is not None}
    return values.pop() if len(values) == 1 else None


def _candidates(spec: ParamConfig, text: str) -> Iterable[str]:
    if spec.values:
        return _listed(spec.values, text)
    match spec.type:
        case "string":
            return () if spec.pattern is None else _matching(spec.pattern, text)
        case "email":
            return (m.group() for m in _EMAIL.finditer(text))
        case "integer" | "number":
            return (m.group() for m in _NUMBER.finditer(text.rstrip(".!")))
        case "boolean":
            return _words(text)
        case "date":
            return (m.group() for pattern in (_ISO_DATE, _DOTTED_DATE) for m in pattern.finditer(text))
        case _:
            assert_never(spec.type)


def _listed(values: Iterable[str], text: str) -> Iterator[str]:
    """A value that stands inside another one that was found, as "pro" in "pro plus", was not meant."""
    rest = text.casefold()
    for value in sorted(values, key=len, reverse=True):
        pattern = rf"(?<!\w){re.escape(value.casefold())}(?!\w)"
        if re.search(pattern, rest):
            rest = re.sub(pattern, " ", rest)
            yield value


def _matching(pattern: str, text: str) -> Iterator[str]:
    """Whole words that match: neither O-12345 nor 12345 is found in NO-12345-6."""
    for match in re.finditer(pattern, text):
        joined = _ENDS_JOINED.search(text[: match.start()][-2:]) or _STARTS_JOINED.match(text[match.end() :][:2])
        if match.group() and not joined:
            yield match.group()


def _words(text: str) -> list[str]:
    return _WORD.findall(text.casefold())


def wish(message: str) -> Literal["cancel", "reset"] | None:
    """Whether the whole message says, in plain words, to stop waiting, or to start over."""
    said = " ".join(message.casefold().strip(" /.!\t\n\"'").split())
    if said in _RESET:
        return "reset"
    return "cancel" if said in _CANCEL else None


def form(spec: ParamConfig) -> str:
    """What a value looks like, for people: `a whole number`, `one of: basic, pro`."""
    if spec.values:
        return f"one of: {', '.join(spec.values)}"
    return _FORMS[spec.type]


def question(name: str, spec: ParamConfig, prompt: str, asked: int) -> str:
    """What the user is asked: the agent's own words; the second time what is wanted, from the third on how it looks."""
    if asked == 1:
        return prompt
    wanted = spec.description.strip().rstrip(".") or name.replace("_", " ")
    wanted = wanted[:1].lower() + wanted[1:]
    parts = [f"I could not read that. I need {wanted}{f': {form(spec)}' if form(spec) != _FORMS['string'] else ''}."]
    if asked > 2 and spec.examples:
        parts.append(f"For example: {', '.join(spec.examples[:3])}.")
    if asked > 2:
        parts.append('Say "cancel" to give the question up.')
    return " ".join([*parts, prompt])
