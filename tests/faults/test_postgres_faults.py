"""PostgreSQL under kills, of the server and of its clients, and moves between stores that are killed: all counts 0."""

import json
import random
import signal
import sqlite3
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from massmem.store import open_store
from tests.contract.test_session_store import done, session
from tests.support.cli import massmem, script, write_team
from tests.support.forked import ForkedMassmem
from tests.support.postgres_server import PostgresServer
from tests.support.sample_turn import answer, begin, whole_turn
from tests.support.store_writer import (
    append_answers,
    count_faults,
    finish,
    kill_and_check_writers,
    read_notes,
    read_stored,
    start,
    start_patient_writers,
)
from tests.support.stores import NewPlace
from tests.support.verdict import check


@pytest.fixture(scope="module")
def durable(_postgres_programs: None) -> Iterator[PostgresServer]:
    server = PostgresServer(durable=True)
    yield server
    server.remove()


@pytest.mark.parametrize("kills", [3, pytest.param(40, marks=pytest.mark.full)])
async def test_the_server_is_killed_in_mid_run(durable: PostgresServer, tmp_path: Path, kills: int) -> None:
    server, folder = durable, tmp_path
    url, rng = server.url(server.new_database()), random.Random(1)
    store = await open_store(url, folder / ".massmem")
    for name in ("a", "b", "c"):
        await store.create_session(session(name))
        await store.append(name, 1, [begin("ann")])
    await store.close()
    enough = folder / "enough"
    writers = start_patient_writers(url, folder, enough)
    for _ in range(kills):
        before = [len(read_notes(folder)), time.monotonic()]
        while len(read_notes(folder)) < before[0] + 40:
            assert time.monotonic() < before[1] + 60
            time.sleep(rng.uniform(0.01, 0.2))
        server.kill()
        time.sleep(rng.uniform(0, 0.2))
        server.start()
    enough.touch()
    assert finish(writers, 120) == [0] * 4
    lines = read_notes(folder)
    acknowledged = [line for line in lines if line != "!"]
    contents = Counter(await read_stored(url))
    failed = len(lines) - len(acknowledged)
    what = f"the server killed {kills} times, {len(acknowledged)} acknowledged, {failed} failed"
    check(what, count_faults(acknowledged, contents.elements()))
    assert failed >= kills
    assert len(acknowledged) == len(contents) >= 40 * kills


@pytest.mark.parametrize("kills", [5, pytest.param(100, marks=pytest.mark.full)])
async def test_writers_are_killed(durable: PostgresServer, tmp_path: Path, kills: int) -> None:
    await kill_and_check_writers(durable.url(durable.new_database()), tmp_path / "notes", kills)


@pytest.mark.parametrize("sessions", [8, 1], ids=["a session each", "one session"])
async def test_eight_processes_on_an_empty_database(durable: PostgresServer, tmp_path: Path, sessions: int) -> None:
    url = durable.url(durable.new_database())
    writers = [start(append_answers, url, tmp_path / f"{n}.notes", f"s{n % sessions}", f"w{n}", 20) for n in range(8)]
    assert finish(writers) == [0] * 8
    acknowledged, found = read_notes(tmp_path), await read_stored(url)
    check(f"8 processes, {len(acknowledged)} acknowledged", count_faults(acknowledged, found))
    assert len(acknowledged) == 160


def test_a_run_without_its_server_says_so_and_the_next_one_goes_on(durable: PostgresServer, tmp_path: Path) -> None:
    url = durable.url(durable.new_database())
    team = write_team(tmp_path, script("first"), store={"url": url}, memory={"persistent_memory": {"enabled": False}})

    def ask(*arguments: str) -> "subprocess.CompletedProcess[str]":
        return massmem("--config", team, *arguments, text=True)

    first = ask("--output", "json", "One?")
    assert first.returncode == 0, first.stderr
    session_id = json.loads(first.stdout)["session_id"]
    slow = write_team(tmp_path, script("second", latency=1.0), store={"url": url}, memory={"enabled": False})
    err = tmp_path / "err"
    running = ForkedMassmem("--config", slow, "--session-id", session_id, "Two?", "--output", "jsonl", err=err)
    assert b"turn_started" in running.stdout.readline()
    durable.kill()
    running.finish()
    assert running.exit_code == 3, err.read_text()
    assert "Traceback" not in err.read_text()
    away = ask("--session-id", session_id)
    assert away.returncode == 3
    assert "untouched" in away.stderr
    durable.start()
    finished = ask("--session-id", session_id, "--output", "json")
    assert finished.returncode == 0, finished.stderr
    assert json.loads(finished.stdout)["answer"] == "second"


SESSIONS = 30


async def fill_store(url: str, home: Path) -> None:
    store = await open_store(url, home)
    for number in range(SESSIONS):
        name = f"session_{number:03}"
        await store.create_session(session(name, at=number))
        await store.append(name, 1, whole_turn())
        for turn in range(2, 2 + number % 7):
            batch = [begin("ann", question=f"Question {turn}"), answer(1, "ann", f"An answer {turn}"), done(5)]
            await store.append(name, turn, batch)
    await store.finish_recordings(await store.list_due_recordings("episode", 100))
    await store.close()


async def read_store(url: str, home: Path) -> dict[str, tuple[object, ...]]:
    store = await open_store(url, home)
    copies = {
        s.session_id: (s, await store.read_messages(s.session_id), await store.export_log(s.session_id))
        for s in await store.list_sessions()
    }
    await store.close()
    return copies


@pytest.mark.parametrize("kills", [3, pytest.param(60, marks=pytest.mark.full)])
async def test_a_move_is_killed(new_place: NewPlace, tmp_path: Path, home: Path, kills: int) -> None:
    source, target = tmp_path / "source.db", new_place()
    home /= ".massmem"
    url, rng = f"sqlite:///{source}", random.Random(1)
    await fill_store(url, home)
    with closing(sqlite3.connect(source)) as connection:
        before = "\n".join(connection.iterdump())
    expected = await read_store(url, home)
    killed, early, arrived = 0, 0, 0
    longest = 0.8
    while killed < kills:
        moving = ForkedMassmem("store", "migrate", "--from", url, "--to", target)
        time.sleep(rng.uniform(0.05, longest))
        moving.kill()
        killed += moving.exit_code == -signal.SIGKILL
        copies = await read_store(target, home)
        early += len(copies) == 0
        arrived = len(copies)
        half = [name for name in copies if copies[name] != expected[name]]
        assert half == []  # what is there is whole
        # Most kills shall fall into the copying, however fast this machine is just now.
        longest = max(0.1, longest * (0.8 if arrived == SESSIONS else 1.0 if arrived else 1.3))
    last = massmem("store", "migrate", "--from", url, "--to", target, "--json", text=True)
    assert last.returncode == 0, last.stderr
    report = json.loads(last.stdout)
    with closing(sqlite3.connect(source)) as connection:
        changed = "\n".join(connection.iterdump()) != before
    copies = await read_store(target, home)
    lost = sum(name not in copies for name in expected)
    wrong = sum(copies.get(name) != expected[name] for name in expected)
    ghosts = len(set(copies) - set(expected))
    loop = f"migrate, {killed} kills ({early} before anything had arrived), {SESSIONS} sessions"
    check(loop, {"lost": lost, "ghost": ghosts, "leak": wrong, "lie": int(changed)})
    assert report["there"] + report["copied"] == SESSIONS
