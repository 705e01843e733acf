"""`massmem store`: back sessions up, move them to another database, recover them from a damaged one.

`massmem import`: conversations of other programs become sessions.
"""

import asyncio
import glob
import json
import os
import re
import shlex
import shutil
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack, closing
from dataclasses import asdict, replace
from functools import partial
from hashlib import file_digest
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated
from zipfile import ZIP_DEFLATED, ZipFile

import typer

from massmem.cli.options import AsJson, Config, IsGlobal, ProjectName, read_project
from massmem.cli.setup import Setup, load_setup, load_team, read_environment
from massmem.cli.streams import Progress, notify, show_progress, write_json
from massmem.config.addresses import clean_store_url
from massmem.config.calibrations import calibrations_folder, read_calibration, store_calibration
from massmem.config.home import expand_home, explain_write_error, massmem_home, open_private, sync_to_disk, write_once
from massmem.config.models import StoreConfig
from massmem.core.errors import InputError, StoreError
from massmem.core.events import now
from massmem.core.records import EVERYBODY, SessionCounts, SessionFilter
from massmem.core.redact import redact
from massmem.render.text import pluralize
from massmem.session.imports import ImportResult, hold_import, import_conversation
from massmem.session.imports.files import Export, describe_left_out, list_exports, read_export
from massmem.session.lease import ProcessLock
from massmem.session.registry import register_sessions
from massmem.store import open_configured, open_store
from massmem.store.move import MoveResult, Outcome, move_sessions
from massmem.tools.documents import DAMAGE

_OUTCOMES: dict[Outcome, str] = {
    "copied": "copied",
    "updated": "updated",
    "there": "already there",
    "newer": "skipped: the conversation continued in the target",
    "different": "skipped: the target has another conversation under the same id",
    "changed": "skipped: written to while they were copied",
    "gone": "skipped: deleted meanwhile",
}
_MAX_NAMES = 5

app = typer.Typer(
    no_args_is_help=True,
    help="Back sessions up, move them to another database, or recover them from a damaged one.",
)


@app.command("migrate")
def migrate_command(
    to: Annotated[str, typer.Option("--to", metavar="URL", help="postgresql://..., redis://..., sqlite:///PATH")],
    source: Annotated[
        str | None, typer.Option("--from", metavar="URL", help="[default: store.url of the team]")
    ] = None,
    config: Config = None,
    as_json: AsJson = False,
) -> int:
    """Copy all sessions to another store, and verify each.

    Each session is copied with its recording queue, and verified by count and hash. The source keeps everything. Run it
    again to continue after an interruption, and to update sessions that have changed. A password need not stand on the
    command line: `$NAME` in a URL is the value of a variable, and PostgreSQL reads PGPASSWORD and ~/.pgpass.
    """
    home = massmem_home()
    read_environment()
    # The team's settings say what Redis keeps, also when both stores are named here.
    settings = StoreConfig() if source and config is None else load_team(config, home).store
    source, to = _expand_variables(source or settings.url), _expand_variables(to)
    if source == to:
        raise InputError("both stores are the same", "name another one with --to")
    with show_progress("sessions") as progress:
        target = settings.model_copy(update={"url": to})
        results, kind = asyncio.run(_migrate(source, target, home, progress))
    if kind == "redis":
        lifetime = "for ever" if settings.ttl is None else f"{settings.ttl / 3600:,.4g} h"
        notify(
            f"Redis keeps a session {lifetime} after its last use, and its newest {settings.max_messages:,} messages "
            "once it continues there: store.ttl, store.max_messages"
        )
    advice = "set store.url to the new store when you are ready; the old one is unchanged"
    return _report_migration(results, as_json=as_json, advice=advice)


@app.command("recover")
def recover_command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The damaged database; it is not changed.")],
    to: Annotated[Path, typer.Option("--to", metavar="FOLDER", help="A new folder, for a new store.")],
    as_json: AsJson = False,
) -> int:
    """Save what can be read of a damaged SQLite database.

    It becomes a new store, to restore. Damaged messages are skipped and counted. While it runs it needs as much disk
    space as the database three times.
    """
    from massmem.store.recover import recover  # imports SQLAlchemy

    file = expand_home(file).absolute()
    result = asyncio.run(recover(file, expand_home(to).absolute()))
    if as_json:
        write_json(asdict(result))
    notify(f"{result.messages:,} messages of {result.sessions:,} sessions are in {to}")
    if result.incomplete:
        notify(f"{result.lost:,} messages are known to be lost; incomplete: {_list_names(result.incomplete)}")
    # The write-ahead log must go along: SQLite would add it to the new database.
    damaged = [str(path) for path in (file, *file.parent.glob(f"{glob.escape(file.name)}-*"))]
    notify(
        "to continue with them, move the damaged files away and restore the new store:\n"
        f"  mkdir {shlex.quote(f'{file}.damaged')} && mv {shlex.join([*damaged, f'{file}.damaged'])}\n"
        f"  massmem store restore {shlex.quote(result.store)}"
    )
    return 0


_STORE, _SETTINGS, _MANIFEST, _FORMAT = "massmem.db", "config.yaml", "manifest.json", 1
_CALIBRATION = re.compile(r"[0-9a-f]{16}\.json")
_KEY = re.compile(
    r"""(?i)([\w-]{0,60}(?:api_?key|secret|password|token)["']?\s*:\s*)(?!\$\{|null\b)("[^"]*"|'[^']*'|[^\s,}#]+)"""
)


@app.command("backup")
async def backup_command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The new file.")],
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Write all sessions to one file, for `store restore`.

    Other processes may go on meanwhile. It has all that sessions hold, what was forgotten as such, and of the home
    calibrations and config.yaml, without keys. The memory index is made again from the sessions.
    """
    path, setup = expand_home(file).absolute(), load_setup(config)
    with hold_import(setup.home, f"backup {path}".encode(), "written"):
        if path.exists():
            raise InputError(f"{path} exists already", "name a new file")
        counts = await _back_up(setup, path)
    if as_json:
        write_json({"file": str(path), "sessions": counts.sessions, "messages": counts.messages})
    notify(f"{path} was written and read back: {pluralize(counts.sessions, 'session')}, {counts.messages:,} messages")


async def _back_up(setup: Setup, path: Path) -> SessionCounts:
    """Write an archive; return what it has. Raises StoreError, HomeError."""
    draft = path.with_name(f".{path.name}.draft")
    shutil.rmtree(draft, ignore_errors=True)  # of a process that was killed
    try:
        draft.mkdir(mode=0o700)
        (draft / "copy").mkdir()
        await _copy_store(setup, draft / _STORE)
        await asyncio.to_thread(_pack, draft, setup.home)
        await asyncio.to_thread(_unpack, draft / "archive", draft / "copy")
        copy = setup.config.model_copy(update={"store": StoreConfig(url=f"sqlite:///{draft / 'copy' / _STORE}")})
        async with replace(setup, config=copy).open_store() as written:
            counts = await written.count_sessions(SessionFilter(owner=EVERYBODY))
        (draft / "archive").rename(path)
        sync_to_disk(path.parent)
        return counts
    except OSError as e:
        raise explain_write_error(path, e) from e
    finally:
        shutil.rmtree(draft, ignore_errors=True)


async def _copy_store(setup: Setup, path: Path) -> None:
    """Raises StoreError: the store, or its copy, is damaged."""
    from massmem.store.sqlite import back_up, check_integrity, parse_path

    url, target = setup.config.store.url, StoreConfig(url=f"sqlite:///{path}")
    async with setup.open_store() as store:
        if store.info.kind == "sqlite":
            await asyncio.to_thread(back_up, parse_path(url), path)
        else:
            with show_progress("sessions") as progress:
                await _migrate(url, target, path.parent, progress)
    if (problems := await asyncio.to_thread(check_integrity, path)) != ["ok"]:
        raise StoreError(f"the store is damaged: {problems[0]}", "massmem doctor says what to do")


def _pack(folder: Path, home: Path) -> None:
    """Make the file `archive` of the store in the folder, and of settings and calibrations of home. Raises OSError."""
    if (settings := home / _SETTINGS).is_file():
        (folder / _SETTINGS).write_text(redact(_KEY.sub(r"\1null", settings.read_text("utf-8-sig"))), "utf-8")
    hashes = dict[str, str]()
    paths = [path for path in (folder / _STORE, folder / _SETTINGS) if path.exists()]
    with open_private(folder / "archive", "wb") as file, ZipFile(file, "w", ZIP_DEFLATED) as target:
        for path in (*paths, *calibrations_folder(home).glob("*.json")):
            target.write(path, path.name)
            with path.open("rb") as stored:
                hashes[path.name] = file_digest(stored, "sha256").hexdigest()
        target.writestr(_MANIFEST, json.dumps({"format": _FORMAT, "at": now().isoformat(), "sha256": hashes}))
    sync_to_disk(folder / "archive")


def _unpack(archive: Path, folder: Path) -> None:
    """Write the files of an archive to a folder. Raises InputError: it is no archive, not whole, or was changed."""
    try:
        with ZipFile(archive) as source:
            hashes = json.loads(source.read(_MANIFEST))["sha256"]
            names = {name for name in hashes if not _CALIBRATION.fullmatch(name)}
            if {*source.namelist()} != {_MANIFEST, *hashes} or not {_STORE} <= names <= {_STORE, _SETTINGS}:
                raise ValueError("files are missing, or were added")
            for name, digest in hashes.items():
                with Path(source.extract(name, folder)).open("rb") as file:
                    if file_digest(file, "sha256").hexdigest() != digest:
                        raise ValueError(f"{name} was changed")
    except (*DAMAGE, RuntimeError, LookupError, TypeError) as e:  # also of a manifest that is not ours
        raise InputError(f"{archive} is no whole backup of massmem: {e}", "nothing was changed; use another one") from e


@app.command("import", hidden=True)
@app.command("restore")
def restore_command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What `store backup` or `store recover` wrote.")],
    config: Config = None,
    as_json: AsJson = False,
) -> int:
    """Copy the sessions of a backup into the team's store.

    Those of an SQLite store as well. What is missing there is added, each session verified by count and hash; one that
    went on there stays as it is. The file is checked first, and not changed.
    """
    home, path = massmem_home(), expand_home(file).absolute()
    if not path.is_file():
        raise InputError(f"{path} is not a file", "name the backup, as in: massmem store restore massmem.zip")
    read_environment()
    settings, own = load_team(config, home).store, home / _SETTINGS
    with TemporaryDirectory(prefix="massmem-restore-") as folder, show_progress("sessions") as progress:
        with path.open("rb") as source:
            is_store = source.read(6) == b"SQLite"
        if not is_store:
            _unpack(path, Path(folder))
        store = path if is_store else Path(folder, _STORE)
        results, _ = asyncio.run(_migrate(f"sqlite:///{store}", settings, home, progress))
        for calibration in Path(folder).glob("*.json"):
            if not (calibrations_folder(home) / calibration.name).exists():
                store_calibration(home, read_calibration(calibration))
        if (restored := Path(folder, _SETTINGS)).is_file() and not own.exists():
            write_once(own, restored.read_text("utf-8"))
            notify(f"{own} is the one of the backup, in which keys are missing")
    return _report_migration(results, as_json=as_json, advice="massmem --continue goes on with the newest session")


async def _migrate(source: str, to: StoreConfig, home: Path, progress: Progress) -> tuple[list[MoveResult], str]:
    """Copy the sessions, the oldest first; return the result of each, and the kind of the target."""
    async with AsyncExitStack() as stack:
        source_store = await open_store(source, home)
        stack.push_async_callback(source_store.close)
        target_store = await open_configured(to, home)
        stack.push_async_callback(target_store.close)
        session_ids = [session.session_id for session in reversed(await source_store.list_sessions())]
        results: list[MoveResult] = []
        async for result in move_sessions(source_store, target_store, session_ids):
            results.append(result)
            progress(len(results), len(session_ids))
        if await source_store.list_keys():  # copied again later, they would undo what was revoked meanwhile
            notify("API keys are not copied: create new ones at the new store: massmem key create")
        return results, target_store.info.kind


def _expand_variables(url: str) -> str:
    expanded = os.path.expandvars(url)
    if "$" in expanded:
        raise InputError("a variable in the URL is not set", "set it, or write %24 for a literal $")
    return clean_store_url(expanded)


def _report_migration(results: Sequence[MoveResult], *, as_json: bool, advice: str) -> int:
    """Report the outcomes. advice: what to do next.

    Raises:
        StoreError: some sessions were in use; another run copies them.
        InputError: some sessions differ in the two stores; the user has to choose.
    """
    counts = Counter(result.outcome for result in results)
    messages = sum(result.messages for result in results)
    if as_json:
        skipped = {outcome: _select_ids(results, outcome) for outcome in ("newer", "different", "changed")}
        totals = {"sessions": len(results), "events": sum(result.events for result in results), "messages": messages}
        write_json(totals | {outcome: counts[outcome] for outcome in _OUTCOMES} | {"left": skipped})
    notify(f"{pluralize(len(results), 'session')} with {pluralize(messages, 'message')}, verified by count and hash")
    for outcome, text in _OUTCOMES.items():
        if counts[outcome]:
            notify(f"{counts[outcome]:,} {text}")
    if changed := _select_ids(results, "changed"):
        raise StoreError(f"sessions were in use: {_list_names(changed)}", "run the same command again")
    if different := _select_ids(results, "different"):
        raise InputError(
            f"sessions differ in the two stores: {_list_names(different)}",
            "delete them in one of the stores, then run the same command again",
        )
    notify(advice)
    return 0


def _select_ids(results: Sequence[MoveResult], outcome: str) -> list[str]:
    return [result.session_id for result in results if result.outcome == outcome]


def _list_names(names: Sequence[str]) -> str:
    rest = len(names) - _MAX_NAMES
    return ", ".join(names[:_MAX_NAMES]) + (f" and {rest:,} more" if rest > 0 else "")


import_app = typer.Typer()


def _read_one_of(files: Sequence[Path], path: Path) -> Export:
    """Return what a file holds. One of several that cannot be read is left out. Raises as `read_export`."""
    try:
        return read_export(path)
    except InputError as e:
        if len(files) == 1:
            raise
        return Export(left_out=Counter({f"{path.name}: {e.message}": 1}))


def _add_progress(progress: Progress, done: int, total: int | None, turns: int) -> bool:
    progress(done + turns, total)
    return True


@import_app.command("import")
async def import_conversations_command(
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="An export, as a file, as the ZIP archive that it came in, or a folder."),
    ],
    facts: Annotated[
        bool, typer.Option("--facts", help="Let the team's extractor read every turn, which costs a request each.")
    ] = False,
    project: ProjectName = None,
    is_global: IsGlobal = False,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Make sessions of the conversations that another program exports.

    ChatGPT, Claude, DeepSeek, Gemini, Grok, Open WebUI, LibreChat, LM Studio, Claude Code, Codex, massmem (sessions
    export --format json), lists of messages in JSON or JSON lines, and MassGen (.massgen/sessions, or a session in it).
    They are recalled like your own: those of Claude Code and Codex in the project of their folder, others everywhere.
    Run it again with a newer export: sessions are brought up to date, except where something was added to them here.
    Stop it with Ctrl-C: what was stored stays, and the same command goes on.
    What cannot be read is counted and named, and the exit code is 0 as long as something was read.
    """
    files = list_exports(expand_home(file))
    setup, name = load_setup(config), read_project(project, is_global=is_global)
    results, left_out, done = list[ImportResult](), Counter[str](), 0
    with hold_import(setup.home, str(file.absolute()).encode()), show_progress("turns") as progress:
        async with setup.open_memories() as memories:
            store = memories.store
            named = None if name is None else (await memories.of_project(name)).project
            with closing(ProcessLock(setup.home)) as process:
                for path in files:
                    export = _read_one_of(files, path)
                    left_out.update(export.left_out)
                    total = done + sum(len(one.turns) for one in export.conversations) if len(files) == 1 else None
                    for conversation in export.conversations:
                        if named is not None:
                            conversation = replace(conversation, folder=named)
                        show = partial(_add_progress, progress, done, total)
                        results.append(await import_conversation(memories, process, conversation, show, facts=facts))
                        progress(done := done + len(conversation.turns), total)
            # Once for all: the whole file is written. Also those without news: the last run may have been killed here.
            sessions = [await store.get_session(result.session_id) for result in results]
            await register_sessions(setup.home, setup.config.store.url, list(filter(None, sessions)))
    if as_json:
        write_json([asdict(result) for result in results])
    new, replaced = (sum(getattr(result, name) for result in results) for name in ("added", "replaced"))
    notify(
        f"{pluralize(len(results), 'conversation')} read, {pluralize(new, 'turn')} added"
        + (f", {replaced:,} of an older export removed" if replaced else "")
    )
    if left_out:
        notify(f"left out: {describe_left_out(left_out)}")
    for result in results:
        if result.conflict:
            notify(f"{result.session_id} ({result.title}) has gone on in another way here, and was left as it is")
        if result.busy:
            notify(f"{result.session_id} ({result.title}) is in use: import the file again when its turn has ended")
