"""Teams whose scripted agents use the tool server of the tests."""

import json
import socket
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from massmem.config.models import McpServerConfig, TeamConfig
from tests.support.service import find_free_port, wait_until

ROOT = Path(__file__).parents[2]


def server(log: Path | None = None, *flags: str, **settings: Any) -> dict[str, Any]:
    """The configuration of a server that writes its calls to `log`."""
    return {
        "name": "t",
        "command": sys.executable,
        "args": ["-m", "tests.support.tool_server", *([str(log)] if log else []), *flags],
        "env": {"PYTHONPATH": str(ROOT)},
        **settings,
    }


def server_config(log: Path | None = None, *flags: str, **settings: Any) -> McpServerConfig:
    return McpServerConfig.model_validate(server(log, *flags, **settings))


@contextmanager
def run_http_server(log: Path) -> Generator[tuple["subprocess.Popen[bytes]", str]]:
    """Run a server behind HTTP; yield its process and its address once it listens."""
    port = find_free_port()
    command = [sys.executable, "-m", "tests.support.tool_server", str(log), "--http", str(port)]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as process:
        try:
            wait_until(lambda: _listens(port))
            yield process, f"http://127.0.0.1:{port}/mcp"
        finally:
            process.kill()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def team_data(script: dict[str, Any], *servers: dict[str, Any], tools: bool = True, **sections: Any) -> dict[str, Any]:
    """One agent, ann, with these servers."""
    backend = {"type": "scripted", "script": script, "max_retries": 0, "tools": tools}
    agents = [{"id": "ann", "backend": backend, "mcp_servers": list(servers)}]
    return {"agents": agents, "memory": {"persistent_memory": {"enabled": False}}, **sections}


def team(script: dict[str, Any], *servers: dict[str, Any], tools: bool = True, **sections: Any) -> TeamConfig:
    return TeamConfig.model_validate(team_data(script, *servers, tools=tools, **sections))


def calls(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def running(folder: Path) -> list[int]:
    """Tool servers that are alive and write their calls below this folder, which is one test's own."""
    found: list[int] = []
    for process in psutil.process_iter(["pid", "cmdline", "status"]):
        words = process.info["cmdline"] or []
        ours = "tests.support.tool_server" in words and any(word.startswith(str(folder)) for word in words)
        if ours and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(process.info["pid"])
    return found


def list_servers_left(folder: Path, seconds: float = 1.0) -> list[int]:
    """Return the tool servers that are alive after so many seconds at most.

    By default the time in which the system ends all members of a group that was killed: the one that is waited for may
    be gone before the server is.
    """
    until = time.monotonic() + seconds
    while (left := running(folder)) and time.monotonic() < until:
        time.sleep(0.02)
    return left
