"""Where sessions live: a store of a million messages, and a history from each store."""

import asyncio
import json
import subprocess
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from shutil import disk_usage
from statistics import median, quantiles

from massmem.core.events import now
from massmem.core.records import EVERYBODY, SessionFilter, SessionRecord
from massmem.store import open_store
from massmem.store.ports import SessionStore
from scripts.benches.process import MASSMEM, PYTHON, BenchError, Command, environment, in_turn, workspace
from scripts.benches.rows import ROOT, Row, at_most, missing, reported
from scripts.benches.session import COUNCIL, ID, turn_events
from scripts.benches.store_scale import PAGE, PER_SESSION

SESSIONS = 10_000
MOST_LIST_MS, MOST_SEARCH_MS, MOST_RESUME_MS, MOST_MB = 300, 200, 500, 300
HISTORY, MOST_HISTORY_MS = 20, 10
TURNS, READS, LISTS = 50, 51, 5
ALONE = COUNCIL[:1]
"""Its turns have four messages: more than twenty of the conversation are among the fifty that Redis keeps."""

_BYTES_PER_SESSION = 200_000
"""On the disk, and as much again while it is written."""

_LIMIT = 1800
_LISTED = "listing all sessions of Redis (--limit 0)"
_AT_ONCE = 200


def run() -> list[Row]:
    return run_with(SESSIONS, ())


def run_with(sessions: int, urls: Sequence[str]) -> list[Row]:
    """sessions: how many the large store has. urls: further stores that a history is read from; a session is added."""
    return [*_large(sessions), *_histories(sessions, urls)]


def _large(sessions: int) -> list[Row]:
    what = f"a store of {sessions * PER_SESSION:,} messages"
    with workspace() as folder:
        free = disk_usage(folder).free
        if free < sessions * _BYTES_PER_SESSION:
            return [missing(what, f"{free / 1e9:.1f} GB are free in {folder.parent}")]
        filled = _apart("fill", folder, sessions)
        used = _apart("use", folder, sessions)
        size = sum(path.stat().st_size for path in folder.iterdir() if path.is_file()) / 1e6
        listing = Command((MASSMEM, "sessions", "list"), _with_home(folder), folder)
        (samples,) = in_turn([listing], LISTS)
    return [
        reported("sessions in the large store", sessions, "", f"filled in {filled['fill_s']:.0f} s"),
        reported("messages in it", used["messages"], ""),
        reported("its database", size, "MB"),
        *_bounds(used),
        reported("massmem sessions list, the whole process", 1000 * median(s.wall for s in samples), "ms"),
    ]


def _bounds(used: dict[str, float]) -> list[Row]:
    first = f"the first {used['list_first_ms']:.0f} ms"
    worst = f"the slowest {used['resume_worst_ms']:.0f} ms"
    return [
        at_most(f"listing a page of {PAGE}, and counting", used["list_ms"], "ms", MOST_LIST_MS, first),
        reported("listing all of them (--limit 0)", used["list_all_ms"], "ms"),
        at_most("searching all texts: p99", used["search_p99_ms"], "ms", MOST_SEARCH_MS, _searches(used)),
        at_most("resuming a session: opened, first answer", used["resume_ms"], "ms", MOST_RESUME_MS, worst),
        at_most("memory of the process that did all that", used["rss_mb"], "MB", MOST_MB),
    ]


def _searches(used: dict[str, float]) -> str:
    return f"median {used['search_ms']:.0f} ms, p99 of the CPU {used['search_cpu_p99_ms']:.0f} ms; 10 words each"


def _with_home(folder: Path) -> dict[str, str]:
    """An environment in which the store is the user's own."""
    own = folder / ".massmem"
    own.mkdir(mode=0o700)
    (folder / "massmem.db").rename(own / "massmem.db")
    return environment(folder)


def _apart(what: str, folder: Path, sessions: int) -> dict[str, float]:
    command = [PYTHON, "-m", "scripts.benches.store_scale", what, str(folder), str(sessions)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=_LIMIT, check=False, env=environment(folder)
    )
    if done.returncode:
        raise BenchError(f"store_scale {what} {sessions} stopped: {done.stderr.strip()[-300:]}")
    return json.loads(done.stdout)


def _histories(sessions: int, urls: Sequence[str]) -> list[Row]:
    with workspace() as folder:
        rows = [_history("SQLite", f"sqlite:///{folder / 'massmem.db'}", folder)]
        for kind, server in (("PostgreSQL", _postgres), ("Redis", _redis)):
            rows.append(_served(_what(kind), server, lambda url, kind=kind: _history(kind, url, folder)))
        rows.append(_served(_LISTED, _redis, lambda url: _listed(url, folder, sessions)))
        return [*rows, *(_history(url.partition(":")[0], url, folder) for url in urls)]


def _served(what: str, server: Callable[[], Generator[str]], measure: Callable[[str], Row]) -> Row:
    """On a server of this machine that is started for it."""
    with ExitStack() as running:
        try:
            url = running.enter_context(contextmanager(server)())
        except (ImportError, BenchError) as e:
            return missing(what, f"{e}; or name one with --url")
        return measure(url)


def _postgres() -> Generator[str]:
    # With the tests' packages, which only this needs.
    from tests.support.postgres_server import PostgresServer, find_programs

    if find_programs() is None:
        raise BenchError("there is no PostgreSQL on this machine")
    server = PostgresServer(durable=True)
    try:
        yield server.url(server.new_database())
    finally:
        server.remove()


def _redis() -> Generator[str]:
    from tests.support.redis_server import RedisServer, redis_binary

    if not redis_binary():
        raise BenchError("there is no Redis on this machine")
    server = RedisServer("always")
    try:
        yield server.new_url()
    finally:
        server.remove()


def _what(kind: str) -> str:
    return f"a history of {HISTORY} messages from {kind}"


def _history(kind: str, url: str, folder: Path) -> Row:
    times = asyncio.run(_read(url, folder))
    slow = f"p95 {quantiles(times, n=20)[-1]:.1f} ms of {READS} reads"
    return at_most(_what(kind), median(times), "ms", MOST_HISTORY_MS, slow)


def _listed(url: str, folder: Path, sessions: int) -> Row:
    times = asyncio.run(_list(url, folder, sessions))
    return reported(_LISTED, median(times), "ms", f"{sessions:,} sessions, the slowest {max(times):.0f} ms of {LISTS}")


async def _list(url: str, folder: Path, sessions: int) -> list[float]:
    store, times = await open_store(url, folder), list[float]()
    try:
        for first in range(0, sessions, _AT_ONCE):
            names = [f"{ID}_{number:06}" for number in range(first, min(first + _AT_ONCE, sessions))]
            await asyncio.gather(*(store.create_session(_record(name)) for name in names))
        for _ in range(LISTS):
            start = time.perf_counter()
            if len(await store.find_sessions(SessionFilter(owner=EVERYBODY))) != sessions:
                raise BenchError(f"a list of {sessions:,} sessions is not whole")
            times.append(1000 * (time.perf_counter() - start))
        return times
    finally:
        await store.close()


async def _read(url: str, folder: Path) -> list[float]:
    """Milliseconds of each read."""
    store = await open_store(url, folder)
    try:
        await _fill(store)
        times: list[float] = []
        for _ in range(READS + 1):
            start = time.perf_counter()
            messages = await store.read_conversation(ID, None, HISTORY)
            times.append(1000 * (time.perf_counter() - start))
            if len(messages) != HISTORY:
                raise BenchError(f"{HISTORY} messages were asked for, {len(messages)} came")
        return times[1:]  # the first one warms up
    finally:
        await _empty(store)
        await store.close()


async def _fill(store: SessionStore) -> None:
    await store.create_session(_record(ID))
    for turn in range(1, TURNS + 1):
        await store.append(ID, turn, turn_events(turn, ALONE))


def _record(name: str) -> SessionRecord:
    moment = now()
    return SessionRecord(session_id=name, created_at=moment, updated_at=moment)


async def _empty(store: SessionStore) -> None:
    while await store.delete_session(ID, 1_000) is not None:
        pass
