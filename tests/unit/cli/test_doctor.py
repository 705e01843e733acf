"""Single checks of `massmem doctor`."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

from massmem.cli.checks import (
    CheckResult,
    DoctorContext,
    Requirement,
    Skip,
    check_disk,
    check_index,
    check_packages,
    check_service,
    check_tools,
    read_requirements,
)
from massmem.cli.main import main
from massmem.cli.setup import EXTRAS
from massmem.config.models import McpServerConfig, TeamConfig
from massmem.core.errors import InputError
from massmem.memory import open_memory
from tests.support.cli import script, write_team
from tests.support.memories import make_episode
from tests.support.tools import server_config


def test_requirements_are_read_from_the_metadata():
    minimum = {(r.name, r.extra): r.minimum for r in read_requirements()}
    assert minimum["pydantic", ""] == "2.14"
    assert minimum["xllamacpp", "local"] == "2026.10"
    assert minimum["psycopg", "postgres"] == "3.3.9"
    assert {extra for _, extra in minimum} >= {"", "local", "memory", "postgres", "redis", "server"}


def test_missing_and_old_packages_are_problems():
    assert Requirement("pydantic", "2.0").find_problem() == ""
    assert Requirement("pydantic", "99").find_problem().endswith(" is older than 99")
    assert Requirement("no-such-package-at-all").find_problem() == "no-such-package-at-all is not installed"


async def test_this_installation_is_complete(tmp_path: Path):
    (result,) = await check_packages(DoctorContext(tmp_path, {}))
    assert result.status == "ok", result
    assert "local, for models in this process: installed" in result.details


def test_doctor_knows_what_each_extra_is_for():
    assert {requirement.extra for requirement in read_requirements()} - {""} == EXTRAS.keys()


async def test_disk_of_a_home_that_does_not_exist(tmp_path: Path):
    (result,) = await check_disk(DoctorContext(tmp_path / "a" / "b", {}))
    assert result.text.endswith(f"MB free in {tmp_path}")


TEAM = {"agents": [{"id": "a", "backend": {"type": "openai", "model": "m"}}]}


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["Ich wohne in Graz und nicht in Wien.", "我的姐姐在学校工作", "I live in Graz."], True),
        (["Ich wohne in Graz und nicht in Wien.", "I live in Graz.", "My sister is here."], False),
        ([], False),
    ],
)
async def test_most_messages_in_other_languages_call_for_another_embedder(
    home: Path, texts: Sequence[str], expected: bool
):
    team = TeamConfig.model_validate(TEAM)
    memory = await open_memory(team.memory, home, {})
    await memory.record([make_episode(text, i) for i, text in enumerate(texts)])
    await memory.close()
    (result,) = await check_index(DoctorContext(home, {}, team))
    assert result.status == "ok"
    assert any("massmem[multilingual]" in detail for detail in result.details) is expected


SECRET = "0123456789-abcdefghijklmnopqrstuvwxyz"
VARIABLE = "MASSMEM_JWT_SECRET"


def tools_context(tmp_path: Path, *servers: McpServerConfig, offline: bool = False) -> DoctorContext:
    agent = {"id": "a", "backend": {"type": "scripted"}, "mcp_servers": servers}
    return DoctorContext(tmp_path, {}, TeamConfig.model_validate({"agents": [agent]}), offline=offline)


async def run_tools_check(tmp_path: Path, config: McpServerConfig, **changes: Any) -> Sequence[CheckResult]:
    return await check_tools(tools_context(tmp_path, config.model_copy(update=changes)))


async def test_allowed_tools_of_a_server_are_listed(tmp_path: Path):
    (result,) = await run_tools_check(tmp_path, server_config(tmp_path / "log"), allow=("echo", "slow"))
    assert result.status == "ok"
    assert result.text.startswith("a: t: 2 tools of ")
    assert result.details == ("echo, slow",)


async def test_mistyped_tool_fails(tmp_path: Path):
    (result,) = await run_tools_check(tmp_path, server_config(tmp_path / "log"), deny=("ehco",))
    assert (result.status, result.text) == ("failed", "a: t has no tool 'ehco'")
    assert "echo" in result.fix


async def test_tool_server_that_does_not_start_fails(tmp_path: Path):
    (result,) = await run_tools_check(tmp_path, server_config(tmp_path / "log"), command="false", args=())
    assert result.status == "failed"
    assert "does not start" in result.text


async def test_missing_program_of_a_tool_server_fails(tmp_path: Path):
    config = server_config(tmp_path / "log").model_copy(update={"command": "no-such-program"})
    (result,) = await check_tools(tools_context(tmp_path, config))
    assert (result.status, "no-such-program" in result.text) == ("failed", True)


async def test_tools_are_skipped_without_servers_and_offline(tmp_path: Path):
    with pytest.raises(Skip, match="no agent has tool servers"):
        await check_tools(tools_context(tmp_path))
    with pytest.raises(Skip, match="not tried"):
        await check_tools(tools_context(tmp_path, server_config(tmp_path / "log"), offline=True))
    assert not (tmp_path / "log").exists()


async def run_service_check(
    server: dict[str, Any] | None, environ: Mapping[str, str] | None = None
) -> Sequence[CheckResult]:
    data = {"agents": [{"id": "a", "backend": {"type": "scripted"}}]} | ({} if server is None else {"server": server})
    return await check_service(DoctorContext(Path("/nowhere"), environ or {}, TeamConfig.model_validate(data)))


async def test_service_is_skipped_without_a_server_section():
    with pytest.raises(Skip, match="no server section"):
        await run_service_check(None)


@pytest.mark.parametrize(
    ("server", "environ", "source"),
    [
        ({"jwt": {"secret": SECRET}}, {}, "HS256, by server.jwt.secret"),
        ({"port": 5000}, {VARIABLE: SECRET}, f"HS256, by the secret in {VARIABLE}"),
        (None, {VARIABLE: SECRET}, f"HS256, by the secret in {VARIABLE}"),
        ({"jwt": {"keys": {"old": SECRET, "new": SECRET}}}, {VARIABLE: "short"}, "HS256, by 2 keys of server.jwt.keys"),
    ],
)
async def test_source_of_the_service_secret(server: dict[str, Any] | None, environ: dict[str, str], source: str):
    (result,) = await run_service_check(server, environ)
    assert (result.status, result.text) == ("ok", f"tokens are checked with {source}")


@pytest.mark.parametrize(
    ("server", "environ", "message"),
    [
        ({"port": 5000}, {VARIABLE: "hunter2"}, "too short"),
        (None, {VARIABLE: "changeme" * 5}, "can be guessed"),
        ({"jwt": {"algorithm": "RS256"}}, {}, "RS256 needs public keys"),
        ({"jwt": {"algorithm": "RS256", "jwks_file": "/nowhere/keys"}}, {}, "cannot be read as public keys"),
    ],
)
async def test_unusable_service_secret_fails(server: dict[str, Any] | None, environ: dict[str, str], message: str):
    with pytest.raises(InputError, match=message):
        await run_service_check(server, environ)


async def test_public_keys_of_the_service(tmp_path: Path):
    key = ECAlgorithm.to_jwk(ec.generate_private_key(ec.SECP256R1()).public_key(), as_dict=True)
    path = tmp_path / "keys.json"
    path.write_text(json.dumps({"keys": [{**key, "kid": "one"}]}))
    (result,) = await run_service_check({"jwt": {"algorithm": "ES256", "jwks_file": str(path)}})
    assert (result.status, result.text) == ("ok", f"tokens are checked with ES256, by the public keys in {path}")


def test_doctor_reports_the_service_without_its_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    team = write_team(tmp_path, script("one"), memory={"enabled": False}, server={"port": 5000})
    assert main(["doctor", "--config", team, "--offline"]) == 0
    assert "ok       service      there is no secret for tokens yet" in capsys.readouterr().out
    monkeypatch.setenv(VARIABLE, SECRET)
    assert main(["doctor", "--config", team, "--offline"]) == 0
    out = capsys.readouterr().out
    assert "ok       service      tokens are checked with HS256, by the secret in MASSMEM_JWT_SECRET" in out
    assert SECRET[:7] not in out
