"""Where sessions live: a store of a million messages, and a history from each store."""

import asyncio
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from shutil import disk_usage
from statistics import median, quantiles

from massmem.core.events import now
from massmem.core.records import SessionRecord
from massmem.store import open_store
from scripts.benches.process import BenchError, environment, run_module, workspace
from scripts.benches.rows import Row, at_most, missing, reported
from scripts.benches.session import COUNCIL, ID, turn_events
from scripts.benches.store_scale import PAGE, PER_SESSION

SESSIONS = 10_000
MOST_LIST_MS, MOST_SEARCH_MS, MOST_RESUME_MS, MOST_MB = 300, 200, 500, 300
HISTORY, MOST_HISTORY_MS = 20, 10
TURNS, READS = 50, 51
ALONE = COUNCIL[:1]
"""Its turns have four messages: more than twenty of the conversation are among the fifty that Redis keeps."""

_BYTES_PER_SESSION = 250_000
"""On the disk, and as much again while it is written."""


def run(sessions: int = SESSIONS) -> list[Row]:
    """sessions: how many the large store has."""
    return [*_measure_large(sessions), *_measure_histories()]


def _measure_large(sessions: int) -> list[Row]:
    what = f"a store of {sessions * PER_SESSION:,} messages"
    with workspace() as folder:
        free = disk_usage(folder).free
        if free < sessions * _BYTES_PER_SESSION:
            return [missing(what, f"{free / 1e9:.1f} GB are free in {folder.parent}")]
        env = environment(folder)
        filled, used = (run_module("store_scale", part, folder, sessions, env=env) for part in ("fill", "use"))
        size = sum(path.stat().st_size for path in folder.iterdir() if path.is_file()) / 1e6
    first, worst = f"the first {used['list_first_ms']:.0f} ms", f"the slowest {used['resume_worst_ms']:.0f} ms"
    middle = f"median {used['search_ms']:.0f} ms; 10 words each"
    return [
        reported("messages in the large store", used["messages"], "", f"{size:,.0f} MB, in {filled['fill_s']:.0f} s"),
        at_most(f"listing a page of {PAGE}, and counting", used["list_ms"], "ms", MOST_LIST_MS, first),
        at_most("searching all texts: p99", used["search_p99_ms"], "ms", MOST_SEARCH_MS, middle),
        at_most("resuming a session: opened, first answer", used["resume_ms"], "ms", MOST_RESUME_MS, worst),
        at_most("memory of the process that did all that", used["rss_mb"], "MB", MOST_MB),
    ]


def _measure_histories() -> list[Row]:
    with workspace() as folder, ExitStack() as running:
        rows = [_measure_history("SQLite", f"sqlite:///{folder / 'massmem.db'}", folder)]
        servers: dict[str, Callable[[], Generator[str]]] = {"PostgreSQL": _start_postgres, "Redis": _start_redis}
        for kind, start in servers.items():
            try:
                url = running.enter_context(contextmanager(start)())
            except (ImportError, BenchError) as e:
                rows.append(missing(f"a history of {HISTORY} messages from {kind}", str(e)))
            else:
                rows.append(_measure_history(kind, url, folder))
        return rows


def _start_postgres() -> Generator[str]:
    # With the tests' packages, which only this needs.
    from tests.support.postgres_server import PostgresServer, find_programs

    if find_programs() is None:
        raise BenchError("there is no PostgreSQL on this machine")
    server = PostgresServer(durable=True)
    try:
        yield server.url(server.new_database())
    finally:
        server.remove()


def _start_redis() -> Generator[str]:
    from tests.support.redis_server import RedisServer, redis_binary

    if not redis_binary():
        raise BenchError("there is no Redis on this machine")
    server = RedisServer("always")
    try:
        yield server.new_url()
    finally:
        server.remove()


def _measure_history(kind: str, url: str, folder: Path) -> Row:
    times = asyncio.run(_read(url, folder))
    slow = f"p95 {quantiles(times, n=20)[-1]:.1f} ms of {READS} reads"
    return at_most(f"a history of {HISTORY} messages from {kind}", median(times), "ms", MOST_HISTORY_MS, slow)


async def _read(url: str, folder: Path) -> list[float]:
    """Milliseconds of each read of one session."""
    store = await open_store(url, folder)
    try:
        moment = now()
        await store.create_session(SessionRecord(session_id=ID, created_at=moment, updated_at=moment))
        for turn in range(1, TURNS + 1):
            await store.append(ID, turn, turn_events(turn, ALONE))
        times: list[float] = []
        for _ in range(READS + 1):
            start = time.perf_counter()
            messages = await store.read_conversation(ID, None, HISTORY)
            times.append(1000 * (time.perf_counter() - start))
            if len(messages) != HISTORY:
                raise BenchError(f"{HISTORY} messages were asked for, {len(messages)} came")
        return times[1:]  # the first one warms up
    finally:
        await store.close()
