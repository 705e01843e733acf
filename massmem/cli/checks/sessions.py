"""Where sessions live: the store and the list of them."""

import asyncio
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from massmem.cli.checks.finding import Finding, Situation, failed, ok, skipped, without_config
from massmem.records import SessionFilter
from massmem.registry import Registry, RegistryDamaged, sessions_in, without_password
from massmem.render.figures import plural
from massmem.render.printable import one_line
from massmem.store import open_configured

_SOUND = "ok"


async def check_store(situation: Situation) -> Sequence[Finding]:
    """It opens, its schema is the newest, its file is sound, and what is to be recorded gets recorded."""
    if situation.config is None:
        return without_config()
    url = situation.config.store.url
    shown = without_password(url)
    if url.startswith("sqlite:"):
        return await _sqlite(situation, url)
    if situation.offline:
        return [skipped(f"{shown}: not tried (--offline)")]
    return await _counted(situation, shown)


async def _sqlite(situation: Situation, url: str) -> Sequence[Finding]:
    from massmem.store.schema import REVISIONS
    from massmem.store.sqlite import path_of
    from massmem.store.sqlite_file import revision

    path = path_of(url)
    if not path.exists():
        return [ok(f"{path}: made with the first question")]
    found = await asyncio.to_thread(revision, path)
    if found is not None and found not in REVISIONS:
        return [failed(f"{path} was written by a newer massmem (schema {found})", "update massmem")]
    said = await asyncio.to_thread(_integrity, path)
    if said != [_SOUND]:
        fix = f"save what can be read with: massmem store recover '{path}' --to FOLDER"
        return [failed(f"{path} is damaged", fix, *said)]
    if found != REVISIONS[-1]:
        # Opening it would bring it up to date, and that is for a command that was asked to do something.
        return [ok(f"{path}: sound; the next question brings its schema from {found} to {REVISIONS[-1]}")]
    return await _counted(situation, f"{path}, schema {found}, sound")


def _integrity(path: Path) -> list[str]:
    """What SQLite finds, its first ten complaints, or `ok` alone."""
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
            rows = connection.execute("PRAGMA quick_check(10)").fetchall()
            lost = connection.execute("PRAGMA foreign_key_check").fetchmany(10)
    except sqlite3.Error as e:
        return [str(e)]
    said = [str(text) for (text,) in rows]
    return [*said, *(f"a row of {row[0]} belongs to nothing" for row in lost)]


async def _counted(situation: Situation, shown: str) -> Sequence[Finding]:
    assert situation.config is not None  # told by check_store
    store = await open_configured(situation.config.store, situation.home)
    try:
        counts = await store.session_counts(SessionFilter())
        queue = await store.recording_counts()
        details = [*filter(None, (store.info.always, *store.info.once))]
    finally:
        await store.close()
    found = ok(f"{shown}: {plural(counts.sessions, 'session')}, {plural(counts.messages, 'message')}", *details)
    text = f"to be remembered: {queue.pending:,} wait, {queue.done:,} done, {queue.failed:,} failed"
    if queue.failed:
        reason = one_line(queue.reason or "no reason is known")
        return [found, failed(text, "mend what is said above, then: massmem memory record", reason)]
    return [found, ok(text)]


async def check_registry(situation: Situation) -> Sequence[Finding]:
    """The list can be read, and it names what the store has."""
    registry = Registry(situation.home)
    if not registry.path.exists():
        return [ok(f"{registry.path}: made with the first question")]
    try:
        listed = await asyncio.to_thread(registry.entries)
    except RegistryDamaged as e:
        return [failed(e.message, "massmem --list-sessions makes it again from the store", e.hint)]
    database = situation.home / "massmem.db"
    missing = {entry.session_id for entry in await asyncio.to_thread(sessions_in, database)}
    missing -= {entry.session_id for entry in listed}
    more = f"{plural(len(missing), 'session')} of {database} not in it: made over HTTP, or by a program of yours"
    return [ok(f"{registry.path}: {plural(len(listed), 'session')}", *([more] if missing else []))]
