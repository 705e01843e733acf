"""massmem as a real process, on teams whose models follow a script."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

COMMAND = [sys.executable, "-m", "massmem"]


def massmem(
    *arguments: str, stdin: bytes | None = None, timeout: float = 30, **options: Any
) -> "subprocess.CompletedProcess[bytes]":
    """Run to the end. stdin None: /dev/null. Environment and HOME are those of the test."""
    given: dict[str, Any] = {"stdin": subprocess.DEVNULL} if stdin is None else {"input": stdin}
    return subprocess.run([*COMMAND, *arguments], capture_output=True, timeout=timeout, check=False, **given, **options)


def start(*arguments: str, **options: Any) -> "subprocess.Popen[bytes]":
    given = {
        "stdin": subprocess.DEVNULL,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
        "start_new_session": True,
    }
    return subprocess.Popen([*COMMAND, *arguments], **(given | options))


def script(answer: str = "an answer", latency: float = 0.0, **more: Any) -> dict[str, Any]:
    return {"latency": latency, "answer": answer, "vote": [{"vote": "A", "reason": "clear"}], **more}


def write_team(folder: Path, *scripts: dict[str, Any], **sections: Any) -> str:
    """A configuration with one agent (a, b, c, ...) per script; returns its path. JSON is YAML.

    Without the searchable memory, whose start is half of a short run, unless `memory` is given.
    """
    agents = [
        {"id": chr(ord("a") + i), "backend": {"type": "scripted", "script": one}} for i, one in enumerate(scripts)
    ]
    path = folder / "team.yaml"
    memory = {"persistent_memory": {"enabled": False}}
    path.write_text(json.dumps({"agents": agents, "memory": memory, **sections}))
    return str(path)
