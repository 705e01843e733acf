"""JSON Web Tokens: those that must be refused, by every known way to get one past a check, and those that must pass."""

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import ECAlgorithm, RSAAlgorithm
from jwt.warnings import InsecureKeyLengthWarning

from massmem.config.models import JwtConfig
from massmem.core.errors import InputError
from massmem.core.records import make_api_key
from massmem.server.auth import ReloadingFile, Tokens, User, authenticate
from massmem.server.errors import Unauthorized
from massmem.store import open_store

SECRET = "0123456789-abcdefghijklmnopqrstuvwxyz"
OTHER = "zyxwvutsrqponmlkjihgfedcba-9876543210"
RSA_KEY = rsa.generate_private_key(65537, 2048)
RSA_PEM = RSA_KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
ED_KEY = ed25519.Ed25519PrivateKey.generate()
EC_KEY = ec.generate_private_key(ec.SECP256R1())

Claims = dict[str, Any]


def make_tokens(**config: Any) -> Tokens:
    return Tokens(JwtConfig.model_validate({"secret": SECRET, **config}))


def make_claims(**changes: Any) -> Claims:
    now = int(time.time())
    values = {"sub": "alice", "iat": now, "exp": now + 600, **changes}
    return {name: value for name, value in values.items() if value is not None}


def sign(payload: Claims, key: Any = SECRET, algorithm: str = "HS256", **headers: Any) -> str:
    return jwt.encode(payload, key, algorithm, headers=headers or None)


def join_parts(header: Mapping[str, Any], payload: Mapping[str, Any], signature: bytes = b"") -> str:
    parts = [json.dumps(header).encode(), json.dumps(payload).encode(), signature]
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)


def sign_by_hand(payload: Claims, key: bytes, **headers: Any) -> str:
    """Sign by hand: PyJWT refuses to sign with a public key, or without a subject."""
    start = join_parts({"alg": "HS256", "typ": "JWT", **headers}, payload).rpartition(".")[0]
    mac = hmac.new(key, start.encode(), hashlib.sha256).digest()
    return f"{start}.{base64.urlsafe_b64encode(mac).rstrip(b'=').decode()}"


def bearer(token: str) -> list[str]:
    return [f"Bearer {token}"]


@pytest.fixture
def jwks(tmp_path: Path) -> Path:
    path = tmp_path / "keys.json"
    keys = [
        json.loads(RSAAlgorithm.to_jwk(RSA_KEY.public_key())) | {"kid": "r1", "alg": "RS256"},
        json.loads(ECAlgorithm.to_jwk(EC_KEY.public_key())) | {"kid": "e1", "alg": "ES256"},
    ]
    path.write_text(json.dumps({"keys": keys}))
    return path


NOW = int(time.time())
GOOD = sign(make_claims())
_HEAD, _, _SIGNATURE = GOOD.split(".")

REFUSED: dict[str, list[str]] = {
    "no header": [],
    "two headers": [f"Bearer {GOOD}", f"Bearer {GOOD}"],
    "two tokens in one header": [f"Bearer {GOOD}, Bearer {GOOD}"],
    "no scheme": [GOOD],
    "another scheme": [f"Basic {GOOD}"],
    "nothing after the scheme": ["Bearer "],
    "two blanks": [f"Bearer  {GOOD}"],
    "alg none": bearer(join_parts({"alg": "none", "typ": "JWT"}, make_claims())),
    "alg NONE with a signature": bearer(join_parts({"alg": "NONE"}, make_claims(), b"x")),
    "no alg": bearer(join_parts({"typ": "JWT"}, make_claims(), b"x")),
    "alg HS512": bearer(sign(make_claims(), SECRET * 2, "HS512")),
    "alg HS384": bearer(sign(make_claims(), SECRET * 2, "HS384")),
    "alg RS256 where a secret is shared": bearer(sign(make_claims(), RSA_KEY, "RS256")),
    "another secret": bearer(sign(make_claims(), OTHER)),
    "signature cut off": bearer(GOOD.rpartition(".")[0] + "."),
    "signature changed": bearer(GOOD[:-4] + ("AAAA" if not GOOD.endswith("AAAA") else "BBBB")),
    "claims changed": bearer(f"{_HEAD}.{join_parts({}, make_claims(sub='bob')).split('.')[1]}.{_SIGNATURE}"),
    "no exp": bearer(sign(make_claims(exp=None))),
    "exp in the past": bearer(sign(make_claims(exp=NOW - 1, iat=NOW - 60))),
    "exp is no number": bearer(sign(make_claims(exp="soon"))),
    "exp is a number in quotes": bearer(sign(make_claims(exp=str(NOW + 600)))),
    "exp is without end": bearer(sign(make_claims(exp=float("inf")))),
    "exp is true": bearer(sign(make_claims(exp=True))),
    "iat is a number in quotes": bearer(sign(make_claims(iat=str(NOW - 60)))),
    "iat is before the beginning of time": bearer(sign(make_claims(iat=-1e308))),
    "exp in a hundred years": bearer(sign(make_claims(exp=NOW + 3_153_600_000))),
    "a lifetime that begins in the past": bearer(sign(make_claims(iat=NOW - 90_000))),
    "a long lifetime without iat": bearer(sign(make_claims(iat=None, exp=NOW + 100_000))),
    "iat far in the future, exp after it": bearer(sign(make_claims(iat=NOW + 90_000, exp=NOW + 90_600))),
    "nbf in the future": bearer(sign(make_claims(nbf=NOW + 3_000))),
    "no sub": bearer(sign(make_claims(sub=None))),
    "sub is empty": bearer(sign(make_claims(sub=""))),
    "sub is blank": bearer(sign(make_claims(sub="  "))),
    "sub has a line break": bearer(sign(make_claims(sub="alice\nbob"))),
    "sub is too long": bearer(sign(make_claims(sub="a" * 256))),
    "sub is a number": bearer(sign_by_hand(make_claims(sub=7), SECRET.encode())),
    "sub is a list": bearer(sign_by_hand(make_claims(sub=["alice"]), SECRET.encode())),
    "alg EdDSA": bearer(sign(make_claims(), ED_KEY, "EdDSA")),
    "alg ES256 where a secret is shared": bearer(sign(make_claims(), EC_KEY, "ES256")),
    "claims are a list": bearer(join_parts({"alg": "HS256"}, ["alice"], b"x")),  # type: ignore[arg-type]
    "aud where none is expected": bearer(sign(make_claims(aud="other-service"))),
    "a kid that is not known": bearer(sign(make_claims(), kid="k9")),
    "kid is a path": bearer(sign(make_claims(), kid="../../../dev/null")),
    "kid is an object": bearer(sign_by_hand(make_claims(), SECRET.encode(), kid={"a": 1})),
    "crit that is not known": bearer(sign(make_claims(), crit=["exp2"], exp2=1)),
    "a token of 100 KB": bearer(sign(make_claims(pad="x" * 100_000))),
    "100 KB of nonsense": bearer("x" * 100_000),
    "no dots": bearer("nonsense"),
    "five parts": bearer("a.b.c.d.e"),
    "header is no JSON": bearer("bm9uc2Vuc2U." + GOOD.partition(".")[2]),
    "deeply nested": bearer("." .join([base64.urlsafe_b64encode(b"[" * 4000).decode(), "e30", "x"])),
    "characters that are not ASCII": bearer("äöü.äöü.äöü"),
}  # fmt: skip


@pytest.mark.parametrize("headers", REFUSED.values(), ids=REFUSED)
def test_invalid_token_is_refused(headers: list[str]) -> None:
    with pytest.raises(Unauthorized) as error:
        make_tokens().authenticate(headers)
    assert all(header.removeprefix("Bearer ") not in str(error.value) for header in headers if len(header) > 10)


REASONS = {
    "no header": ("a bearer token is needed", ""),
    "two headers": ("one Authorization header is needed", "invalid_request"),
    "another scheme": ("a bearer token is needed", ""),
    "exp in the past": ("the token has expired", "invalid_token"),
    "iat is a number in quotes": ("the token is not valid", "invalid_token"),
    "exp in a hundred years": ("the token lives too long", "invalid_token"),
    "another secret": ("the token is not valid", "invalid_token"),
    "sub is blank": ("the token's subject is not valid", "invalid_token"),
    "a kid that is not known": ("the token's key is not known", "invalid_token"),
    "kid is an object": ("the token is not valid", "invalid_token"),
    "a token of 100 KB": ("the token is too long", "invalid_token"),
}


@pytest.mark.parametrize("name", REASONS)
def test_refusal_names_its_reason(name: str) -> None:
    with pytest.raises(Unauthorized) as error:
        make_tokens().authenticate(REFUSED[name])
    assert (str(error.value), error.value.error) == REASONS[name]


def test_valid_token_is_accepted() -> None:
    assert make_tokens().authenticate([f"Bearer {GOOD}"]).sub == "alice"
    assert make_tokens().authenticate([f"bearer {GOOD}"]).sub == "alice"
    assert not make_tokens().authenticate([f"Bearer {GOOD}"]).is_admin
    assert make_tokens().authenticate(bearer(sign(make_claims(scope="metrics admin")))).is_admin
    assert not make_tokens().authenticate(bearer(sign(make_claims(scope="administrator")))).is_admin
    assert not make_tokens().authenticate(bearer(sign(make_claims(scope=["admin"])))).is_admin
    assert make_tokens().authenticate(bearer(sign(make_claims(iat=None)))).sub == "alice"


@pytest.mark.parametrize(("claim", "wrong"), [("aud", "other"), ("aud", None), ("iss", "other"), ("iss", None)])
def test_wrong_audience_or_issuer_is_refused(claim: str, wrong: str | None) -> None:
    tokens = make_tokens(audience="massmem", issuer="us")
    right = {"aud": "massmem", "iss": "us"}
    assert tokens.authenticate(bearer(sign(make_claims(**right)))).sub == "alice"
    with pytest.raises(Unauthorized):
        tokens.authenticate(bearer(sign(make_claims(**{**right, claim: wrong}))))


def test_key_is_chosen_by_its_name() -> None:
    tokens = make_tokens(secret=None, keys={"old": SECRET, "new": OTHER})
    created = tokens.create("alice", 60)
    assert jwt.get_unverified_header(created)["kid"] == "new"
    for token in (created, sign(make_claims(), SECRET, kid="old"), sign(make_claims(), OTHER, kid="new")):
        assert tokens.authenticate(bearer(token)).sub == "alice"
    for token in (GOOD, sign(make_claims(), SECRET, kid="new"), sign(make_claims(), OTHER, kid="old")):
        with pytest.raises(Unauthorized):
            tokens.authenticate(bearer(token))
    with pytest.raises(Unauthorized):
        make_tokens(secret=None, keys={"new": OTHER}).authenticate(bearer(sign(make_claims(), SECRET, kid="old")))


def test_only_tokens_of_the_configured_public_key_are_accepted(jwks: Path) -> None:
    by_rsa = make_tokens(secret=None, algorithm="RS256", jwks_file=str(jwks))
    assert by_rsa.authenticate(bearer(sign(make_claims(), RSA_KEY, "RS256", kid="r1"))).sub == "alice"
    by_ec = make_tokens(secret=None, algorithm="ES256", jwks_file=str(jwks))
    assert by_ec.authenticate(bearer(sign(make_claims(), EC_KEY, "ES256", kid="e1"))).sub == "alice"
    strange = rsa.generate_private_key(65537, 2048)
    for token in (
        sign_by_hand(make_claims(), RSA_PEM, kid="r1"),
        sign_by_hand(make_claims(), RSA_PEM),
        join_parts({"alg": "none", "kid": "r1"}, make_claims()),
        sign(make_claims(), strange, "RS256", kid="r1"),
        sign(make_claims(), RSA_KEY, "RS256", kid="r2"),
        sign(make_claims(), RSA_KEY, "RS256"),
        sign(make_claims(), RSA_KEY, "RS512", kid="r1"),
        sign(make_claims(), RSA_KEY, "PS256", kid="r1"),
        sign(make_claims(), EC_KEY, "ES256", kid="e1"),
        sign(make_claims(), EC_KEY, "ES256", kid="r1"),
        sign(make_claims(), strange, "RS256", jwk={"kty": "RSA"}, kid="r1"),
        sign(make_claims(), strange, "RS256", jku="http://127.0.0.1:1/keys.json", kid="r1"),
        GOOD,
    ):
        with pytest.raises(Unauthorized):
            by_rsa.authenticate(bearer(token))
    with pytest.raises(InputError, match="private key"):
        by_rsa.create("alice", 60)


def test_changed_file_is_read_again_and_a_broken_one_is_not(tmp_path: Path) -> None:
    def parse(path: Path) -> str:
        text = path.read_text()
        if not text:
            raise InputError("the file is empty", "")
        return text

    path = tmp_path / "file"
    path.write_text("one")
    file = ReloadingFile(path, parse, check_every=0)
    assert file.read() == "one"
    path.write_text("")
    assert file.read() == "one"
    path.write_text("other")
    assert file.read() == "other"


def test_key_file_and_revoked_file_may_change(jwks: Path, tmp_path: Path) -> None:
    revoked = tmp_path / "revoked"
    revoked.write_text("")
    tokens = make_tokens(secret=None, algorithm="RS256", jwks_file=str(jwks), revoked_file=str(revoked))
    key = rsa.generate_private_key(65537, 2048)
    old = bearer(sign(make_claims(), RSA_KEY, "RS256", kid="r1"))
    new = bearer(sign(make_claims(), key, "RS256", kid="r2"))
    revocable = bearer(sign(make_claims(jti="j1"), key, "RS256", kid="r2"))
    assert tokens.authenticate(old).sub == "alice"
    with pytest.raises(Unauthorized):
        tokens.authenticate(new)
    jwks.write_text(json.dumps({"keys": [json.loads(RSAAlgorithm.to_jwk(key.public_key())) | {"kid": "r2"}]}))
    revoked.write_text("j1")
    time.sleep(1.1)  # files are looked at once a second
    assert tokens.authenticate(new).sub == "alice"
    with pytest.raises(Unauthorized):
        tokens.authenticate(old)
    with pytest.raises(Unauthorized, match="revoked"):
        tokens.authenticate(revocable)


def test_revoked_token_is_refused(tmp_path: Path) -> None:
    revoked = tmp_path / "revoked"
    revoked.write_text("j1\nj2\n")
    tokens = make_tokens(revoked_file=str(revoked))
    assert tokens.authenticate(bearer(sign(make_claims(jti="j3")))).sub == "alice"
    with pytest.raises(Unauthorized, match="revoked"):
        tokens.authenticate(bearer(sign(make_claims(jti="j2"))))


@pytest.mark.parametrize(
    "secret",
    [
        "tiny",
        "0123456789abcdefghijklmnopqrstu",
        "your-256-bit-secret-your-256-bit-secret",
        "changeme-changeme-changeme-changeme",
        "a" * 64,
        "abcabcabcabcabcabcabcabcabcabcabcabc",
    ],
)
def test_secret_that_can_be_guessed_is_rejected(secret: str) -> None:
    for config in ({"secret": secret}, {"keys": {"k": secret}}):
        with pytest.raises(InputError, match=r"too short|guessed") as error:
            make_tokens(**config)
        assert "openssl rand" in error.value.hint
        assert secret not in error.value.message


def test_missing_key_is_an_error() -> None:
    with pytest.raises(
        InputError, match=r"^there is no secret to check tokens with: server\.jwt\.secret is not set$"
    ) as error:
        make_tokens(secret=None)
    assert error.value.hint == "make one with: openssl rand -hex 32; and export it as MASSMEM_JWT_SECRET"
    with pytest.raises(InputError, match=r"^RS256 needs public keys$") as error:
        make_tokens(algorithm="RS256")
    assert error.value.hint == "name a file with them: server.jwt.jwks_file"
    with pytest.raises(InputError, match=r"^server\.jwt\.secret is too short"):
        make_tokens(secret="x")
    with pytest.raises(InputError, match=r"^server\.jwt\.keys\.k is too short"):
        make_tokens(keys={"k": "x"})


def test_shortest_secrets_are_accepted() -> None:
    make_tokens(secret="abcdefghi" + "a" * 23)
    make_tokens(secret="abcdefgh" + "a" * 24)


def test_public_key_that_is_too_short_is_of_no_use(tmp_path: Path) -> None:
    key = rsa.generate_private_key(65537, 1024)
    path = tmp_path / "keys.json"
    path.write_text(json.dumps({"keys": [json.loads(RSAAlgorithm.to_jwk(key.public_key()))]}))
    with pytest.raises(Unauthorized), pytest.warns(InsecureKeyLengthWarning):
        make_tokens(algorithm="RS256", jwks_file=str(path)).authenticate(bearer(sign(make_claims(), key, "RS256")))


def test_only_public_key_of_a_file_needs_no_name(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    path.write_text(json.dumps({"keys": [json.loads(RSAAlgorithm.to_jwk(RSA_KEY.public_key()))]}))
    tokens = make_tokens(algorithm="RS256", jwks_file=str(path))
    assert tokens.authenticate(bearer(sign(make_claims(), RSA_KEY, "RS256"))).sub == "alice"


def test_list_of_revoked_tokens_must_be_readable(tmp_path: Path) -> None:
    path = tmp_path / "none"
    with pytest.raises(InputError, match=f"^{path} cannot be read") as error:
        make_tokens(revoked_file=str(path))
    assert error.value.hint == "see server.jwt.revoked_file"


@pytest.mark.parametrize("content", ["", "{}", '{"keys": []}', '{"keys": [{"kty": "oct", "k": "c2VjcmV0"}]}', "\xff"])
def test_file_without_public_keys_is_an_error(tmp_path: Path, content: str) -> None:
    path = tmp_path / "keys.json"
    path.write_text(content, encoding="latin-1")
    for file in (path, tmp_path / "none.json"):
        with pytest.raises(InputError, match=r"cannot be read|no public key") as error:
            make_tokens(algorithm="ES256", jwks_file=str(file))
        assert error.value.hint.startswith("it must be a JSON Web Key Set")


def test_created_token_is_accepted() -> None:
    tokens = make_tokens(audience="massmem", issuer="us")
    user = tokens.authenticate(bearer(tokens.create("alice", 60, "admin")))
    assert (user.sub, user.is_admin) == ("alice", True)
    assert tokens.create("alice", 60) != tokens.create("alice", 60)
    most = JwtConfig().max_lifetime
    for seconds in (1, most):
        assert tokens.authenticate(bearer(tokens.create("alice", seconds))).scopes == frozenset()
    subject = ("a subject has 1 to 255 printable characters", "give a user's name or id")
    lifetime = (f"a token may live for {most} seconds at most", "see server.jwt.max_lifetime")
    for sub, seconds, reason in (
        ("", 60, subject),
        ("a\nb", 60, subject),
        ("alice", 0, lifetime),
        ("alice", most + 1, lifetime),
    ):
        with pytest.raises(InputError) as error:
            tokens.create(sub, seconds)
        assert (error.value.message, error.value.hint) == reason


def test_created_token_has_an_id_and_no_claims_that_nobody_configured() -> None:
    claims = jwt.decode(make_tokens().create("alice", 60), SECRET, ["HS256"])
    assert set(claims) == {"sub", "iat", "exp", "jti"}
    assert len(claims["jti"]) == 32


async def ask_with_key(folder: Path, **changes: Any) -> User:
    """Authenticate by a key that the store has; changes: to what is stored of it."""
    key, stored = make_api_key("alice", datetime.now(UTC), scope="metrics")
    store = await open_store(f"sqlite:///{folder / 'massmem.db'}", folder)
    try:
        await store.add_key(stored.model_copy(update=changes))
        return await authenticate(bearer(key), make_tokens(), store)
    finally:
        await store.close()


async def test_api_key_stands_for_its_user(tmp_path: Path) -> None:
    assert await ask_with_key(tmp_path) == User("alice", frozenset({"metrics"}))


async def test_api_key_that_is_unknown_or_expired_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Unauthorized, match=r"^the key is not known, or was revoked$"):
        await ask_with_key(tmp_path, key_hash="f" * 64)
    with pytest.raises(Unauthorized, match=r"^the key has expired$"):
        await ask_with_key(tmp_path, id="other", expires_at=datetime(2020, 1, 1, tzinfo=UTC))
