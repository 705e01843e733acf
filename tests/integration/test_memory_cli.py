"""`massmem memory` on a real store and a real index."""

import asyncio
import json
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pexpect
import pytest
from filelock import FileLock

from massmem.config.models import MemoryConfig
from massmem.memory import open_memory
from massmem.memory.persistent import Fact, Selection, shorten_id
from massmem.session.owners import hash_user
from massmem.store import open_store
from tests.contract.test_session_store import everything, session
from tests.support.cli import massmem
from tests.support.extraction_stub import extraction_server
from tests.support.extraction_stub import memory as facts_reply
from tests.support.forked import ForkedTerminal
from tests.support.memory_command import MemoryCommand, database_of, prepare_home
from tests.support.sample_turn import START, turn_without_restart

CONFIG = """
agents: [{id: ann, backend: {type: scripted, script: {answer: "Hello."}}}]
memory: {persistent_memory: {embedding: {model: none}}}
"""
SAID = 5
"""Messages of a whole turn that are remembered: its ballots are not."""


@pytest.fixture
async def database(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A session with one turn that nothing has recorded yet; the working directory has the configuration."""
    monkeypatch.chdir(tmp_path)
    async with prepare_home(home, tmp_path, CONFIG) as store:
        await store.append("session_a", 1, turn_without_restart())
    return database_of(home)


class Command(MemoryCommand):
    def ids(self, *line: str) -> dict[str, str]:
        """Ids of what is listed, by text."""
        return {m["text"]: m["id"] for m in self.json("list", *line)["memories"]}


@pytest.fixture
def memory(database: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    """Everything is recorded."""
    command = Command(capsys)
    command("record")
    return command


def holds(folder: Path, text: str) -> list[Path]:
    return [p for p in folder.rglob("*") if p.is_file() and text.encode() in p.read_bytes()]


def test_record_drains_the_queue(database: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = Command(capsys)
    done = command.json("record")
    assert (done["episodes"], done["turns"], done["recordings"]["pending"]) == (SAID, 1, 0)
    assert command("record")[1].endswith("massmem: recorded 0 messages, 0 ends of turns, 0 new facts\n")
    after = command.json("stats")
    assert (after["episodes"], after["sessions"], after["embedder"]) == (SAID, 1, "none")
    assert after["recordings"] == {
        "pending": 0, "messages": 0, "retrying": 0, "oldest": None, "done": SAID + 3, "failed": 0, "reason": None,
    }  # fmt: skip
    assert after["bytes"] > 0
    assert f"recording  0 pending, {SAID + 3} done, 0 failed" in command("stats")[0]


@pytest.mark.parametrize("view", [("search", "lifetimes"), ("list",), ("stats",), ("history", "home")])
def test_each_view_records_what_waits(
    view: tuple[str, ...], database: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = Command(capsys)
    reply = command.json(*view)
    assert (reply["not_recorded"], reply["not_in_index"]) == (0, 0)
    assert len(command.ids()) == SAID
    assert command.json("record")["episodes"] == 0


def test_messages_that_a_view_cannot_record_are_named(
    database: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("massmem.session.memories._VIEW_SECONDS", -1)
    command = Command(capsys)
    notice = "massmem: 5 messages are not recorded yet: the next question does it, or massmem memory record\n"
    for view in (("search", "lifetimes"), ("list",), ("stats",), ("history", "home")):
        assert notice in command(*view)[1], view
    assert command.json("list")["not_recorded"] == SAID


def test_lost_index_is_named_and_filled_again_without_what_was_forgotten(memory: Command, home: Path) -> None:
    ids = memory.ids()
    text = next(iter(ids))
    memory("forget", ids[text], "--yes")
    shutil.rmtree(home / ".massmem" / "memory")
    doctor = massmem("doctor", "--offline", "--config", "team.yaml", text=True)
    assert doctor.returncode == 1
    assert "4 messages are not in the index" in doctor.stdout
    assert "massmem: 4 messages are not in the index: massmem memory rebuild\n" in memory("list")[1]
    assert memory.ids() == {other: name for other, name in ids.items() if other != text}
    assert "not in the index" not in memory("list")[1]
    assert "not in the index" not in massmem("doctor", "--offline", "--config", "team.yaml", text=True).stdout
    shutil.rmtree(home / ".massmem" / "memory")
    question = massmem("What now?", "--config", "team.yaml", text=True)
    assert question.returncode == 0
    assert "4 messages are not in the index: massmem memory rebuild" in question.stderr
    assert text not in memory.ids()
    assert ids.keys() - {text} <= memory.ids().keys()
    assert memory.json("stats")["not_in_index"] == 0


def test_index_from_before_a_session_is_filled_with_that_session(memory: Command, home: Path, database: Path) -> None:
    folder, old = home / ".massmem" / "memory", home / "old"
    shutil.copytree(folder, old)
    assert massmem("Where do we go from here?", "--config", "team.yaml", text=True).returncode == 0
    everything_listed = memory.ids()
    shutil.rmtree(folder)
    old.rename(folder)
    assert "not in the index: massmem memory rebuild" in memory("list")[1]
    assert memory.ids() == everything_listed


async def test_search_of_an_owner_reaches_sessions_with_a_session_name_of_their_own(
    database: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = await open_store(f"sqlite:///{database}", database.parent)
    for owner in ("alice", "bob"):
        group = f"{hash_user(owner)}:zoo"
        one = session(f"{hash_user(owner)}.sky").model_copy(update={"user_id": owner, "memory_group": group})
        await store.create_session(one)
        await store.append(one.session_id, 1, turn_without_restart())
    await store.close()
    memory = Command(capsys)
    await asyncio.to_thread(memory, "record")
    hits = await asyncio.to_thread(memory.json, "search", "Rayleigh", "--owner", "alice")
    assert {m["session_id"] for m in hits["memories"]} == {f"{hash_user('alice')}.sky"}


def test_search_shows_what_the_agent_may_see(memory: Command) -> None:
    found = memory.json("search", "scatters more", "--session-id", "session_a", "--agent", "ann")
    assert "Blue light scatters more." not in [m["text"] for m in found["memories"]]
    found = memory.json("search", "scatters more", "--session-id", "session_a", "--agent", "bob")
    assert "Blue light scatters more." in [m["text"] for m in found["memories"]]
    assert (found["lexical_only"], found["unavailable"]) == (True, None)  # there is no embedder
    texts = [m["text"] for m in memory.json("search", "Rayleigh", "--limit", "2")["memories"]]
    assert texts
    assert len(texts) <= 2
    assert all("Rayleigh" in text for text in texts)
    out, err = memory("search", "quasar")
    outside = "massmem: looked outside of any project, in what is global\n"
    assert (out, err) == ("", f"massmem: no memory matches\n{outside}")


def test_list_by_session_agent_and_turn(memory: Command) -> None:
    assert len(memory.ids()) == SAID
    assert len(memory.ids("--limit", "3")) == 3
    assert set(memory.ids("--agent", "user")) == {"Why is the sky blue?"}
    assert "Blue light scatters more." in memory.ids("--agent", "bob", "--turn", "1", "--session-id", "session_a")
    assert memory.ids("--turn", "2") == memory.ids("--facts") == {}
    out, _ = memory("list", "--agent", "user")
    (point,) = memory.ids("--agent", "user").values()
    assert out.splitlines() == [
        "ID        DATE        WHO   TEXT",
        f"{shorten_id(point)}  2025-10-28  user  Why is the sky blue?",
    ]


def test_lines_fit_the_terminal(memory: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    memory("add", "--session-id", "session_a", f"Remember {'a long story ' * 20}")
    for columns in (80, 50):
        monkeypatch.setenv("COLUMNS", str(columns))
        for line in (("list",), ("search", "long story"), ("search", "long story", "--all")):
            out, _ = memory(*line)
            assert max(map(len, out.splitlines())) == columns


def test_memory_is_corrected_and_says_what_it_was(memory: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    point = memory.ids()["Blue light scatters more."]
    short = shorten_id(point)
    assert memory("edit", short[:5], "Violet light scatters most.") == (
        "", f"massmem: edited: {short}  Violet light scatters most.\n",
    )  # fmt: skip
    shown = memory.json("show", short)
    assert (shown["id"], shown["text"], shown["agent_id"]) == (point, "Violet light scatters most.", "bob")
    (change,) = shown["changes"]
    assert (change["action"], change["by"], change["old"]) == ("edit", "user", "Blue light scatters more.")
    out, _ = memory("show", short)
    assert "  edited by user, " in out
    assert "before:\n    Blue light scatters more.\n" in out
    assert f"{short}  2025-10-28  bob" in memory("list")[0]
    assert (
        "(edited; not chosen) Violet light"
        in memory("search", "violet", "--agent", "bob", "--session-id", "session_a")[0]
    )
    assert memory.json("rebuild")["recordings"]["failed"] == 0
    assert memory.ids()["Violet light scatters most."] == point
    assert "Blue light scatters more." not in memory.ids()
    assert "has this text already" in memory("edit", point, "Violet light scatters most.", code=2)[1]
    assert f"massmem memory edit {short} TEXT" in memory("edit", short, code=2)[1]
    assert "there is no memory" in memory("edit", "zzzzzz", "Hello.", code=2)[1]
    assert "at most" in memory("edit", short, "x" * 2_001, code=2)[1]


def test_note_is_added_pinned_and_recalled_whatever_is_asked(memory: Command) -> None:
    refused = memory("add", "I am allergic to peanuts.", code=2)[1]
    assert "this team remembers each conversation by itself" in refused
    assert "--session-id ID" in refused
    added = memory.json("add", "I am allergic to peanuts.", "--session-id", "session_a")
    point = added["memory"]["id"]
    assert (added["session_id"], added["memory"]["agent_id"], added["memory"]["turn"]) == ("session_a", "user", 0)
    memory("pin", added["memory"]["short_id"])
    assert memory.json("search", "quasar", "--session-id", "session_a")["pinned"][0]["id"] == point
    assert [m["id"] for m in memory.json("list", "--pinned")["memories"]] == [point]
    memory("rebuild")
    assert [m["text"] for m in memory.json("list", "--pinned")["memories"]] == ["I am allergic to peanuts."]
    assert "pinned" in memory("show", added["memory"]["short_id"])[0]
    assert "no longer pinned" in memory("unpin", point)[1]
    assert memory.json("list", "--pinned")["memories"] == []
    memory("edit", point, "word " * 300)
    assert "too long to be pinned" in memory("pin", point, code=2)[1]


def test_note_of_all_conversations_is_in_one_of_its_own(memory: Command, tmp_path: Path, home: Path) -> None:
    settings = "{session_name: null, embedding: {model: none}}"
    (tmp_path / "team.yaml").write_text(CONFIG.replace("{embedding: {model: none}}", settings))
    first = memory.json("add", "I am allergic to peanuts.")
    assert memory.json("add", "I live in Ghent.")["session_id"] == first["session_id"] == "notes"
    assert "Ghent" in memory("search", "Where do I live?", "--agent", "ann")[0]
    assert "Notes" in (home / ".massmem" / "sessions.json").read_text()


def test_edited_memory_is_forgotten_everywhere_with_what_it_was(memory: Command, home: Path) -> None:
    short = shorten_id(memory.ids()["Blue light scatters more."])
    memory("edit", short, "Violet light travels slowly through thick honey.")
    receipt = memory.json("forget", "--everywhere", short, "--yes")
    assert receipt["complete"] is True
    for text in ("Blue light scatters more", "Violet light travels"):
        assert holds(home / ".massmem", text) == []


def test_edit_stays_when_another_sentence_of_its_session_is_forgotten(memory: Command) -> None:
    point = memory.ids()["Why is the sky blue?"]
    memory("edit", point, "Why is the sea green?")
    memory("forget", "--everywhere", memory.ids()["Blue light scatters more."], "--yes")
    assert "Why is the sea green?" in memory.ids()


async def add_fact(home: Path, text: str, message_ids: tuple[str, ...]) -> None:
    opened = await open_memory(MemoryConfig.model_validate(settings()), home / ".massmem", {})
    await opened.add_facts([Fact("session_a", 1, "ann", text, message_ids, START)])
    await opened.close()


def settings() -> dict[str, Any]:
    return {"persistent_memory": {"embedding": {"model": "none"}}}


@pytest.fixture
async def fact(home: Path, database: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """Text of a fact that is in the memory, from the question and the first answer."""
    store = await open_store(f"sqlite:///{database}", database.parent)
    ids = [m.id for m in await everything(store)][:2]
    await store.close()
    text = "The sky is blue because of Lord Rayleigh's law."
    await add_fact(home, text, tuple(ids))
    return text


def test_show_says_where_a_fact_came_from(fact: str, memory: Command) -> None:
    (point,) = memory.ids("--facts").values()
    shown = memory.json("show", point)
    assert (shown["kind"], shown["text"]) == ("fact", fact)
    assert [m["content"] for m in shown["messages"]] == ["Why is the sky blue?", "Rayleigh scattering."]
    out, _ = memory("show", point)
    assert out.startswith(f"{shorten_id(point)}  fact, ann, ")
    assert f", session_a turn 1\n  {fact}\n\nFrom:\n  user, session_a turn 1, " in out
    assert out.endswith("\n    Rayleigh scattering.\n")
    for wrong in ("12345", "nonsense", "1 OR 1"):
        assert f"there is no memory '{wrong}'" in memory("show", wrong, code=2)[1]


def test_forget_one_fact_for_good(fact: str, memory: Command, home: Path) -> None:
    (point,) = memory.ids("--facts").values()
    assert memory("forget", point, "--yes")[1] == (
        "massmem: forgotten: 1; the log of the session keeps its messages (forget --everywhere: there, too)\n"
    )
    assert memory.ids("--facts") == {}
    assert len(memory.ids()) == SAID
    assert holds(home / ".massmem" / "memory", fact) == []
    assert "there is no memory" in memory("forget", point, "--yes", code=2)[1]


def test_forgotten_memory_does_not_come_back_with_a_rebuild(memory: Command, home: Path) -> None:
    text = "Rayleigh scattering, in short."
    assert memory.json("forget", memory.ids()[text], "--yes") == {"forgotten": 1, "note": ""}
    assert holds(home / ".massmem" / "memory", text) == []
    assert memory.json("rebuild")["episodes"] == SAID - 1
    assert text not in memory.ids()
    assert memory.json("forget", "--agent", "ann", "--yes")["forgotten"] > 1
    memory("rebuild", "--session-id", "session_a")
    assert {m["agent_id"] for m in memory.json("list")["memories"]} == {"bob", "user"}
    memory("forget", "--session-id", "session_a", "--yes")
    memory("rebuild")
    assert memory.ids() == {}
    assert holds(home / ".massmem" / "memory", "Why is the sky blue") == []
    assert holds(home / ".massmem", "Why is the sky blue") != []  # the log is not touched


def test_queued_message_can_be_forgotten(database: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = Command(capsys)
    assert command.json("forget", "--agent", "bob", "--yes") == {"forgotten": 0, "note": ""}
    assert command.json("record")["episodes"] == SAID - 1
    assert {m["agent_id"] for m in command.json("list")["memories"]} == {"ann", "user"}


def test_a_rebuild_makes_the_same_again(fact: str, memory: Command) -> None:
    before = memory.ids()
    done = memory.json("rebuild")
    assert (done["episodes"], done["turns"]) == (SAID, 1)
    assert memory.ids() == before
    assert fact in before
    lines = memory("rebuild")[1].splitlines()
    assert lines[-1] == f"massmem: recorded {SAID} messages, 1 ends of turns, 0 new facts"
    assert re.fullmatch(r"massmem: recording: ([\d,]+) of \1", lines[-2])


FACTS = ("The sky of Cobham is blue at noon.", "Lord Rayleigh found the law of scattering.")


def with_model(url: str) -> str:
    return CONFIG.replace("{embedding:", f"{{llm: {{provider: openai, base_url: '{url}', api_key: x}}, embedding:")


def test_one_forgotten_fact_does_not_keep_the_others_from_coming_back(
    database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = Command(capsys)
    with extraction_server(facts_reply(*FACTS)) as url:
        (tmp_path / "team.yaml").write_text(with_model(url))
        command("record")
        (gone,) = [
            m["id"] for m in command.json("list", "--facts", "--agent", "ann")["memories"] if FACTS[0] == m["text"]
        ]
        command("forget", gone, "--yes")
        command("rebuild")
        after = command.json("list", "--facts")["memories"]
    assert {(m["agent_id"], m["text"]) for m in after} == {("ann", FACTS[1]), ("bob", FACTS[0]), ("bob", FACTS[1])}


def damage_index(home: Path) -> Path:
    """Half of the index is gone."""
    (shard,) = (home / ".massmem" / "memory").glob("*/shard")
    for path in shard.rglob("segment.json"):
        path.write_bytes(b"{")
    return shard


def test_a_damaged_index_is_made_again_and_its_copy_removed(memory: Command, home: Path) -> None:
    before = memory.ids()
    shard = damage_index(home)
    assert "damaged" in memory("list", code=3)[1]
    assert "without --session-id" in memory("rebuild", "--session-id", "session_a", code=2)[1]
    _, err = memory("rebuild")
    assert "the copy of a damaged index was removed: " in err
    assert list(shard.parent.glob("shard.damaged-*")) == []
    assert memory.ids() == before
    assert memory.json("rebuild")["removed"] == []


def test_the_copy_of_a_damaged_index_stays_while_something_is_left_to_record(
    memory: Command, home: Path, tmp_path: Path
) -> None:
    shard = damage_index(home)
    with extraction_server("no facts today") as url:
        (tmp_path / "team.yaml").write_text(with_model(url))
        out, _ = memory("rebuild", "--json", code=1)
    assert json.loads(out)["removed"] == []
    assert len(list(shard.parent.glob("shard.damaged-*"))) == 1


def test_another_embedder_is_said_to_need_a_rebuild(memory: Command, tmp_path: Path) -> None:
    assert memory.json("stats")["note"] is None
    (tmp_path / "team.yaml").write_text(CONFIG.replace("embedding: {model: none}", "on_disk: true"))
    assert "massmem memory rebuild" in memory("stats")[1]
    assert "massmem memory rebuild" in memory.json("stats")["note"]
    memory("rebuild")
    assert memory.json("stats")["note"] is None
    assert len(memory.ids()) == SAID


@pytest.mark.parametrize("by_id", [True, False])
def test_forgotten_memory_is_gone_from_indexes_of_earlier_embedders_and_damaged_copies(
    memory: Command, home: Path, tmp_path: Path, by_id: bool
) -> None:
    text = "Why is the sky blue?"
    kept = home / ".massmem" / "memory" / "words" / "shard.damaged-20250101T000000"
    kept.mkdir()
    (kept / "page").write_text(text)
    (tmp_path / "team.yaml").write_text(CONFIG.replace("embedding: {model: none}", "on_disk: true"))
    memory("list")
    assert len([*(home / ".massmem" / "memory").glob("*/shard")]) == 2
    (tmp_path / "team.yaml").write_text(CONFIG)
    memory("forget", *([memory.ids()[text]] if by_id else ["--agent", "user"]), "--yes")
    (tmp_path / "team.yaml").write_text(CONFIG.replace("embedding: {model: none}", "on_disk: true"))
    memory("rebuild")
    assert text not in memory.ids()
    assert "Blue light scatters more." in memory.ids()
    memory("forget", memory.ids()["Blue light scatters more."], "--yes")
    for gone in (text, "Blue light scatters more."):
        assert holds(home / ".massmem" / "memory", gone) == []
    (tmp_path / "team.yaml").write_text(CONFIG)
    assert len(memory.ids()) == SAID - 2


def test_stored_memories_can_be_listed_and_forgotten_after_on_disk_is_disabled(memory: Command, tmp_path: Path) -> None:
    (tmp_path / "team.yaml").write_text(CONFIG.replace("{embedding:", "{on_disk: false, embedding:"))
    assert memory.json("forget", "--agent", "user", "--yes") == {"forgotten": 1, "note": ""}
    assert len(memory.ids()) == SAID - 1
    for line in ("record", "rebuild"):
        assert "on_disk is false" in memory(line, code=2)[1]


def test_nothing_is_forgotten_by_mistake(memory: Command) -> None:
    assert "no memory was named" in memory("forget", "--yes", code=2)[1]
    assert "add --yes" in memory("forget", "--agent", "ann", code=2)[1]
    assert "cannot be a session id" in memory("forget", "--session-id", "../x", "--yes", code=2)[1]
    assert len(memory.ids()) == SAID


@pytest.mark.parametrize(("reply", "left"), [("n", SAID), ("y", SAID - 1)])
def test_on_a_terminal_it_asks(memory: Command, reply: str, left: int) -> None:
    child = ForkedTerminal("memory", "forget", "--agent", "user", "--config", "team.yaml")
    child.expect_exact("Forget 1 memory for good? [y/N]: ")
    child.sendline(reply)
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 0
    assert len(memory.ids()) == left


def test_a_session_that_is_not_there(memory: Command) -> None:
    for line in (["search", "sky"], ["record"], ["rebuild"], ["list"], ["forget", "--yes"]):
        assert "there is no session 'nope'" in memory(*line, "--session-id", "nope", code=5)[1]


def test_a_session_by_its_name_or_the_beginning_of_its_id(memory: Command, database: Path) -> None:
    async def arrange() -> None:
        store = await open_store(f"sqlite:///{database}", database.parent)
        await store.create_session(session("other"))
        await store.rename_session("session_a", "The sky")
        await store.close()

    asyncio.run(arrange())
    for name in ("session_a", "sess", "a", "the SKY"):
        assert len(memory.json("list", "--session-id", name)["memories"]) == SAID
        assert memory.json("search", "blue", "--session-id", name)["memories"]
    assert memory.json("list", "--session-id", "oth")["memories"] == []
    assert memory.json("record", "--session-id", "The sky")["recordings"]["pending"] == 0
    assert memory.json("rebuild", "--session-id", "sess")["episodes"] == SAID
    assert memory.json("forget", "--session-id", "the sky", "--yes")["forgotten"] == SAID


def test_memories_that_outlived_their_session_can_be_named(memory: Command, database: Path) -> None:
    async def expire() -> None:
        store = await open_store(f"sqlite:///{database}", database.parent)
        while await store.delete_session("session_a", 100) is not None:
            pass
        await store.close()

    asyncio.run(expire())
    assert len(memory.json("list", "--session-id", "session_a")["memories"]) == SAID
    assert memory.json("forget", "--session-id", "session_a", "--yes")["forgotten"] == SAID
    memory("list", "--session-id", "session_a", code=5)


async def test_while_another_process_has_the_index(home: Path, database: Path) -> None:
    """This one has it, and serves it to the commands."""
    opened = await open_memory(MemoryConfig.model_validate(settings()), home / ".massmem", {})

    def run(*line: str) -> Any:
        return json.loads(massmem("memory", *line, "--config", "team.yaml", "--json", text=True).stdout)

    async def list_texts() -> list[str]:
        return [memory.text for memory in await opened.list(Selection())]

    try:
        assert run("record")["recordings"]["pending"] == 0
        hit = run("search", "Rayleigh")["memories"][0]
        assert hit["id"].isdecimal()
        assert "Rayleigh" in hit["text"]
        assert run("edit", hit["id"], "Tyndall explained it.")["text"] == "Tyndall explained it."
        assert "Tyndall explained it." in await list_texts()
        assert run("pin", hit["id"])["pinned"] is True
        assert run("list", "--pinned")["memories"][0]["text"] == "Tyndall explained it."
        assert run("stats")["episodes"] == SAID
        assert run("forget", hit["id"], "--yes")["forgotten"] == 1
        assert "Tyndall explained it." not in await list_texts()
    finally:
        await opened.close()


def test_without_the_index_the_log_is_searched_by_words(memory: Command, home: Path) -> None:
    memory.json("record")
    gone, edited = [hit for hit in memory.json("search", "Rayleigh")["memories"] if "Rayleigh" in hit["text"]][:2]
    memory("forget", gone["id"], "--yes")
    memory("edit", edited["id"], "Rayleigh and Tyndall explained it.")
    with FileLock(home / ".massmem" / "memory" / "words" / "lock"):
        by_words = memory.json("search", "Rayleigh")
        assert "in use by another process" in by_words["unavailable"]
        texts = [hit["text"] for hit in by_words["memories"]]
        assert "Rayleigh and Tyndall explained it." in texts
        assert not {gone["text"], edited["text"]} & {*texts}
        for hit in by_words["memories"][:1]:
            shown = memory.json("show", hit["id"])
            assert (shown["text"], shown["messages"][0]["id"]) == (hit["text"], hit["id"])
        memory("list", code=3)


def test_a_message_that_asks_to_forget_names_the_command_that_does(memory: Command, home: Path) -> None:
    asked = massmem("Forget that I have a cat.", "--config", "team.yaml", text=True)

    command = re.search(r"a message forgets nothing; this does: massmem (.*'I have a cat\.')", asked.stderr)
    assert command is not None, asked.stderr
    done = massmem(*shlex.split(command[1]), "--yes", "--config", "team.yaml", text=True)
    assert done.returncode == 0, done.stderr
    assert holds(home, "have a cat") == []
