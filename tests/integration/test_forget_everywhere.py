"""`massmem memory forget --everywhere`: what was said once is nowhere any more, and the rest is as it was."""

import asyncio
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pexpect
import pytest
from filelock import FileLock

from massmem.cli.main import main
from massmem.config.models import MemoryConfig
from massmem.core.errors import SessionBusyError
from massmem.core.events import Event
from massmem.core.messages import make_attachment
from massmem.core.records import SessionState
from massmem.memory import open_memory
from massmem.memory.persistent import Fact
from massmem.session.registry import Registry, build_entry
from massmem.store import open_store, sqlite
from massmem.store.ports import SessionStore
from tests.contract.test_session_store import everything, session
from tests.integration.test_memory_cli import CONFIG, Command, holds, settings
from tests.support.forked import ForkedTerminal
from tests.support.memory_command import database_of, prepare_home
from tests.support.sample_turn import START, USAGE, answer, ballot, begin, compression, event

SECRET = "My daughter's name is Xenia Quist."
SAME = "The name of my daughter is Xenia Quist!"
NEAR = "Xenia Quist turned nine in spring."
OTHER = "The kite club of Cobham meets on Fridays."
PICTURE = make_attachment("club.png", "image/png", b"\x89PNG\r\n\x1a\n a kite of the club")
PORTRAIT = make_attachment("girl.png", "image/png", f"\x89PNG {SECRET}".encode("latin-1"))


def turn(*events: Event) -> list[Event]:
    """A turn whose every part says the secret beside something else."""
    question = begin("ann", "bob", question=f"{OTHER} {SECRET} What shall we plan?")
    question = question.model_copy(update={"attachments": (PICTURE.file, PORTRAIT.file)})
    call = event(
        2, "tool_called", agent_id="ann", round=1, call_id="c1", batch=1, name="note",
        arguments=json.dumps({"text": SECRET, "day": "Friday"}), text=f"I note that. {SAME}",
        reasoning=f"Let me see. {SECRET}", usage=USAGE,
    )  # fmt: skip
    result = event(
        3, "tool_returned", agent_id="ann", round=1, call_id="c1", name="note",
        content=json.dumps({"noted": [SECRET], "day": "Friday"}),
    )  # fmt: skip
    pieces = [SECRET[:12], SECRET[12:20], f"{SECRET[20:]} {OTHER}"]
    deltas = [event(4, "agent_delta", agent_id="ann", round=1, channel="text", text=piece) for piece in pieces]
    summary = compression(5).model_copy(update={"summary": f"{SECRET}\n{OTHER}", "until": 1})
    return [
        question, call, result, *deltas, answer(4, "ann", f"{SECRET} {OTHER}"), summary,
        ballot(6, "bob", "ann", reason=f"{SAME} {OTHER}"), *events,
        event(
            8, "turn_completed", winner="ann", answer=f"{OTHER} {SECRET}", presented=True, usage=USAGE,
            data={"noted": SECRET},
        ),
    ]  # fmt: skip


async def fill(store: SessionStore, home: Path, folder: Path) -> None:
    await store.append("session_a", 1, turn())
    await store.save_files("session_a", {a.file.hash: a.data for a in (PICTURE, PORTRAIT)})
    state = {"params": {"girl": SECRET, "club": "Cobham"}, "last_result": {"turn": 1, "answer": SECRET}}
    await store.save_state("session_a", SessionState(**state))
    await store.create_session(session("session_b"))
    asked = begin("ann", question=f"{SAME} {NEAR}").model_copy(update={"session_id": "session_b"})
    await store.append("session_b", 1, [asked, answer(1, "ann", OTHER), event(2, "turn_interrupted", by="user")])
    for name in ("session_a", "session_b"):
        record = await store.get_session(name)
        assert record is not None
        Registry(home).upsert(build_entry(record.model_copy(update={"description": ""}), "sqlite:///m.db"))
    write(home / "massmem.db.bak-0008", SECRET)
    write(home / "sessions.json.before-1", SECRET)
    write(home / "logs" / "crash-1.txt", f"Traceback\n{SECRET}")
    write(home / "logs" / "massmem.log", f"1 {OTHER}\n2 {SECRET}\n")
    write(home / "history", json.dumps(SECRET) + "\n" + json.dumps(OTHER) + "\n")
    write(folder / ".massmem" / "massmem_logs" / "log_1" / "attempt_1" / "turn.json", json.dumps({"text": SECRET}))
    write(folder / ".massmem" / "massmem_logs" / "log_2" / "attempt_1" / "turn.json", json.dumps({"text": OTHER}))


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


async def add_facts(home: Path, store: SessionStore) -> None:
    ids = [message.id for message in await everything(store)]
    opened = await open_memory(MemoryConfig.model_validate(settings()), home / ".massmem", {})
    own = Fact("session_a", 1, "ann", "The user's daughter is named Xenia Quist.", tuple(ids), START)
    of_bob = Fact("session_b", 1, "bob", "The user's daughter is named Xenia Quist", (), START)
    await opened.add_facts([own, of_bob])
    await opened.close()


@pytest.fixture
async def memory(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """Everything is recorded, and two agents have extracted the secret as a fact."""
    monkeypatch.chdir(tmp_path)
    async with prepare_home(home, tmp_path, CONFIG) as store:
        await fill(store, home / ".massmem", tmp_path)
        await add_facts(home, store)
    command = Command(capsys)
    await asyncio.to_thread(command, "record")
    return command


def find_rests(folder: Path, *parts: str) -> list[str]:
    """The files that have one of the parts."""
    return [f"{part}: {path}" for part in parts for path in holds(folder, part)]


def find_fact(memory: Command, agent: str) -> str:
    (point,) = [m["id"] for m in memory.json("list", "--facts")["memories"] if m["agent_id"] == agent]
    return point


def test_fact_is_nowhere_and_the_receipt_says_what_went(memory: Command, home: Path, tmp_path: Path):
    point = find_fact(memory, "ann")
    receipt = memory.json("forget", "--everywhere", point, "--yes")
    assert receipt["complete"]
    assert receipt["memory_ids"] == [point]
    assert find_rests(tmp_path, "daughter") == []
    assert len(find_rests(home, "Xenia Quist turned nine")) >= 2, "in the log and in the index: nobody confirmed that"
    deleted = receipt["deleted"]
    assert (deleted["sessions"], deleted["files"], deleted["values"]) == (["session_b", "session_a"], 1, 2)
    assert deleted["traces"] == {"debug_runs": 1, "reports": 2, "backups": 1, "lines": 2}
    assert deleted["memories"] >= 7
    checks = receipt["checks"]
    assert (checks["messages"], checks["sessions_found"], checks["memories_found"]) == (10, 0, 0)
    assert (checks["questions_found"], checks["files_found"]) == (0, [])
    assert checks["questions"] >= 10
    assert checks["files"] >= 5
    (near,) = receipt["near"]
    assert (near["session_id"], near["turn"]) == ("session_b", 1)
    assert memory.json("show", near["memory_id"])["messages"][0]["content"].endswith(NEAR)
    assert not any(word in json.dumps(receipt) for word in ("Xenia", "daughter", "Cobham"))


def test_near_paraphrase_is_named_to_be_forgotten_next(memory: Command, tmp_path: Path):
    _, err = memory("forget", "--everywhere", find_fact(memory, "ann"), "--yes")
    command = err.splitlines()[-1].partition("massmem memory ")[2].split()
    assert command[:2] == ["forget", "--everywhere"]
    assert memory.json(*command, "--yes")["complete"]
    assert find_rests(tmp_path, "Xenia") == []


async def test_message_that_is_near_in_two_sentences_is_named_once(memory: Command, home: Path):
    store = await open_store(f"sqlite:///{database_of(home)}", home / ".massmem")
    again = begin("ann", question=f"{NEAR} In spring Xenia Quist had turned to kites.")
    await store.append("session_b", 2, [again.model_copy(update={"session_id": "session_b", "turn": 2})])
    await store.close()
    await asyncio.to_thread(memory, "record")
    receipt = await asyncio.to_thread(memory.json, "forget", "--everywhere", "--text", SECRET, "--yes")
    places = [(place["session_id"], place["turn"], place["memory_id"]) for place in receipt["near"]]
    assert ("session_b", 2) in [place[:2] for place in places]
    assert len(places) == len(set(places))


def test_bytes_that_a_forgetting_left_go_with_the_next_one(
    memory: Command, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sqlite, "BUSY_TIMEOUT", 0.2)
    point = find_fact(memory, "ann")
    with closing(sqlite3.connect(database_of(home))) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM events").fetchone()
        out, err = memory("forget", "--everywhere", point, "--yes", "--json", code=1)
        assert not json.loads(out)["complete"]
        assert "free space of the database" in err
    assert memory.json("forget", "--everywhere", "--text", SECRET, "--yes")["complete"]
    assert find_rests(tmp_path, "daughter") == []


def test_leftovers_of_a_killed_forgetting_go_unless_a_process_holds_them(memory: Command, home: Path):
    """Killed before it had written what is to be forgotten: nothing was begun, but the text lay in a draft."""
    folder = home / ".massmem" / "forgetting"
    folder.mkdir()
    for name in ("killed.lock", "running.lock"):
        (folder / name).touch()
        (folder / name).with_suffix(".begun.new").write_text(SECRET)
    with FileLock(folder / "running.lock"):
        memory("list")
        assert sorted(path.name for path in folder.iterdir()) == ["running.begun.new", "running.lock"]
    memory("list")
    assert not folder.exists()


async def test_rest_of_the_conversation_stays_as_it_was(memory: Command, home: Path, tmp_path: Path):
    await asyncio.to_thread(memory, "forget", "--everywhere", "--text", SECRET, "--yes")
    store = await open_store(f"sqlite:///{database_of(home)}", home / ".massmem")
    messages = await everything(store)
    state, files = await store.load_state("session_a"), await store.load_files("session_a", hashes())
    record, *_ = await store.list_sessions()
    await store.close()
    assert messages[0].content == f"{OTHER} [forgotten] What shall we plan?"
    call, result = (json.loads(m.content) for m in messages if "call" in m.metadata)
    assert (call, result) == (
        {"note": {"text": "[forgotten]", "day": "Friday"}},
        {"noted": ["[forgotten]"], "day": "Friday"},
    )
    assert (state.params, state.last_result) == ({"club": "Cobham"}, {"turn": 1, "answer": "[forgotten]"})
    assert list(files.values()) == [PICTURE.data]
    assert record.title == f"[forgotten] {NEAR}"
    titles = {entry.session_id: entry.description for entry in Registry(home / ".massmem").read_entries()}
    assert titles["session_a"] == f"{OTHER} [forgotten] Wha", "a name that was cut stays cut"
    logs = home / ".massmem" / "logs"
    assert [path.read_text() for path in (logs / "massmem.log", home / ".massmem" / "history")] == [
        f"1 {OTHER}\n",
        json.dumps(OTHER) + "\n",
    ]
    assert [path.name for path in (tmp_path / ".massmem" / "massmem_logs").glob("*")] == ["log_2"]


def hashes() -> list[str]:
    return [attachment.file.hash for attachment in (PICTURE, PORTRAIT)]


def test_rest_of_a_passage_is_still_found_and_a_rebuild_brings_nothing_back(memory: Command, tmp_path: Path):
    memory("forget", "--everywhere", "--text", SECRET, "--yes")
    before = memory.ids()
    assert "[forgotten] The kite club of [club] meets on Fridays." in before
    assert memory.json("search", "kite club")["memories"]
    memory("rebuild")
    assert memory.ids().keys() == before.keys() - {m["text"] for m in memory.json("list", "--facts")["memories"]}
    assert find_rests(tmp_path, "daughter", "Xenia Quist!") == []


def test_passage_of_several_sentences_is_forgotten(memory: Command, home: Path, tmp_path: Path):
    (point,) = [m["id"] for m in memory.json("list", "--agent", "user")["memories"] if "turned nine" in m["text"]]
    assert memory.json("forget", "--everywhere", point, "--yes")["complete"]
    assert find_rests(tmp_path, "Xenia") == []


def test_export_copes_with_a_file_that_is_gone(memory: Command, tmp_path: Path):
    memory("forget", "--everywhere", "--text", SECRET, "--yes")
    for format_ in ("json", "html", "markdown"):
        assert main(["sessions", "export", "session_a", "--format", format_, "--config", "team.yaml"]) == 0


async def test_nothing_changes_while_a_turn_is_under_way(memory: Command, home: Path, tmp_path: Path):
    store = await open_store(f"sqlite:///{database_of(home)}", home / ".massmem")
    assert await store.acquire_lease("session_b", "somebody", 60)
    before = [await store.export_log(name) for name in ("session_a", "session_b")]
    _, err = await asyncio.to_thread(
        memory, "forget", "--everywhere", "--text", SECRET, "--yes", code=SessionBusyError.exit_code
    )
    assert "session_b" in err
    assert [await store.export_log(name) for name in ("session_a", "session_b")] == before
    await store.close()
    assert (tmp_path / ".massmem" / "massmem_logs" / "log_1").exists()


def test_wrong_orders_change_nothing(memory: Command):
    before = memory.ids()
    for line, why in (
        (["--everywhere", "--yes"], "no memory was named"),
        (["--everywhere", "--text", " ", "--yes"], "no memory was named"),
        (["--everywhere", "--text", "a b", "--yes"], "no word to recognise it by"),
        (["--everywhere", "12345", "--yes"], "there is no memory '12345'"),
        (["--everywhere", "--text", SECRET], "add --yes"),
        (["--text", SECRET, "--yes"], "--everywhere takes ids and --text only"),
        (["--everywhere", "--agent", "ann", "--yes"], "--everywhere takes ids and --text only"),
    ):
        assert why in memory("forget", *line, code=2)[1]
    assert memory.ids() == before


@pytest.mark.parametrize(("choice", "sure", "left"), [("none", "y", 1), ("1", "y", 0), ("1", "n", 2)])
def test_on_a_terminal_near_paraphrases_can_be_chosen(
    memory: Command, tmp_path: Path, choice: str, sure: str, left: int
):
    child = ForkedTerminal("memory", "forget", "--everywhere", "--text", SECRET, "--config", "team.yaml")
    child.expect_exact("this goes from 2 sessions")
    child.expect_exact(SECRET)
    child.expect_exact(NEAR)
    child.expect_exact("Which of them, too?")
    child.sendline("7")
    child.expect_exact("write numbers from 1 to 1, all, or none")
    child.expect_exact("Which of them, too?")
    child.sendline(choice)
    child.expect_exact("Forget this for good?")
    child.sendline(sure)
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 0
    rests = [bool(find_rests(tmp_path, part)) for part in ("daughter", "Xenia")]
    assert rests.count(True) == left
