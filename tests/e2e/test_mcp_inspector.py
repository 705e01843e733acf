"""The MCP inspector's command line, which nobody here wrote, reads the server over stdio and HTTP.

It is installed in `.clients`; CONTRIBUTING.md says how.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.service import StartService, make_config, make_token

INSPECTOR = Path(__file__).parents[2] / ".clients" / "inspector" / "node_modules" / ".bin" / "mcp-inspector"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("node") is None, reason="Node.js is not on this machine"),
    pytest.mark.skipif(
        not INSPECTOR.exists(),
        reason="not installed: npm install --prefix .clients/inspector @modelcontextprotocol/inspector",
    ),
]


def inspect(*arguments: str, home: Path) -> Any:
    run = subprocess.run(
        [INSPECTOR, "--cli", *arguments], capture_output=True, text=True, timeout=90, check=False,
        stdin=subprocess.DEVNULL, env=os.environ | {"HOME": str(home)},
    )  # fmt: skip
    assert run.returncode == 0, run.stdout + run.stderr
    return json.loads(run.stdout)


def test_inspector_lists_and_asks_over_stdio(tmp_path: Path) -> None:
    # The inspector takes --config for itself.
    (tmp_path / ".massmem").mkdir(mode=0o700)
    (tmp_path / ".massmem" / "config.yaml").write_text(yaml.safe_dump(make_config()))
    server = [sys.executable, "-m", "massmem", "mcp"]
    tools = inspect(*server, "--method", "tools/list", home=tmp_path)["tools"]
    assert tools[0]["name"] == "ask_council"
    assert all(tool["description"] and tool["inputSchema"] for tool in tools)
    question = ["--tool-name", "ask_council", "--tool-arg", "question=Why is the sky blue?"]
    answer = inspect(*server, "--method", "tools/call", *question, home=tmp_path)
    assert answer["structuredContent"]["status"] == "completed"
    resources = inspect(*server, "--method", "resources/list", home=tmp_path)["resources"]
    assert [resource["uri"] for resource in resources] == [
        f"massmem://sessions/{answer['structuredContent']['session_id']}"
    ]


def test_inspector_asks_over_http(start_service: StartService, tmp_path: Path) -> None:
    service = start_service(make_config())
    answer = inspect(
        f"{service.url}/mcp", "--transport", "http", "--header", f"Authorization: Bearer {make_token('ina')}",
        "--method", "tools/call", "--tool-name", "ask_council", "--tool-arg", "question=Why?", home=tmp_path,
    )  # fmt: skip
    assert answer["structuredContent"]["answer"] == "It is blue."
