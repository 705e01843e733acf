"""One process that fills a store with very many sessions, or uses it as a user does: what it cost, as JSON on stdout.

    python -m scripts.benches.store_scale fill FOLDER SESSIONS
    python -m scripts.benches.store_scale use FOLDER SESSIONS

Each session has 100 messages: twelve turns of a council of three, and one of an agent alone.
"""

import asyncio
import json
import sqlite3
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing, closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

from massmem.core.events import AnswerSubmitted
from massmem.core.records import EVERYBODY, LogEntry, SessionCopy, SessionFilter, SessionRecord, SessionState
from massmem.session.session import Session
from massmem.store import open_store
from massmem.store.ports import SessionStore
from scripts.benches import teams
from scripts.benches.played import QUESTION
from scripts.benches.process import resident
from scripts.benches.texts import make_turn, query, sentences, write_text

PER_SESSION = 100
COUNCIL = ("agent_1", "agent_2", "agent_3")
TURNS = (*[COUNCIL] * 12, COUNCIL[:1])
"""Who answers in each turn of a session; a turn has 2 + 2 messages per agent."""

ORIGINALS = 500
"""Sessions with texts of their own; more would take the bench minutes."""

_COPIED: dict[str, dict[str, str]] = {
    "chat_sessions": {},
    "events": {"payload": "replace(payload, session_id, new_name(session_id))"},
    "chat_messages": {"id": "lower(hex(randomblob(16)))"},
    "turns": {},
    "answers": {},
    "ballots": {},
}
"""What is copied, with what is new in the copies beside the session's id."""

LISTS, SEARCHES, RESUMES = 11, 200, 11
PAGE = 20
"""What `massmem sessions list` and `sessions search` show unless told otherwise."""

_START = datetime(2026, 1, 1, tzinfo=UTC)


def session_id(number: int) -> str:
    return f"session_{_START + timedelta(minutes=number):%Y%m%d_%H%M%S}"


def url(folder: Path) -> str:
    return f"sqlite:///{folder / 'massmem.db'}"


async def fill(folder: Path, count: int) -> dict[str, float]:
    """The first sessions through the store, as `massmem store migrate` writes; the rest are copies of their rows."""
    start = time.perf_counter()
    originals = min(count, ORIGINALS)
    await _fill(folder, originals)
    with closing(sqlite3.connect(folder / "massmem.db", isolation_level=None)) as connection:
        connection.execute("PRAGMA foreign_keys=ON")
        for shift in range(originals, count, originals):
            _copy(connection, shift, min(originals, count - shift))
    return {"fill_s": time.perf_counter() - start}


def _copy(connection: sqlite3.Connection, shift: int, count: int) -> None:
    """Copy the first `count` sessions to the numbers from `shift` on: all columns but ids; triggers index the texts."""
    names = {session_id(number): session_id(number + shift) for number in range(count)}
    connection.create_function("new_name", 1, names.get, deterministic=True)
    connection.execute("BEGIN IMMEDIATE")
    for table, changed in _COPIED.items():
        columns: list[str] = [row[1] for row in connection.execute(f"PRAGMA table_info({table})") if row[1] != "row_id"]
        values = [{"session_id": "new_name(session_id)", **changed}.get(column, column) for column in columns]
        connection.execute(
            f"INSERT INTO {table} ({', '.join(columns)}) SELECT {', '.join(values)} FROM {table} "
            f"WHERE session_id <= ? AND new_name(session_id) IS NOT NULL",
            [session_id(count - 1)],
        )
    connection.execute("COMMIT")


async def _fill(folder: Path, count: int) -> None:
    store, random, pool = await open_store(url(folder), folder), Random(11), sentences()
    for number in range(count):
        created = _START + timedelta(minutes=number)
        title, last = write_text(random, pool, 1)[:80], write_text(random, pool, 1)[:200]
        record = SessionRecord(
            session_id=session_id(number), title=title, last_message=last, message_count=PER_SESSION,
            created_at=created, updated_at=created + timedelta(seconds=len(TURNS)),
        )  # fmt: skip
        entries = _log(record.session_id, created, random, pool)
        await store.import_session(SessionCopy(session=record, state=SessionState()), _one_page(entries))
    await store.close()


async def _one_page(entries: Sequence[LogEntry]) -> AsyncGenerator[Sequence[LogEntry]]:
    yield entries


def _log(name: str, created: datetime, random: Random, pool: Sequence[str]) -> list[LogEntry]:
    entries: list[LogEntry] = []
    for turn, agents in enumerate(TURNS, start=1):
        at = created + timedelta(seconds=turn)
        for event in make_turn(name, turn, agents, random, pool):
            text = event.model_copy(update={"at": at}).model_dump_json()
            entries.append(LogEntry(seq=len(entries) + 1, turn=turn, payload=text))
    return entries


async def use(folder: Path, count: int) -> dict[str, float]:
    """A list, searches and sessions that are gone on with. Milliseconds; MB: the most that this process ever held."""
    random, pool = Random(13), sentences()
    store = await open_store(url(folder), folder)
    costs: dict[str, float] = {"messages": (await store.count_sessions(SessionFilter(owner=EVERYBODY))).messages}
    pages = [await _timed(lambda: _page(store)) for _ in range(LISTS)]
    costs |= {"list_ms": median(pages), "list_first_ms": pages[0]}
    searches: list[float] = []
    for _ in range(SEARCHES):
        asked = query(random, pool)
        searches.append(await _timed(lambda asked=asked: store.search_messages(asked, None, PAGE, owner=EVERYBODY)))
    costs |= {"search_ms": median(searches), "search_p99_ms": sorted(searches)[int(0.99 * SEARCHES)]}
    await store.close()
    names = [session_id(random.randrange(count)) for _ in range(RESUMES)]
    resumes = [await _timed(lambda name=name: _resume(folder, name)) for name in names]
    costs |= {"resume_ms": median(resumes), "resume_worst_ms": max(resumes)}
    return costs | {"rss_mb": resident()["peak_mb"]}


async def _page(store: SessionStore) -> None:
    """What `massmem sessions list` reads."""
    await store.find_sessions(SessionFilter(owner=EVERYBODY), PAGE)
    await store.count_sessions(SessionFilter(owner=EVERYBODY))


async def _resume(folder: Path, name: str) -> None:
    """Open the session and go on until the first answer is there: all that its request needs has been read then."""
    config = teams.config(teams.scripted(len(COUNCIL), folder, latency=0))
    session = await Session.open(config, home=folder, session_id=name)
    try:
        async with aclosing(session.ask(QUESTION)) as events:
            async for event in events:
                if isinstance(event, AnswerSubmitted):
                    break
    finally:
        await session.close()


async def _timed(work: Callable[[], Awaitable[Any]]) -> float:
    """Milliseconds."""
    start = time.perf_counter()
    await work()
    return 1000 * (time.perf_counter() - start)


if __name__ == "__main__":
    what, where, number = sys.argv[1:]
    print(json.dumps(asyncio.run((fill if what == "fill" else use)(Path(where), int(number)))))
