"""Councils over aimock (npm: @copilotkit/aimock): servers of the newest APIs that massmem's authors did not write."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from massmem.core.errors import (
    MalformedResponse,
    ProviderConnectionError,
    ProviderError,
    ProviderUnavailable,
    RateLimited,
)
from tests.support.child_process import tie_to_parent
from tests.support.cli import call_massmem

ROOT = Path(__file__).parents[2]
AIMOCK = ROOT / ".aimock" / "node_modules" / "@copilotkit" / "aimock" / "dist" / "index.js"
INSTALL = "npm install --prefix .aimock @copilotkit/aimock@^1.43"
SCRIPT = ROOT / "tests" / "support" / "aimock.mjs"

BACKENDS: dict[str, dict[str, Any]] = {
    "chat": {"type": "openai", "api": "chat"},
    "responses": {"type": "openai", "api": "responses"},
    "azure": {"type": "azure_openai"},
    "anthropic": {"type": "anthropic"},
    "anthropic that thinks": {"type": "anthropic", "effort": "low"},
}

CHAOS: dict[str, type[ProviderError]] = {
    "dropRate": ProviderUnavailable,
    "malformedRate": MalformedResponse,
    "disconnectRate": ProviderConnectionError,
    "rateLimitRate": RateLimited,
}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("node") is None, reason="Node.js is not on this machine"),
    pytest.mark.skipif(not AIMOCK.exists(), reason=f"aimock is not installed: {INSTALL}"),
]


@contextmanager
def aimock(**chaos: float) -> Iterator[str]:
    command = tie_to_parent(["node", str(SCRIPT), str(AIMOCK), json.dumps(chaos)])
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


def write_team(folder: Path, url: str, backend: dict[str, Any]) -> str:
    fields = {"model": "newest", "api_key": "none", **backend}
    fields["base_url"] = f"{url}/v1" if backend["type"] == "openai" else url
    agents = [{"id": agent, "backend": fields} for agent in ("ann", "ben", "cyd")]
    path = folder / "team.yaml"
    path.write_text(json.dumps({"agents": agents, "memory": {"persistent_memory": {"enabled": False}}}))
    return str(path)


@pytest.mark.parametrize("name", BACKENDS)
def test_council_agrees_and_goes_on(name: str, tmp_path: Path) -> None:
    with aimock() as url:
        team = write_team(tmp_path, url, BACKENDS[name])
        first = call_massmem("--config", team, "--json", "--strict", "Why is the sky blue?")
        assert first.returncode == 0, first.stderr
        result = json.loads(first.stdout)
        assert (result["decided_by"], sum(result["votes"].values())) == ("consensus", 3)
        assert result["answer"].startswith("answer ")
        assert result["usage"]["reported"]
        second = call_massmem("--config", team, "--json", "--strict", "--session-id", result["session_id"], "And then?")
        assert second.returncode == 0, second.stderr
        assert json.loads(second.stdout)["decided_by"] == "consensus"


@pytest.mark.parametrize("name", ["chat", "responses", "anthropic"])
def test_council_survives_servers_that_fail_at_first(name: str, tmp_path: Path) -> None:
    with aimock(first=4) as url:
        team = write_team(tmp_path, url, BACKENDS[name])
        ran = call_massmem("--config", team, "--json", "--strict", "Why?")
        assert ran.returncode == 0, ran.stderr
        assert json.loads(ran.stdout)["decided_by"] == "consensus"


@pytest.mark.parametrize("chaos", CHAOS)
@pytest.mark.parametrize("name", ["chat", "responses", "anthropic"])
def test_chaos_ends_with_a_message_and_nothing_lost(name: str, chaos: str, tmp_path: Path) -> None:
    with aimock(**{chaos: 1.0}) as url:
        team = write_team(tmp_path, url, {**BACKENDS[name], "max_retries": 0})
        ran = call_massmem("--config", team, "Why?")
    assert ran.returncode == CHAOS[chaos].exit_code, ran.stderr
    assert b"Traceback" not in ran.stderr
    assert ran.stdout == b""
    assert b"ann failed" in ran.stderr
    assert b"--session-id" in ran.stderr, "the question can be asked again"
