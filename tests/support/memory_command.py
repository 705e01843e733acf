"""`massmem memory`, run in this process on `team.yaml` of the working directory."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from massmem.cli.main import main
from massmem.store import open_store
from massmem.store.ports import SessionStore
from tests.contract.test_session_store import session


@asynccontextmanager
async def prepare_home(home: Path, folder: Path, config: str) -> AsyncIterator[SessionStore]:
    """Write `team.yaml` into the folder, and open the store of this home with an empty session, session_a."""
    (folder / "team.yaml").write_text(config)
    store = await open_store(f"sqlite:///{database_of(home)}", home / ".massmem")
    await store.create_session(session())
    yield store
    await store.close()


def database_of(home: Path) -> Path:
    return home / ".massmem" / "massmem.db"


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
