"""A log whose texts are replaced, over every implementation of the store."""

from pathlib import Path

import pytest

from massmem.core.errors import StoreError
from massmem.core.records import EVERYBODY, LogEntry, RecordingJob
from massmem.store import open_store
from massmem.store.ports import Retention, SessionStore
from tests.contract.test_session_store import done, everything, session
from tests.contract.test_session_store_files import OTHER, PICTURE, files
from tests.support.sample_turn import answer, begin, whole_turn
from tests.support.stores import NewPlace

WORD, OTHER_WORD = "Rayleigh", "Quokka"


async def rewrite(store: SessionStore, word: str, other: str) -> list[LogEntry]:
    """Put another word in the place of each that the log has of this one."""
    log = await store.export_log("session_a", with_trimmed=True)
    new = [entry.model_copy(update={"payload": entry.payload.replace(word, other)}) for entry in log]
    await store.rewrite_log("session_a", [b for a, b in zip(log, new, strict=True) if a != b])
    return new


async def test_rewritten_text_is_everywhere_and_the_rest_is_as_it_was(store: SessionStore):
    await store.create_session(session())
    await store.append("session_a", 1, [begin("ann", question=f"Who was {WORD}?"), *whole_turn()[1:]])
    await store.append("session_a", 2, [begin("ann", question="And then?", at=50)])
    assert await store.acquire_lease("session_a", "somebody", 60)
    before, messages = await store.export_session("session_a"), await everything(store)
    log = await rewrite(store, WORD, OTHER_WORD)
    assert await store.export_log("session_a") == log
    assert WORD not in str(log)
    after = await everything(store)
    assert [m.content for m in after] == [m.content.replace(WORD, OTHER_WORD) for m in messages]
    assert [m.model_copy(update={"content": ""}) for m in after] == [
        m.model_copy(update={"content": ""}) for m in messages
    ]
    copy = await store.export_session("session_a")
    assert before is not None
    assert copy is not None
    assert before.session.title == f"Who was {WORD}?"
    title = {"title": f"Who was {OTHER_WORD}?"}
    assert copy == before.model_copy(update={"session": before.session.model_copy(update=title)})
    assert await store.get_lease_owner("session_a") == "somebody"
    assert await store.search_messages(WORD, owner=EVERYBODY) == []
    assert len(await store.search_messages(OTHER_WORD, owner=EVERYBODY)) == sum(
        OTHER_WORD in m.content and m.kind != "reasoning" for m in after
    )
    assert [turn.question for turn in await store.list_turns("session_a")] == [f"Who was {OTHER_WORD}?", "And then?"]


async def test_last_message_changes_with_its_text_and_another_title_stays(store: SessionStore):
    await store.create_session(session())
    await store.append("session_a", 1, [begin("ann", question=f"{WORD}?"), done(1, f"It was {WORD}.")])
    await store.rename_session("session_a", "Another name")
    await rewrite(store, WORD, OTHER_WORD)
    record = await store.get_session("session_a")
    assert record is not None
    assert (record.title, record.last_message) == ("Another name", f"It was {OTHER_WORD}.")


async def test_rewriting_changes_the_queue_of_an_entry(store: SessionStore):
    await store.create_session(session())
    await store.append("session_a", 1, [begin("ann", question=f"Who was {WORD}?"), answer(1, "ann", "Quite somebody.")])
    first, second = await store.list_due_recordings("episode", 9)
    await store.finish_recordings([first, second])

    def requeue(job: RecordingJob) -> RecordingJob:
        return job.model_copy(update={"status": "pending" if job.agent_id is None else "forgotten"})

    log = [
        entry.model_copy(update={"recordings": tuple(map(requeue, entry.recordings))})
        for entry in await store.export_log("session_a")
    ]
    await store.rewrite_log("session_a", log)
    assert await store.list_due_recordings("episode", 9) == [first]
    assert (await store.count_recordings()).done == 0
    assert await store.export_log("session_a") == log


async def test_log_of_an_unknown_session_cannot_be_rewritten(store: SessionStore):
    with pytest.raises(StoreError, match="session_a"):
        await store.rewrite_log("session_a", [LogEntry(seq=1, turn=1, payload=answer(0, "a", "b").model_dump_json())])


async def test_redis_rewrites_also_what_it_has_trimmed(new_place: NewPlace, kind: str, tmp_path: Path):
    if kind != "redis":
        pytest.skip("other stores keep every message")
    store = await open_store(new_place(), tmp_path / ".massmem", Retention(messages=2))
    await store.create_session(session())
    for turn in (1, 2, 3):
        started = begin("ann", question=f"Who was {WORD} {turn}?")
        await store.append(
            "session_a", turn, [started.model_copy(update={"turn": turn}), done(1, "Somebody or other.")]
        )
    assert len(await store.export_log("session_a", with_trimmed=True)) > len(await store.export_log("session_a"))
    assert WORD not in str(await rewrite(store, WORD, OTHER_WORD))
    assert WORD not in str(await store.export_log("session_a", with_trimmed=True))
    await store.close()


async def test_single_files_are_deleted(store: SessionStore):
    for name in ("session_a", "session_b"):
        await store.create_session(session(name))
        await store.save_files(name, files(PICTURE, OTHER))
    await store.delete_files("session_a", [])
    await store.delete_files("session_a", [PICTURE.file.hash, "0" * 64])
    hashes = [PICTURE.file.hash, OTHER.file.hash]
    assert await store.load_files("session_a", hashes) == files(OTHER)
    assert await store.load_files("session_b", hashes) == files(PICTURE, OTHER)
