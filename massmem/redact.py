"""Secrets out of text and data, before they reach a log, a debug file, an export or a screen.

Every pattern is linear in the length of the text (possessive or bounded repetition): what is redacted is often
hostile or huge. Most texts have nothing to hide: a pattern is tried only where the letters are that it cannot be
without.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, cast

REDACTED = "[redacted]"
SECRET_KEYS = ("api_key", "token", "password", "secret", "authorization")
_MAX_DEPTH = 100
_REPLACEMENT = rf"\1{REDACTED}"

_NAME = r"(?:api[_-]?key|secret(?:[_-]?(?:access[_-]?)?key)?|passw(?:or)?d|(?<!max_)token)"
_NAMES = ("apikey", "api_key", "api-key", "secret", "passw", "token")
_SHAPES = (
    "sk-", "k_live_", "gsk_", "xai-", "aiza", "hf_", "akia", "asia", "ghp_", "gho_", "ghu_", "ghs_", "ghr_",
    "github_pat_", "glpat-", "xox",
)  # fmt: skip


class _Secret(NamedTuple):
    """What its pattern captures in group 1 stays in the text; the rest is replaced.

    needs: of each of these, one at least stands in every text that it matches, in lower case.
    """

    needs: tuple[tuple[str, ...], ...]
    pattern: re.Pattern[str]


_SECRETS = tuple(
    _Secret(needs, re.compile(pattern))
    for needs, pattern in (
        (
            (("private key-----",),),
            r"(?s)()-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----.*?(?:-----END [A-Z ]{0,40}KEY-----|\Z)",
        ),
        (
            (_SHAPES,),
            r"()(?<![A-Za-z0-9])(?:"
            r"sk-[A-Za-z0-9_-]{16,}+|csk-[A-Za-z0-9]{16,}+|[sr]k_live_[A-Za-z0-9]{16,}+|gsk_[A-Za-z0-9]{16,}+"
            r"|xai-[A-Za-z0-9]{16,}+|AIza[A-Za-z0-9_-]{30,}+|hf_[A-Za-z0-9]{16,}+|A(?:KIA|SIA)[A-Z0-9]{12,}+"
            r"|gh[pousr]_[A-Za-z0-9]{16,}+|github_pat_[A-Za-z0-9_]{16,}+|glpat-[A-Za-z0-9_-]{16,}+"
            r"|xox[abposr]-[A-Za-z0-9-]{10,}+)",
        ),
        (
            (("eyj",), (".",)),
            r"()(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]*+",
        ),
        (
            (("authorization",),),
            r"(?i)(\bauthorization\\?[\"']?\s{0,3}[:=]\s{0,3}\\?[\"']?(?:(?:basic|bearer|token)\s{1,3})?)"
            r"[^\s\"',;\\]++",
        ),
        (
            (("bearer",),),
            r"(?i)(\bbearer\s{1,10})(?:[\w.~+/=-]{20,}+|(?=[a-z._~+/=-]{0,19}\d)[\w.~+/=-]{8,}+)",
        ),
        # Greedy up to the last @ of the authority: a password may hold an unescaped @.
        ((("//",), ("@",)), r"(//[^/\s:@\"'<>]{0,256}+:)[^/\s\"'<>]{1,512}(?=@)"),
        (
            (("=",), ("?", "&"), ("key=", "sig=", "signature=", "auth=", "code=", "token=", "secret=", "password=")),
            r"(?i)([?&](?:key|sig|signature|auth|code|[a-z_-]{0,20}(?:api[_-]?key|token|secret|password))=)"
            r"[^&\s\"'#]++",
        ),
        # "api_key": "value", also with the quotes escaped inside another JSON text.
        (
            ((":",), ('"', "'"), _NAMES),
            rf"(?i)({_NAME}\\?[\"']\s{{0,3}}:\s{{0,3}}\\?[\"'])(?:[^\"'\\\n]|\\[^\"'\n])++",
        ),
        # The lookahead keeps what follows a value that an earlier pattern has replaced.
        ((("=",), _NAMES), rf"(?i)({_NAME}\s{{0,3}}=\s{{0,3}}[\"']?)(?!\[redacted\])[^\s\"'&,;]++"),
        # Prose also says "api_key: missing": without quotes only what looks like a key, long and with a digit.
        (((":",), _NAMES), rf"(?i)({_NAME}\s{{0,3}}:\s{{1,3}})(?=[^\s\d]{{0,64}}\d)[^\s\"',;]{{12,}}+"),
    )
)

_ODD = "\u017f\u0130\u0131\u212a"
"""Letters that a pattern without case takes for s, i and k, and that lower() does not make these."""


def redact(text: str) -> str:
    """`text` with every part that looks like a secret replaced by `[redacted]`.

    Known: provider keys by their shape, bearer tokens, JWTs, private key blocks, passwords in URLs,
    values of `key=`, `token=` and the like in queries, assignments and JSON.
    """
    lower = text.lower()
    odd = not text.isascii() and any(letter in text for letter in _ODD)
    for needs, pattern in _SECRETS:
        # What stands in the text now stood there before: nothing that is put in has any of these letters.
        if odd or _has(lower, needs):
            text = pattern.sub(_REPLACEMENT, text)
    return text


def _has(text: str, needs: tuple[tuple[str, ...], ...]) -> bool:
    for parts in needs:
        for part in parts:
            if part in text:
                break
        else:
            return False
    return True


def masked(text: str, values: Mapping[str, object]) -> str:
    """`text` with each of the values, wherever it stands as a word of its own, replaced by its name in brackets.

    values: by name; longer ones first, so that a value inside another leaves nothing of it. Yes and no hide nothing.
    """
    known = [(str(value), name) for name, value in values.items() if not isinstance(value, bool) and str(value).strip()]
    for value, name in sorted(known, key=lambda pair: -len(pair[0])):
        if value in text:
            text = re.sub(rf"(?<!\w){re.escape(value)}(?!\w)", lambda _, name=name: f"[{name}]", text)
    return text


def masked_values(obj: Any, values: Mapping[str, object]) -> Any:
    """Nested dicts and lists with every string masked."""
    if not values:
        return obj
    if isinstance(obj, str):
        return masked(obj, values)
    if isinstance(obj, Mapping):
        return {key: masked_values(value, values) for key, value in cast("Mapping[Any, Any]", obj).items()}
    if isinstance(obj, list | tuple):
        return [masked_values(part, values) for part in cast("Sequence[Any]", obj)]
    return obj


def is_secret_key(name: str, keys: Collection[str] = SECRET_KEYS) -> bool:
    """Whether a key called `name` holds a secret: it is, or ends with, one of `keys`, in any case and spelling.

    `X-Api-Key`, `openai_api_key` and `apiKey` end with `api_key`; `max_tokens` does not end with `token`.
    """
    return _is_secret(name, tuple(keys))


def redact_values(obj: Any, keys: Collection[str] = SECRET_KEYS) -> Any:
    """A copy of nested dicts and lists in which values under secret keys are `[redacted]` and all strings redacted.

    Other objects are kept as they are. What is nested deeper than 100 levels is `[redacted]` as a whole.
    """
    return _redacted(obj, keys, 0)


def _redacted(obj: Any, keys: Collection[str], depth: int) -> Any:
    if depth > _MAX_DEPTH:
        return REDACTED
    if isinstance(obj, str):
        return redact(obj)
    if isinstance(obj, Mapping):
        items = cast("Mapping[Any, Any]", obj).items()
        return {
            key: REDACTED if value is not None and is_secret_key(str(key), keys) else _redacted(value, keys, depth + 1)
            for key, value in items
        }
    if isinstance(obj, list | tuple):
        parts = [_redacted(part, keys, depth + 1) for part in cast("Sequence[Any]", obj)]
        return parts if isinstance(obj, list) else tuple(parts)
    return obj


@lru_cache(maxsize=512)
def _is_secret(name: str, keys: tuple[str, ...]) -> bool:
    plain = _letters(name)
    return any(plain.endswith(_letters(key)) for key in keys if key)


def _letters(name: str) -> str:
    return "".join(char for char in name.lower() if char.isalnum())
