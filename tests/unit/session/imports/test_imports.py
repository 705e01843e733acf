"""Conversations of other programs as sessions."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from massmem.config.models import TeamConfig
from massmem.core.errors import InputError
from massmem.core.events import NoteAdded, TurnStarted
from massmem.core.records import COMMAND_LINE_USER, Owner, SessionFilter
from massmem.recording.forgetting import open_durable_memory
from massmem.session.imports import ImportResult, hold_import, import_conversation
from massmem.session.imports.conversations import ImportedConversation, Message, build, read_time
from massmem.session.imports.files import read_export
from massmem.session.lease import ProcessLock, hold_lease
from massmem.session.memories import Memories
from massmem.session.owners import to_stored_id
from massmem.store import open_store
from massmem.store.ports import SessionStore
from tests.contract.test_session_store import session
from tests.support.cli import call_massmem


def node(node_id: str, parent: str | None, role: str, text: str, kind: str = "text") -> dict[str, Any]:
    content = {"content_type": kind, "parts": [text]}
    message = {"author": {"role": role}, "content": content, "create_time": 1_700_000_000.5}
    return {"id": node_id, "parent": parent, "message": message}


NODES = [
    {"id": "root", "parent": None, "message": None},
    node("s", "root", "system", "You are helpful."),
    node("q1", "s", "user", "Where is the pump?"),
    node("old", "q1", "assistant", "In the attic."),
    node("think", "q1", "assistant", "Let me see.", "thoughts"),
    node("a1", "think", "assistant", "In the cellar."),
    node("q2", "a1", "user", "And the valve?"),
    node("a2", "q2", "assistant", "Beside it."),
    node("q3", "a2", "user", "Thanks"),
]
CHATGPT = [
    {"title": "Pump", "conversation_id": "c1", "current_node": "q3", "mapping": {n["id"]: n for n in NODES}},
    {"title": "Empty", "conversation_id": "c2", "current_node": None, "mapping": {}},
]
CLAUDE = [
    {
        "uuid": "u1",
        "name": "",
        "chat_messages": [
            {"sender": "human", "text": "Where is the pump?", "created_at": "2026-01-02T03:04:05Z"},
            {"sender": "assistant", "content": [{"type": "text", "text": "In the cellar."}, {"type": "tool_use"}]},
            {"sender": "human", "content": [{"type": "text", "text": "And the valve?"}], "text": ""},
            {"sender": "assistant", "text": "Beside it."},
        ],
    }
]
MESSAGES = [
    {"role": "system", "content": "Be short."},
    {"role": "user", "content": "Where is the pump?"},
    {"role": "assistant", "content": "In the cellar."},
    {"role": "tool", "content": "42"},
    {"role": "user", "content": [{"type": "text", "text": "And the valve?"}]},
    {"role": "assistant", "content": "Beside it."},
]
MASSMEM = {
    "session": {"session_id": "session_20260102_030405", "title": "Pump"},
    "turns": [
        {"question": "Where is the pump?", "answer": "In the cellar.", "winner": "ann", "started_at": "2026-01-02"},
        {"question": "Broken off", "answer": None, "winner": None, "started_at": "2026-01-02"},
        {"question": "And the valve?", "answer": "Beside it.", "winner": "ann", "started_at": "2026-01-02"},
    ],
}
EXPORTS = {
    "chatgpt": json.dumps(CHATGPT),
    "claude": json.dumps(CLAUDE),
    "claude, wrapped": json.dumps({"conversations": CLAUDE}),
    "messages": json.dumps(MESSAGES),
    "message lines": "\n".join(map(json.dumps, MESSAGES)),
    "massmem": json.dumps(MASSMEM),
    "with a byte order mark": "\ufeff" + json.dumps({"messages": MESSAGES}),
}
SAID = [("Where is the pump?", "In the cellar."), ("And the valve?", "Beside it.")]


async def bring_in(
    store: SessionStore,
    conversation: ImportedConversation,
    home: Path = Path(),
    owner: Owner = COMMAND_LINE_USER,
    **options: Any,
) -> ImportResult:
    config = TeamConfig.model_validate({"agents": [{"id": "ann", "backend": {"type": "scripted"}}]})
    memories = Memories(config, home, store, lambda: open_durable_memory(config.memory, home), owner)
    return await import_conversation(memories, options.pop("process", ProcessLock(None)), conversation, **options)


def read(tmp_path: Path, text: str) -> list[ImportedConversation]:
    path = tmp_path / "export.json"
    path.write_text(text, encoding="utf-8")
    return read_export(path).conversations


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SessionStore]:
    opened = await open_store(f"sqlite:///{tmp_path / 'massmem.db'}", tmp_path)
    yield opened
    await opened.close()


@pytest.mark.parametrize("text", EXPORTS.values(), ids=EXPORTS)
def test_every_known_export_is_read(text: str, tmp_path: Path):
    (conversation,) = read(tmp_path, text)
    assert [(turn.question, turn.answer) for turn in conversation.turns] == SAID
    assert conversation.title in ("Pump", "Where is the pump?")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Hello", "neither JSON nor JSON lines"),
        ("[" * 100_000, "nested too deeply"),
        ("[]", "no conversation"),
        ('{"a": 1}', "no conversation"),
        ('[{"mapping": 5, "current_node": {}}, {"chat_messages": null}, 7]', "no conversation"),
        ('{"turns": [1, {"question": 2}], "session": []}', "no conversation"),
        ("9" * 5_000, "neither JSON nor JSON lines"),
    ],
)
def test_file_that_is_no_export(text: str, message: str, tmp_path: Path):
    with pytest.raises(InputError, match=message):
        read(tmp_path, text)


ODD_TEXTS = ("\ud800", "a\x00b", "a\u2028b", "\x0b", "\U0001f600", "9" * 5_000)


@pytest.mark.parametrize("text", ODD_TEXTS, ids=ascii)
@pytest.mark.parametrize("lines", [False, True])
async def test_odd_texts_and_times_are_stored(text: str, lines: bool, store: SessionStore, tmp_path: Path):
    messages = [
        {"role": "user", "content": f"Q{text}", "timestamp": "0001-01-01T00:00:00+23:00"},
        {"role": "assistant", "content": f"A{text}", "timestamp": 1e300},
    ]
    exports: list[Any] = [
        {"title": text, "id": text, "messages": messages},
        {"session": {"session_id": text}, "turns": [{"question": text + "Q", "answer": "A", "winner": text * 50}]},
    ]
    written = (
        "\n".join(json.dumps(one, ensure_ascii=text == "\ud800") for one in exports) if lines else json.dumps(exports)
    )
    conversations = read(tmp_path, written)
    assert len(conversations) == 2
    for conversation in conversations:
        assert (await bring_in(store, conversation)).added == 1
        assert (await bring_in(store, conversation)).added == 0


def test_branch_that_loops_has_an_end(tmp_path: Path):
    nodes = {n["id"]: n for n in (node("q", "a", "user", "Where?"), node("a", "q", "assistant", "Here."))}
    (conversation,) = read(tmp_path, json.dumps([{"mapping": nodes, "current_node": "a"}]))
    assert [(turn.question, turn.answer) for turn in conversation.turns] == [("Where?", "Here.")]


async def test_imported_conversation_is_a_session(store: SessionStore, tmp_path: Path):
    (conversation,) = read(tmp_path, EXPORTS["chatgpt"])
    result = await bring_in(store, conversation)
    assert (result.added, result.turns, result.conflict) == (2, 2, False)
    turns = await store.list_turns(result.session_id)
    assert [(turn.question, turn.answer, turn.winner, turn.status) for turn in turns] == [
        (question, answer, "chatgpt", "completed") for question, answer in SAID
    ]
    session = await store.get_session(result.session_id)
    assert session is not None
    assert (session.title, session.status, session.created_at.year) == ("Pump", "completed", 2023)
    assert turns[0].started_at == datetime.fromtimestamp(1_700_000_000.5, UTC)


@pytest.mark.parametrize("facts", [False, True])
async def test_messages_become_memories_and_facts_only_on_request(store: SessionStore, tmp_path: Path, facts: bool):
    (conversation,) = read(tmp_path, EXPORTS["claude"])
    await bring_in(store, conversation, facts=facts)
    assert len(await store.list_due_recordings("episode", 99)) == 4
    assert len(await store.list_due_recordings("extract", 99)) == (2 if facts else 0)


@pytest.mark.parametrize("text", EXPORTS.values(), ids=EXPORTS)
async def test_export_of_every_kind_is_imported_once(text: str, store: SessionStore, tmp_path: Path):
    for added in (2, 0):
        (conversation,) = read(tmp_path, text)
        result = await bring_in(store, conversation)
        assert (result.added, result.turns, result.conflict) == (added, 2, False)
    assert len(await store.list_sessions()) == 1
    assert len(await store.list_turns(result.session_id)) == 2
    assert len(await store.list_due_recordings("episode", 99)) == 4


async def test_another_import_adds_what_is_new_and_nothing_twice(store: SessionStore, tmp_path: Path):
    (whole,) = read(tmp_path, EXPORTS["messages"])
    first = ImportedConversation(whole.session_id, whole.title, whole.turns[:1])
    assert (await bring_in(store, first)).added == 1
    assert (await bring_in(store, whole)).added == 1
    assert (await bring_in(store, whole)).added == 0
    assert len(await store.list_turns(whole.session_id)) == 2


async def test_session_that_went_on_here_is_left_alone(store: SessionStore, tmp_path: Path):
    (whole,) = read(tmp_path, EXPORTS["messages"])
    first = ImportedConversation(whole.session_id, whole.title, whole.turns[:1])
    await bring_in(store, first)
    started = TurnStarted(session_id=whole.session_id, turn=2, question="Is it new?", agents=("ann",), seed=0)
    await store.append(whole.session_id, 2, [started])
    result = await bring_in(store, whole)
    assert (result.added, result.conflict) == (0, True)
    assert len(await store.list_turns(whole.session_id)) == 2


async def test_export_of_a_session_comes_back_under_its_id(store: SessionStore, tmp_path: Path):
    (conversation,) = read(tmp_path, EXPORTS["massmem"])
    result = await bring_in(store, conversation)
    assert result.session_id == "session_20260102_030405"
    assert [turn.winner for turn in await store.list_turns(result.session_id)] == ["ann", "ann"]


async def test_turns_alone_come_without_versions_that_are_not_shown(store: SessionStore, tmp_path: Path):
    turn = {"question": "Where is the pump?", "answer": "In the cellar.", "winner": "ann", "started_at": "2026-01-02"}
    turns = [turn | {"turn": 1}, turn | {"turn": 2, "withdrawn": True}, turn | {"turn": 3, "status": "undone"}]
    (conversation,) = read(tmp_path, json.dumps({**MASSMEM, "turns": turns}))
    assert (await bring_in(store, conversation)).added == 1


async def test_session_that_is_in_use_is_left_alone(store: SessionStore, tmp_path: Path):
    (conversation,) = read(tmp_path, EXPORTS["messages"])
    process, other = ProcessLock(tmp_path / "a"), ProcessLock(tmp_path / "b")
    await store.create_session(session(conversation.session_id))
    async with hold_lease(store, other, conversation.session_id):
        result = await bring_in(store, conversation, process=process)
    assert (result.added, result.busy) == (0, True)
    assert (await bring_in(store, conversation, process=process)).added == 2
    other.close()
    process.close()


async def test_owners_have_sessions_of_their_own(store: SessionStore, tmp_path: Path):
    (conversation,) = read(tmp_path, EXPORTS["massmem"])
    for owner in (Owner("alice"), Owner("bob"), COMMAND_LINE_USER):
        result = await bring_in(store, conversation, owner=owner)
        assert (result.session_id, result.added) == ("session_20260102_030405", 2)
        stored = await store.get_session(to_stored_id(owner, result.session_id))
        assert stored is not None
        assert (stored.owner, bool(stored.memory_group)) == (owner, owner != COMMAND_LINE_USER)


async def test_export_of_somebody_else_becomes_a_session_of_whoever_imports_it(store: SessionStore, tmp_path: Path):
    stored_id = to_stored_id(Owner("alice"), "s")
    export = {**MASSMEM, "session": {"session_id": stored_id}}
    (conversation,) = read(tmp_path, json.dumps(export))
    assert conversation.session_id == "s"
    await bring_in(store, conversation)
    assert await store.get_session(stored_id) is None
    stranger = ImportedConversation(stored_id, "", conversation.turns)
    await store.create_session(session(stored_id).model_copy(update={"user_id": "alice"}))
    assert (await bring_in(store, stranger)).conflict
    assert await store.list_turns(stored_id) == []


@pytest.mark.parametrize("session_id", ["../../x", "x" * 120, ""])
def test_id_that_cannot_be_one_is_replaced(session_id: str, tmp_path: Path):
    (conversation,) = read(tmp_path, json.dumps({**MASSMEM, "session": {"session_id": session_id}}))
    assert conversation.session_id.startswith("import_")


OLDER = [
    {"role": "user", "content": "Name a tree."}, {"role": "assistant", "content": "Ash."},
    {"role": "user", "content": "And a shrub?"}, {"role": "assistant", "content": "Box."},
]  # fmt: skip


def make_conversation(*messages: dict[str, str], time: float = 1_700_000_000) -> ImportedConversation:
    """Return a conversation with an id of its own, a second for each message."""
    exchanged = [Message(m["role"] == "user", m["content"], read_time(time + n)) for n, m in enumerate(messages)]
    return build("test", "t1", "Talk", exchanged, "ann")


async def list_texts(store: SessionStore, session_id: str) -> list[tuple[str, str | None]]:
    return [(turn.question, turn.answer) for turn in await store.list_turns(session_id)]


@pytest.mark.parametrize(
    "newer",
    [
        [*OLDER[:2], {"role": "user", "content": "And a herb?"}, {"role": "assistant", "content": "Sage, or mint."}],
        [*OLDER[:3], {"role": "assistant", "content": "Broom is a shrub."}, *OLDER],
        [{"role": "user", "content": "Name a bird of prey."}, {"role": "assistant", "content": "Kite."}],
    ],
    ids=["question", "answer", "first question"],
)
async def test_edited_turns_are_replaced(newer: list[dict[str, str]], store: SessionStore, tmp_path: Path):
    older, edited = make_conversation(*OLDER), make_conversation(*newer, time=1_700_000_100)
    await bring_in(store, older, tmp_path)
    result = await bring_in(store, edited, tmp_path)
    assert await list_texts(store, result.session_id) == [(turn.question, turn.answer) for turn in edited.turns]
    session = await store.get_session(result.session_id)
    assert session is not None
    assert session.message_count == len(await store.read_messages(result.session_id))
    queued = await store.list_due_recordings("episode", 99)
    assert len({job.message_id for job in queued}) == len(queued)
    again = await bring_in(store, edited, tmp_path)
    assert (again.added, again.replaced) == (0, 0)


async def test_title_follows_the_other_program_unless_it_was_given_here(store: SessionStore, tmp_path: Path):
    conversation = make_conversation(*OLDER)
    for title, shown in (("Trees", "Trees"), ("Shrubs", "Shrubs")):
        result = await bring_in(store, replace(conversation, title=title), tmp_path)
        session = await store.get_session(result.session_id)
        assert session is not None
        assert session.title == shown
    await store.rename_session(result.session_id, "Mine")
    await bring_in(store, conversation, tmp_path)
    assert [one.title for one in await store.list_sessions()] == ["Mine"]


async def test_older_export_changes_nothing(store: SessionStore, tmp_path: Path):
    edited = make_conversation(*OLDER[:2], *OLDER[:2], time=1_700_000_100)
    for conversation in (edited, make_conversation(*OLDER), make_conversation(*OLDER[:2])):
        result = await bring_in(store, conversation, tmp_path)
    assert (result.added, result.replaced, result.conflict) == (0, 0, False)
    assert len(await list_texts(store, result.session_id)) == 2


async def test_edited_conversation_that_went_on_here_stays(store: SessionStore, tmp_path: Path):
    older = make_conversation(*OLDER)
    await bring_in(store, older, tmp_path)
    await store.append(older.session_id, 0, [NoteAdded(text="Trees are my trade.", session_only=False)])
    result = await bring_in(store, make_conversation(OLDER[0], OLDER[3], time=1_700_000_100), tmp_path)
    assert (result.conflict, result.added) == (True, 0)
    assert len(await list_texts(store, older.session_id)) == 2


async def test_conversation_belongs_to_the_project_of_its_folder(store: SessionStore, tmp_path: Path):
    (conversation,) = read(tmp_path, EXPORTS["claude"])
    (tmp_path / "alpha" / ".git").mkdir(parents=True)
    (tmp_path / "alpha" / "src").mkdir()
    folders = {str(tmp_path / "alpha" / "src"): str(tmp_path / "alpha"), str(tmp_path): "", "/gone/beta": "/gone/beta"}
    for number, (folder, project) in enumerate(folders.items()):
        one = replace(conversation, folder=folder, session_id=f"import_{number}")
        await bring_in(store, one)
        session = await store.get_session(one.session_id)
        assert session is not None
        assert session.project == project
    await bring_in(store, replace(conversation, folder="/gone/beta"), owner=Owner("ann"))
    (listed,) = await store.find_sessions(SessionFilter(owner=Owner("ann")))
    assert listed.session.project == "beta"  # the service's disk is not looked at for its users


async def test_a_long_conversation_is_stored_in_parts_and_goes_on_where_it_was_stopped(store: SessionStore) -> None:
    messages = [Message(is_user=n % 2 == 0, text=f"message number {n}") for n in range(1_000)]
    conversation = build("test", "long", "", messages, "ann")
    seen: list[int] = []

    def break_off(done: int) -> bool:
        if done == 200:
            raise KeyboardInterrupt
        return True

    def go_on_to_400(done: int) -> bool:
        seen.append(done)
        return done != 400 or seen.count(400) > 1

    with pytest.raises(KeyboardInterrupt):
        await bring_in(store, conversation, progress=break_off)
    assert (await bring_in(store, conversation, progress=go_on_to_400)).added == 200
    assert len(await store.list_turns(conversation.session_id, 0, 1_000)) == 400
    assert (await bring_in(store, conversation, progress=go_on_to_400)).added == 100
    assert seen == [200, 400, 400, 500]
    turns = await store.list_turns(conversation.session_id, 0, 1_000)
    assert [(turn.turn, turn.question, turn.answer) for turn in turns] == [
        (n + 1, f"message number {2 * n}", f"message number {2 * n + 1}") for n in range(500)
    ]
    assert await store.list_due_recordings("extract", 1_000) == []
    assert len(await store.list_due_recordings("episode", 10_000)) == 1_000


async def test_others_write_while_a_long_conversation_is_stored(store: SessionStore, tmp_path: Path) -> None:
    """SQLite has one writer, and who waits for it has no place in a queue."""
    messages = [Message(is_user=n % 2 == 0, text=f"message number {n}") for n in range(3_200)]
    other = await open_store(f"sqlite:///{tmp_path / 'massmem.db'}", tmp_path)
    await other.create_session(session("other"))
    importing, written = asyncio.create_task(bring_in(store, build("test", "long", "", messages, "ann"))), 0
    while not importing.done():
        await other.rename_session("other", f"number {written}")
        written += 1
    await other.close()
    assert (await importing).added == 1_600
    assert written > 3 * 8, "some after each of eight transactions"


def test_a_file_that_is_being_imported_is_refused_before_it_is_read(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "export.json"
    file.write_text("no export")
    arguments = ("import", "export.json", "--config", "@examples/scripted")
    with hold_import(home / ".massmem", str(file).encode()):
        ran = call_massmem(*arguments)
        assert (ran.returncode, b"being imported already" in ran.stderr) == (3, True)
    assert b"is neither JSON" in call_massmem(*arguments).stderr
