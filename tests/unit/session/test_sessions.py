"""The sessions of an owner: the rules that every front end has; what deletion leaves on the disk, and what stays."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from massmem.config.models import TeamConfig
from massmem.core.errors import HomeError, InputError, SessionBusyError, UnknownSessionError
from massmem.core.events import Event, NoteAdded, UserReplied
from massmem.core.records import COMMAND_LINE_USER, Owner, SessionFilter, SessionRecord, SessionStatus
from massmem.export import FORMATS
from massmem.session.lease import ProcessLock
from massmem.session.owners import hash_user, public_session_id, to_stored_id
from massmem.session.registry import Registry, build_entry
from massmem.session.sessions import DeletionResult, Sessions, delete_contents, list_begun_deletions
from massmem.session.team import Team
from massmem.store import open_store
from massmem.store.lookup import read_transcript
from massmem.store.ports import SessionStore
from tests.contract.test_session_store import done, session
from tests.support.sample_turn import answer, begin
from tests.support.sessions import open_sessions

TURNS = 60


@dataclass
class Place:
    """A home with the sessions session_mine and session_b, and a working folder. Sample events name session_a."""

    home: Path
    folder: Path
    store: SessionStore
    config: TeamConfig

    async def delete(self, *names: str) -> DeletionResult:
        return await self.sessions.delete(
            [*[await self.get(name) for name in names], *await self.sessions.list_deleting()]
        )

    @property
    def sessions(self) -> Sessions:
        return open_sessions(self.store, self.home, config=self.config)

    async def get(self, name: str) -> SessionRecord:
        record = await self.store.get_session(name)
        assert record is not None
        return record

    async def list_ids(self) -> list[str]:
        return sorted(record.session_id for record in await self.store.list_sessions())

    def write(self, path: Path, text: str) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path


@pytest.fixture
async def place(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Place]:
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    folder = home / ".massmem"
    url = f"sqlite:///{folder}/massmem.db"
    config = TeamConfig.model_validate(
        {
            "agents": [{"id": "ann", "backend": {"type": "scripted", "script": {"answer": "hi"}}}],
            "store": {"url": url},
            "memory": {"persistent_memory": {"enabled": False}},
        }
    )
    store = await open_store(url, folder)
    for name in ("session_mine", "session_b"):
        await store.create_session(session(name))
        await store.append(name, 1, [begin("ann"), answer(1, "ann", "Here."), done()])
        Registry(folder).upsert(build_entry(session(name), url))
    yield Place(folder, tmp_path / "work", store, config)
    await store.close()


def read_files(home: Path) -> bytes:
    return b"".join(path.read_bytes() for path in home.rglob("*") if path.is_file())


async def test_deleted_session_is_gone_and_others_stay(place: Place):
    count = (await place.get("session_mine")).message_count
    result = await place.delete("session_mine")
    assert (result.sessions, result.busy, result.messages, result.memories) == (("session_mine",), (), count, 0)
    assert await place.list_ids() == ["session_b"]
    assert [entry.session_id for entry in Registry(place.home).read_entries()] == ["session_b"]
    assert list_begun_deletions(place.home) == []
    assert b"session_mine" not in read_files(place.home)


async def test_progress_counts_the_messages_of_all_sessions(place: Place):
    await place.store.create_session(session("session_c"))
    await place.store.append("session_c", 1, [begin("ann"), answer(1, "ann", "Here."), done()])
    records = [await place.get(name) for name in ("session_mine", "session_b", "session_c")]
    shown: list[tuple[int, int]] = []
    await place.sessions.delete(records, lambda deleted, total: shown.append((deleted, total)))
    count = records[0].message_count
    assert shown == [(count, 3 * count), (2 * count, 3 * count), (3 * count, 3 * count)]


@pytest.mark.parametrize("below", ["work", "home"])
async def test_debug_files_of_the_session_are_deleted_and_those_of_others_stay(place: Place, below: str):
    logs = (place.folder if below == "work" else place.home.parent) / ".massmem" / "massmem_logs"
    named = place.write(logs / "log_1" / "attempt_1" / "turn.json", '{"session": "session_mine"}')
    other = place.write(logs / "log_2" / "attempt_1" / "turn.json", '{"session": "session_b"}')
    await place.delete("session_mine")
    assert not named.parents[1].exists()
    assert other.exists()


@pytest.mark.parametrize(
    "name", ["sessions.json.damaged-1", "logs/crash-1.txt", "massmem.db.bak-0008"], ids=["registry", "crash", "backup"]
)
async def test_copies_that_name_the_session_are_deleted_and_others_stay(place: Place, name: str):
    named = place.write(place.home / name, "of session_mine")
    other = place.write(place.home / f"{name}-other", "of session_b")
    await place.delete("session_mine")
    assert (named.exists(), other.exists()) == (False, True)


async def test_lines_of_the_log_that_name_the_session_are_deleted(place: Place):
    log = place.write(place.home / "logs" / "massmem.log", "1 session_mine asks\n2 session_b asks\n3 done\n")
    untouched = place.write(place.home / "logs" / "other.log", "4 session_b\n")
    before = untouched.stat().st_mtime_ns
    await place.delete("session_mine")
    assert log.read_text() == "2 session_b asks\n3 done\n"
    assert untouched.stat().st_mtime_ns == before


async def test_session_in_use_is_left_alone(place: Place):
    assert await place.store.acquire_lease("session_mine", "somebody", 60)
    result = await place.delete("session_mine", "session_b")
    assert (result.sessions, result.busy) == (("session_b",), ("session_mine",))
    assert await place.list_ids() == ["session_mine"]
    assert [entry.session_id for entry in Registry(place.home).read_entries()] == ["session_mine"]
    assert list_begun_deletions(place.home) == []


async def test_deletion_that_was_cut_off_is_finished_by_the_next_one(place: Place):
    await place.store.delete_session("session_mine", 0)
    place.write(place.home / "deleting" / "session_mine", "")
    assert list_begun_deletions(place.home) == ["session_mine"]
    result = await place.delete("session_b")
    assert sorted(result.sessions) == ["session_b", "session_mine"]
    assert await place.list_ids() == []
    assert list_begun_deletions(place.home) == []


async def test_session_of_a_killed_process_is_deleted_before_its_lease_expires(place: Place):
    killed = ProcessLock(place.home)
    assert await place.store.acquire_lease("session_mine", killed.add_owner(), 600)
    killed.close()
    assert (await place.delete("session_mine")).sessions == ("session_mine",)


async def test_all_sessions_are_marked_before_the_first_is_deleted(place: Place):
    def end_process(deleted: int, total: int) -> None:
        raise KeyboardInterrupt

    records = [await place.get("session_mine"), await place.get("session_b")]
    with pytest.raises(KeyboardInterrupt):
        await place.sessions.delete(records, end_process)
    assert (await place.get("session_b")).status == "deleting"
    result = await place.delete()
    assert sorted(result.sessions) == ["session_b", "session_mine"]
    assert await place.list_ids() == []


async def test_deletion_that_another_process_ends_first_is_done(place: Place):
    mark = place.home / "deleting" / "session_mine"
    await place.sessions.delete([await place.get("session_mine")], lambda _done, _all: mark.unlink())
    assert list_begun_deletions(place.home) == []


async def test_session_that_is_gone_when_its_deletion_begins_is_neither_deleted_nor_busy(place: Place):
    record = await place.get("session_mine")
    await place.delete("session_mine")
    result = await place.sessions.delete([record])
    assert (result.sessions, result.busy, await place.list_ids()) == ((), (), ["session_b"])


async def test_memories_go_before_the_log_and_what_was_written_meanwhile_after_it(place: Place):
    steps: list[str] = []

    async def erase(session_ids: Sequence[str]) -> int:
        steps.append(f"memories of {' '.join(session_ids)}")
        return len(steps)

    record = await place.get("session_mine")
    count = await delete_contents(place.store, [record], erase, lambda _done, _all: steps.append("log"))
    assert steps == ["memories of session_mine", "log", "memories of session_mine"]
    assert count == 1 + 3


async def test_recordings_of_other_sessions_stay_queued(place: Place):
    waiting = await place.store.count_recordings("session_b")
    assert waiting.pending
    await place.delete("session_mine")
    assert await place.store.count_recordings("session_b") == waiting


async def test_file_that_vanishes_holds_up_no_deletion_and_one_that_cannot_be_read_is_reported(place: Place):
    logs = place.home / "logs"
    logs.mkdir(exist_ok=True)
    (logs / "crash-1.txt").symlink_to(logs / "nowhere")
    await place.sessions.delete_traces(["session_mine"])
    (logs / "crash-2.txt").symlink_to(logs / "crash-2.txt")
    with pytest.raises(HomeError, match=r"\.massmem cannot be written: Too many levels of symbolic links"):
        await place.sessions.delete_traces(["session_mine"])


async def test_files_of_the_working_directory_are_no_backups_of_a_database_on_a_server(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    own = place.write(tmp_path / ".bak-notes", "of session_mine")
    settings = place.config.store.model_copy(update={"url": "postgresql://localhost/massmem"})
    config = place.config.model_copy(update={"store": settings})
    await replace(place.sessions, config=config).delete_traces(["session_mine"])
    assert own.exists()


async def test_files_of_a_session_that_is_gone_from_the_store_already_are_deleted(place: Place):
    place.write(place.home / "deleting" / "session_gone", "")
    trace = place.write(place.home / "logs" / "crash-1.txt", "of session_gone")
    Registry(place.home).upsert(build_entry(session("session_gone"), place.config.store.url))
    result = await place.delete()
    assert result.sessions == ("session_gone",)
    assert not trace.exists()
    assert {entry.session_id for entry in Registry(place.home).read_entries()} == {"session_mine", "session_b"}
    assert list_begun_deletions(place.home) == []


async def test_damaged_registry_is_written_again_without_the_session(place: Place):
    place.write(place.home / "sessions.json", "session_mine {")
    await place.delete("session_mine")
    assert b"session_mine" not in read_files(place.home)


async def test_many_events_are_deleted_in_parts(place: Place, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("massmem.session.sessions._EVENTS_AT_ONCE", 2)
    record, shown = await place.get("session_mine"), list[int]()
    await place.sessions.delete([record], lambda deleted, _: shown.append(deleted))
    assert shown == sorted(set(shown))
    assert len(shown) > 1
    assert shown[-1] == record.message_count


async def test_deletion_leaves_no_words_of_a_long_conversation_in_the_files(place: Place):
    """Of so many messages, deletion of the rows alone leaves words in the search index and in the write-ahead log."""
    for name, word in (("session_long", "xylophone"), ("session_other", "marimba")):
        await place.store.create_session(session(name))
        for turn in range(1, TURNS + 1):
            text = " ".join(f"{word}{turn}x{number}" for number in range(100))
            events = [begin("ann", question=text), answer(1, "ann", text), done(text=text)]
            await place.store.append(name, turn, events)
    result = await place.delete("session_long")
    assert result.erased
    contents = read_files(place.home)
    assert b"xylophone" not in contents
    assert b"marimba" in contents


ALICE, BOB = Owner("alice"), Owner("bob")


async def add_user(place: Place, owner: Owner, name: str, *more: Event) -> Sessions:
    """Store a session of a user of the service with one turn; return the user's sessions."""
    stored_id = to_stored_id(owner, name)
    await place.store.create_session(session(stored_id).model_copy(update={"user_id": owner.user_id, "title": name}))
    await place.store.append(stored_id, 1, [begin("ann"), *more, answer(1, "ann", "Here."), done()])
    return open_sessions(place.store, place.home, owner, place.config)


async def test_owner_finds_sessions_by_id_title_and_beginning_and_none_of_others(place: Place):
    own, alice = open_sessions(place.store, place.home, COMMAND_LINE_USER), await add_user(place, ALICE, "trip")
    await own.rename(await own.get("session_b"), "  My   trip ")
    await place.store.append("session_b", 0, [NoteAdded(text="Metric units.")])
    for name in ("session_b", "my TRIP", "b", None):
        assert (await own.find(name)).session_id == "session_b"
    assert (await alice.get("trip")).session_id == (await alice.find("TRIP")).session_id == to_stored_id(ALICE, "trip")
    for sessions, name in ((own, to_stored_id(ALICE, "trip")), (alice, "session_b"), (alice, "../trip"), (alice, "")):
        with pytest.raises(UnknownSessionError):
            await sessions.get(name)
    await place.store.delete_session("session_b", 0)
    with pytest.raises(UnknownSessionError):
        await own.get("session_b")
    assert [one.session.session_id for one in (await own.list_conversations()).sessions] == ["session_mine"]
    assert [one.session.title for one in (await alice.list_conversations()).sessions] == ["trip"]


async def test_title_is_a_name_that_no_other_session_of_the_owner_has(place: Place):
    own, alice = open_sessions(place.store, place.home, COMMAND_LINE_USER), await add_user(place, ALICE, "trip")
    await add_user(place, ALICE, "walk")
    trip = await own.rename(await own.get("session_mine"), "trip")
    await own.rename(trip, "Trip")
    for sessions, name, titles in ((own, "session_b", ("TRIP", "session_mine")), (alice, "walk", ("trip",))):
        for title in titles:
            with pytest.raises(InputError, match="another session is called"):
                await sessions.rename(await sessions.get(name), title)
    with pytest.raises(InputError, match="cannot be"):
        await own.rename(trip, "a/b")


async def test_fork_is_its_owners_and_is_found_by_an_id_of_its_own(place: Place):
    alice = await add_user(place, ALICE, "trip")
    fork = await alice.fork(await alice.get("trip"))
    assert (fork.user_id, fork.title) == ("alice", "trip (fork)")
    assert await alice.get(public_session_id(fork.session_id)) == fork
    own = open_sessions(place.store, place.home, COMMAND_LINE_USER)
    copy = await own.fork(await own.get("session_mine"))
    assert copy.session_id in {entry.session_id for entry in Registry(place.home).read_entries()}


async def test_version_is_chosen_while_no_turn_runs(place: Place):
    own = open_sessions(place.store, place.home, COMMAND_LINE_USER)
    chosen = await own.get("session_mine")
    again = begin("ann").model_copy(update={"parent": 0, "withdraws": (1,)})
    await place.store.append("session_mine", 2, [again, answer(1, "ann", "There."), done(text="There.")])
    assert await own.choose_version(chosen, 1) == 1
    assert (await own.get("session_mine")).last_message != "There."
    with pytest.raises(InputError, match="no version 7"):
        await own.choose_version(chosen, 7)
    assert await place.store.acquire_lease("session_mine", "somebody", 60)
    with pytest.raises(SessionBusyError):
        await own.choose_version(chosen, 2)


async def test_session_of_a_killed_process_is_interrupted_and_its_turn_too(place: Place):
    await place.store.append("session_mine", 2, [begin("ann", "bob"), answer(1, "ann", "Here.")])
    own = open_sessions(place.store, place.home, COMMAND_LINE_USER)
    assert (await own.get("session_mine")).status == "interrupted"
    expected: dict[SessionStatus, list[str]] = {
        "interrupted": ["session_mine"],
        "active": [],
        "completed": ["session_b"],
    }
    for status, ids in expected.items():
        page = await own.list(SessionFilter(owner=COMMAND_LINE_USER, status=status))
        assert ([one.session.session_id for one in page.sessions], page.total) == (ids, len(ids))
    turns = [turn.result async for turn in read_transcript(place.store, await own.get("session_mine"))]
    assert [(turn.turn, turn.status) for turn in turns] == [(1, "completed"), (2, "interrupted")]


async def test_search_finds_neither_what_others_said_nor_values_that_were_asked_for(place: Place):
    alice = await add_user(place, ALICE, "trip", UserReplied(param="town", text="Aalsmeer of the windmill"))
    bob = await add_user(place, BOB, "trip", NoteAdded(text="The windmill is red."))
    assert await alice.search("windmill", 10) == []
    (hit,) = await bob.search("windmill", 10, await bob.get("trip"))
    assert (hit.text, hit.is_ballot, hit.session.title) == ("The windmill is red.", False, "trip")
    with pytest.raises(UnknownSessionError):
        await bob.search("windmill", 10, await bob.get("walk"))


async def test_user_of_a_service_is_shown_nothing_of_the_machine(place: Place):
    await add_user(place, ALICE, "trip")
    async with AsyncExitStack() as stack:
        team = await Team.open(place.config, home=place.home, records=False)
        stack.push_async_callback(team.close)
        for owner, name, path in ((ALICE, "trip", ""), (COMMAND_LINE_USER, "session_mine", "team.yaml")):
            sessions = Sessions.of(team, owner)
            shown = await sessions.describe(await sessions.get(name))
            assert (shown.session_id, shown.config_path, shown.turns) == (name, path, 1)
            pieces = sessions.export(await sessions.get(name), FORMATS["json"], detailed=True)
            text = "".join([piece async for piece, _ in pieces])
            exported = json.loads(text)["session"]
            assert (exported["session_id"], exported["config_path"]) == (name, path)
            assert hash_user("alice") not in text
