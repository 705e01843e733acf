import json
import time
from pathlib import Path

import pytest

from massmem.cli.main import main
from massmem.session.registry import Entry, Registry

OLD = Entry(
    "session_20251027_091500",
    "2025-10-27T09:15:00+00:00",
    "2025-10-27T09:25:00+00:00",
    "completed",
    "research_config.yaml",
    "gpt-4o",
    "Codebase analysis project",
    "sqlite:///x",
)
NEW = Entry(
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
    Registry(home / ".massmem").replace([OLD, NEW])
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
    Registry(home / ".massmem").replace([NEW])
    main(["--list-sessions"])
    assert "  Started: 2025-10-28 16:30:00\n" in capsys.readouterr().out


def test_json_is_an_array_newest_first(home: Path, capsys: pytest.CaptureFixture[str]):
    Registry(home / ".massmem").replace([OLD, NEW])
    assert main(["--list-sessions", "--json"]) == 0
    new, old = json.loads(capsys.readouterr().out)
    assert (new["session_id"], new["end_time"], old["description"]) == (NEW.session_id, None, OLD.description)


def test_empty_list_says_how_to_start(home: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["--list-sessions"]) == 0
    assert capsys.readouterr().out == 'No sessions yet. Start one with: massmem "your question"\n'
    assert not (home / ".massmem").exists()
    assert main(["--list-sessions", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []


def test_damaged_registry_is_backed_up_and_rebuilt(home: Path, capsys: pytest.CaptureFixture[str]):
    folder = home / ".massmem"
    folder.mkdir()
    (folder / "sessions.json").write_bytes(b'{"sessions": [{"session_id"')
    assert main(["--list-sessions"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("No sessions yet.")
    assert "damaged" in err
    assert [p.read_bytes() for p in folder.glob("*.damaged-*")] == [b'{"sessions": [{"session_id"']
    assert Registry(folder).read_entries() == []


def test_control_sequences_in_a_description_are_removed(home: Path, capsys: pytest.CaptureFixture[str]):
    Registry(home / ".massmem").replace([Entry("s", NEW.start_time, description="\x1b[2Jhi\nStatus: fake")])
    main(["--list-sessions"])
    assert "  Description: hi Status: fake\n" in capsys.readouterr().out


@pytest.mark.parametrize("value", ["", "relative/path", "/"])
def test_invalid_home_is_an_input_error(
    value: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("HOME", value)
    assert main(["--list-sessions"]) == 2
    assert "set HOME" in capsys.readouterr().err
