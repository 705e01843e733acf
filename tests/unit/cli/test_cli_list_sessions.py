import json
import time
from pathlib import Path

import pytest

from massmem.cli.main import main
from massmem.session.registry import Registry, RegistryEntry
from massmem.store import open_store
from tests.contract.test_session_store import session

OLD = RegistryEntry(
    "session_20251027_091500",
    "2025-10-27T09:15:00+00:00",
    "2025-10-27T09:25:00+00:00",
    "completed",
    "research_config.yaml",
    "gpt-4o",
    "Codebase analysis project",
    "sqlite:///x",
)
NEW = RegistryEntry(
    "session_20251028_143000",
    "2025-10-28T14:30:00+00:00",
    None,
    "completed",
    "memory_config.yaml",
    "gpt-4o-mini",
)


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def test_list_format(home: Path, capsys: pytest.CaptureFixture[str]):
    Registry(home / ".massmem").upsert(OLD, NEW)
    assert main(["--list-sessions"]) == 0
    assert (
        capsys.readouterr().out
        == """\
Available Memory Sessions:
============================================================

Session ID: session_20251028_143000
  Status:  completed
  Started: 2025-10-28 14:30:00
  Model:   gpt-4o-mini
  Config:  memory_config.yaml

Session ID: session_20251027_091500
  Status:  completed
  Started: 2025-10-27 09:15:00
  Model:   gpt-4o
  Description: Codebase analysis project
  Config:  research_config.yaml

============================================================
To load a session, use: massmem --session-id <SESSION_ID> "Your question"
"""
    )


def test_times_are_local(home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TZ", "UTC-2")
    time.tzset()
    Registry(home / ".massmem").upsert(NEW)
    main(["--list-sessions"])
    assert "  Started: 2025-10-28 16:30:00\n" in capsys.readouterr().out


def test_json_is_an_array_newest_first(home: Path, capsys: pytest.CaptureFixture[str]):
    Registry(home / ".massmem").upsert(OLD, NEW)
    assert main(["--list-sessions", "--json"]) == 0
    new, old = json.loads(capsys.readouterr().out)
    assert (new["session_id"], new["end_time"], old["description"]) == (NEW.session_id, None, OLD.description)


def test_empty_list_says_how_to_start(home: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["--list-sessions"]) == 0
    assert capsys.readouterr().out == 'No sessions yet. Start one with: massmem "your question"\n'
    assert not (home / ".massmem").exists()
    assert main(["--list-sessions", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []


async def test_sessions_come_from_the_store_and_those_of_other_stores_from_the_registry(
    home: Path, capsys: pytest.CaptureFixture[str]
):
    folder = home / ".massmem"
    store = await open_store(f"sqlite:///{folder}/massmem.db", folder)
    await store.create_session(session("session_here", 1))
    await store.close()
    Registry(folder).upsert(OLD, RegistryEntry("session_here", NEW.start_time, description="outdated"))
    assert main(["--list-sessions", "--json"]) == 0
    here, other = json.loads(capsys.readouterr().out)
    assert (here["session_id"], here["description"], other["session_id"]) == ("session_here", "d", OLD.session_id)
    (folder / "sessions.json").write_bytes(b'{"sessions": [{"session_id"')
    assert main(["--list-sessions", "--json"]) == 0
    assert [one["session_id"] for one in json.loads(capsys.readouterr().out)] == ["session_here"]


def test_registry_is_listed_where_the_store_cannot_be_read(home: Path, capsys: pytest.CaptureFixture[str]):
    (home / ".massmem").mkdir()
    (home / ".massmem" / "massmem.db").write_text("no database " * 1000)
    assert main(["--list-sessions"]) == 3
    Registry(home / ".massmem").upsert(OLD)
    capsys.readouterr()
    assert main(["--list-sessions"]) == 0
    out, err = capsys.readouterr()
    assert OLD.session_id in out
    assert "file is not a database" in err


def test_control_sequences_in_a_description_are_removed(home: Path, capsys: pytest.CaptureFixture[str]):
    Registry(home / ".massmem").upsert(RegistryEntry("s", NEW.start_time, description="\x1b[2Jhi\nStatus: fake"))
    main(["--list-sessions"])
    assert "  Description: hi Status: fake\n" in capsys.readouterr().out


@pytest.mark.parametrize("value", ["", "relative/path", "/"])
def test_invalid_home_is_an_input_error(
    value: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("HOME", value)
    assert main(["--list-sessions"]) == 2
    assert "set HOME" in capsys.readouterr().err
