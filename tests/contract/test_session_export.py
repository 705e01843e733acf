"""Exports of sessions, imported again elsewhere, in every store."""

import json
from collections.abc import AsyncIterator
from contextlib import aclosing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from massmem.config.models import TeamConfig
from massmem.core.events import NoteAdded, ParamProvided, UserReplied
from massmem.core.records import COMMAND_LINE_USER, Owner, RecordingJob, SessionState
from massmem.export import FORMATS
from massmem.memory.persistent import Memory, Selection
from massmem.recording.forgetting import open_durable_memory
from massmem.session.imports import ImportResult, import_conversation
from massmem.session.imports.files import parse_export
from massmem.session.lease import ProcessLock
from massmem.session.memories import Memories
from massmem.store import open_store
from massmem.store.lookup import read_log_pages
from massmem.store.ports import SessionStore
from tests.contract.test_session_store import done, everything, session
from tests.support.sample_turn import START, answer, begin, turn_without_restart
from tests.support.sessions import open_sessions
from tests.support.stores import NewPlace

ID = "session_a"
SECRET = "sk-abcdefghijklmnop1234567890"
VALUE = "Zwijnaarde"
NOTE = "The spare key is under the third pot."
CONFIG = TeamConfig.model_validate(
    {
        "agents": [{"id": "ann", "backend": {"type": "scripted"}}],
        "memory": {"persistent_memory": {"embedding": {"model": "none"}}},
    }
)


def open_memories(store: SessionStore, home: Path, owner: Owner = COMMAND_LINE_USER) -> Memories:
    return Memories(CONFIG, home, store, lambda: open_durable_memory(CONFIG.memory, home), owner)


@pytest.fixture
async def elsewhere(new_place: NewPlace, tmp_path: Path) -> AsyncIterator[SessionStore]:
    opened = await open_store(new_place(), tmp_path / "elsewhere")
    yield opened
    await opened.close()


@pytest.fixture
async def source(store: SessionStore, tmp_path: Path) -> Memories:
    """A session of which one memory was forgotten, one corrected and one pinned; a value was given; a key was told."""
    await store.create_session(session(ID))
    await store.append(ID, 1, turn_without_restart())
    replies = [UserReplied(param="town", text=VALUE), ParamProvided(param="town")]
    await store.append(ID, 2, [begin("ann", question=f"My key is {SECRET}, where do I live?"), *replies])
    await store.append(ID, 2, [answer(1, "ann", f"You live in {VALUE}, I think."), done(text=f"In {VALUE}, surely.")])
    await store.append(ID, 0, [NoteAdded(text=NOTE)])
    await store.save_state(ID, SessionState(params={"town": VALUE}))
    memories = open_memories(store, tmp_path / "home")
    listed = await list_memories(memories)
    await memories.forget(Selection(ids=(listed[0].id,)))
    await memories.change(listed[1].id, "edit", "Corrected by the user, as everybody should know.")
    await memories.change(next(m.id for m in listed if m.text == NOTE), "pin")
    return memories


async def list_memories(memories: Memories) -> list[Memory]:
    return [*reversed((await memories.list(Selection(), 100))[0])]


async def export(store: SessionStore, session_id: str = ID) -> str:
    record = await store.get_session(session_id)
    assert record is not None
    async with aclosing(open_sessions(store, Path()).export(record, FORMATS["json"], detailed=True)) as pieces:
        return "".join([piece async for piece, _ in pieces])


async def bring_in(text: str, memories: Memories) -> ImportResult:
    (conversation,) = parse_export(text.encode(), "export.json", "export.json").conversations
    return await import_conversation(memories, ProcessLock(None), conversation)


def show(memory: Memory) -> tuple[Any, ...]:
    """What is told of a memory but for its id, which counts the memories of its session."""
    return (
        memory.message_ids,
        memory.text,
        memory.is_pinned,
        memory.edited_at,
        memory.origin,
        memory.turn,
        memory.agent_id,
    )


async def read_jobs(store: SessionStore, session_id: str = ID) -> list[RecordingJob]:
    return [job async for page in read_log_pages(store, session_id) for e in page for job in e.recordings]


async def test_import_makes_the_same_session_elsewhere(
    source: Memories, elsewhere: SessionStore, tmp_path: Path
) -> None:
    text, target = await export(source.store), open_memories(elsewhere, tmp_path / "elsewhere")
    assert SECRET not in text
    assert VALUE not in text
    assert (await bring_in(text, target)).added == 2
    again = await bring_in(text, target)
    assert (again.added, again.conflict, again.busy) == (0, False, False)
    here, there = await list_memories(source), await list_memories(target)
    assert [show(memory) for memory in there] == [show(memory) for memory in here]
    assert {memory.is_pinned for memory in there} == {True, False}
    assert "Corrected by the user, as everybody should know." in [memory.text for memory in there]
    assert json.loads(await export(elsewhere))["turns"] == json.loads(text)["turns"]
    assert await bring_in(await export(elsewhere), source) == again  # and back again
    assert [show(memory) for memory in await list_memories(source)] == [show(memory) for memory in here]
    forgotten = [job.seq for job in await read_jobs(elsewhere) if job.status == "forgotten"]
    assert forgotten == [job.seq for job in await read_jobs(source.store) if job.status == "forgotten"] != []
    assert (await elsewhere.load_state(ID)).params == {}


async def test_newer_export_adds_what_is_new_and_forgets_what_was_forgotten(
    source: Memories, elsewhere: SessionStore, tmp_path: Path
) -> None:
    target, old = open_memories(elsewhere, tmp_path / "elsewhere"), await export(source.store)
    await bring_in(old, target)
    await list_memories(target)
    await source.store.append(
        ID, 3, [begin("ann", question="And the harbour, where is that?"), done(text="Down there.")]
    )
    await source.forget(Selection(ids=((await list_memories(source))[1].id,)))
    assert (await bring_in(await export(source.store), target)).added == 1
    assert [show(m) for m in await list_memories(target)] == [show(m) for m in await list_memories(source)]
    assert (await bring_in(old, target)).added == 0  # an older one changes nothing
    assert [show(m) for m in await list_memories(target)] == [show(m) for m in await list_memories(source)]
    await elsewhere.append(ID, 4, [begin("ann", question="Asked here."), done(text="Answered here.")])
    await source.store.append(ID, 4, [begin("ann", question="Asked there."), done(text="Answered there.")])
    assert (await bring_in(await export(source.store), target)).conflict
    assert "Asked here." in [m.content for m in await elsewhere.read_messages(ID)]


async def test_other_conversation_with_the_id_stays(source: Memories, elsewhere: SessionStore, tmp_path: Path) -> None:
    target, text = open_memories(elsewhere, tmp_path / "elsewhere"), await export(source.store)
    await elsewhere.create_session(session(ID).model_copy(update={"created_at": START - timedelta(days=1)}))
    await elsewhere.append(ID, 1, [begin("ann", question="Another one."), done(text="Quite another.")])
    first = await bring_in(text, target)
    assert first.session_id != ID
    assert (first.added, (await bring_in(text, target)).added) == (2, 0)
    assert await everything(elsewhere, ID) != await everything(elsewhere, first.session_id)
    assert "Another one." in [m.content for m in await elsewhere.read_messages(ID)]


async def test_user_of_the_service_imports_it_as_their_own(
    source: Memories, elsewhere: SessionStore, tmp_path: Path
) -> None:
    bea = open_memories(elsewhere, tmp_path / "elsewhere", Owner("bea"))
    result = await bring_in(await export(source.store), bea)
    assert result.session_id == ID
    assert await elsewhere.get_session(ID) is None
    assert {m.content for m in await elsewhere.search_messages("third pot", owner=Owner("bea"))} == {NOTE}
    texts = [memory.text for memory in await list_memories(bea)]
    assert texts == [memory.text for memory in await list_memories(source)]


@pytest.mark.parametrize("kind", ["sqlite"])  # the log is read before a store sees it
@pytest.mark.parametrize("damage", ["event", "order", "entries", "job", "number", "turn"])
async def test_damaged_log_leaves_the_turns(
    damage: str, source: Memories, elsewhere: SessionStore, tmp_path: Path
) -> None:
    export_ = json.loads(await export(source.store))
    entries = export_["log"]["entries"]
    if damage == "event":
        entries[0]["event"] = {"type": "unknown"}
    elif damage == "order":
        entries.reverse()
    elif damage == "entries":
        export_["log"]["entries"] = "none"
    elif damage == "number":
        entries[0]["event"]["seed"] = 2**70
    elif damage == "turn":
        entries[-1]["turn"] = 2**31
    else:
        next(entry for entry in entries if entry["jobs"])["jobs"][0]["seq"] = "one"
    read = parse_export(json.dumps(export_).encode(), "e.json", "e.json")
    assert read.left_out["log of another version or damaged: the turns alone"] == 1
    assert (
        await import_conversation(open_memories(elsewhere, tmp_path), ProcessLock(None), read.conversations[0])
    ).added


async def test_versions_of_a_turn_come_along(store: SessionStore, elsewhere: SessionStore, tmp_path: Path) -> None:
    await store.create_session(session(ID))
    await store.append(ID, 1, turn_without_restart())
    again = begin("ann", question="Why is the sea blue?").model_copy(update={"parent": 0, "withdraws": (1,)})
    await store.append(ID, 2, [again, answer(1, "ann", "It mirrors the sky."), done(text="It mirrors the sky.")])
    await bring_in(await export(store), open_memories(elsewhere, tmp_path / "elsewhere"))
    assert await elsewhere.list_places(ID) == await store.list_places(ID)
    assert [m.content for m in await elsewhere.read_conversation(ID, None, 9)] == [
        m.content for m in await store.read_conversation(ID, None, 9)
    ]
