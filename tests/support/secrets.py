"""Secrets as they turn up in texts: made up, the same in every run, none of them anybody's."""

import random
import string
from collections.abc import Callable
from dataclasses import dataclass

_ALNUM = string.ascii_letters + string.digits
_URL = _ALNUM + "_-"
_HEX = "0123456789abcdef"
_UPPER = string.ascii_uppercase + string.digits


@dataclass(frozen=True, slots=True)
class Seeded:
    """text: how it stands somewhere. value: the part of it that nobody may see."""

    text: str
    value: str


Maker = Callable[[random.Random], Seeded]


def _key(prefix: str, length: int, letters: str = _ALNUM, end: str = "") -> Maker:
    def make(rng: random.Random) -> Seeded:
        value = prefix + "".join(rng.choices(letters, k=length)) + end
        return Seeded(value, value)

    return make


def _in(around: str, length: int, letters: str = _ALNUM) -> Maker:
    """A value without a form of its own, known by what stands around it."""

    def make(rng: random.Random) -> Seeded:
        value = "7" + "".join(rng.choices(letters, k=length))
        return Seeded(around.format(value), value)

    return make


def _jwt(rng: random.Random) -> Seeded:
    value = ".".join(
        ("eyJhbGciOiJIUzI1NiJ9", "eyJ" + "".join(rng.choices(_URL, k=60)), "".join(rng.choices(_URL, k=43)))
    )
    return Seeded(value, value)


def _pem(kind: str) -> Maker:
    def make(rng: random.Random) -> Seeded:
        lines = ["".join(rng.choices(_ALNUM + "+/", k=64)) for _ in range(4)]
        return Seeded("\n".join((f"-----BEGIN {kind}-----", *lines, f"-----END {kind}-----")), lines[2])

    return make


_MAKERS: tuple[Maker, ...] = (
    _key("sk-", 48), _key("sk-proj-", 80, _URL), _key("sk-ant-api03-", 90, _URL), _key("sk-or-v1-", 64, _HEX),
    _key("sk-svcacct-", 60, _URL), _key("gsk_", 52), _key("xai-", 80), _key("AIzaSy", 33, _URL), _key("hf_", 34),
    _key("csk-", 48), _key("fw_", 24), _key("tgp_v1_", 43, _URL), _key("r8_", 37), _key("pplx-", 48),
    _key("nvapi-", 64, _URL), _key("jina_", 60, _URL), _key("tvly-", 32), _key("m0-", 40), _key("pcsk_", 60),
    _key("lsv2_pt_", 32, _HEX, "_0123456789"), _key("rpa_", 40), _key("sk_", 48, _HEX), _key("sk-lf-", 36, _HEX + "-"),
    _key("AKIA", 16, _UPPER), _key("ASIA", 16, _UPPER), _key("ghp_", 36), _key("gho_", 36), _key("ghs_", 36),
    _key("github_pat_", 82, _ALNUM + "_"), _key("glpat-", 20, _URL), _key("npm_", 36),
    _key("pypi-AgEIcHlwaS5vcmc", 80, _URL),
    _key("dckr_pat_", 27, _URL), _key("ATATT3xFfGF0", 60, _URL), _key("ya29.", 80, _URL), _key("GOCSPX-", 28, _URL),
    _key("dapi", 32, _HEX), _key("dop_v1_", 64, _HEX), _key("hvs.", 90, _URL), _key("glsa_", 32),
    _key("tskey-auth-", 30), _key("sbp_", 40, _HEX), _key("pscale_tkn_", 43, _URL), _key("NRAK-", 27, _UPPER),
    _key("xoxb-", 50, string.digits), _key("xapp-1-", 60), _key("SG.", 22, _URL, "." + "k3y" * 14),
    _key("sk_live_", 24),
    _key("rk_live_", 24), _key("whsec_", 32), _key("shpat_", 32, _HEX), _key("lin_api_", 40), _key("ntn_", 46),
    _key("figd_", 40, _URL), _key("123456789:AA", 33, _URL), _jwt, _jwt, _jwt,
    _pem("RSA PRIVATE KEY"), _pem("OPENSSH PRIVATE KEY"), _pem("EC PRIVATE KEY"), _pem("PGP PRIVATE KEY BLOCK"),
    _in("postgresql://massmem:{}@db.example:5432/massmem", 20), _in("redis://:{}@cache.example:6379/0", 20),
    _in("https://user:{}@git.example/repo.git", 20), _in("amqp://guest:{}@mq.example/", 12),
    _in("https://maps.example/api?key={}&zoom=3", 30), _in("https://x.example/cb?access_token={}#top", 40),
    _in("https://blob.example/a?sv=2024&sig={}", 43), _in("https://s3.example/b?X-Amz-Signature={}", 63, _HEX),
    _in("https://hooks.slack.com/services/T00000000/B00000000/{}", 24), _in("Authorization: Bearer {}", 40),
    _in("authorization: Basic {}", 32), _in('{{"headers": {{"Authorization": "Bearer {}"}}}}', 40),
    _in("x-api-key: {}", 40), _in("MISTRAL_API_KEY={}", 32), _in("export COHERE_API_KEY='{}'", 40),
    _in('"aws_secret_access_key": "{}"', 40, _ALNUM + "/+"),
    _in("AccountKey={};EndpointSuffix=core", 60, _ALNUM + "+/"),
    _in("client_secret={}", 30), _in('{{"refresh_token":"{}","ok":true}}', 40), _in("password: {}", 20),
    _in("Server=db;User Id=sa;Pwd={};", 16), _in("Set-Cookie: session={}; HttpOnly", 40),
    _in(r'{{\"api_key\": \"{}\"}}', 30), _in("passphrase={}", 24),
)  # fmt: skip


def draw_secrets(number: int = 200) -> list[Seeded]:
    """So many secrets, of all kinds in turn."""
    rng = random.Random(20_261_122)
    return [_MAKERS[i % len(_MAKERS)](rng) for i in range(number)]


def find_leaks(text: str, secrets: list[Seeded]) -> list[str]:
    """The texts of those of whose value something long stands in `text`: the whole, or a beginning of 12 characters."""
    return [secret.text for secret in secrets if secret.value in text or secret.value[-12:] in text]
