"""The check of what the HTTP service needs."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

from massmem.cli.checks.finding import Finding, Situation
from massmem.cli.checks.service import check_service
from massmem.cli.main import main
from massmem.config.models import TeamConfig
from massmem.errors import InputError
from tests.support.cli import script, write_team

GOOD = "0123456789-abcdefghijklmnopqrstuvwxyz"
VARIABLE = "MASSMEM_JWT_SECRET"


async def checked(server: dict[str, Any] | None, environ: Mapping[str, str] | None = None) -> Sequence[Finding]:
    data = {"agents": [{"id": "a", "backend": {"type": "scripted"}}]} | ({} if server is None else {"server": server})
    return await check_service(Situation(Path("/nowhere"), environ or {}, TeamConfig.model_validate(data)))


async def test_who_serves_nothing_is_told_nothing():
    (found,) = await checked(None)
    assert found.status == "skipped"


@pytest.mark.parametrize(
    ("server", "environ", "said"),
    [
        ({"jwt": {"secret": GOOD}}, {}, "HS256, by server.jwt.secret"),
        ({"port": 5000}, {VARIABLE: GOOD}, f"HS256, by the secret in {VARIABLE}"),
        (None, {VARIABLE: GOOD}, f"HS256, by the secret in {VARIABLE}"),
        ({"jwt": {"keys": {"old": GOOD, "new": GOOD}}}, {VARIABLE: "short"}, "HS256, by 2 keys of server.jwt.keys"),
    ],
)
async def test_where_the_secret_comes_from(server: dict[str, Any] | None, environ: dict[str, str], said: str):
    (found,) = await checked(server, environ)
    assert (found.status, found.text) == ("ok", f"tokens are checked with {said}")


@pytest.mark.parametrize(
    ("server", "environ", "said"),
    [
        ({}, {}, "there is no secret"),
        ({"port": 5000}, {VARIABLE: "hunter2"}, "too short"),
        (None, {VARIABLE: "changeme" * 5}, "can be guessed"),
        ({"jwt": {"algorithm": "RS256"}}, {}, "RS256 needs public keys"),
        ({"jwt": {"algorithm": "RS256", "jwks_file": "/nowhere/keys"}}, {}, "cannot be read as public keys"),
    ],
)
async def test_what_would_keep_the_service_from_starting(
    server: dict[str, Any] | None, environ: dict[str, str], said: str
):
    with pytest.raises(InputError, match=said):
        await checked(server, environ)


async def test_public_keys(tmp_path: Path):
    key = ECAlgorithm.to_jwk(ec.generate_private_key(ec.SECP256R1()).public_key(), as_dict=True)
    path = tmp_path / "keys.json"
    path.write_text(json.dumps({"keys": [{**key, "kid": "one"}]}))
    (found,) = await checked({"jwt": {"algorithm": "ES256", "jwks_file": str(path)}})
    assert (found.status, found.text) == ("ok", f"tokens are checked with ES256, by the public keys in {path}")


def test_doctor_says_it_and_never_the_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    team = write_team(tmp_path, script("one"), memory={"enabled": False}, server={"port": 5000})
    assert main(["doctor", "--config", team, "--offline"]) == 1
    out = capsys.readouterr().out
    assert "failed   service      there is no secret to check tokens with: server.jwt.secret is not set" in out
    assert "openssl rand -hex 32; and export it as MASSMEM_JWT_SECRET" in out
    monkeypatch.setenv(VARIABLE, GOOD)
    assert main(["doctor", "--config", team, "--offline"]) == 0
    out = capsys.readouterr().out
    assert "ok       service      tokens are checked with HS256, by the secret in MASSMEM_JWT_SECRET" in out
    assert GOOD[:7] not in out
