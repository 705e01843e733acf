"""Moving sessions between stores: to and from each kind, again, after either side went on, and by the command."""

import json
import sqlite3
import subprocess
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from massmem.core.errors import StoreError
from massmem.core.messages import make_attachment
from massmem.core.records import SessionCopy, SessionState
from massmem.memory.persistent import Selection
from massmem.store import open_store
from massmem.store.move import MoveResult, move_sessions
from massmem.store.ports import SessionStore
from tests.contract.test_session_store import done, session
from tests.contract.test_session_store_state import lived_in, seen
from tests.support.cli import massmem
from tests.support.sample_turn import begin, whole_turn
from tests.support.stores import NewPlace

pytestmark = pytest.mark.slow


@pytest.fixture
def source_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'source.db'}"


@pytest.fixture
async def source(source_url: str, tmp_path: Path) -> AsyncIterator[SessionStore]:
    opened = await open_store(source_url, tmp_path / ".massmem")
    yield opened
    await opened.close()


@pytest.fixture
async def target(new_place: NewPlace, tmp_path: Path) -> AsyncIterator[SessionStore]:
    opened = await open_store(new_place(), tmp_path / ".massmem")
    yield opened
    await opened.close()


def migrate(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return massmem("store", "migrate", *arguments, text=True)


async def move(source: SessionStore, target: SessionStore) -> list[MoveResult]:
    names = [s.session_id for s in await source.list_sessions()]
    return [result async for result in move_sessions(source, target, names)]


async def outcomes(source: SessionStore, target: SessionStore) -> dict[str, str]:
    return {each.session_id: each.outcome for each in await move(source, target)}


async def test_there_and_back_again(source: SessionStore, target: SessionStore, tmp_path: Path) -> None:
    await lived_in(source)
    await source.create_session(session("empty"))
    before = await seen(source)
    first = await move(source, target)
    assert {each.session_id: each.outcome for each in first} == {"session_a": "copied", "empty": "copied"}
    log = await source.export_log("session_a")
    assert sorted((each.events, each.messages) for each in first) == [(0, 0), (len(log), 13)]
    assert await seen(target) == before == await seen(source)
    back = await open_store(f"sqlite:///{tmp_path / 'back.db'}", tmp_path / ".massmem")
    assert {each.outcome for each in await move(target, back)} == {"copied"}
    assert await seen(back) == before
    assert {each.outcome for each in await move(source, target)} == {"there"}
    await back.close()


async def test_files_go_along_and_a_damaged_one_is_refused(source: SessionStore, target: SessionStore) -> None:
    picture, other = make_attachment("a.png", "image/png", b"a picture"), make_attachment("b.png", "image/png", b"b")
    await source.create_session(session())
    await source.save_files("session_a", {picture.file.hash: picture.data})
    await source.append("session_a", 1, [begin("ann"), done(1)])
    assert await outcomes(source, target) == {"session_a": "copied"}
    assert await target.load_files("session_a", [picture.file.hash]) == {picture.file.hash: picture.data}
    await source.save_files("session_a", {other.file.hash: b"not b"})
    await source.append("session_a", 2, [begin("ann", at=20), done(21)])
    with pytest.raises(StoreError, match="is damaged"):
        await move(source, target)


async def test_either_side_may_have_gone_on(source: SessionStore, target: SessionStore) -> None:
    for name in ("ours", "theirs", "both", "neither"):
        await source.create_session(session(name))
        await source.append(name, 1, whole_turn())
    await move(source, target)
    for store, names in ((source, ("ours", "both")), (target, ("theirs", "both"))):
        for name in names:
            question = f"What is next, {'source' if store is source else 'target'}?"
            await store.append(name, 2, [begin("ann", at=10, question=question), done(11)])
    there = [await target.export_log(name) for name in ("theirs", "both", "neither")]
    expected = {"ours": "updated", "theirs": "newer", "both": "different", "neither": "there"}
    assert await outcomes(source, target) == expected
    assert await outcomes(source, target) == expected | {"ours": "there"}
    assert await target.export_log("ours") == await source.export_log("ours")
    assert [await target.export_log(name) for name in ("theirs", "both", "neither")] == there


async def test_names_and_values_given_since_are_brought_over(source: SessionStore, target: SessionStore) -> None:
    for name in ("renamed", "theirs", "state", "given_up", "same"):
        await source.create_session(session(name))
        await source.append(name, 1, [begin("ann")])
    await move(source, target)
    await source.rename_session("renamed", "The sky")
    await target.rename_session("theirs", "A name of theirs")
    await source.save_state("state", SessionState(params={"city": "Lisbon"}))
    await source.abandon_turn("given_up", 1)
    changed = {"renamed": "updated", "state": "updated", "given_up": "updated"}
    expected = dict.fromkeys(("renamed", "theirs", "state", "given_up", "same"), "there")
    assert await outcomes(source, target) == expected | changed
    assert await outcomes(source, target) == expected
    titles = {s.session_id: s.title for s in await target.list_sessions()}
    assert (titles["renamed"], titles["theirs"]) == ("The sky", "A name of theirs")
    assert (await target.load_state("state")).params == {"city": "Lisbon"}
    last = await target.get_last_turn("given_up")
    assert last is not None and last.status == "abandoned"
    await target.save_state("state", SessionState(params={"city": "Porto"}))
    assert (await outcomes(source, target))["state"] == "there"
    assert (await target.load_state("state")).params == {"city": "Porto"}


async def test_memories_forgotten_in_either_store_do_not_come_back(source: SessionStore, target: SessionStore) -> None:
    for name in ("here", "there", "longer"):
        await source.create_session(session(name))
        await source.append(name, 1, whole_turn())
    await move(source, target)
    await source.forget_recordings(Selection("here"))
    for name in ("there", "longer"):
        await target.forget_recordings(Selection(name))
    await source.append("longer", 2, [begin("ann", at=10), done(11)])
    assert await outcomes(source, target) == {"here": "updated", "there": "there", "longer": "different"}
    for name in ("here", "there", "longer"):
        assert (await target.list_due_recordings("episode", 9, name)) == []


async def test_row_deleted_meanwhile_is_no_failure(source: SessionStore, target: SessionStore) -> None:
    assert [result async for result in move_sessions(source, target, ["session_x"])] == [
        MoveResult("session_x", "gone")
    ]


async def test_the_command(
    home: Path, source_url: str, source: SessionStore, new_place: NewPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    await lived_in(source)
    to = new_place()
    monkeypatch.setenv("NEW_STORE", to)
    first = migrate("--from", source_url, "--to", "$NEW_STORE", "--json")
    assert first.returncode == 0, first.stderr
    found = json.loads(first.stdout)
    assert (found["sessions"], found["copied"], found["messages"]) == (1, 1, 13)
    assert "sessions: 1 of 1" in first.stderr
    target = await open_store(to, home / ".massmem")
    assert await seen(target) == await seen(source)
    again = migrate("--from", source_url, "--to", to)
    assert (again.returncode, again.stdout) == (0, "")
    assert "1 already there" in again.stderr
    for store in (source, target):
        await store.append("session_a", 4, [begin("ann", at=50, question=f"For {'me' if store is source else 'you'}")])
    differs = migrate("--from", source_url, "--to", to)
    assert differs.returncode == 2
    assert "session_a" in differs.stderr
    await target.close()


def test_mistakes_are_told(source_url: str) -> None:
    same = migrate("--from", source_url, "--to", source_url)
    assert (same.returncode, same.stdout) == (2, "")
    unset = migrate("--to", "postgresql://u:$NOT_SET_HERE@h/db")
    assert unset.returncode == 2
    assert "variable" in unset.stderr
    unknown = migrate("--to", "mongodb://u:secret@h/db")
    assert unknown.returncode == 2
    assert "secret" not in unknown.stderr


async def test_the_source_is_only_read(source_url: str, source: SessionStore, new_place: NewPlace, home: Path) -> None:
    await lived_in(source)
    await source.close()
    path = Path(source_url.removeprefix("sqlite:///"))
    with closing(sqlite3.connect(path)) as connection:
        before = "\n".join(connection.iterdump())
    assert migrate("--from", source_url, "--to", new_place()).returncode == 0
    with closing(sqlite3.connect(path)) as connection:
        assert "\n".join(connection.iterdump()) == before


async def test_a_turn_that_is_answered_while_its_session_is_replaced_stays(
    source: SessionStore, target: SessionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both go on: the one in the target between the comparison and the copy."""
    names = ["continued", "new"]
    await source.create_session(session("continued"))
    await source.append("continued", 1, whole_turn())
    await move(source, target)
    await source.append("continued", 2, [begin("ann", at=10, question="Next, in the source?"), done(11)])
    await source.create_session(session("new"))
    await source.append("new", 1, whole_turn())
    import_session, there = target.import_session, dict[str, object]()

    async def answer_first(copy: SessionCopy, *arguments: Any, **options: Any) -> None:
        name = copy.session.session_id
        if await target.get_session(name) is None:
            await target.create_session(session(name))
        await target.append(name, 3, [begin("ann", at=12, question="Next, in the target?"), done(13)])
        there[name] = await target.export_log(name)
        await import_session(copy, *arguments, **options)

    monkeypatch.setattr(target, "import_session", answer_first)
    before = [await source.export_log(name) for name in names]
    assert await outcomes(source, target) == dict.fromkeys(names, "changed")
    monkeypatch.undo()
    assert {name: await target.export_log(name) for name in names} == there
    assert [await source.export_log(name) for name in names] == before
    assert await outcomes(source, target) == dict.fromkeys(names, "different")
