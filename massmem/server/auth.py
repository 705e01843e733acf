"""Authentication: JSON Web Tokens (RFC 7519), API keys, and the cookie of the page.

The browser of a user of the page sends a cookie instead of an Authorization header: a random number. A user of the
service gets it for a key or token, and the store has its hash; this machine's user for a token that `massmem ui` makes
and that can be used once, or by a key that the browser was given then.
"""

import hmac
import logging
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from ipaddress import ip_address
from pathlib import Path
from socket import gethostname
from typing import Any, Generic, TypeVar
from urllib.parse import urlsplit

import jwt
from fastapi import Request, Response
from pydantic import SecretStr

from massmem.config.home import expand_home
from massmem.config.load import MIN_JWT_SECRET
from massmem.config.models import JwtConfig, ServerConfig
from massmem.core.errors import InputError
from massmem.core.events import now
from massmem.core.records import MAX_SUBJECT_LENGTH, PageSession, hash_api_key, is_api_key, is_subject
from massmem.server.errors import RETRY_LATER, Expired, Rejected, RetryLater, Unauthorized
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
    """`admin`, `metrics`."""
    credential: Mapping[str, Any] = field(default_factory=dict[str, Any], compare=False, repr=False)
    """Of the key or token: what a `PageSession` has of it."""

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
            "verify_iat": False,  # where the clock was set back, a new token is from the future
            "enforce_minimum_key_length": True,
        }

    def authenticate(self, headers: list[str]) -> User:
        """Return the user that the Authorization headers of a request name. Raise Unauthorized."""
        claims, signed_with = self._decode(_read_bearer_token(headers))
        now = time.time()
        exp, iat = claims["exp"], claims.get("iat", now)
        if not (_is_number(exp) and _is_number(iat)):
            raise Unauthorized("the token is not valid")
        if exp - min(now, iat) > self._config.max_lifetime:
            raise Unauthorized("the token lives too long")
        if not is_subject(claims["sub"]):
            raise Unauthorized("the token's subject is not valid")
        token_id, scope = claims.get("jti", ""), claims.get("scope")
        self._check_revocation(token_id)
        expires_at = datetime.fromtimestamp(exp, UTC)
        credential = {"token_id": token_id, "signed_with": signed_with, "expires_at": expires_at}
        return User(claims["sub"], frozenset(scope.split() if isinstance(scope, str) else ()), credential)

    def check(self, session: PageSession) -> None:
        """Raise Unauthorized when the token that let a browser in counts no longer."""
        if session.signed_with not in {_mark_key(kid, key) for kid, key in self._keys.items()}:
            raise Unauthorized("the token's key is not known")
        self._check_revocation(session.token_id)

    @property
    def _keys(self) -> Keys:
        return self._secrets if self._public_keys is None else self._public_keys.read()

    def _check_revocation(self, token_id: str) -> None:
        if self._revoked is not None and token_id in self._revoked.read():
            raise Unauthorized("the token was revoked")

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

    def _decode(self, token: str) -> tuple[Mapping[str, Any], str]:
        """Return the claims of a token, and a mark of the key that it was checked with."""
        config = self._config
        try:
            kid = jwt.get_unverified_header(token).get("kid")
            key = _find_key(self._keys, kid)
            claims = jwt.decode(
                token,
                key,
                algorithms=[config.algorithm],
                audience=config.audience,
                issuer=config.issuer,
                options=self._options,
            )
            return claims, _mark_key(kid, key)
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
    return await _find_key_user(hash_api_key(text), store)


async def _find_key_user(key_hash: str, store: SessionStore) -> User:
    key = await store.find_key(key_hash)
    if key is None and not store.info.durable:
        raise RetryLater(503, "keys cannot be checked now", RETRY_LATER)
    if key is None:
        raise Unauthorized("the key is not known, or was revoked")
    if key.expires_at is not None and key.expires_at <= now():
        raise Expired("the key has expired")
    credential = {"key_hash": key_hash, "expires_at": key.expires_at or datetime.max.replace(tzinfo=UTC)}
    return User(key.sub, frozenset(key.scope.split()), credential)


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


def _mark_key(kid: str | None, key: Any) -> str:
    data = key if isinstance(key, bytes) else repr(key.key.public_numbers()).encode()
    return sha256(f"{kid}\0".encode() + data).hexdigest()[:16]


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
"""A browser asks before it sends such a header to another origin, and we say no."""

_COOKIE = "massmem-"

LIFETIME, IDLE = timedelta(days=7), timedelta(days=1)
"""How long a browser stays in at most, and without a request."""
_RENEW_AFTER = timedelta(minutes=5)
"""Requests within it count as one use, so that not every request is a write."""


class PageToken:
    """Lets one browser of this machine's user in, once, and again those that have its key: see `massmem ui`."""

    def __init__(self, text: str = "", file: Path | None = None, key: str = "") -> None:
        """text: "" for none. file: holds it, and goes when it is used up. key: see `Settings.page_key`."""
        self.key = key
        self.challenge = secrets.token_hex(16)
        """Of this process: whoever listens on its port before it learns nothing that counts here."""
        self.is_used = not text
        self.user = User(None, credential={"signed_with": sha256(text.encode()).hexdigest()} if text else {})
        self._file = file

    def use(self, text: str) -> bool:
        """Return whether this is the token, which is used up then, or the challenge signed with the key."""
        proof = hmac.digest(bytes.fromhex(self.key), self.challenge.encode(), "sha256").hex()
        if self.key and secrets.compare_digest(proof.encode(), text.encode(errors="replace")):
            return True
        if self.is_used or not secrets.compare_digest(self.user.credential["signed_with"], _hash(text)):
            return False
        self.is_used = True
        if self._file is not None:
            self._file.unlink(missing_ok=True)
        return True

    def admits(self, session: PageSession) -> bool:
        """Return whether it has let this browser in: that of another `massmem ui` has not."""
        return session.signed_with == self.user.credential.get("signed_with")


async def open_page_session(user: User, store: SessionStore) -> str:
    """Return a cookie that stands for the user for as long as the key or token does that they have come with."""
    cookie, moment, scope = secrets.token_urlsafe(32), now(), " ".join(sorted(user.scopes))
    latest = {"expires_at": min(user.credential.get("expires_at", moment + LIFETIME), moment + LIFETIME)}
    fields = {"cookie_hash": _hash(cookie), "sub": user.sub or "", "scope": scope, "used_at": moment}
    await store.add_page_session(PageSession(**fields, **{**user.credential, **latest}))
    return cookie


async def close_page_session(cookie: str, store: SessionStore) -> None:
    await store.delete_page_session(_hash(cookie))


async def authenticate_cookie(cookie: str, page_token: PageToken, tokens: Tokens, store: SessionStore) -> User:
    """Return the user whose browser has this cookie. Its key or token is looked at every time.

    Raises as `authenticate`.
    """
    session, moment = await store.find_page_session(_hash(cookie)), now()
    if session is None and not store.info.durable:
        raise RetryLater(503, "browsers cannot be recognised now", RETRY_LATER)
    if session is None or moment >= session.expires_at or moment - session.used_at >= IDLE:
        raise Unauthorized("come in again: the browser is not known, or was away for too long")
    if page_token.admits(session):
        user = page_token.user
    elif session.key_hash:
        user = await _find_key_user(session.key_hash, store)
    else:
        tokens.check(session)
        user = User(session.sub, frozenset(session.scope.split()))
    if moment - session.used_at > _RENEW_AFTER:
        await store.renew_page_session(session.model_copy(update={"used_at": moment}))
    return user


def _hash(cookie: str) -> str:
    return sha256(cookie.encode()).hexdigest()


def check_page(request: Request) -> None:
    """Raise Rejected unless our own page sends the request, and by a name under which the service is known.

    Every request that a cookie authorises passes here, and those that give or take a cookie.
    """
    server: ServerConfig = request.app.state.server
    hosts = {known.lower() for known in server.hosts}
    host = request.headers.get("host", "").lower()
    name = _read_host(host)[0]
    is_own = name in ("localhost", gethostname().lower(), server.host.lower()) or name.endswith(".localhost")
    if not (is_own or _is_ip_address(name) or {host, name} & hosts):
        raise Rejected(421, "the page is not served under this name; whoever runs the service adds it to server.hosts")
    origins = {urlsplit(origin.lower()).netloc for origin in request.headers.getlist("origin")}
    is_same_site = request.headers.get("sec-fetch-site", "same-origin") == "same-origin"
    if _HEADER not in request.headers or not is_same_site or not origins <= {host, *hosts}:
        raise Rejected(403, "only the page of this service may do this")


def read_cookie(request: Request) -> str | None:
    """Return the cookie of the page; None: there is none. Raises as `check_page`."""
    if not any(name.removeprefix("__Host-").startswith(_COOKIE) for name in request.cookies):
        return None
    check_page(request)
    return request.cookies.get(_cookie_name(request))


def set_cookie(request: Request, response: Response, value: str) -> None:
    """Let the browser send this cookie from now on, until it is closed; "" deletes it."""
    is_secure = request.url.scheme == "https"
    age = None if value else 0
    name = _cookie_name(request)
    response.set_cookie(name, value, max_age=age, path="/", httponly=True, samesite="strict", secure=is_secure)


def _cookie_name(request: Request) -> str:
    """Browsers send cookies to all ports of a host: each service has a name of its own.

    With the prefix, a browser takes the cookie from this very host alone, and over HTTPS.
    """
    scheme = request.url.scheme
    port = _read_host(request.headers.get("host", ""))[1]
    return f"{'__Host-' if scheme == 'https' else ''}{_COOKIE}{port or scheme}"


def _read_host(host: str) -> tuple[str, int | None]:
    """Return name and port of a Host header, ("", None) when there are none."""
    try:
        address = urlsplit(f"//{host}")
        return address.hostname or "", address.port
    except ValueError:
        return "", None


def _is_ip_address(name: str) -> bool:
    """Whether it is an IP address: no other site's name leads to it."""
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
