"""`massmem memory`, run in this process on `team.yaml` of the working directory."""

import json
from typing import Any

import pytest

from massmem.cli.main import main


class MemoryCommand:
    """Runs one command line after the other."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *line: str, code: int = 0) -> tuple[str, str]:
        """Return stdout and stderr; the exit code must be `code`."""
        self._capsys.readouterr()
        ended = main(["memory", *line, "--config", "team.yaml"])
        out, err = self._capsys.readouterr()
        assert (ended, "Traceback" in err) == (code, False), err
        return out, err

    def json(self, *line: str) -> Any:
        return json.loads(self(*line, "--json")[0])
