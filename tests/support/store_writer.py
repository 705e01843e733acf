"""Processes that write to a store or a registry until they are killed, and the checker of what they left.

A writer notes an id in its own file only after the call returned. Afterwards everything is read back:
lost = noted and missing, ghost = there twice or never sent, leak = in another session than it was sent to.
"""

import asyncio
import contextlib
import multiprocessing.process
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from massmem.core.errors import SessionExistsError, StoreError
from massmem.core.records import SessionRecord
from massmem.session.registry import Registry, RegistryEntry
from massmem.store import open_store
from massmem.store.ports import SessionStore
from tests.support.forked import processes
from tests.support.sample_turn import answer, begin
from tests.support.verdict import check

Process = multiprocessing.process.BaseProcess
Writer = Callable[..., None]
StartWriter = Callable[[int, Path], Process]
"""Takes the writer's number and its book."""


class Notes:
    """What one writer was told is stored."""

    def __init__(self, path: Path) -> None:
        self.folder = path.parent
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def add(self, name: str) -> None:
        os.write(self._file, f"{name}\n".encode())


def read_notes(folder: Path) -> list[str]:
    return [line for path in sorted(folder.glob("*.notes")) for line in path.read_text().splitlines()]


def url_of(database: Path | str) -> str:
    """A file is an SQLite store; what is a text is a URL already."""
    return database if isinstance(database, str) else f"sqlite:///{database}"


def append_answers(database: Path | str, notes: Path, session_id: str, name: str, count: int) -> None:
    """Append `count` events with texts NAME-0, NAME-1, ... to the session, made when missing."""
    asyncio.run(_append_answers(url_of(database), Notes(notes), session_id, name, count))


async def _append_answers(url: str, notes: Notes, session_id: str, name: str, count: int) -> None:
    store = await open_store(url, notes.folder / ".massmem")
    moment = datetime.now(UTC)
    with contextlib.suppress(SessionExistsError):
        await store.create_session(SessionRecord(session_id=session_id, created_at=moment, updated_at=moment))
        await store.append(session_id, 1, [begin("ann")])
    for number in range(count):
        text = f"{name}-{number}"
        await store.append(session_id, 1, [answer(0, "ann", text)])
        notes.add(f"{session_id}:{text}")
    await store.close()


def append_patiently(url: str, notes: Path, session_id: str, name: str, until: Path) -> None:
    """As append_answers to a session that is there, on a server that goes away now and then, until `until` exists.

    Whenever an append fails, it looks into the log whether it is there, and appends again only when it is not.
    """
    asyncio.run(_append_patiently(url, Notes(notes), session_id, name, until))


async def _append_patiently(url: str, notes: Notes, session_id: str, name: str, until: Path) -> None:
    store = await open_store(url, notes.folder / ".massmem")
    number = 0
    while not until.exists():
        number += 1
        text = f"{name}-{number}"
        while True:
            try:
                await store.append(session_id, 1, [answer(0, "ann", text)])
                break
            except StoreError as e:
                notes.add("!lost" if "has lost" in e.message else "!")
                if await _is_there(store, session_id, text):
                    break
        notes.add(f"{session_id}:{text}")
    await store.close()


async def _is_there(store: SessionStore, session_id: str, text: str) -> bool:
    while True:
        try:
            return any(getattr(e, "content", "") == text for e in await store.read_turn_events(session_id, 1))
        except StoreError:
            await asyncio.sleep(0.05)


def register(home: Path, notes: Path, name: str, count: int, removing: bool) -> None:
    """Add `count` entries, and remove every second one again when `removing`. Removals are noted with a leading '-'."""
    book, registry = Notes(notes), Registry(home)
    for number in range(count):
        session_id = f"{name}-{number}"
        registry.upsert(RegistryEntry(session_id, datetime.now(UTC).isoformat()))
        book.add(session_id)
        if removing and number % 2:
            registry.remove(session_id)
            book.add(f"-{session_id}")


def start(writer: Writer, *arguments: Any) -> Process:
    process = processes.Process(target=writer, args=arguments, daemon=True)
    process.start()
    return process


def start_patient_writers(url: str, folder: Path, enough: Path) -> list[Process]:
    """Start `append_patiently` four times on the sessions a, b and c, and wait until each has appended something.

    A store cannot be opened while its server is away: whoever kills the server waits until all have opened it.
    """
    books = [folder / f"{number}.notes" for number in range(4)]
    writers = [start(append_patiently, url, book, "aabc"[n], f"w{n}", enough) for n, book in enumerate(books)]
    while not all(book.exists() and book.stat().st_size for book in books):
        assert all(writer.is_alive() for writer in writers)
        time.sleep(0.01)
    return writers


def finish(writers: Iterable[Process], seconds: float = 60) -> list[int | None]:
    """Wait for the writers; returns their exit codes."""
    codes: list[int | None] = []
    for writer in list(writers):
        writer.join(seconds)
        codes.append(writer.exitcode)
        writer.kill()
    return codes


def kill_writers(start_writer: StartWriter, notes: Path, kills: int, longest: float = 0.04, least: int = 1) -> int:
    """Start one writer after the other with a book in the folder `notes`, which is made, and kill each.

    longest, least: as in `kill_at_work`. Returns how many were at work.
    """
    notes.mkdir()
    rng, at_work = random.Random(1), 0
    for number in range(kills):
        book = notes / f"{number:03}.notes"
        at_work += kill_at_work(start_writer(number, book), book, rng, longest, least)
    return at_work


def kill_at_work(writer: Process, notes: Path, rng: random.Random, longest: float = 0.04, least: int = 1) -> bool:
    """SIGKILL, mostly soon after some notes, sometimes while it starts; returns whether it was still at work.

    longest: seconds that it works after its notes. least: how many notes are awaited.
    """
    if rng.random() < 0.8:
        while not notes.exists() or notes.read_bytes().count(b"\n") < least:
            assert writer.is_alive()
            time.sleep(0.002)
    time.sleep(rng.uniform(0, longest))
    assert writer.pid is not None
    os.kill(writer.pid, signal.SIGKILL)
    writer.join(10)
    return writer.exitcode == -signal.SIGKILL


async def read_stored(database: Path | str) -> list[str]:
    """SESSION:TEXT of every answer in the store; checks also that the log and the tables say the same."""
    store = await open_store(url_of(database), Path.home() / ".massmem")
    found: list[str] = []
    for session in await store.list_sessions():
        name = session.session_id
        messages = await store.read_messages(name, limit=1_000_000)
        logged = [e.content for e in await store.read_turn_events(name, 1) if e.type == "answer_submitted"]
        assert [m.content for m in messages if m.kind == "assistant"] == logged
        assert [m.seq for m in messages] == sorted({m.seq for m in messages})
        assert session.message_count == len(messages)
        found += [f"{name}:{text}" for text in logged]
    await store.close()
    return found


def count_faults(acknowledged: Iterable[str], found: Iterable[str], in_flight: int = 0) -> dict[str, int]:
    """Three of the four counts; the fourth, lies, is what `read_stored` and others assert.

    in_flight: how many writes may be there without having been noted (one per kill).
    """
    have, sent = Counter(found), set(acknowledged)
    strays = set(have) - sent
    texts = {name.partition(":")[2]: name for name in sent if ":" in name}
    leaks = {name for name in strays if name.partition(":")[2] in texts}
    twice = sum(count - 1 for count in have.values())
    ghosts = twice + max(0, len(strays - leaks) - in_flight)
    return {"lost": len(sent - set(have)), "ghost": ghosts, "leak": len(leaks)}


async def kill_and_check_writers(database: Path | str, folder: Path, kills: int, *, least: float = 0.5) -> None:
    """Kill one writer after the other in the middle of its work, and check what they left.

    least: what a writer has stored when it is killed, on the average.
    """
    at_work = kill_writers(
        lambda n, book: start(append_answers, database, book, f"s{n % 3}", f"w{n}", 100_000), folder, kills
    )
    acknowledged, found = read_notes(folder), await read_stored(database)
    check(f"{at_work} kills, {len(acknowledged)} acknowledged", count_faults(acknowledged, found, in_flight=at_work))
    assert at_work == kills
    assert len(acknowledged) >= least * kills
