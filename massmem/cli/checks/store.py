"""Checks of the store and of the registry."""

import asyncio
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from massmem.cli.checks import CheckResult, DoctorContext, fail, ok, skip, skip_without_config
from massmem.config.models import TeamConfig
from massmem.core.errors import StoreError
from massmem.core.records import SessionFilter
from massmem.core.text import one_line
from massmem.render.text import pluralize
from massmem.session.registry import Registry, RegistryDamaged, read_sessions, without_password
from massmem.store import open_configured

_SOUND = ["ok"]


async def check_store(context: DoctorContext) -> Sequence[CheckResult]:
    """Check that the store opens, its schema is current, its file is sound, and its recording queue has no failures."""
    if context.config is None:
        return skip_without_config()
    url = context.config.store.url
    if url.startswith("sqlite:"):
        return await _check_sqlite(context.config, context.home)
    if context.offline:
        return [skip(f"{without_password(url)}: not tried (--offline)")]
    return await _check_contents(context.config, context.home, without_password(url))


async def _check_sqlite(config: TeamConfig, home: Path) -> Sequence[CheckResult]:
    from massmem.store.schema import REVISIONS
    from massmem.store.sqlite import parse_path, quote_recovery_paths, read_revision

    path = parse_path(config.store.url)
    if not path.exists():
        return [ok(f"{path}: is created with the first question")]
    current = await asyncio.to_thread(read_revision, path)
    if current is not None and current not in REVISIONS:
        return [fail(f"{path} was written by a newer massmem (schema {current})", "update massmem")]
    messages = await asyncio.to_thread(_check_integrity, path)
    if messages != _SOUND:
        fix = "save what can be read with: massmem store recover {quoted_path} --to {recovered}"
        return [fail(f"{path} is damaged", fix.format(**quote_recovery_paths(path)), *messages)]
    if current != REVISIONS[-1]:
        # Opening the store would update it, and a check must not change anything.
        return [ok(f"{path}: sound; the next question updates its schema from {current} to {REVISIONS[-1]}")]
    return await _check_contents(config, home, f"{path}, schema {current}, sound")


def _check_integrity(path: Path) -> list[str]:
    """Return the first ten problems that SQLite finds, or _SOUND."""
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
            rows = connection.execute("PRAGMA integrity_check(10)").fetchall()
            orphans = connection.execute("PRAGMA foreign_key_check").fetchmany(10)
    except sqlite3.Error as e:
        return [str(e)]
    return [*(str(text) for (text,) in rows), *(f"a row of {row[0]} refers to a missing row" for row in orphans)]


async def _check_contents(config: TeamConfig, home: Path, name: str) -> Sequence[CheckResult]:
    store = await open_configured(config.store, home)
    try:
        counts = await store.count_sessions(SessionFilter())
        queue = await store.count_recordings()
        details = [*filter(None, (store.info.always, *store.info.once))]
    finally:
        await store.close()
    contents = ok(f"{name}: {pluralize(counts.sessions, 'session')}, {pluralize(counts.messages, 'message')}", *details)
    text = f"recording queue: {queue.pending:,} pending, {queue.done:,} done, {queue.failed:,} failed"
    if queue.failed:
        reason = one_line(queue.reason or "unknown reason")
        return [contents, fail(text, "fix the failures above, then: massmem memory record", reason)]
    return [contents, ok(text)]


async def check_registry(context: DoctorContext) -> Sequence[CheckResult]:
    """Check that the registry can be read; report sessions that it lacks."""
    registry = Registry(context.home)
    if not registry.path.exists():
        return [ok(f"{registry.path}: is created with the first question")]
    try:
        entries = await asyncio.to_thread(registry.read_entries)
    except RegistryDamaged as e:
        return [fail(e.message, "massmem --list-sessions rebuilds it from the store", e.hint)]
    database = context.home / "massmem.db"
    try:
        missing = {entry.session_id for entry in await asyncio.to_thread(read_sessions, database)}
    except StoreError:
        return [skip(f"{registry.path}: not compared with {database}, which cannot be read")]
    missing -= {entry.session_id for entry in entries}
    detail = f"{pluralize(len(missing), 'session')} of {database} not in it: created over HTTP or by a program"
    return [ok(f"{registry.path}: {pluralize(len(entries), 'session')}", *([detail] if missing else []))]
