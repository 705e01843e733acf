"""`massmem store`: where sessions are kept."""

import asyncio
import json
import os
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from massmem.cli.progress import Progress, display
from massmem.cli.streams import say, write_out
from massmem.cli.team import load_team, read_dotenv
from massmem.config.models import StoreConfig
from massmem.errors import InputError, StoreError
from massmem.home import massmem_home
from massmem.store import open_configured, open_store
from massmem.store.moving import Moved, Outcome, moved

_SAID: dict[Outcome, str] = {
    "copied": "copied",
    "updated": "brought up to date",
    "there": "there already",
    "newer": "went on in the target and were left alone",
    "different": "have another conversation under the same id in the target and were left alone",
    "changed": "were written to while they were copied",
    "gone": "were deleted meanwhile",
}
_NAMED = 5

app = typer.Typer(no_args_is_help=True, help="Move sessions to another database, or save them from a damaged one.")


@app.callback()
def _group() -> None:  # pyright: ignore[reportUnusedFunction]  - keeps `migrate` a word of its own
    """Where sessions are kept."""


@app.command("migrate")
def migrate_command(
    to: Annotated[str, typer.Option("--to", metavar="URL", help="postgresql://..., redis://..., sqlite:///PATH")],
    source: Annotated[
        str | None, typer.Option("--from", metavar="URL", help="[default: store.url of the team]")
    ] = None,
    config: Annotated[str | None, typer.Option(metavar="FILE", help="The team, as for a question.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> int:
    """Copy all sessions into another store, with their queue of recordings, and verify each by count and hash.

    Nothing is deleted from the source. Interrupted, it goes on when it is run again; sessions that have gone on since
    are brought up to date. A password need not stand on the command line: `$NAME` in a URL is a variable's value, and
    PostgreSQL reads PGPASSWORD and ~/.pgpass.
    """
    home = massmem_home()
    read_dotenv(Path(".env"))
    # What Redis keeps is asked of the team, when there is one.
    settings = StoreConfig() if source and config is None else load_team(config, home).store
    source, to = _expanded(source or settings.url), _expanded(to)
    if source == to:
        raise InputError("both stores are the same", "name another one with --to")
    with display("sessions") as progress:
        found, kind = asyncio.run(_migrate(source, settings.model_copy(update={"url": to}), home, progress))
    if kind == "redis":
        lives = "for ever" if settings.ttl is None else f"{settings.ttl / 3600:,.4g} h"
        say(
            f"Redis keeps a session {lives} after its last use, and its newest {settings.max_messages:,} messages once "
            "it goes on there: store.ttl, store.max_messages"
        )
    return _tell(found, as_json=as_json)


@app.command("recover")
def recover_command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The damaged database; it is left as it is.")],
    to: Annotated[Path, typer.Option("--to", metavar="FOLDER", help="A new folder, one file for each session.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> int:
    """Save what can be read of a damaged SQLite database: the messages of each session, as JSON lines.

    What is damaged is left out and counted. It takes as much room again as the database while it runs.
    """
    from massmem.store.recovery import recover  # SQLAlchemy and pydantic take time to import

    found = recover(file.expanduser().absolute(), to.expanduser().absolute())
    if as_json:
        write_out(json.dumps(asdict(found)) + "\n")
    say(f"{found.messages:,} messages of {found.sessions:,} sessions are in {to}")
    if found.incomplete:
        rest = len(found.incomplete) - _NAMED
        more = f" and {rest:,} more" if rest > 0 else ""
        say(f"{found.lost:,} messages are known to be lost; incomplete: {', '.join(found.incomplete[:_NAMED])}{more}")
    return 0


async def _migrate(source: str, to: StoreConfig, home: Path, progress: Progress) -> tuple[list[Moved], str]:
    """What became of the sessions, and the kind of the target."""
    async with AsyncExitStack() as opened:
        here = await open_store(source, home)
        opened.push_async_callback(here.close)
        there = await open_configured(to, home)
        opened.push_async_callback(there.close)
        names = [session.session_id for session in reversed(await here.list_sessions())]
        found: list[Moved] = []
        async for each in moved(here, there, names):
            found.append(each)
            progress(len(found), len(names))
        return found, there.info.kind


def _expanded(url: str) -> str:
    expanded = os.path.expandvars(url)
    if "$" in expanded:
        raise InputError("a variable in the URL is not set", "set it, or write %24 for a literal $")
    return expanded


def _tell(found: list[Moved], *, as_json: bool) -> int:
    """Tell what became of the sessions. Raises when some need somebody's decision, or another run."""
    counts = Counter(each.outcome for each in found)
    events, messages = sum(each.events for each in found), sum(each.messages for each in found)
    if as_json:
        left = {name: _named(found, name) for name in ("newer", "different", "changed")}
        totals = {"sessions": len(found), "events": events, "messages": messages}
        write_out(json.dumps(totals | {name: counts[name] for name in _SAID} | {"left": left}) + "\n")
    say(f"{len(found):,} sessions with {messages:,} messages, every one verified by count and hash")
    for outcome, words in _SAID.items():
        if counts[outcome]:
            say(f"{counts[outcome]:,} {words}")
    if changed := _named(found, "changed"):
        raise StoreError(f"sessions were in use: {', '.join(changed[:_NAMED])}", "run the same command again")
    if different := _named(found, "different"):
        raise InputError(
            f"sessions differ in the two stores: {', '.join(different[:_NAMED])}",
            "delete those of one of the stores, then run the same command again",
        )
    say("set store.url to the new store when you are ready; the old one is as it was")
    return 0


def _named(found: list[Moved], outcome: str) -> list[str]:
    return [each.session_id for each in found if each.outcome == outcome]
