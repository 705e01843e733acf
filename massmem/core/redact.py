"""Replace secrets in text and data before they reach a log, a debug file, an export or a screen.

Every pattern is linear in the length of the text (possessive or bounded repetition): redacted text is often hostile
or huge.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, cast

from massmem.core.text import one_line

REDACTED = "[redacted]"
SECRET_KEYS = ("api_key", "token", "password", "secret", "authorization")
_Object = Mapping[Any, Any]
_REPLACEMENT = rf"\1{REDACTED}"

_NAME = (
    r"(?:api[_-]?key|secret(?:[_-]?(?:access[_-]?)?key)?|(?:account|access|private)[_-]?key|passw(?:or)?d|passphrase"
    r"|(?<![a-z])pwd|credential|(?<!max_)token)"
)

# JSON and repr() write a line break or a letter beyond ASCII so that it ends in a letter or a digit.
_ESCAPE = r"(?<=\\[nrt])|(?<=\\u[0-9a-f]{4})"
_START = rf"(?:(?<![A-Za-z0-9])|{_ESCAPE})"
_QUOTE = r"\\{0,7}[\"']"
"""Also as it stands in JSON inside of JSON inside of JSON."""

# As people write it: "my password for the shop is X", in English, German, French and Spanish.
_SPOKEN = (
    r"(?:pass(?:word|phrase|code)|(?:pass|kenn)wort|mot\s{1,3}de\s{1,3}passe|contrase(?:ñ|n\u0303?)a|clave|secret|token"
    r"|api[ _-]?key|pin)(?:\s{1,3}(?:for|to|on|at|of|für|zum|zur|pour|du|de|para|del)(?:\s{1,3}[\w.-]{1,30}){1,3}?)?"
)
_OWN = r"(?<!\w)(?:my|our|mein|unser|mon|notre|mi|nuestra)\s{1,3}(?:[\w-]{1,30}\s{1,3}){0,2}?"
_IS = r"\s{1,3}(?:is|was|ist|war|lautet|est|es|era)\s{0,3}:?\s{1,3}"
_NO_VALUE = (
    r"(?!\[redacted\]|-|(?:a|an|the|to|and|or|not|no|none|in|on|is|as|with|from|for|too|still|also|never|always|being"
    r"|missing|wrong|incorrect|invalid|expired|required|needed|empty|unknown|lost|forgotten|stored|set|correct|weak"
    r"|strong|safe|secure|working|what|where|how|option|flag|falsch|nicht|weg|leer|zu|vergessen|perdu|vide|pas|incorrecta"
    r"|olvidada|der|die|das|le|la|el)(?=[,.;:!?]?(?:\s|\Z)))"
)

# How the keys of each vendor begin, in lower case, and their shape. Sources: their documentation, and gitleaks.
_SHAPES: Mapping[str, str] = {
    # models and related services
    "sk-": "sk-[A-Za-z0-9_-]{16,}+", "csk-": "csk-[A-Za-z0-9]{16,}+", "gsk_": "gsk_[A-Za-z0-9]{16,}+",
    "xai-": "xai-[A-Za-z0-9]{16,}+", "aiza": "AIza[A-Za-z0-9_-]{30,}+", "hf_": "hf_[A-Za-z0-9]{16,}+",
    "fw_": "fw_[A-Za-z0-9]{16,}+", "tgp_v1_": "tgp_v1_[A-Za-z0-9_-]{16,}+", "r8_": "r8_[A-Za-z0-9]{20,}+",
    "pplx-": "pplx-[A-Za-z0-9]{20,}+", "nvapi-": "nvapi-[A-Za-z0-9_-]{20,}+", "jina_": "jina_[A-Za-z0-9_-]{20,}+",
    "tvly-": "tvly-[A-Za-z0-9-]{16,}+", "m0-": "m0-[A-Za-z0-9]{20,}+", "pcsk_": "pcsk_[A-Za-z0-9_]{20,}+",
    "lsv2_": "lsv2_(?:pt|sk)_[A-Za-z0-9_]{20,}+", "rpa_": "rpa_[A-Za-z0-9]{20,}+", "sk_": "sk_[0-9a-f]{32,}+",
    "absk": "ABSK[A-Za-z0-9+/=]{30,}+", "fc-": "fc-[0-9a-f]{32}+",
    # code hosting and package registries
    "ghp_": "ghp_[A-Za-z0-9]{16,}+", "gho_": "gho_[A-Za-z0-9]{16,}+", "ghu_": "ghu_[A-Za-z0-9]{16,}+",
    "ghs_": "ghs_[A-Za-z0-9]{16,}+", "ghr_": "ghr_[A-Za-z0-9]{16,}+",
    "github_pat_": "github_pat_[A-Za-z0-9_]{16,}+", "glpat-": "glpat-[A-Za-z0-9_.-]{16,}+",
    "glrt-": "glrt-[A-Za-z0-9_.-]{16,}+", "npm_": "npm_[A-Za-z0-9]{30,}+", "pypi-": "pypi-[A-Za-z0-9_-]{30,}+",
    "dckr_pat_": "dckr_pat_[A-Za-z0-9_-]{20,}+", "atatt3": "ATATT3[A-Za-z0-9_=-]{30,}+",
    # clouds and databases
    "akia": "AKIA[A-Z0-9]{12,}+", "asia": "ASIA[A-Z0-9]{12,}+", "ltai": "LTAI[A-Za-z0-9]{12,}+",
    "ya29.": r"ya29\.[A-Za-z0-9_-]{20,}+", "gocspx-": "GOCSPX-[A-Za-z0-9_-]{20,}+", "dapi": "dapi[0-9a-f]{32}+",
    "dop_v1_": "dop_v1_[0-9a-f]{32,}+", "hvs.": r"hvs\.[A-Za-z0-9_-]{20,}+", "glsa_": "glsa_[A-Za-z0-9_]{20,}+",
    "tskey-": "tskey-[a-z]{1,20}-[A-Za-z0-9-]{16,}+", "sbp_": "sbp_[0-9a-f]{20,}+",
    "pscale_": "pscale_[a-z]{1,10}_[A-Za-z0-9_-]{20,}+", "nrak-": "NRAK-[A-Z0-9]{20,}+",
    "sntry": "sntry[su]_[A-Za-z0-9_=+/-]{20,}+", "dp.": r"dp\.[a-z]{2,5}\.[A-Za-z0-9]{20,}+",
    "age-secret-key-1": "AGE-SECRET-KEY-1[A-Z0-9]{20,}+", "phx_": "phx_[A-Za-z0-9]{30,}+",
    # mail, chat, payment, work
    "xox": "xox[abeposr][.-][A-Za-z0-9.-]{10,}+", "xapp-": "xapp-[A-Za-z0-9-]{10,}+",
    "sg.": r"SG\.[A-Za-z0-9_-]{16,64}+\.[A-Za-z0-9_-]{16,}+", "k_live_": "[sr]k_live_[A-Za-z0-9]{16,}+",
    "k_test_": "[sr]k_test_[A-Za-z0-9]{16,}+", "whsec_": "whsec_[A-Za-z0-9+/=]{16,}+", "key-": "key-[0-9a-f]{32}+",
    "shp": "shp(?:at|ca|pa|ss)_[0-9a-fA-F]{20,}+", "lin_api_": "lin_api_[A-Za-z0-9]{20,}+",
    "ntn_": "ntn_[A-Za-z0-9]{20,}+", "secret_": "secret_[A-Za-z0-9]{30,}+", "figd_": "figd_[A-Za-z0-9_-]{20,}+",
    "pmak-": "PMAK-[0-9a-f]{10,}+-[0-9a-f]{10,}+", ":aa": "[0-9]{8,10}:AA[A-Za-z0-9_-]{30,}+",
}  # fmt: skip

# Group 1 of a match stays in the text; the rest is replaced.
_SECRETS = tuple(
    re.compile(pattern)
    for pattern in (
        # Private key blocks.
        r"(?s)()-----BEGIN [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----.*?"
        r"(?:-----END [A-Z ]{0,40}KEY(?: BLOCK)?-----|\Z)",
        # Keys of vendors, and JSON web tokens.
        rf"(){_START}(?:{'|'.join(_SHAPES.values())})",
        rf"()(?:(?<![A-Za-z0-9_-])|{_ESCAPE})"
        r"eyJ[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]*+",
        # HTTP headers.
        rf"(?i)({_START}authorization(?:{_QUOTE})?\s{{0,3}}[:=]\s{{0,3}}(?:{_QUOTE})?"
        r"(?:(?:basic|bearer|token)\s{1,3})?)"
        r"[^\s\"',;\\]++",
        rf"(?i)({_START}bearer\s{{1,10}})"
        r"(?:[\w.~+/=-]{20,}+|(?=[a-z._~+/=-]{0,19}\d)[\w.~+/=-]{8,}+)",
        # Passwords in URLs. Greedy up to the last @ of the authority: a password may hold an unescaped @.
        r"(//[^/\s:@\"'<>]{0,256}+:)[^/\s\"'<>]{1,512}(?=@)",
        # Parameters of URLs.
        r"(?i)([?&](?:key|sig|signature|auth|code|[a-z_-]{0,20}(?:api[_-]?key|token|secret|password|-signature))=)"
        r"[^&\s\"'#]++",
        rf"(?i)({_START}(?:set-)?cookie\s{{0,3}}:\s{{0,3}})[^\r\n\"'\\]++",
        r"(hooks\.slack\.com/services/)[A-Za-z0-9/_-]++",
        # "api_key": "value", also with the quotes escaped inside another JSON text.
        rf"(?i)({_NAME}{_QUOTE}\s{{0,3}}:\s{{0,3}}{_QUOTE})(?:[^\"'\\\n]|\\[^\"'\n])++",
        # The lookahead leaves a value that an earlier pattern has replaced, and the dots in `KEY=...`.
        rf"(?i)({_NAME}\s{{0,3}}=\s{{0,3}}(?:{_QUOTE})?)(?!\[redacted\]|\.{{3}}(?![^\s\"'`&,;)]))[^\s\"'&,;]++",
        # What a person says: of an own secret any word, otherwise what has a digit or a sign.
        rf"(?i)({_OWN}{_SPOKEN}(?:{_IS}|\s{{0,3}}:\s{{0,3}})(?:{_QUOTE}|`)?){_NO_VALUE}[^\s\"'`,;]++",
        rf"(?i)((?<!\w){_SPOKEN}{_IS}(?:{_QUOTE}|`)?){_NO_VALUE}(?=[^\s\d!@#$%^&*+=]{{0,64}}[\d!@#$%^&*+=])[^\s\"'`,;]{{6,}}+",
        # Options of commands, and netrc. `-u 1000:1000` is a user and a group.
        rf"(?i)((?<![\w-])--[a-z-]{{0,20}}?(?:passw(?:or)?d|passphrase|passcode|secret|token|api-?key)[ \t]{{1,3}}"
        rf"(?:{_QUOTE})?){_NO_VALUE}[^\s\"']++",
        rf"(?i)((?<![\w-])(?:mysql|mysqldump|mysqladmin|mariadb|mariadb-dump)\s[^\n]{{0,200}}?(?<=\s)-p(?:{_QUOTE})?)"
        r"(?!\[redacted\])[^\s\"']++",
        rf"(?i)((?<![\w-])(?:sshpass\s{{1,3}}-p|redis-cli\s[^\n]{{0,200}}?(?<=\s)-a)\s{{0,3}}(?:{_QUOTE})?)(?!\[redacted\])[^\s\"']++",
        rf"((?<![\w-])(?:-u|--user)(?:\s{{1,3}}|=)?(?:{_QUOTE})?[\w.@+-]{{1,64}}+:)(?!\d{{1,6}}(?!\S)|\[redacted\])[^\s\"'@/][^\s\"']*+",
        r"(?i)((?<!\w)(?:machine|login)\s{1,10}\S{1,200}+\s{1,20}(?:login\s{1,10}\S{1,200}+\s{1,20})?password\s{1,10})"
        rf"{_NO_VALUE}\S++",
        # Prose also says "api_key: missing": without quotes only what looks like a key, long and with a digit.
        rf"(?i)({_NAME}\s{{0,3}}:\s{{1,3}})(?=[^\s\d]{{0,64}}\d)[^\s\"',;]{{12,}}+",
    )
)

_KEYS = 3
"""The first patterns, of what is a secret by its shape."""

_FIXED = r"(?![$%<{\[]|(?i:null|none|true|false|yes|no|nil|undefined)\b)"
"""What follows is written out: no variable, no placeholder."""

# In data also without a digit: `password: hunter`, <password>hunter</password>.
_IN_DATA = (
    *_SECRETS,
    re.compile(
        rf"(?im)(^[ \t]{{0,80}}+(?:- |export\s)?[\w.-]{{0,80}}?(?:passw(?:or)?d|passphrase|_pass)\s{{0,3}}[:=]\s{{0,3}}"
        rf"(?:{_QUOTE})?){_FIXED}[^\s\"',;]++"
    ),
    re.compile(
        rf"(?im)(^[ \t]{{0,80}}+(?:- )?[\w.-]{{0,80}}?{_NAME}\s{{0,3}}:\s{{1,3}}(?:{_QUOTE})?)"
        rf"{_FIXED}(?=[^\s\d]{{0,64}}\d)[^\s\"',;]{{4,}}+"
    ),
    re.compile(rf"(?i)(<[\w.:-]{{0,80}}?{_NAME}>\s{{0,80}}){_FIXED}[^<\s]++"),
)
# In programs what is written out in quotes; names of variables, calls and types stay as they are.
_IN_PROGRAMS = (
    *_SECRETS[:_KEYS],
    re.compile(rf"(?i)({_START}(?:bearer|basic)\s{{1,10}})(?=[a-z._~+/=-]{{0,64}}\d)[\w.~+/=-]{{12,}}+"),
    re.compile(rf"(\w://[^/\s:@\"'<>{{}}]{{0,256}}+:){_FIXED}[^/\s\"'<>]{{1,512}}(?=@)"),
    re.compile(
        rf"(?i)({_NAME}(?:{_QUOTE})?\]?\s{{0,3}}(?::\s{{0,3}}\w{{1,20}}\s{{0,3}})?(?:=>|==?|[:,])\s{{0,3}}[rb]?{_QUOTE}){_FIXED}"
        r"(?=[^\s\"'\d!@#$%^&*+=]{0,64}[\d!@#$%^&*+=])[^\s\"'\\]{6,}+"
    ),
    re.compile(  # as shells, Dockerfiles and recipes set variables
        r"(?m)((?:^|[\s;])(?:[A-Z0-9]{1,40}_){0,6}(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASS|PWD)=)"
        rf"{_FIXED}(?=[^\s\d()]{{0,64}}\d)[^\s\"'()]{{8,}}+"
    ),
)

# Every text with a secret has one of these, in lower case. The patterns alone take 0.25 ms for a sentence, which an
# export of thousands of messages would feel; most texts have none of these.
_HINTS = (
    "-----begin", "eyj", "authorization", "bearer", "cookie", "//", "hooks.slack.com", "key=", "sig=", "signature=",
    "auth=", "code=", "secret", "passw", "passphrase", "passcode", "pwd", "credential", "token", "kennwort",
    "mot", "contrase", "clave", "pin", "mysql", "mariadb", "sshpass", "redis-cli", "-u", "api key",
    *(f"{kind}{dash}key" for kind in ("api", "account", "access", "private") for dash in ("", "_", "-")), *_SHAPES,
)  # fmt: skip
_LOOKALIKES = str.maketrans("\u017f\u0130\u0131\u212a", "siik")
"""Letters that a pattern without case takes for s, i and k, and that lower() does not make these."""


def redact(text: str) -> str:
    """Return `text` with every part that looks like a secret replaced by `[redacted]`.

    Known: keys of many vendors by their shape, bearer tokens, JSON web tokens, private key blocks, passwords in URLs,
    values of `key=`, `token=` and the like in queries, assignments and JSON.
    """
    return _replace(text, _HINTS, _SECRETS)


def redact_keys(text: str) -> str:
    """Return `text` without what has the shape of a secret: vendors' keys, JSON web tokens, private key blocks.

    Program code stays as it is where it only names a secret, as in `token = read_token()`.
    """
    return _replace(text, ("-----begin", "eyj", *_SHAPES), _SECRETS[:_KEYS])


def redact_file(text: str, *, is_program: bool = False) -> str:
    """Return the text of a file without secrets, its lines where they were.

    is_program: only what is written out there is one; `token = read_token()` stays.
    """
    return _replace(text, (*_HINTS, "basic", "_pass"), _IN_PROGRAMS if is_program else _IN_DATA, _keep_lines)


def _keep_lines(match: re.Match[str]) -> str:
    return f"{match[1]}{REDACTED}" + "\n" * match[0].count("\n", len(match[1]))


def _replace(
    text: str,
    hints: Sequence[str],
    patterns: Sequence[re.Pattern[str]],
    new: str | Callable[[re.Match[str]], str] = _REPLACEMENT,
) -> str:
    lower = text.translate(_LOOKALIKES).lower()
    if not any(map(lower.__contains__, hints)):
        return text
    for pattern in patterns:
        text = pattern.sub(new, text)
    return text


def redact_line(text: str, limit: int) -> str:
    """Return the beginning of the text on one line of at most `limit` characters, without secrets.

    It is redacted before it is cut: half a key is no longer recognised as one.
    """
    return one_line(redact(text[: max(2_000, 4 * limit)]), limit)


def mask(text: str, values: Mapping[str, object]) -> str:
    """Return `text` with each value that stands in it as a word of its own replaced by the value's name in brackets.

    values: by name. Longer ones are replaced first, so that nothing remains of a value that holds another. Booleans are
    left: yes and no identify nobody.
    """
    pairs = [(str(value), name) for name, value in values.items() if not isinstance(value, bool) and str(value).strip()]
    for value, name in sorted(pairs, key=lambda pair: -len(pair[0])):
        if value in text:
            text = re.sub(rf"(?<!\w){re.escape(value)}(?!\w)", lambda _, name=name: f"[{name}]", text)
    return text


def mask_values(obj: Any, values: Mapping[str, object]) -> Any:
    """Return nested dicts and lists with `mask` applied to every string."""
    return map_texts(obj, lambda text: mask(text, values)) if values else obj


def map_texts(value: Any, change: Callable[[str], str], look: Callable[[_Object], _Object] = dict) -> Any:
    """Return nested dicts, lists and tuples with every string changed; other objects stay as they are.

    look: returns each dict as it is to be gone through.
    """
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {key: map_texts(part, change, look) for key, part in look(cast("_Object", value)).items()}
    if isinstance(value, list | tuple):
        parts = [map_texts(part, change, look) for part in cast("Sequence[Any]", value)]
        return parts if isinstance(value, list) else tuple(parts)
    return value


def is_secret_key(name: str, keys: Collection[str] = SECRET_KEYS) -> bool:
    """Return whether a key called `name` holds a secret: it is, or ends with, one of `keys`, in any case and spelling.

    `X-Api-Key`, `openai_api_key` and `apiKey` end with `api_key`; `max_tokens` does not end with `token`.
    """
    letters = _letters_of(name)
    return any(letters.endswith(_letters_of(key)) for key in keys if key)


def redact_values(obj: Any, keys: Collection[str] = SECRET_KEYS) -> Any:
    """Return a copy of nested dicts and lists: values under secret keys are `[redacted]`, all strings redacted.

    Other objects stay as they are. What is nested too deeply to look at becomes `[redacted]` as a whole.
    """

    def hide(fields: _Object) -> _Object:
        return {
            key: REDACTED if value is not None and is_secret_key(str(key), keys) else value
            for key, value in fields.items()
        }

    try:
        return map_texts(obj, redact, hide)
    except RecursionError:
        return REDACTED


def _letters_of(name: str) -> str:
    return "".join(char for char in name.lower() if char.isalnum())


def show_start(secret: str) -> str:
    """Return the first characters of a secret, a quarter of it at most."""
    return f"{secret[: min(7, len(secret) // 4)]}..."
