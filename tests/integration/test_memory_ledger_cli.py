"""`massmem memory history` and `--as-of` on a real store and a real index."""

import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from massmem.core.events import Event
from tests.support.extraction_stub import extraction_server
from tests.support.memory_command import MemoryCommand, database_of, prepare_home
from tests.support.sample_turn import event

CONFIG = """
agents: [{id: ann, backend: {type: scripted, script: {answer: "Hello."}}}]
memory: {persistent_memory: {session_name: null, embedding: {model: none}}}
"""
NOTES = {4: "My home is Porto.", 9: "My sister collects stamps.", 20: "My home city is Ghent."}
"""By day of March 2026."""


def note(day: int, text: str) -> Event:
    return event(0, "note_added", text=text).model_copy(update={"at": datetime(2026, 3, day, 12, tzinfo=UTC)})


@pytest.fixture
async def database(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    async with prepare_home(home, tmp_path, CONFIG) as store:
        for day, text in NOTES.items():
            await store.append("session_a", 0, [note(day, text)])
    return database_of(home)


class Command(MemoryCommand):
    def values(self, *line: str) -> list[tuple[str, str, str | None]]:
        """Each value with the days of its beginning and its end."""
        (topic,) = self.json("history", *line)["topics"]
        return [(v["value"], v["since"][:10], v["until"] and v["until"][:10]) for v in topic["values"]]

    def notes(self, *line: str) -> dict[str, str | None]:
        """What a search says of each text."""
        return {m["text"]: m["note"] for m in self.json("search", *line)["memories"]}


@pytest.fixture
def memory(database: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    command = Command(capsys)
    command("record")
    return command


BOTH = [("Porto", "2026-03-04", "2026-03-20"), ("Ghent", "2026-03-20", None)]


def test_history_shows_each_value_with_its_time(memory: Command) -> None:
    assert memory.values("home") == BOTH
    assert memory.values("where I live") == BOTH
    assert memory.values("Porto") == BOTH
    out, _ = memory("history", "home")
    head, first, second = out.splitlines()
    assert head == "user: home"
    assert first.startswith("  Porto  since 2026-03-04, until 2026-03-20  (user; session_a turn 0, memory ")
    assert second.startswith("  Ghent  since 2026-03-20, holds  (user; ")
    assert memory("history", "quasar") == ("", "massmem: no value is known of that\n")


def test_search_shows_what_holds_and_as_of_a_day_what_held_then(memory: Command) -> None:
    both = {"My home is Porto.": "held until 20 March 2026", "My home city is Ghent.": "holds since 20 March 2026"}
    sister = {"My sister collects stamps.": ""}
    assert memory.notes("Where is my home?") == both | sister
    assert "(holds since 20 March 2026)" in memory("search", "Where do I live?")[0]
    assert memory.notes("Where is my home?", "--as-of", "2026-03-10") == {"My home is Porto.": ""} | sister
    assert memory.values("home", "--as-of", "2026-03-10T18:00") == [("Porto", "2026-03-04", None)]
    assert memory.notes("Where do I live?", "--as-of", "2026-03-01") == {}


@pytest.mark.parametrize("date", ["yesterday", "2026-13-01", "", "20260"])
def test_a_wrong_date_is_told(memory: Command, date: str) -> None:
    _, err = memory("search", "home", "--as-of", date, code=2)
    assert "is no date" in err
    assert "--as-of 2026-05-08" in err


@pytest.mark.parametrize(("zone", "date"), [("America/New_York", "9999-12-31"), ("Asia/Tokyo", "0001-01-01T00:00")])
def test_a_day_beyond_the_calendar_is_told(
    memory: Command, monkeypatch: pytest.MonkeyPatch, zone: str, date: str
) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        assert "is no date" in memory("search", "home", "--as-of", date, code=2)[1]
    finally:
        monkeypatch.undo()
        time.tzset()


def test_forgetting_a_memory_takes_its_value_along_and_a_rebuild_does_not_restore_it(memory: Command) -> None:
    (topic,) = memory.json("history", "home")["topics"]
    memory("forget", *topic["values"][1]["memory_ids"], "--yes")
    assert memory.values("home") == [("Porto", "2026-03-04", None)]
    memory("rebuild")
    assert memory.values("home") == [("Porto", "2026-03-04", None)]


def test_a_damaged_ledger_is_rebuilt_from_the_log(memory: Command, home: Path) -> None:
    before = memory.json("history", "home")
    (shard,) = (home / ".massmem" / "memory").glob("*/shard")
    for path in shard.rglob("segment.json"):
        path.write_bytes(b"{")
    assert "damaged" in memory("history", "home", code=3)[1]
    memory("rebuild")
    assert memory.json("history", "home") == before


def test_a_model_names_claims_where_there_is_one(database: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The rules leave claims to the model then, whatever it says."""
    with extraction_server('{"memory": []}') as url:
        llm = f"llm: {{provider: openai, model: stub, api_key: sk-stub, base_url: '{url}/v1'}}"
        Path("team.yaml").write_text(CONFIG.replace("session_name: null", f"session_name: null, {llm}"))
        command = Command(capsys)
        command("record")
        assert command.json("history", "home")["topics"] == []


def test_beside_a_small_model_the_rules_go_on(database: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with extraction_server('{"memory": []}') as url:
        llm = f"llm: {{provider: vllm, model: stub, base_url: '{url}/v1'}}"
        Path("team.yaml").write_text(CONFIG.replace("session_name: null", f"session_name: null, {llm}"))
        command = Command(capsys)
        command("record")
        assert command.values("home") == BOTH
