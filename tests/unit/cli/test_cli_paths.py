import json
from pathlib import Path

import pytest

from massmem.cli.main import main
from tests.support.cli import script, write_team


@pytest.fixture
def team(tmp_path: Path) -> str:
    return write_team(tmp_path, script("one"))


def test_paths_are_listed_and_not_created(
    team: str, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("MASSMEM_MODELS", "/srv/models")
    assert main(["paths", "--config", team, "--json"]) == 0
    own = home / ".massmem"
    assert json.loads(capsys.readouterr().out) == {
        "home": str(own),
        "config": team,
        "store": str(own / "massmem.db"),
        "registry": str(own / "sessions.json"),
        "memory": str(own / "memory"),
        "models": "/srv/models",
        "logs": str(own / "logs"),
        "debug_logs": str(Path.cwd() / ".massmem" / "massmem_logs"),
    }
    assert main(["paths", "--config", team]) == 0
    assert f"store       {own}/massmem.db\n" in capsys.readouterr().out
    assert not own.exists()


def test_urls_are_listed_without_passwords(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    memory = {"persistent_memory": {"qdrant": {"mode": "server", "url": "http://me:hunter2@box:6333"}}}
    team = write_team(tmp_path, script("one"), store={"url": "postgresql://me:hunter2@box/db"}, memory=memory)
    assert main(["paths", "--config", team]) == 0
    text = capsys.readouterr().out
    assert "hunter2" not in text
    assert "postgresql://me@box/db" in text
    assert "http://me@box:6333" in text
