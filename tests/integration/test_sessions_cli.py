"""`massmem sessions` on a real store and a real index."""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pexpect
import pytest
from filelock import FileLock

from massmem.cli.main import main
from massmem.core.events import now
from massmem.core.records import count_microseconds
from massmem.memory.index_edge import EdgeIndex
from massmem.memory.persistent import Selection
from massmem.session.registry import Registry, build_entry
from massmem.store import open_store
from massmem.store.ports import SessionStore
from tests.contract.test_session_store import done, session
from tests.support.forked import ForkedTerminal
from tests.support.owners import taken
from tests.support.sample_turn import begin, whole_turn

CONFIG = """
agents: [{id: ann, backend: {type: scripted, script: {answer: "Hello."}}}]
memory: {persistent_memory: {embedding: {model: none}}}
"""
TRIP, SKY = "session_20251028_143000", "session_20251029_090000"
SECRET = "sk-" + "a1B2" * 8


@pytest.fixture
async def home_of_two(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two sessions: of one turn with everything in it, and of one turn with an unmistakable word."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "team.yaml").write_text(CONFIG)
    folder = home / ".massmem"
    store = await open_store(f"sqlite:///{folder / 'massmem.db'}", folder)
    for name, at, events in (
        (SKY, 0, whole_turn()),
        (TRIP, 60, [begin("ann", at=60, question=f"Plan Xanadustadt, key {SECRET}"), done(61, "By Xanadustadt rail.")]),
    ):
        await store.create_session(session(name, at).model_copy(update={"description": ""}))
        await store.append(name, 1, events)
        record = await store.get_session(name)
        assert record is not None
        Registry(folder).upsert(build_entry(record, "sqlite:///~/.massmem/massmem.db"))
    await store.close()
    return folder


class Command:
    """Runs `massmem sessions` in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *line: str, code: int = 0, group: str = "sessions") -> tuple[str, str]:
        """stdout and stderr; the exit code must be `code`."""
        self._capsys.readouterr()
        ended = main([group, *line, "--config", "team.yaml"])
        out, err = self._capsys.readouterr()
        assert (ended, "Traceback" in err) == (code, False), err
        return out, err

    def json(self, *line: str) -> Any:
        return json.loads(self(*line, "--json")[0])

    def ids(self, *line: str) -> list[str]:
        return [each["session_id"] for each in self.json("list", *line)["sessions"]]


@pytest.fixture
def sessions(home_of_two: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(capsys)


def in_store(folder: Path, change: Callable[[SessionStore], Awaitable[object]]) -> None:
    """Do something to the store beside the commands, which run event loops of their own."""

    async def run() -> None:
        store = await open_store(f"sqlite:///{folder / 'massmem.db'}", folder)
        await change(store)
        await store.close()

    asyncio.run(run())


def holding(folder: Path, *texts: str) -> list[Path]:
    """Files that have one of the texts in their name or their bytes, in any case."""
    found: list[Path] = []
    for path in folder.rglob("*"):
        data = path.read_bytes().lower() if path.is_file() else b""
        if any(text.lower() in path.name.lower() or text.lower().encode() in data for text in texts):
            found.append(path)
    return found


def test_list(sessions: Command) -> None:
    out, err = sessions("list")
    assert [line.split()[0] for line in out.splitlines()] == ["ID", TRIP, SKY]
    assert err == ""
    assert sessions.ids() == [TRIP, SKY]
    assert sessions.ids("--text", "blue") == [SKY]
    assert sessions.ids("--since", "24h") == []
    assert sessions.ids("--since", "2025-10-28") == [TRIP, SKY]
    assert sessions.ids("--status", "failed") == []
    assert sessions.ids("--limit", "1", "--offset", "1") == [SKY]
    assert "1 more" in sessions("list", "--limit", "1")[1]
    assert "no session matches" in sessions("list", "--text", "nowhere")[1]
    assert "is not a time" in sessions("list", "--since", "soon", code=2)[1]


def test_show(sessions: Command) -> None:
    out, _ = sessions("show", SKY)
    assert "You:\n  Why is the sky blue?" in out
    assert "ann:\n  The sky is blue because of Rayleigh scattering." in out
    assert "2 of 2 votes, 3 rounds" in out
    assert "Blue light scatters more." not in out
    out, _ = sessions("show", "20251029", "--all")
    assert "bob:\n  Blue light scatters more." in out
    assert "bob votes for bob, void because a new answer arrived:" in out
    assert "bob votes for ann:\n  names the cause" in out
    assert sessions.json("show", SKY)["turns"][0]["votes"] == {"ann": 2}
    assert "no turn 2" in sessions("show", SKY, "--turn", "2", code=2)[1]
    assert "did you mean" in sessions("show", SKY[:-1] + "9", code=5)[1]
    assert "any of 2 sessions" in sessions("show", "session_2025", code=2)[1]
    assert "cannot be a session id or name" in sessions("show", "../x", code=2)[1]


def test_search_names_session_and_turn(sessions: Command) -> None:
    out, _ = sessions("search", "xanadustadt")
    assert re.search(rf"{TRIP}  turn 1  you  .*\n  Plan Xanadustadt", out)
    assert sessions.json("search", "rayleigh scattering")["messages"][0]["session_id"] == SKY
    assert sessions.json("search", "xanadustadt", "--session-id", SKY)["messages"] == []
    assert "names the cause" in sessions("search", "cause")[0]  # a ballot's reason
    assert "no message has any" in sessions("search", "zebra")[1]
    assert sessions("search", "?!")[0] == ""


def test_renamed_session_continues_by_name(sessions: Command, capsys: pytest.CaptureFixture[str], home: Path) -> None:
    sessions("rename", SKY, "The sky")
    assert [e.description for e in Registry(home / ".massmem").read_entries() if e.session_id == SKY] == ["The sky"]
    assert f"another session is called 'The sky': {SKY}" in sessions("rename", TRIP, "The sky", code=2)[1]
    assert main(["--config", "team.yaml", "--session-id", "the sky", "--json", "And sunsets?"]) == 0
    answered = json.loads(capsys.readouterr().out)
    assert (answered["session_id"], answered["turn"]) == (SKY, 2)


def test_continue_uses_the_last_session(sessions: Command, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--config", "team.yaml", "--continue", "--json", "When?"]) == 0
    assert json.loads(capsys.readouterr().out)["session_id"] == TRIP
    assert main(["--config", "team.yaml", "-c", "--session-id", SKY, "When?"]) == 2
    assert "exclude each other" in capsys.readouterr().err


def test_continue_without_a_session_fails(home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "team.yaml").write_text(CONFIG)
    assert main(["--config", str(tmp_path / "team.yaml"), "--continue", "When?"]) == 5
    assert "there is no session yet to go on with" in capsys.readouterr().err


def test_export_to_stdout_and_files(sessions: Command, tmp_path: Path) -> None:
    assert json.loads(sessions("export", TRIP)[0])["session"]["session_id"] == TRIP
    assert sessions("export", SKY, "--format", "text")[0].startswith("Why is the sky blue?\nsession_20251029_090000 ·")
    for name, start in (("a.md", "# Plan"), ("a.html", "<!DOCTYPE html>"), ("a.txt", "Plan"), ("a.json", "{")):
        _, err = sessions("export", TRIP, "--to", name)
        written = tmp_path / name
        assert written.read_text().startswith(start)
        assert "By Xanadustadt rail." in written.read_text()
        assert SECRET not in written.read_text()
        assert written.stat().st_mode & 0o777 == 0o600
        assert f"{TRIP} was written to {name}" in err
    assert "cannot be written" in sessions("export", TRIP, "--to", "no/such/folder.md", code=2)[1]
    assert list(tmp_path.glob(".*part")) == []


def test_failed_export_keeps_the_old_file(sessions: Command, tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("mine")
    sessions("export", "nobody", "--to", "a.md", code=5)
    assert (tmp_path / "a.md").read_text() == "mine"
    assert list(tmp_path.glob(".*part")) == []


def test_insights_and_stats(sessions: Command) -> None:
    found = sessions.json("insights", SKY)
    assert (found["session_id"], found["message_count"], found["agents"]["ann"]["win_rate"]) == (SKY, 8, 1.0)
    assert sessions.json("insights")["sessions"] == 2
    assert "without a known price" in sessions("insights")[0]
    stats = sessions.json("stats")
    assert {k: stats[k] for k in list(stats)[:7]} == {
        "total_sessions": 2,
        "total_messages": 10,
        "avg_messages_per_session": 5.0,
        "activeConversations": 2,
        "totalMessages": 10,
        "averageMessagesPerConversation": 5,
        "usingRedis": False,
    }
    assert "sqlite" in sessions("stats")[0]


def test_deletion_leaves_nothing(sessions: Command, home: Path, tmp_path: Path) -> None:
    sessions("record", group="memory")
    memory_debug = tmp_path / ".massmem" / "massmem_logs" / "log_20251028_143000" / "attempt_1" / "memory_debug" / "ann"
    memory_debug.mkdir(parents=True)
    (memory_debug / "turn_1.json").write_text(json.dumps({"session_id": TRIP, "x": "Xanadustadt"}))
    old_index = home / ".massmem" / "memory" / "other-0" / "shard.damaged-1"
    old_index.mkdir(parents=True)
    (old_index / "page").write_text("Xanadustadt")
    _, err = sessions("delete", TRIP, "--yes")
    assert "deleted 1 session: 2 messages, 2 memories" in err
    assert holding(tmp_path, TRIP, "xanadustadt") == []
    assert sessions.ids() == [SKY]
    assert sessions.json("search", "Rayleigh")["messages"]
    assert json.loads(sessions("stats", "--json", group="memory")[0])["episodes"] == 5
    assert "no session" in sessions("delete", TRIP, "--yes", code=5)[1]


def test_deletion_empties_indexes_of_other_embedders(sessions: Command, home: Path) -> None:
    sessions("record", group="memory")
    folder = home / ".massmem" / "memory"
    (folder / "words").rename(folder / "elsewhere")  # a name that says no size of vectors, as `words` does
    sessions("delete", TRIP, "--yes")
    index = EdgeIndex(folder / "elsewhere", 0)
    assert index.count(Selection(session_id=TRIP)) == 0
    assert index.count(Selection(session_id=SKY)) == 5
    index.close()


def test_deletion_needs_the_memory(sessions: Command, home: Path) -> None:
    sessions("record", group="memory")
    with FileLock(home / ".massmem" / "memory" / "words" / "lock"):
        assert "in use by another process" in sessions("delete", TRIP, "--yes", code=3)[1]
    assert sessions.json("show", TRIP)["turns"][0]["answer"] == "By Xanadustadt rail."
    assert json.loads(sessions("stats", "--json", group="memory")[0])["recordings"]["done"] > 0


def test_session_in_use_is_not_deleted(sessions: Command, home: Path) -> None:
    with taken(home / ".massmem", TRIP):
        out, err = sessions("delete", TRIP, SKY, "--yes", "--json", code=3)
    assert json.loads(out)["deleted"] == [SKY]
    assert json.loads(out)["busy"] == [TRIP]
    assert "a process runs a turn of it" in err
    assert sessions.ids() == [TRIP]


@pytest.mark.parametrize("events", [0, 1_000], ids=["marked", "gone from the store"])
def test_interrupted_deletion_is_named_and_finished(sessions: Command, home_of_two: Path, events: int) -> None:
    (home_of_two / "deleting").mkdir()
    (home_of_two / "deleting" / TRIP).touch()
    in_store(home_of_two, lambda store: store.delete_session(TRIP, events))
    assert f"the deletion of {TRIP} has not finished" in sessions("list")[1]
    assert ("is being deleted" in sessions("show", TRIP, code=5)[1]) == (events == 0)
    assert json.loads(sessions("delete", TRIP, "--yes", "--json")[0])["deleted"] == [TRIP]
    assert holding(home_of_two, "xanadustadt", TRIP) == []
    assert sessions.ids() == [SKY]


def test_deletion_asks_for_confirmation(sessions: Command, tmp_path: Path) -> None:
    assert "add --yes" in sessions("delete", TRIP, code=2)[1]
    for answer, left in (("n", [TRIP, SKY]), ("y", [SKY])):
        child = ForkedTerminal("sessions", "delete", TRIP, "--config", "team.yaml", cwd=tmp_path)
        child.expect(r"2\s+messages,\s+last\s+used\s+2025-10-28")
        child.expect("Delete this session for good")
        child.sendline(answer)
        child.expect(pexpect.EOF)
        child.close()
        assert child.exitstatus == 0
        assert sessions.ids() == left


def test_cleanup_deletes_old_sessions(sessions: Command, home_of_two: Path) -> None:
    time = now() - timedelta(hours=1)
    new = session("session_new").model_copy(update={"updated_at": time, "used": count_microseconds(time)})
    in_store(home_of_two, lambda store: store.create_session(new))
    assert "is not a duration" in sessions("cleanup", "--older-than", "yesterday", code=2)[1]
    assert "add --yes" in sessions("cleanup", "--older-than", "24h", code=2)[1]
    assert sessions.json("cleanup", "--older-than", "24h", "--dry-run") == {"would_delete": [TRIP, SKY]}
    assert sessions.ids() == ["session_new", TRIP, SKY]
    assert sessions.json("cleanup", "--older-than", "24h", "--yes")["deleted"] == [TRIP, SKY]
    assert sessions.ids() == ["session_new"]
    assert "0 sessions not used for 24h" in sessions("cleanup", "--older-than", "24h", "--yes")[1]
