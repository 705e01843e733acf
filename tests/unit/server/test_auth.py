"""Which tokens count: every way to get one past the check that is known, and the ones that must pass."""

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from massmem.config.service import JwtConfig
from massmem.errors import InputError
from massmem.server.auth import Refused, Tokens

SECRET = "0123456789-abcdefghijklmnopqrstuvwxyz"
OTHER = "zyxwvutsrqponmlkjihgfedcba-9876543210"
RSA_KEY = rsa.generate_private_key(65537, 2048)
RSA_PEM = RSA_KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
ED_KEY = ed25519.Ed25519PrivateKey.generate()
EC_KEY = ec.generate_private_key(ec.SECP256R1())

Claims = dict[str, Any]


def tokens(**config: Any) -> Tokens:
    return Tokens(JwtConfig.model_validate({"secret": SECRET, **config}))


def claims(**changes: Any) -> Claims:
    at = int(time.time())
    found = {"sub": "alice", "iat": at, "exp": at + 600, **changes}
    return {name: value for name, value in found.items() if value is not None}


def signed(payload: Claims, key: Any = SECRET, algorithm: str = "HS256", **headers: Any) -> str:
    return jwt.encode(payload, key, algorithm, headers=headers or None)


def by_hand(header: Mapping[str, Any], payload: Mapping[str, Any], signature: bytes = b"") -> str:
    parts = [json.dumps(header).encode(), json.dumps(payload).encode(), signature]
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)


def hs256(payload: Claims, key: bytes, **headers: Any) -> str:
    """By hand: PyJWT refuses to sign with a public key, and what is no subject."""
    start = by_hand({"alg": "HS256", "typ": "JWT", **headers}, payload).rpartition(".")[0]
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
GOOD = signed(claims())
_HEAD, _, _SIGNATURE = GOOD.split(".")

REFUSED: dict[str, list[str]] = {
    "no header": [],
    "two headers": [f"Bearer {GOOD}", f"Bearer {GOOD}"],
    "two tokens in one header": [f"Bearer {GOOD}, Bearer {GOOD}"],
    "no scheme": [GOOD],
    "another scheme": [f"Basic {GOOD}"],
    "nothing after the scheme": ["Bearer "],
    "two blanks": [f"Bearer  {GOOD}"],
    "alg none": bearer(by_hand({"alg": "none", "typ": "JWT"}, claims())),
    "alg NONE with a signature": bearer(by_hand({"alg": "NONE"}, claims(), b"x")),
    "no alg": bearer(by_hand({"typ": "JWT"}, claims(), b"x")),
    "alg HS512": bearer(signed(claims(), SECRET * 2, "HS512")),
    "alg HS384": bearer(signed(claims(), SECRET * 2, "HS384")),
    "alg RS256 where a secret is shared": bearer(signed(claims(), RSA_KEY, "RS256")),
    "another secret": bearer(signed(claims(), OTHER)),
    "signature cut off": bearer(GOOD.rpartition(".")[0] + "."),
    "signature changed": bearer(GOOD[:-4] + ("AAAA" if not GOOD.endswith("AAAA") else "BBBB")),
    "claims changed": bearer(f"{_HEAD}.{by_hand({}, claims(sub='bob')).split('.')[1]}.{_SIGNATURE}"),
    "no exp": bearer(signed(claims(exp=None))),
    "exp in the past": bearer(signed(claims(exp=NOW - 1, iat=NOW - 60))),
    "exp is no number": bearer(signed(claims(exp="soon"))),
    "exp is a number in quotes": bearer(signed(claims(exp=str(NOW + 600)))),
    "exp is without end": bearer(signed(claims(exp=float("inf")))),
    "exp is true": bearer(signed(claims(exp=True))),
    "iat is a number in quotes": bearer(signed(claims(iat=str(NOW - 60)))),
    "iat is before the beginning of time": bearer(signed(claims(iat=-1e308))),
    "exp in a hundred years": bearer(signed(claims(exp=NOW + 3_153_600_000))),
    "a lifetime that begins in the past": bearer(signed(claims(iat=NOW - 90_000))),
    "a long lifetime without iat": bearer(signed(claims(iat=None, exp=NOW + 100_000))),
    "iat in the future": bearer(signed(claims(iat=NOW + 300))),
    "iat far in the future, exp after it": bearer(signed(claims(iat=NOW + 90_000, exp=NOW + 90_600))),
    "nbf in the future": bearer(signed(claims(nbf=NOW + 300))),
    "no sub": bearer(signed(claims(sub=None))),
    "sub is empty": bearer(signed(claims(sub=""))),
    "sub is blank": bearer(signed(claims(sub="  "))),
    "sub has a line break": bearer(signed(claims(sub="alice\nbob"))),
    "sub is too long": bearer(signed(claims(sub="a" * 256))),
    "sub is a number": bearer(hs256(claims(sub=7), SECRET.encode())),
    "sub is a list": bearer(hs256(claims(sub=["alice"]), SECRET.encode())),
    "alg EdDSA": bearer(signed(claims(), ED_KEY, "EdDSA")),
    "alg ES256 where a secret is shared": bearer(signed(claims(), EC_KEY, "ES256")),
    "claims are a list": bearer(by_hand({"alg": "HS256"}, ["alice"], b"x")),  # type: ignore[arg-type]
    "aud where none is expected": bearer(signed(claims(aud="other-service"))),
    "a kid that is not known": bearer(signed(claims(), kid="k9")),
    "kid is a path": bearer(signed(claims(), kid="../../../dev/null")),
    "kid is an object": bearer(hs256(claims(), SECRET.encode(), kid={"a": 1})),
    "crit that is not known": bearer(signed(claims(), crit=["exp2"], exp2=1)),
    "a token of 100 KB": bearer(signed(claims(pad="x" * 100_000))),
    "100 KB of nonsense": bearer("x" * 100_000),
    "no dots": bearer("nonsense"),
    "five parts": bearer("a.b.c.d.e"),
    "header is no JSON": bearer("bm9uc2Vuc2U." + GOOD.partition(".")[2]),
    "deeply nested": bearer("." .join([base64.urlsafe_b64encode(b"[" * 4000).decode(), "e30", "x"])),
    "characters that are not ASCII": bearer("äöü.äöü.äöü"),
}  # fmt: skip


@pytest.mark.parametrize("headers", REFUSED.values(), ids=REFUSED)
def test_is_refused(headers: list[str]) -> None:
    with pytest.raises(Refused) as refused:
        tokens().user(headers)
    assert all(header.removeprefix("Bearer ") not in str(refused.value) for header in headers if len(header) > 10)


def test_the_matrix_is_as_large_as_was_promised() -> None:
    assert len(REFUSED) >= 25


def test_is_accepted() -> None:
    assert tokens().user([f"Bearer {GOOD}"]).sub == "alice"
    assert tokens().user([f"bearer {GOOD}"]).sub == "alice"
    assert not tokens().user([f"Bearer {GOOD}"]).admin
    assert tokens().user(bearer(signed(claims(scope="metrics admin")))).admin
    assert not tokens().user(bearer(signed(claims(scope="administrator")))).admin
    assert not tokens().user(bearer(signed(claims(scope=["admin"])))).admin
    assert tokens().user(bearer(signed(claims(iat=None)))).sub == "alice"


@pytest.mark.parametrize(("claim", "wrong"), [("aud", "other"), ("aud", None), ("iss", "other"), ("iss", None)])
def test_audience_and_issuer(claim: str, wrong: str | None) -> None:
    checking = tokens(audience="massmem", issuer="us")
    right = {"aud": "massmem", "iss": "us"}
    assert checking.user(bearer(signed(claims(**right)))).sub == "alice"
    with pytest.raises(Refused):
        checking.user(bearer(signed(claims(**{**right, claim: wrong}))))


def test_keys_are_changed_by_their_names() -> None:
    checking = tokens(secret=None, keys={"old": SECRET, "new": OTHER})
    made = checking.make("alice", 60)
    assert jwt.get_unverified_header(made)["kid"] == "new"
    for token in (made, signed(claims(), SECRET, kid="old"), signed(claims(), OTHER, kid="new")):
        assert checking.user(bearer(token)).sub == "alice"
    for token in (GOOD, signed(claims(), SECRET, kid="new"), signed(claims(), OTHER, kid="old")):
        with pytest.raises(Refused):
            checking.user(bearer(token))
    with pytest.raises(Refused):
        tokens(secret=None, keys={"new": OTHER}).user(bearer(signed(claims(), SECRET, kid="old")))


def test_public_keys(jwks: Path) -> None:
    by_rsa = tokens(secret=None, algorithm="RS256", jwks_file=str(jwks))
    assert by_rsa.user(bearer(signed(claims(), RSA_KEY, "RS256", kid="r1"))).sub == "alice"
    by_ec = tokens(secret=None, algorithm="ES256", jwks_file=str(jwks))
    assert by_ec.user(bearer(signed(claims(), EC_KEY, "ES256", kid="e1"))).sub == "alice"
    strange = rsa.generate_private_key(65537, 2048)
    for token in (
        hs256(claims(), RSA_PEM, kid="r1"),
        hs256(claims(), RSA_PEM),
        by_hand({"alg": "none", "kid": "r1"}, claims()),
        signed(claims(), strange, "RS256", kid="r1"),
        signed(claims(), RSA_KEY, "RS256", kid="r2"),
        signed(claims(), RSA_KEY, "RS256"),
        signed(claims(), RSA_KEY, "RS512", kid="r1"),
        signed(claims(), RSA_KEY, "PS256", kid="r1"),
        signed(claims(), EC_KEY, "ES256", kid="e1"),
        signed(claims(), EC_KEY, "ES256", kid="r1"),
        signed(claims(), strange, "RS256", jwk={"kty": "RSA"}, kid="r1"),
        signed(claims(), strange, "RS256", jku="http://127.0.0.1:1/keys.json", kid="r1"),
        GOOD,
    ):
        with pytest.raises(Refused):
            by_rsa.user(bearer(token))
    with pytest.raises(InputError, match="private key"):
        by_rsa.make("alice", 60)


def test_a_key_file_that_changes_is_read_again(jwks: Path) -> None:
    checking = tokens(secret=None, algorithm="RS256", jwks_file=str(jwks))
    fresh = rsa.generate_private_key(65537, 2048)
    token = signed(claims(), fresh, "RS256", kid="r2")
    with pytest.raises(Refused):
        checking.user(bearer(token))
    key = json.loads(RSAAlgorithm.to_jwk(fresh.public_key())) | {"kid": "r2"}
    jwks.write_text("half a fi")
    time.sleep(1.1)
    assert checking.user(bearer(signed(claims(), RSA_KEY, "RS256", kid="r1"))).sub == "alice"
    jwks.write_text(json.dumps({"keys": [key]}))
    time.sleep(1.1)
    assert checking.user(bearer(token)).sub == "alice"
    with pytest.raises(Refused):
        checking.user(bearer(signed(claims(), RSA_KEY, "RS256", kid="r1")))


def test_revoked_tokens(tmp_path: Path) -> None:
    revoked = tmp_path / "revoked"
    revoked.write_text("j1\nj2\n")
    checking = tokens(revoked_file=str(revoked))
    assert checking.user(bearer(signed(claims(jti="j3")))).sub == "alice"
    with pytest.raises(Refused, match="revoked"):
        checking.user(bearer(signed(claims(jti="j2"))))


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
def test_secrets_that_can_be_guessed(secret: str) -> None:
    for config in ({"secret": secret}, {"keys": {"k": secret}}):
        with pytest.raises(InputError, match=r"too short|guessed") as refused:
            tokens(**config)
        assert "openssl rand" in refused.value.hint
        assert secret not in refused.value.message


def test_without_any_key() -> None:
    with pytest.raises(InputError, match="no secret"):
        tokens(secret=None)
    with pytest.raises(InputError, match="public keys"):
        tokens(algorithm="RS256")


@pytest.mark.parametrize("content", ["", "{}", '{"keys": []}', '{"keys": [{"kty": "oct", "k": "c2VjcmV0"}]}', "\xff"])
def test_files_without_public_keys(tmp_path: Path, content: str) -> None:
    path = tmp_path / "keys.json"
    path.write_text(content, encoding="latin-1")
    for file in (path, tmp_path / "none.json"):
        with pytest.raises(InputError, match=r"cannot be read|no public key"):
            tokens(algorithm="ES256", jwks_file=str(file))


def test_what_was_accepted_is_looked_at_again(tmp_path: Path) -> None:
    """A signature is checked once; that a token has ended, or was revoked meanwhile, still counts."""
    revoked = tmp_path / "revoked"
    revoked.write_text("")
    checking = tokens(revoked_file=str(revoked))
    short, long = signed(claims(exp=int(time.time()) + 2)), signed(claims(jti="j1"))
    for token in (short, long):
        assert checking.user(bearer(token)).sub == checking.user(bearer(token)).sub == "alice"
    revoked.write_text("j1")
    time.sleep(2.1)
    with pytest.raises(Refused, match="expired"):
        checking.user(bearer(short))
    with pytest.raises(Refused, match="revoked"):
        checking.user(bearer(long))


def test_many_tokens() -> None:
    checking = tokens()
    first = signed(claims(sub="user-0"))
    assert checking.user(bearer(first)).sub == "user-0"
    for number in range(1_100):
        assert checking.user(bearer(signed(claims(sub=f"user-{number}")))).sub == f"user-{number}"
    assert checking.user(bearer(first)).sub == "user-0"
    head, _, signature = first.split(".")
    with pytest.raises(Refused):
        checking.user(bearer(f"{head}.{by_hand({}, claims(sub='bob')).split('.')[1]}.{signature}"))


def test_made_tokens() -> None:
    checking = tokens(audience="massmem", issuer="us")
    user = checking.user(bearer(checking.make("alice", 60, "admin")))
    assert (user.sub, user.admin) == ("alice", True)
    assert checking.make("alice", 60) != checking.make("alice", 60)
    for sub, seconds in (("", 60), ("a\nb", 60), ("alice", 0), ("alice", 10**9)):
        with pytest.raises(InputError):
            checking.make(sub, seconds)
