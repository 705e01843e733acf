"""The files of sessions, over every implementation of the store."""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path

import pytest

from massmem.core.errors import StoreError
from massmem.core.events import Event, TurnStarted
from massmem.core.messages import AttachedFile, Attachment, make_attachment
from massmem.core.records import LogEntry
from massmem.store import open_store
from massmem.store.ports import Retention, SessionStore
from tests.contract.test_session_store import done, session
from tests.support.sample_turn import event
from tests.support.stores import NewPlace

PICTURE = make_attachment("plan.png", "image/png", bytes(range(256)) * 40)
OTHER = make_attachment("other.png", "image/png", b"another picture")


def files(*attachments: Attachment) -> dict[str, bytes]:
    return {attachment.file.hash: attachment.data for attachment in attachments}


def ask(turn: int, *shown: AttachedFile, at: float = 0.0) -> Event:
    question = f"What is in picture {turn}?"
    fields = {"session_id": "session_a", "turn": turn, "question": question, "agents": ("ann",), "seed": turn}
    return event(at, "turn_started", attachments=shown, **fields)


@pytest.fixture
async def other(new_place: NewPlace, tmp_path: Path) -> AsyncIterator[SessionStore]:
    opened = await open_store(new_place(), tmp_path / "other" / ".massmem")
    yield opened
    await opened.close()


async def test_files_come_back_as_they_were_stored(store: SessionStore):
    await store.create_session(session())
    for _ in range(2):  # the same file again is stored once
        await store.save_files("session_a", files(PICTURE, OTHER))
    await store.save_files("session_a", {})
    hashes = [PICTURE.file.hash, "0" * 64, OTHER.file.hash]
    assert await store.load_files("session_a", hashes) == files(PICTURE, OTHER)
    assert await store.load_files("session_a", []) == {}
    copy = await store.export_session("session_a")
    assert copy is not None
    assert copy.files == tuple(sorted(files(PICTURE, OTHER)))


async def test_no_other_session_finds_a_file(store: SessionStore):
    for name in ("session_a", "session_b"):
        await store.create_session(session(name))
    await store.save_files("session_a", files(PICTURE))
    assert await store.load_files("session_b", [PICTURE.file.hash]) == {}
    assert await store.load_files("session_c", [PICTURE.file.hash]) == {}


async def test_unknown_session_has_no_files(store: SessionStore):
    with pytest.raises(StoreError):
        await store.save_files("session_a", files(PICTURE))
    assert await store.load_files("session_a", [PICTURE.file.hash]) == {}


async def test_question_says_what_it_came_with(store: SessionStore):
    await store.create_session(session())
    await store.append("session_a", 1, [ask(1, PICTURE.file)])
    (started,) = await store.read_turn_events("session_a", 1)
    assert isinstance(started, TurnStarted)
    assert started.attachments == (PICTURE.file,)
    (message,) = await store.read_messages("session_a")
    assert message.metadata["attachments"] == [asdict(PICTURE.file)]


@pytest.mark.parametrize("at_once", [1, 1000])
async def test_deletion_removes_the_files(store: SessionStore, at_once: int):
    for name in ("session_a", "session_b"):
        await store.create_session(session(name))
        await store.save_files(name, files(PICTURE))
    await store.append("session_a", 1, [ask(1, PICTURE.file), done(1)])
    left = await store.delete_session("session_a", at_once)
    assert await store.load_files("session_a", [PICTURE.file.hash]) == {}
    while left is not None:
        left = await store.delete_session("session_a", at_once)
    await store.create_session(session())
    assert await store.load_files("session_a", [PICTURE.file.hash]) == {}
    assert await store.load_files("session_b", [PICTURE.file.hash]) == files(PICTURE)


async def test_files_move_with_their_session(store: SessionStore, other: SessionStore):
    await store.create_session(session())
    await store.save_files("session_a", files(PICTURE))
    await store.append("session_a", 1, [ask(1, PICTURE.file), done(1)])
    await other.create_session(session())
    await other.save_files("session_a", files(OTHER))  # of what was there before
    copy = await store.export_session("session_a")
    assert copy is not None

    async def pages() -> AsyncIterator[Sequence[LogEntry]]:
        yield await store.export_log("session_a")

    async def contents() -> AsyncIterator[Mapping[str, bytes]]:
        yield await store.load_files("session_a", copy.files)

    await other.import_session(copy, pages(), contents())
    assert await other.load_files("session_a", [PICTURE.file.hash, OTHER.file.hash]) == files(PICTURE)
    assert await other.export_session("session_a") == copy


async def test_redis_forgets_files_with_the_turns_that_name_them(new_place: NewPlace, kind: str, tmp_path: Path):
    if kind != "redis":
        pytest.skip("other stores keep every message")
    store = await open_store(new_place(), tmp_path / ".massmem", Retention(messages=4))
    await store.create_session(session())
    await store.save_files("session_a", files(PICTURE, OTHER))
    shown = {1: (PICTURE.file, OTHER.file), 3: (PICTURE.file,)}
    for turn in range(1, 5):
        events = [ask(turn, *shown.get(turn, ()), at=turn * 10), done(turn * 10 + 1)]
        await store.append("session_a", turn, events)
        jobs = [job for k in ("episode", "complete", "extract") for job in await store.list_due_recordings(k, 100)]
        await store.finish_recordings(jobs)
    remaining = await store.load_files("session_a", [PICTURE.file.hash, OTHER.file.hash])
    assert remaining == files(PICTURE), "turn 3 names it still"
    await store.close()


def test_hash_is_that_of_the_bytes():
    assert PICTURE.file.hash == sha256(PICTURE.data).hexdigest()
