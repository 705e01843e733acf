"""Authentication: JSON Web Tokens (RFC 7519), API keys, and the cookie of the page.

The browser of a user of the page sends a cookie instead of an Authorization header. That of a user of the service holds
the key or token that they have given; that of this machine's user a random number, for which `massmem ui` gives a token
that can be used once.
"""

import logging
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import jwt
from fastapi import Request, Response
from pydantic import SecretStr

from massmem.config.home import expand_home
from massmem.config.load import MIN_JWT_SECRET
from massmem.config.models import JwtConfig
from massmem.core.errors import InputError
from massmem.core.events import now
from massmem.core.records import MAX_SUBJECT_LENGTH, hash_api_key, is_api_key, is_subject
from massmem.server.errors import RETRY_LATER, Expired, RetryLater, Unauthorized
from massmem.store.ports import SessionStore

log = logging.getLogger(__name__)

T = TypeVar("T")
Keys = Mapping[str | None, Any]
"""Keys by the name (kid) that tokens give; None: for tokens that name no key."""

MAX_TOKEN_LENGTH = 8_192
"""Characters. Most proxies refuse longer headers."""

_EXAMPLE_SECRETS = (
    "your-256-bit-secret",
    "your-secret",
    "secretsecret",
    "changeme",
    "change-me",
    "change_me",
    "replace",
)
_MIN_DIFFERENT_CHARACTERS = 8
_SECRET_HINT = "make one with: openssl rand -hex 32"


@dataclass(frozen=True, slots=True)
class User:
    """The sender of a request."""

    sub: str | None
    """The token's subject, which owns the sessions that it creates; None: the user of this machine (`massmem ui`)."""
    scopes: frozenset[str] = frozenset()
    """What else the token allows: `admin`, `metrics`."""

    @property
    def is_admin(self) -> bool:
        return "admin" in self.scopes


class Tokens:
    """Checks tokens as configured, and creates them where the configuration has a secret."""

    def __init__(self, config: JwtConfig) -> None:
        """Raise InputError when there is no key, or one that can be guessed."""
        self._config = config
        self._secrets = _read_secrets(config) if config.algorithm == "HS256" else {}
        self._public_keys = None if config.algorithm == "HS256" else ReloadingFile(_jwks_file(config), _read_jwks)
        revoked = config.revoked_file
        self._revoked = None if revoked is None else ReloadingFile(expand_home(revoked), _read_words)
        self._options: Any = {
            "require": ["exp", "sub"],
            "verify_aud": True,
            "verify_iss": config.issuer is not None,
            "enforce_minimum_key_length": True,
        }

    def authenticate(self, headers: list[str]) -> User:
        """Return the user that the Authorization headers of a request name. Raise Unauthorized."""
        claims = self._decode(_read_bearer_token(headers))
        now = time.time()
        exp, iat = claims["exp"], claims.get("iat", now)
        if not (_is_number(exp) and _is_number(iat)):
            raise Unauthorized("the token is not valid")
        if exp - min(now, iat) > self._config.max_lifetime:
            raise Unauthorized("the token lives too long")
        if not is_subject(claims["sub"]):
            raise Unauthorized("the token's subject is not valid")
        if self._revoked is not None and claims.get("jti") in self._revoked.read():
            raise Unauthorized("the token was revoked")
        scope = claims.get("scope")
        return User(claims["sub"], frozenset(scope.split() if isinstance(scope, str) else ()))

    def create(self, sub: str, seconds: int, scope: str = "") -> str:
        """Return a token for `sub` that lives for so many seconds.

        Raises InputError when the token would be refused, or there is no secret to sign it with.
        """
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
        if not is_subject(sub):
            raise InputError(
                f"a subject has 1 to {MAX_SUBJECT_LENGTH} printable characters", "give a user's name or id"
            )
        now = int(time.time())
        claims: dict[str, Any] = {"sub": sub, "iat": now, "exp": now + seconds, "jti": secrets.token_hex(16)}
        claims |= {"aud": config.audience} if config.audience else {}
        claims |= {"iss": config.issuer} if config.issuer else {}
        claims |= {"scope": scope} if scope else {}
        kid = next(reversed(config.keys), None)
        headers = {"kid": kid} if kid is not None else None
        return jwt.encode(claims, self._secrets[kid], "HS256", headers=headers)

    def _decode(self, token: str) -> Mapping[str, Any]:
        config = self._config
        keys = self._secrets if self._public_keys is None else self._public_keys.read()
        try:
            return jwt.decode(
                token,
                _find_key(keys, jwt.get_unverified_header(token).get("kid")),
                algorithms=[config.algorithm],
                audience=config.audience,
                issuer=config.issuer,
                options=self._options,
            )
        except jwt.ExpiredSignatureError as e:
            raise Expired("the token has expired") from e
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError, OverflowError) as e:
            raise Unauthorized("the token is not valid") from e


async def authenticate(headers: list[str], tokens: Tokens, store: SessionStore) -> User:
    """Return the user that the Authorization headers of a request name, by a token or by an API key.

    Keys are looked up every time: one that was revoked is refused from the next request on.

    Raises:
        Unauthorized: There is no valid token and no valid key.
        RetryLater: Keys cannot be checked: the store is away, and sessions are held in memory.
        StoreError: The store cannot be read.
    """
    text = _read_bearer_token(headers)
    if not is_api_key(text):
        return tokens.authenticate(headers)
    key = await store.find_key(hash_api_key(text))
    if key is None and not store.info.durable:
        raise RetryLater(503, "keys cannot be checked now", RETRY_LATER)
    if key is None:
        raise Unauthorized("the key is not known, or was revoked")
    if key.expires_at is not None and key.expires_at <= now():
        raise Expired("the key has expired")
    return User(key.sub, frozenset(key.scope.split()))


class ReloadingFile(Generic[T]):
    """A file's contents, read again when the file has changed, so that keys can change without a restart."""

    def __init__(self, path: Path, parse: Callable[[Path], T], check_every: float = 1.0) -> None:
        """Read the file with `parse`, and look for changes every so many seconds. Raise InputError as `parse` does."""
        self._path = path
        self._parse = parse
        self._check_every = check_every
        self._version = _file_version(path)
        self._content = parse(path)
        self._checked_at = time.monotonic()

    def read(self) -> T:
        """Return the contents; when the file cannot be used, those that it had before."""
        if time.monotonic() - self._checked_at >= self._check_every:
            self._checked_at = time.monotonic()
            version = _file_version(self._path)
            if version != self._version:
                self._version = version
                try:
                    self._content = self._parse(self._path)
                except InputError as e:
                    log.error("the file's earlier contents stay in use: %s", e.message)  # noqa: TRY400 - no traceback
        return self._content


def _read_bearer_token(headers: list[str]) -> str:
    if len(headers) != 1:
        if headers:
            raise Unauthorized("one Authorization header is needed", "invalid_request")
        raise Unauthorized("a bearer token is needed", "")
    scheme, _, token = headers[0].partition(" ")
    if scheme.lower() != "bearer" or not token:
        raise Unauthorized("a bearer token is needed", "")
    if len(token) > MAX_TOKEN_LENGTH:
        raise Unauthorized("the token is too long")
    return token


def _file_version(path: Path) -> tuple[int, int, int]:
    try:
        stat = path.stat()
    except OSError:
        return 0, 0, 0
    return stat.st_mtime_ns, stat.st_size, stat.st_ino


def _find_key(keys: Keys, kid: object) -> Any:
    if kid is not None and not isinstance(kid, str):
        raise Unauthorized("the token is not valid")
    if kid not in keys:
        raise Unauthorized("the token's key is not known")
    return keys[kid]


def _is_number(value: object) -> bool:
    """A number in quotes is not a NumericDate (RFC 7519, section 2)."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _read_secrets(config: JwtConfig) -> dict[str | None, bytes]:
    keys: dict[str | None, bytes] = {}
    if config.secret is not None:
        keys[None] = _check_secret("server.jwt.secret", config.secret)
    for kid, secret in config.keys.items():
        keys[kid] = _check_secret(f"server.jwt.keys.{kid}", secret)
    if not keys:
        raise InputError(
            "there is no secret to check tokens with: server.jwt.secret is not set",
            f"{_SECRET_HINT}; and export it as MASSMEM_JWT_SECRET",
        )
    return keys


def _check_secret(name: str, secret: SecretStr) -> bytes:
    text = secret.get_secret_value()
    data = text.encode()
    if len(data) < MIN_JWT_SECRET:
        raise InputError(f"{name} is too short: it needs {MIN_JWT_SECRET} bytes or more", _SECRET_HINT)
    if text.lower().startswith(_EXAMPLE_SECRETS) or len(set(text)) < _MIN_DIFFERENT_CHARACTERS:
        raise InputError(f"{name} can be guessed: it is a well-known example, or repeats itself", _SECRET_HINT)
    return data


def _jwks_file(config: JwtConfig) -> Path:
    if config.jwks_file is None:
        raise InputError(f"{config.algorithm} needs public keys", "name a file with them: server.jwt.jwks_file")
    return expand_home(config.jwks_file)


def _read_jwks(path: Path) -> Keys:
    """Read a JSON Web Key Set; the only key of a file also counts for tokens that name no key."""
    try:
        jwks = jwt.PyJWKSet.from_json(path.read_text()).keys
    except (OSError, ValueError, jwt.PyJWTError) as e:
        raise InputError(f"{path} cannot be read as public keys: {e}", "it must be a JSON Web Key Set") from e
    keys: dict[str | None, Any] = {key.key_id: key for key in jwks if key.key_type != "oct"}
    if not keys:
        raise InputError(f"{path} has no public key", "it must be a JSON Web Key Set of RSA or EC keys")
    return keys if len(jwks) > 1 else {**keys, None: next(iter(keys.values()))}


def _read_words(path: Path) -> frozenset[str]:
    try:
        return frozenset(path.read_text().split())
    except (OSError, ValueError) as e:
        raise InputError(f"{path} cannot be read: {e}", "see server.jwt.revoked_file") from e


_HEADER = "X-Massmem-Page"
"""Only our own page can send it: a browser asks before it sends such a header to another origin, and we say no."""

MAX_COOKIE_LENGTH = 3_800
"""Characters. Browsers ignore longer ones without a word."""


class Visitors:
    """The browsers of this machine's user that have been let in. Only for a single process."""

    def __init__(self, token: str = "") -> None:
        """token: lets one browser in, once; "" for none."""
        self._token = token
        self._admitted: set[str] = set()

    def exchange(self, token: str) -> str | None:
        """Return a cookie for the token, which is used up then; None: it is not the token, or was used before."""
        if not self._token or not secrets.compare_digest(self._token.encode(), token.encode()):
            return None
        self._token = ""
        cookie = secrets.token_urlsafe(32)
        self._admitted.add(cookie)
        return cookie

    def admits(self, cookie: str) -> bool:
        return cookie in self._admitted

    def dismiss(self, cookie: str) -> None:
        """Admit the cookie no longer."""
        self._admitted.discard(cookie)


def is_from_page(request: Request) -> bool:
    """Return whether our own page sends the request, and no page of another origin."""
    return _HEADER in request.headers


def read_cookie(request: Request) -> str | None:
    """Return the cookie of the page, if the page sends the request."""
    return request.cookies.get(_cookie_name(request)) if is_from_page(request) else None


def set_cookie(request: Request, response: Response, value: str) -> None:
    """Let the browser send this cookie from now on, until it is closed; "" deletes it."""
    response.set_cookie(
        _cookie_name(request),
        value,
        max_age=None if value else 0,
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )


def _cookie_name(request: Request) -> str:
    """Browsers send cookies to all ports of a host: each service has a name of its own."""
    return f"massmem-{request.url.port or request.url.scheme}"
