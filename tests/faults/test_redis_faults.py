"""Redis under kills, of the server and of its clients: what was acknowledged is there, or its loss is told."""

import json
import random
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest

from massmem.core.errors import StoreError
from massmem.core.records import EVERYBODY, SessionFilter
from massmem.store import open_store
from tests.contract.test_session_store import session
from tests.support.cli import massmem, script, write_team
from tests.support.forked import ForkedMassmem
from tests.support.redis_server import RedisServer, StartRedis
from tests.support.sample_turn import answer, begin
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
from tests.support.verdict import check


@pytest.fixture(params=["always", "everysec"])
def durable(request: pytest.FixtureRequest, start_redis: StartRedis) -> RedisServer:
    return start_redis(request.param)


@pytest.fixture
def forgetful(start_redis: StartRedis) -> RedisServer:
    return start_redis("no")


@pytest.mark.parametrize("kills", [3, pytest.param(40, marks=pytest.mark.full)])
async def test_the_server_is_killed_in_mid_run(durable: RedisServer, tmp_path: Path, kills: int) -> None:
    server, folder = durable, tmp_path
    url, rng = server.new_url(), random.Random(1)
    store = await open_store(url, folder / ".massmem")
    for name in ("a", "b", "c"):
        await store.create_session(session(name))
        await store.append(name, 1, [begin("ann")])
    await store.close()
    enough = folder / "enough"
    writers = start_patient_writers(url, folder, enough)
    books = sorted(folder.glob("*.notes"))
    for _ in range(kills):
        before, begun = len(read_notes(folder)), time.monotonic()
        while len(read_notes(folder)) < before + 40:
            assert time.monotonic() < begun + 60
            time.sleep(rng.uniform(0.01, 0.2))
        server.kill()
        time.sleep(rng.choice([0.0, 0.3, 1.5]))
        server.start()
    enough.touch()
    assert finish(writers, 120) == [0] * 4
    lines = read_notes(folder)
    acknowledged = [line for line in lines if not line.startswith("!")]
    contents = Counter(await read_stored(url))
    # With everysec the server acknowledges what is not in its file yet when the disk is slow; the writer is told.
    lost = {line for line in acknowledged if line not in contents}
    told = [book for book in books if "!lost" in book.read_text()]
    silent = sum(line in lost for book in books if book not in told for line in book.read_text().splitlines())
    doubled = sum(count - 1 for count in contents.values())
    failed = len(lines) - len(acknowledged)
    what = f"appendfsync {server.durable}, the server killed {kills} times, {len(acknowledged)} acknowledged"
    counts = {"lost": silent, "ghost": doubled, "leak": count_faults(acknowledged, contents)["leak"]}
    check(what, counts | {"failed": failed, "lost and told": len(lost) - silent})
    assert len(acknowledged) >= 40 * kills
    assert set(contents) <= set(acknowledged)
    assert server.durable == "everysec" or not lost


@pytest.mark.parametrize("kills", [5, pytest.param(100, marks=pytest.mark.full)])
async def test_writers_are_killed(durable: RedisServer, tmp_path: Path, kills: int) -> None:
    await kill_and_check_writers(durable.new_url(), tmp_path / "notes", kills)


@pytest.mark.parametrize("sessions", [8, 1], ids=["a session each", "one session"])
async def test_eight_processes_on_an_empty_database(forgetful: RedisServer, tmp_path: Path, sessions: int) -> None:
    url = forgetful.new_url()
    writers = [start(append_answers, url, tmp_path / f"{n}.notes", f"s{n % sessions}", f"w{n}", 20) for n in range(8)]
    assert finish(writers) == [0] * 8
    acknowledged, found = read_notes(tmp_path), await read_stored(url)
    check(f"8 processes, {len(acknowledged)} acknowledged", count_faults(acknowledged, found))
    assert len(acknowledged) == 160


async def test_messages_lost_by_a_server_without_a_file_are_reported(forgetful: RedisServer, tmp_path: Path) -> None:
    url, acknowledged, told = forgetful.new_url(), 0, 0
    store = await open_store(url, tmp_path / ".massmem")
    assert "append-only" in store.info.once[0]
    await store.create_session(session())
    await store.append("session_a", 1, [begin("ann")])
    for number in range(60):
        if number in (20, 40):
            forgetful.kill()
            forgetful.start()
        try:
            await store.append("session_a", 1, [answer(0, "ann", str(number))])
            acknowledged += 1
        except StoreError as e:
            assert "not in the store" in e.message
            told += 1
            await store.create_session(session())
            await store.append("session_a", 1, [begin("ann")])
    kept = len(await store.read_messages("session_a")) - 1
    print(f"restarts without a file 2 acknowledged {acknowledged} kept {kept} losses told {told}")
    assert (acknowledged, kept, told) == (58, 19, 2)
    await store.close()


def ask(team: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return massmem("--config", team, *arguments, text=True)


def test_a_run_without_its_server_says_so_and_the_next_one_goes_on(start_redis: StartRedis, tmp_path: Path) -> None:
    server = start_redis("always")
    url = server.new_url()
    team = write_team(tmp_path, script("first"), store={"url": url}, memory={"enabled": False})
    first = ask(team, "--output", "json", "One?")
    assert first.returncode == 0, first.stderr
    assert "append-only" not in first.stderr
    session_id = json.loads(first.stdout)["session_id"]
    slow = write_team(tmp_path, script("second", latency=1.0), store={"url": url}, memory={"enabled": False})
    err = tmp_path / "err"
    running = ForkedMassmem("--config", slow, "--session-id", session_id, "Two?", "--output", "jsonl", err=err)
    assert b"turn_started" in running.stdout.readline()
    server.kill()
    running.finish()
    assert running.exit_code == 3, err.read_text()
    assert "cannot be reached" in err.read_text()
    assert "Traceback" not in err.read_text()
    away = ask(slow, "--session-id", session_id)
    assert away.returncode == 3
    assert "cannot be reached" in away.stderr
    server.start()
    finished = ask(slow, "--session-id", session_id, "--output", "json")
    assert finished.returncode == 0, finished.stderr
    assert json.loads(finished.stdout)["answer"] == "second"


AWAY = "redis://:hush-hush@127.0.0.1:1/0"


@pytest.mark.parametrize("output", ["plain", "json", "jsonl"])
def test_without_a_server_a_conversation_is_held_in_memory_and_says_so(tmp_path: Path, home: Path, output: str) -> None:
    team = write_team(tmp_path, script("an answer"), store={"url": AWAY}, memory={})
    asked = ask(team, "--quiet", "--output", output, "One?")
    assert asked.returncode == 0, asked.stderr
    assert "an answer" in asked.stdout
    assert "redis://127.0.0.1:1/0 cannot be reached" in asked.stderr
    assert "held in memory and ends with this process" in asked.stderr
    assert "this conversation was not stored" in asked.stderr
    assert "session-id" not in asked.stderr
    if output == "json":
        assert "held in memory" in json.loads(asked.stdout)["notices"][0]
    if output == "jsonl":
        events = [json.loads(line) for line in asked.stdout.splitlines()]
        told = next(e["message"] for e in events if e["type"] == "notice")
        assert told.startswith("redis://127.0.0.1:1/0 cannot be")
    assert massmem("--list-sessions", text=True).stdout.startswith("No sessions yet")
    written = b"".join(path.read_bytes() for path in home.rglob("*") if path.is_file())
    assert b"an answer" not in written
    assert "hush" not in asked.stderr + asked.stdout + written.decode(errors="replace")


def test_without_a_server_what_is_in_it_is_not_said_to_be_missing(tmp_path: Path) -> None:
    team = write_team(tmp_path, script("an answer"), store={"url": AWAY}, memory={})
    asked = ask(team, "--session-id", "session_a", "One?")
    listed = massmem("sessions", "list", "--config", team, text=True)
    for tried in (asked, listed):
        assert (tried.returncode, tried.stdout) == (3, "")
        assert "cannot be reached" in tried.stderr
    counted = massmem("sessions", "stats", "--json", "--config", team, text=True)
    assert counted.returncode == 0, counted.stderr
    found = json.loads(counted.stdout)
    assert (found["usingRedis"], found["durable"], found["total_sessions"]) == (False, False, 0)
    assert "hush" not in counted.stdout + counted.stderr
    assert "cannot be reached" in counted.stderr


def test_no_answer_rather_than_one_that_is_not_kept(tmp_path: Path) -> None:
    team = write_team(tmp_path, script("an answer"), store={"url": AWAY, "on_unavailable": "fail"})
    asked = ask(team, "One?")
    assert (asked.returncode, asked.stdout) == (3, "")
    assert "cannot be reached" in asked.stderr


async def test_commands_on_redis(forgetful: RedisServer, tmp_path: Path) -> None:
    url = forgetful.new_url()
    limits = {"url": url, "ttl": 100, "max_messages": 4}
    team = write_team(tmp_path, script("an answer"), store=limits, memory={"persistent_memory": {"enabled": False}})
    asked = ask(team, "One about penguins?")
    assert asked.returncode == 0, asked.stderr
    assert asked.stderr.count("keeps no append-only file") == 1
    assert ask(team, "--continue", "Two?").returncode == 0
    listed = json.loads(massmem("sessions", "list", "--json", "--config", team).stdout)
    (one,) = listed["sessions"]
    assert one["turns"] == 2
    found = massmem("sessions", "search", "penguins", "--config", team, text=True)
    assert "penguins" in found.stdout
    stats = json.loads(massmem("sessions", "stats", "--json", "--config", team).stdout)
    assert (stats["usingRedis"], stats["durable"], stats["total_sessions"]) == (True, True, 1)
    assert ask(team, "--continue", "Three?").returncode == 0
    store = await open_store(url, tmp_path / ".massmem")
    (kept,) = await store.find_sessions(SessionFilter(owner=EVERYBODY))
    assert kept.conversation_length == 4
    assert kept.turns == 3
    assert await store.search_messages("penguins", owner=EVERYBODY) == []
    with forgetful.connect(url) as client:
        assert 90_000 < client.pttl(f"massmem:v3:session:{kept.session.session_id}") <= 100_000
        deleted = massmem("sessions", "delete", kept.session.session_id, "--yes", "--config", team, text=True)
        assert deleted.returncode == 0, deleted.stderr
        assert client.keys("*") == ["massmem:layout"]
    await store.close()
