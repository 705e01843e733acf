"""A clock that jumps, ten years ahead and an hour back: what was said stays in the order in which it was said, and the
conversation that was used last is the last one.
"""

import secrets
import shutil
import subprocess
import sys
from collections.abc import AsyncGenerator, Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from massmem.config.models import JwtConfig
from massmem.core.events import now
from massmem.core.records import EVERYBODY, LogEntry, SessionFilter
from massmem.server.auth import Tokens
from massmem.session.lease import ProcessLock, hold_lease
from massmem.store import open_store
from massmem.store.lookup import get_newest_session
from massmem.store.ports import SessionStore
from tests.contract.test_session_store import done, session
from tests.support.cli import COMMAND, write_team
from tests.support.sample_turn import begin
from tests.support.stores import NewPlace

JUMPS = (timedelta(0), timedelta(days=3653), timedelta(hours=-1), timedelta(seconds=1))


async def test_the_turn_counter_orders_and_not_the_clock(new_place: NewPlace, tmp_path: Path) -> None:
    url, start = new_place(), now()
    store = await open_store(url, tmp_path)
    await store.create_session(session())
    sent: list[str] = []
    for turn, jump in enumerate(JUMPS, start=1):
        for event, text in ((begin("ann", question=f"q{turn}"), f"q{turn}"), (done(text=f"a{turn}"), f"a{turn}")):
            moved = event.model_copy(update={"at": start + jump})
            await store.append("session_a", turn, [moved])
            sent.append(text)
    await store.close()
    store = await open_store(url, tmp_path)
    said = [m.content for m in reversed(await store.read_conversation("session_a", None, 100))]
    logged = [m.content for m in await store.read_messages("session_a")]
    turns = [t.turn for t in await store.list_turns("session_a")]
    last = await store.get_last_turn("session_a")
    await store.close()
    lost = len(set(sent) - set(said))
    ghosts = len(said) - len(set(said) & set(sent))
    lies = (said != sent) + (logged != sent) + (turns != [1, 2, 3, 4])
    print(f"turns {len(JUMPS)} lost {lost} ghost {ghosts} leak 0 lie {lies}")
    assert (lost, ghosts, lies) == (0, 0, 0)
    assert last is not None and (last.turn, last.status) == (4, "completed")


async def test_the_session_that_was_used_last_is_the_last_though_the_clock_was_set_back(
    new_place: NewPlace, tmp_path: Path
) -> None:
    store, start = await open_store(new_place(), tmp_path), now()

    async def use(name: str, turn: int, jump: timedelta) -> None:
        for event in (begin("ann"), done()):
            await store.append(name, turn, [event.model_copy(update={"at": start + jump})])

    for name in ("session_a", "session_b", "session_c"):
        await store.create_session(session(name))
    await use("session_a", 1, timedelta(0))
    await use("session_b", 1, timedelta(hours=2))
    await use("session_a", 2, timedelta(minutes=1))
    assert await list_names(store) == ["session_a", "session_b", "session_c"]
    await use("session_c", 1, timedelta(minutes=2))
    assert await list_names(store) == ["session_c", "session_a", "session_b"]
    assert (await get_newest_session(store, EVERYBODY)).session_id == "session_c"
    # A time is still a time.
    assert await list_names(store, since=start + timedelta(minutes=2)) == ["session_c", "session_b"]
    assert await list_names(store, before=start + timedelta(minutes=2)) == ["session_a"]
    copy = await store.export_session("session_b")
    assert copy is not None
    await store.import_session(copy, store_log(store, "session_b"))
    assert await list_names(store) == ["session_c", "session_a", "session_b"]
    await store.close()


async def test_an_old_conversation_that_is_imported_is_not_the_last_one(new_place: NewPlace, tmp_path: Path) -> None:
    store, start = await open_store(new_place(), tmp_path), now()
    for name, days in (("session_a", 0), ("session_b", -300)):
        time = start + timedelta(days=days)
        await store.create_session(session(name).model_copy(update={"updated_at": time, "used": days + 300}))
        log = [begin("ann"), done()]
        marks = {"imported": days < 0, "at": time}
        await store.append(name, 1, [event.model_copy(update=marks) for event in log])
    assert await list_names(store) == ["session_a", "session_b"]
    await store.close()


needs_faketime = pytest.mark.skipif(shutil.which("faketime") is None, reason="the program faketime is not installed")


def run_at(jump: str, *command: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        ["faketime", "-f", jump, *command], capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False
    )


@needs_faketime
@pytest.mark.parametrize("jump", ["-2h", "+2h", "+30d"])
async def test_a_lease_outlives_a_clock_that_jumps(jump: str, tmp_path: Path, home: Path) -> None:
    """By its clock a process may think that the lease of a turn has expired, or never will."""
    folder = home / ".massmem"
    write_team(tmp_path, {"answer": "It is late."})
    store = await open_store(f"sqlite:///{folder / 'massmem.db'}", folder)
    await store.create_session(session())
    ask = (*COMMAND, "--config", str(tmp_path / "team.yaml"), "--session-id", "session_a", "What time is it?")
    process = ProcessLock(folder)
    async with hold_lease(store, process, "session_a") as lease:
        refused = run_at(jump, *ask)
        assert (refused.returncode, "another process is running a turn" in refused.stderr) == (3, True), refused
        await store.append("session_a", 1, [begin("ann"), done()], owner=lease.owner)
    # Killed while it held the lease, by a clock that was ahead: nobody waits until that time comes.
    assert await store.acquire_lease("session_a", process.add_owner(), 7_200)
    process.close()
    asked = run_at(jump, *ask)
    assert asked.returncode == 0, asked.stderr
    assert [turn.turn for turn in await store.list_turns("session_a")] == [1, 2]
    await store.close()


@needs_faketime
@pytest.mark.parametrize(("jump", "outcome"), [("-2h", "ok"), ("-10s", "ok"), ("+30m", "ok"), ("+2h", "expired")])
def test_a_token_counts_where_the_clock_was_set_back(jump: str, outcome: str) -> None:
    secret = secrets.token_urlsafe(40)
    token = Tokens(JwtConfig.model_validate({"secret": secret})).create("ann", 3_600)
    check = (
        "import sys; from massmem.config.models import JwtConfig; from massmem.server.auth import Tokens;"
        "Tokens(JwtConfig.model_validate({'secret': sys.argv[1]})).authenticate([f'Bearer {sys.argv[2]}']); print('ok')"
    )
    checked = run_at(jump, sys.executable, "-c", check, secret, token)
    assert outcome in (checked.stdout + checked.stderr), checked


async def list_names(store: SessionStore, **criteria: object) -> list[str]:
    listed = await store.find_sessions(SessionFilter.model_validate({"owner": EVERYBODY, **criteria}))
    return [one.session.session_id for one in listed]


async def store_log(store: SessionStore, name: str) -> AsyncGenerator[Sequence[LogEntry]]:
    yield await store.export_log(name)
