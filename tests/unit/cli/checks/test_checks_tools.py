"""The check of tool servers, on a real one."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from massmem.cli.checks.finding import Finding, Situation
from massmem.cli.checks.tools import check_tools
from massmem.config.models import McpServerConfig, TeamConfig
from massmem.errors import InputError
from tests.support.tools import server_config


def situation(tmp_path: Path, *servers: McpServerConfig, offline: bool = False) -> Situation:
    agent = {"id": "a", "backend": {"type": "scripted"}, "mcp_servers": servers}
    return Situation(tmp_path, {}, TeamConfig.model_validate({"agents": [agent]}), offline=offline)


async def checked(tmp_path: Path, config: McpServerConfig, **changes: Any) -> Sequence[Finding]:
    return await check_tools(situation(tmp_path, config.model_copy(update=changes)))


async def test_what_a_server_offers(tmp_path: Path):
    (found,) = await checked(tmp_path, server_config(tmp_path / "log"), allow=("echo", "slow"))
    assert found.status == "ok"
    assert found.text.startswith("a: t: 2 tools of ")
    assert found.details == ("echo, slow",)


async def test_a_tool_that_is_misspelt(tmp_path: Path):
    (found,) = await checked(tmp_path, server_config(tmp_path / "log"), deny=("ehco",))
    assert (found.status, found.text) == ("failed", "a: t has no tool 'ehco'")
    assert "echo" in found.fix


async def test_a_server_that_does_not_start(tmp_path: Path):
    (found,) = await checked(tmp_path, server_config(tmp_path / "log"), command="false", args=())
    assert found.status == "failed"
    assert "does not start" in found.text


async def test_a_program_that_is_not_there(tmp_path: Path):
    config = server_config(tmp_path / "log").model_copy(update={"command": "no-such-program"})
    with pytest.raises(InputError, match="no-such-program"):
        await check_tools(situation(tmp_path, config))


async def test_none_and_offline(tmp_path: Path):
    (none,) = await check_tools(situation(tmp_path))
    (offline,) = await check_tools(situation(tmp_path, server_config(tmp_path / "log"), offline=True))
    assert (none.status, offline.status) == ("skipped", "skipped")
    assert not (tmp_path / "log").exists()
