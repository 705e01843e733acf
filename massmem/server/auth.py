"""Who sends a request: tokens (JWT, RFC 7519) checked, and made."""

import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jwt
from pydantic import SecretStr

from massmem.config.service import JwtConfig
from massmem.errors import InputError
from massmem.server.watched import Watched

LONGEST_TOKEN = 8_192
"""Characters. A header of that size is as much as most proxies let through."""

SHORTEST_SECRET = 32
"""Bytes: as many as the hash has (RFC 7518, section 3.2)."""

LONGEST_SUBJECT = 255
"""Characters; as RFC 7519 and OpenID Connect have it."""

_MOST_KEPT = 1_000
"""Tokens whose signature was checked."""

_WELL_KNOWN = ("your-256-bit-secret", "your-secret", "secretsecret", "changeme", "change-me", "change_me", "replace")
_FEWEST_CHARACTERS = 8
_MAKE_ONE = "make one with: openssl rand -hex 32"


class Refused(Exception):
    """The request has no token that counts. The message is for its sender, and never quotes the token."""


@dataclass(frozen=True, slots=True)
class User:
    """sub: whose sessions these are. scopes: what else the token allows."""

    sub: str
    scopes: frozenset[str] = frozenset()

    @property
    def admin(self) -> bool:
        return "admin" in self.scopes


class Tokens:
    """Checks tokens by the configuration, and makes them where it has a secret."""

    def __init__(self, config: JwtConfig) -> None:
        """Raises InputError when there is no key, or one that can be guessed."""
        self._config = config
        self._secrets = _secrets(config) if config.algorithm == "HS256" else {}
        self._keys = Watched(_jwks_file(config), _read_jwks) if config.algorithm != "HS256" else None
        revoked = config.revoked_file
        self._checked: dict[str, Mapping[str, Any]] = {}
        self._checked_with: Mapping[str | None, Any] = {}
        self._revoked = Watched(Path(revoked).expanduser(), _read_lines) if revoked is not None else None
        self._options: Any = {
            "require": ["exp", "sub"],
            "verify_aud": True,
            "verify_iss": config.issuer is not None,
            "enforce_minimum_key_length": True,
        }

    def user(self, headers: list[str]) -> User:
        """Who sends a request with these Authorization headers. Raises Refused."""
        if len(headers) != 1:
            raise Refused("one Authorization header is needed" if headers else "a bearer token is needed")
        scheme, _, token = headers[0].partition(" ")
        if scheme.lower() != "bearer" or not token:
            raise Refused("a bearer token is needed")
        if len(token) > LONGEST_TOKEN:
            raise Refused("the token is too long")
        claims = self._claims(token)
        return User(_subject(claims), frozenset(_words(claims.get("scope"))))

    def make(self, sub: str, seconds: int, scope: str = "") -> str:
        """A token for `sub`. Raises InputError when it would be refused, or there is no secret to sign it with."""
        config = self._config
        if config.algorithm != "HS256":
            raise InputError(
                f"tokens are checked with {config.algorithm}: whoever has the private key makes them",
                "use the program that made server.jwt.jwks_file",
            )
        if not 0 < seconds <= config.max_lifetime:
            raise InputError(
                f"a token may live for {config.max_lifetime} seconds at most", "see server.jwt.max_lifetime"
            )
        if not _is_subject(sub):
            raise InputError(f"a subject has 1 to {LONGEST_SUBJECT} printable characters", "give a user's name or id")
        at = int(time.time())
        claims: dict[str, Any] = {"sub": sub, "iat": at, "exp": at + seconds, "jti": secrets.token_hex(16)}
        claims |= {"aud": config.audience} if config.audience else {}
        claims |= {"iss": config.issuer} if config.issuer else {}
        claims |= {"scope": scope} if scope else {}
        kid = next(reversed(config.keys), None)
        headers = {"kid": kid} if kid is not None else None
        return jwt.encode(claims, self._secrets[kid], "HS256", headers=headers)

    def _claims(self, token: str) -> Mapping[str, Any]:
        """Signatures are checked once, as long as the keys are the same; what time changes is looked at every time."""
        keys: Mapping[str | None, Any] = self._secrets if self._keys is None else self._keys.value()
        if keys is not self._checked_with:
            self._checked, self._checked_with = {}, keys
        claims = self._checked.get(token)
        if claims is None:
            claims = self._decoded(token, keys)
            while len(self._checked) >= _MOST_KEPT:
                del self._checked[next(iter(self._checked))]
            self._checked[token] = claims
        if claims["exp"] <= time.time():
            raise Refused("the token has expired")
        if self._revoked is not None and claims.get("jti") in self._revoked.value():
            raise Refused("the token was revoked")
        return claims

    def _decoded(self, token: str, keys: Mapping[str | None, Any]) -> Mapping[str, Any]:
        config = self._config
        try:
            claims: dict[str, Any] = jwt.decode(
                token,
                _key(keys, jwt.get_unverified_header(token).get("kid")),
                algorithms=[config.algorithm],
                audience=config.audience,
                issuer=config.issuer,
                options=self._options,
            )
        except jwt.ExpiredSignatureError as e:
            raise Refused("the token has expired") from e
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError, OverflowError) as e:
            raise Refused("the token is not valid") from e
        at = time.time()
        exp, iat = claims["exp"], claims.get("iat", at)
        if not (_is_time(exp) and _is_time(iat)):
            raise Refused("the token is not valid")
        if exp - min(at, iat) > config.max_lifetime:
            raise Refused("the token lives too long")
        return claims


def _key(keys: Mapping[str | None, Any], kid: object) -> Any:
    if kid is not None and not isinstance(kid, str):
        raise Refused("the token is not valid")
    if kid not in keys:
        raise Refused("the token's key is not known")
    return keys[kid]


def _is_time(value: object) -> bool:
    """A JSON number; a number in quotes is not one (RFC 7519, section 2: NumericDate)."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _subject(claims: Mapping[str, Any]) -> str:
    sub = claims["sub"]
    if not (isinstance(sub, str) and _is_subject(sub)):
        raise Refused("the token's subject is not valid")
    return sub


def _is_subject(sub: str) -> bool:
    return 0 < len(sub) <= LONGEST_SUBJECT and sub.isprintable() and bool(sub.strip())


def _words(scope: object) -> list[str]:
    return scope.split() if isinstance(scope, str) else []


def _secrets(config: JwtConfig) -> dict[str | None, bytes]:
    found: dict[str | None, bytes] = {}
    if config.secret is not None:
        found[None] = _checked("server.jwt.secret", config.secret)
    for kid, secret in config.keys.items():
        found[kid] = _checked(f"server.jwt.keys.{kid}", secret)
    if not found:
        raise InputError(
            "there is no secret to check tokens with: server.jwt.secret is not set",
            f"{_MAKE_ONE}; and export it as MASSMEM_JWT_SECRET",
        )
    return found


def _checked(name: str, secret: SecretStr) -> bytes:
    text = secret.get_secret_value()
    data = text.encode()
    if len(data) < SHORTEST_SECRET:
        raise InputError(f"{name} is too short: {SHORTEST_SECRET} bytes are the least", _MAKE_ONE)
    if text.lower().startswith(_WELL_KNOWN) or len(set(text)) < _FEWEST_CHARACTERS:
        raise InputError(f"{name} can be guessed: it is a well-known example, or repeats itself", _MAKE_ONE)
    return data


def _jwks_file(config: JwtConfig) -> Path:
    if config.jwks_file is None:
        raise InputError(f"{config.algorithm} needs public keys", "name a file with them: server.jwt.jwks_file")
    return Path(config.jwks_file).expanduser()


def _read_jwks(path: Path) -> dict[str | None, Any]:
    """Keys by their names; the only key of a file counts also for tokens that name none."""
    try:
        keys = jwt.PyJWKSet.from_json(path.read_text()).keys
        found: dict[str | None, Any] = {key.key_id: key for key in keys if not _is_shared(key)}
    except (OSError, ValueError, jwt.PyJWTError) as e:
        raise InputError(f"{path} cannot be read as public keys: {e}", "it must be a JSON Web Key Set") from e
    if not found:
        raise InputError(f"{path} has no public key", "it must be a JSON Web Key Set of RSA or EC keys")
    return found if len(keys) > 1 else {**found, None: next(iter(found.values()))}


def _is_shared(key: Any) -> bool:
    return key.key_type == "oct"


def _read_lines(path: Path) -> frozenset[str]:
    try:
        return frozenset(path.read_text().split())
    except (OSError, ValueError) as e:
        raise InputError(f"{path} cannot be read: {e}", "see server.jwt.revoked_file") from e
