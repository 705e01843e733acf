"""API keys of the users of the HTTP service: how one is made, and what is stored of it.

Only the SHA-256 of a key is stored. That is enough: a key is 256 random bits, which nobody can guess from a hash,
however fast it is. Slow hashes protect passwords, which people choose.
"""

import secrets
from datetime import datetime
from hashlib import sha256

from pydantic import BaseModel, ConfigDict, Field

from massmem.core.errors import InputError

KEY_PREFIX = "sk-massmem-"
"""How keys begin. Programs that look for leaked keys, and `massmem.core.redact`, know `sk-`."""

MAX_KEY_NAME_LENGTH = 80
"""Characters."""

MAX_SUBJECT_LENGTH = 255
"""Characters (RFC 7519, OpenID Connect)."""


class ApiKey(BaseModel):
    """What is stored of a key."""

    model_config = ConfigDict(frozen=True)
    key_hash: str = Field(repr=False)
    """SHA-256 of the key, in hex."""
    id: str
    """What operators call it by."""
    sub: str
    """The user whom it stands for."""
    name: str = ""
    """What it is for, for people."""
    scope: str = ""
    """What else it allows, as the scopes of a token."""
    last_four: str
    """The last characters of the key, by which its owner knows it again."""
    created_at: datetime
    expires_at: datetime | None = None
    """None: it is valid until it is revoked."""


def make_api_key(
    sub: str, now: datetime, *, name: str = "", scope: str = "", expires_at: datetime | None = None
) -> tuple[str, ApiKey]:
    """Return a new key, and what is to be stored of it. Raise InputError: the subject or the name cannot be used."""
    if not is_subject(sub):
        raise InputError(f"a subject has 1 to {MAX_SUBJECT_LENGTH} printable characters", "give a user's name or id")
    if len(name) > MAX_KEY_NAME_LENGTH or not name.isprintable():
        raise InputError(f"the name of a key has {MAX_KEY_NAME_LENGTH} printable characters at most", "shorten --name")
    text = KEY_PREFIX + secrets.token_hex(32)
    key = ApiKey(
        key_hash=hash_api_key(text),
        id=f"key_{secrets.token_hex(4)}",
        sub=sub,
        name=name,
        scope=scope,
        last_four=text[-4:],
        created_at=now,
        expires_at=expires_at,
    )
    return text, key


def is_api_key(token: str) -> bool:
    """Whether a bearer token is one of our keys; else it is a JSON Web Token."""
    return token.startswith(KEY_PREFIX)


def hash_api_key(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def is_subject(sub: object) -> bool:
    """Whether this can be the name of a user."""
    return isinstance(sub, str) and 0 < len(sub) <= MAX_SUBJECT_LENGTH and sub.isprintable() and bool(sub.strip())
