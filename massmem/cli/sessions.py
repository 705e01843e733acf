"""`massmem sessions`: find, read, rename, export and delete conversations."""

import asyncio
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from massmem.cli import session_view as view
from massmem.cli.options import (
    MAX_EVENT,
    MAX_LISTED,
    MAX_TURN,
    AllOwners,
    AsJson,
    Config,
    InSession,
    OwnerName,
    SessionName,
    Yes,
    format_time,
    offer_sessions,
    parse_duration,
    parse_since,
)
from massmem.cli.setup import Setup, load_setup
from massmem.cli.streams import Progress, choose_option, notify, open_output, show_progress, write_json, write_out
from massmem.config.home import expand_home, make_folder
from massmem.core.errors import InputError, SessionBusyError
from massmem.core.events import hide_private_fields, now
from massmem.core.insights import Insights
from massmem.core.records import ListedSession, SessionFilter, SessionRecord, SessionStatus
from massmem.core.text import one_line
from massmem.core.transcript import LoggedTurn
from massmem.export import FORMATS, dump_turn
from massmem.render.text import pluralize
from massmem.session.registry import without_password
from massmem.session.sessions import DeletionResult, SessionHit, list_begun_deletions
from massmem.store.lookup import read_results, read_transcript, read_turn, read_turn_log

app = typer.Typer(no_args_is_help=True, help="Find, read, rename, export and delete conversations.")

_MAX_CHOICES = 20

Since = Annotated[
    str | None, typer.Option(metavar="WHEN", help="Used since then: 24h, 7d, or a day as 2026-11-21.")
]  # fmt: skip


@app.command("list")
async def list_command(
    status: Annotated[
        SessionStatus | None,
        typer.Option(metavar="STATUS", help="Only active, waiting, completed, interrupted, failed or deleting ones."),
    ] = None,
    text: Annotated[str, typer.Option(metavar="TEXT", help="With this in id, title or last message.")] = "",
    since: Since = None,
    limit: Annotated[int, typer.Option(metavar="N", min=0, max=MAX_LISTED, help="Most sessions; 0: all.")] = 20,
    offset: Annotated[int, typer.Option(metavar="N", min=0, max=MAX_LISTED, help="Skip this many.")] = 0,
    owner: OwnerName = None,
    all_owners: AllOwners = False,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """List the sessions, the last used first. AGREE: how far the agents agree on the last answer; !: not sure.

    A narrow terminal has no room for TURNS and AGREE.
    """
    setup = load_setup(config, owner, all_owners=all_owners)
    everything = SessionFilter(owner=setup.owner)
    changes = {"status": status, "text": text, "since": parse_since(since, now())}
    criteria = everything.model_copy(update=changes)
    async with setup.open_sessions() as sessions:
        page = await sessions.list(criteria, limit or None, offset)
    if as_json:
        rows = [sessions.publish(listed).model_dump(mode="json") for listed in page.sessions]
        write_json({"sessions": rows, "total": page.total, "limit": limit, "offset": offset})
        return
    if page.sessions:
        write_out(view.format_table(page.sessions), styled=True)
    else:
        notify("no session matches" if page.total or criteria != everything else "there is no session yet")
    if (rest := page.total - len(page.sessions) - offset) > 0:
        notify(f"{rest:,} more; list all with --limit 0, or filter with --text, --status and --since")
    marked = [listed.session.session_id for listed in page.sessions if listed.session.status == "deleting"]
    for session_id in sorted({*marked, *list_begun_deletions(setup.home)}):
        notify(f"the deletion of {session_id} has not finished; to finish it: massmem sessions delete {session_id}")


@app.command("show")
async def show_command(
    name: SessionName,
    detailed: Annotated[bool, typer.Option("--all", help="With rounds, votes and reasoning.")] = False,
    turn: Annotated[int | None, typer.Option(metavar="N", min=1, max=MAX_TURN, help="This turn only.")] = None,
    owner: OwnerName = None,
    config: Config = None,
    report: Annotated[bool, typer.Option("--report", help="With who says what, and what is disputed.")] = False,
    events: Annotated[bool, typer.Option("--events", help="The events of the turn, with their numbers.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show a conversation, and how the council decided."""
    if events and turn is None:
        raise InputError("--events shows those of one turn", "name it: --turn N")
    setup = load_setup(config, owner)
    async with setup.open_sessions() as sessions:
        session = await sessions.find(name)
        if events and turn is not None:
            log = await read_turn_log(sessions.store, session.session_id, turn)
            shown = [(number, hide_private_fields(event)) for number, event in log]
            if as_json:
                write_json([{"seq": number, **event.model_dump(mode="json")} for number, event in shown])
            else:
                write_out(view.format_events(shown), styled=True)
            return
        if turn is None:
            turns = read_transcript(sessions.store, session)
        else:
            turns = _list_one(await read_turn(sessions.store, session, turn))
        async with aclosing(turns):
            if as_json:
                about = (await sessions.describe(session)).model_dump(mode="json")
                write_json(about | {"turns": [dump_turn(t) async for t in turns]})
                return
            write_out(view.format_heading(session), styled=True)
            async for logged in turns:
                write_out(view.format_turn(logged, detailed=detailed, makes_report=report), styled=True)


async def _list_one(turn: LoggedTurn) -> AsyncGenerator[LoggedTurn]:
    yield turn


@app.command("search")
async def search_command(
    query: Annotated[str, typer.Argument(metavar="WORDS", help="Words to look for.")],
    session_id: InSession = None,
    limit: Annotated[int, typer.Option(metavar="N", min=1, max=1000, help="Most messages.")] = 20,
    owner: OwnerName = None,
    all_owners: AllOwners = False,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Find messages by their words, best first."""
    setup = load_setup(config, owner, all_owners=all_owners)
    async with setup.open_sessions() as sessions:
        within = None if session_id is None else await sessions.find(session_id)
        hits = await sessions.search(query, limit, within)
    if as_json:
        write_json({"query": query, "messages": [_hit_to_dict(hit) for hit in hits]})
    elif hits:
        write_out(view.format_hits(hits, query), styled=True)
    else:
        notify("no message has any of these words")


@app.command("rename")
async def rename_command(
    name: SessionName,
    title: Annotated[str, typer.Argument(metavar="NAME", help="Up to 80 characters, not used by another session.")],
    owner: OwnerName = None,
    config: Config = None,
) -> None:
    """Give a session a name.

    --session-id and these commands accept it like the id.
    """
    async with load_setup(config, owner).open_sessions() as sessions:
        session = await sessions.rename(await sessions.find(name), title)
    notify(f'{session.session_id} is now called "{session.title}"')


@app.command("fork")
async def fork_command(
    name: SessionName,
    turn: Annotated[
        int | None,
        typer.Option("--turn", min=1, max=MAX_TURN, metavar="N", help="Its last turn.", show_default="the last"),
    ] = None,
    event: Annotated[
        int | None,
        typer.Option("--event", min=1, max=MAX_EVENT, metavar="K", help="Its last event, by number."),
    ] = None,
    owner: OwnerName = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Begin a new session with a copy of another one.

    The new session has its own id, which is printed. The other one stays as it is. Events are numbered over the whole
    session: sessions show SESSION --turn N --events. A turn that had not ended at event K is unfinished in the new
    session, and goes on from there.
    """
    if turn is not None and event is not None:
        raise InputError("--turn and --event name two ends of the copy", "name one of them")
    async with load_setup(config, owner).open_sessions() as sessions:
        session = await sessions.fork(await sessions.find(name), turn, event)
        if as_json:
            write_json((await sessions.describe(session)).model_dump(mode="json"))
            return
    write_out(f"{session.session_id}\n")
    is_over = event is None or session.status == "completed"
    go_on = (
        'go on with it: massmem --session-id {} "your question"'
        if is_over
        else "finish its turn: massmem --session-id {}"
    )
    notify(go_on.format(session.session_id))


@app.command("version")
async def version_command(
    name: SessionName,
    turn: Annotated[int, typer.Argument(min=1, max=MAX_TURN, metavar="TURN", help="The version, by its number.")],
    owner: OwnerName = None,
    config: Config = None,
) -> None:
    """Go to another version of a turn, and what followed it.

    Asking again, or in other words, makes a version; the other ones stay in the log. sessions show lists all of them.
    """
    async with load_setup(config, owner).open_sessions() as sessions:
        last = await sessions.choose_version(await sessions.find(name), turn)
    notify(f"turn {turn} is part of the conversation, which ends with turn {last} now")


@app.command("delete")
def delete_command(
    names: Annotated[
        list[str],
        typer.Argument(metavar="SESSION", help="Ids, starts of ids, or names.", autocompletion=offer_sessions),
    ],
    yes: Yes = False,
    owner: OwnerName = None,
    config: Config = None,
    as_json: AsJson = False,
) -> int:
    """Delete sessions for good, with all memories.

    Log, memories, queue, registry entry, locks and debug files are erased from the disk. Debug files are found in this
    folder and your home folder only.
    """
    _require_confirmation(yes)
    setup = load_setup(config, owner)
    sessions = asyncio.run(_find_deletable(setup, names))
    if sessions and not (yes or _confirm_deletion(sessions)):
        return 0
    return _delete(setup, sessions, as_json=as_json)


@app.command("cleanup")
def cleanup_command(
    older_than: Annotated[str, typer.Option(metavar="AGE", help="Not used for this long: 24h, 30d, 8w.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be deleted.")] = False,
    yes: Yes = False,
    owner: OwnerName = None,
    all_owners: AllOwners = False,
    config: Config = None,
    as_json: AsJson = False,
) -> int:
    """Delete sessions that were not used for a while.

    massmem never deletes sessions by itself.
    """
    age = parse_duration(older_than)
    if not dry_run:
        _require_confirmation(yes)
    setup = load_setup(config, owner, all_owners=all_owners)
    unused = asyncio.run(_list(setup, SessionFilter(before=now() - age, owner=setup.owner)))
    sessions = [listed.session for listed in unused]
    if dry_run or not unused:
        if as_json:
            write_json({"would_delete" if dry_run else "sessions": [session.session_id for session in sessions]})
        elif unused:
            write_out(view.format_table(unused), styled=True)
        notify(f"{pluralize(len(unused), 'session')} not used for {older_than}; nothing was deleted")
        return 0
    if not (yes or _confirm_deletion(sessions)):
        return 0
    return _delete(setup, sessions, as_json=as_json)


async def _find_deletable(setup: Setup, names: Sequence[str]) -> list[SessionRecord]:
    """Return the named sessions, without those of which a deletion was cut off: the next one finishes that anyway."""
    async with setup.open_sessions() as sessions:
        unfinished = {session.session_id for session in await sessions.list_deleting()}
        unfinished |= {name for name in list_begun_deletions(setup.home) if not await sessions.store.get_session(name)}
        chosen = [await sessions.find(name) for name in names if name not in unfinished]
        return list({session.session_id: session for session in chosen}.values())


async def _list(setup: Setup, criteria: SessionFilter, limit: int | None = None) -> list[ListedSession]:
    async with setup.open_sessions() as sessions:
        return (await sessions.list(criteria, limit)).sessions


def _require_confirmation(yes: bool) -> None:
    if not yes and not sys.stdin.isatty():
        raise InputError("deletion cannot be undone, and there is no terminal to confirm it", "add --yes")


def _confirm_deletion(sessions: Sequence[SessionRecord]) -> bool:
    for session in sessions:
        title = f'"{one_line(session.display_title, 60)}", ' if session.title else ""
        messages = pluralize(session.message_count, "message")
        notify(f"{session.session_id}: {title}{messages}, last used {format_time(session.updated_at)}")
    target = "this session" if len(sessions) == 1 else f"these {len(sessions):,} sessions"
    if typer.confirm(f"Delete {target} for good, with all memories?", err=True):
        return True
    notify("nothing was deleted")
    return False


def _delete(setup: Setup, sessions: list[SessionRecord], *, as_json: bool) -> int:
    """Delete the sessions and report it. Returns exit code 3 when a session is in use."""
    with show_progress("deleting") as progress:
        result = asyncio.run(_delete_everywhere(setup, sessions, progress))
    if as_json:
        counts = {"messages": result.messages, "memories": result.memories, "erased": result.erased}
        write_json({"deleted": list(result.sessions), "busy": list(result.busy), **counts})
    elif result.sessions:
        messages = pluralize(result.messages, "message")
        notify(f"deleted {pluralize(len(result.sessions), 'session')}: {messages}, {result.memories:,} memories")
    for session_id in result.busy:
        notify(f"{session_id} was not deleted: a process runs a turn of it; stop it, or wait until it ends")
    if not result.erased:
        notify("parts of it may remain in the free space of the database, which is very large or read by a process")
    return SessionBusyError.exit_code if result.busy else 0


async def _delete_everywhere(setup: Setup, chosen: Sequence[SessionRecord], progress: Progress) -> DeletionResult:
    async with setup.open_sessions() as sessions:
        return await sessions.delete([*chosen, *await sessions.list_deleting()], progress)


@app.command("export")
async def export_command(
    name: SessionName,
    format_: Annotated[
        Literal["json", "markdown", "text", "html"] | None,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="json, markdown, text or html. [default: by the name of the file, else json]",
        ),
    ] = None,
    to: Annotated[Path | None, typer.Option(metavar="FILE", help="Write to this file. [default: stdout]")] = None,
    detailed: Annotated[bool, typer.Option("--all", help="With rounds and reasoning; json always has them.")] = False,
    owner: OwnerName = None,
    config: Config = None,
) -> None:
    """Write a conversation to a file, without secrets.

    It has names and votes, as json, markdown, text or html.
    """
    session = await export_session(load_setup(config, owner), name, format_, to, detailed=detailed)
    if to:
        notify(f"{session.session_id} was written to {to}")


export_app = typer.Typer()


@export_app.command("export")
async def export_all_command(
    everything: Annotated[bool, typer.Option("--all", help="All your conversations.")] = False,
    to: Annotated[Path, typer.Option(metavar="FOLDER", help="An empty or a new folder.")] = Path("massmem-export"),
    owner: OwnerName = None,
    config: Config = None,
) -> None:
    """Write all conversations to a folder, a JSON file each, without secrets.

    `massmem import FOLDER` makes the same sessions of them elsewhere: messages, votes, what was forgotten, corrected
    and pinned. One conversation: massmem sessions export.
    """
    if not everything:
        raise InputError("nothing was named", "massmem export --all; one conversation: massmem sessions export SESSION")
    folder = expand_home(to)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{to} is there already", "name a new folder: --to FOLDER")
    make_folder(folder)
    number = 0
    async with load_setup(config, owner).open_sessions() as sessions:
        page = await sessions.list(SessionFilter(owner=sessions.owner))
        own = [listed.session for listed in page.sessions if listed.session.status != "deleting"]
        with show_progress("conversations") as progress:
            for number, session in enumerate(own, 1):
                with open_output(folder / f"{session.session_id}.json") as write:
                    async with aclosing(sessions.export(session, FORMATS["json"], detailed=True)) as pieces:
                        async for piece, _ in pieces:
                            write(piece)
                progress(number, len(own))
    notify(f"{pluralize(number, 'conversation')} written to {to}: massmem import {to}")


@app.command("insights")
async def insights_command(
    name: Annotated[
        str | None,
        typer.Argument(metavar="SESSION", help="This session. [default: all]", autocompletion=offer_sessions),
    ] = None,
    since: Since = None,
    owner: OwnerName = None,
    all_owners: AllOwners = False,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Show topics, wins, response times and costs."""
    setup = load_setup(config, owner, all_owners=all_owners)
    criteria = SessionFilter(owner=setup.owner, since=parse_since(since, now()))
    insights, done = Insights(), 0
    async with setup.open_sessions() as sessions:
        if name is not None:
            chosen = [await sessions.find(name)]
        else:
            chosen = [listed.session for listed in (await sessions.list(criteria)).sessions]
        total = sum(session.message_count for session in chosen)
        with show_progress("reading") as progress:
            for session in chosen:
                insights.add_session(session)
                async with aclosing(read_results(sessions.store, session)) as results:
                    async for result in results:
                        insights.add_turn(result)
                done += session.message_count
                progress(done, max(done, total))
    one = {"session_id": chosen[0].session_id, "title": chosen[0].title} if name is not None else {}
    figures = one | insights.to_json()
    if as_json:
        write_json(figures)
    else:
        write_out(view.format_insights(figures), styled=True)


@app.command("stats")
async def stats_command(
    owner: OwnerName = None, all_owners: AllOwners = False, config: Config = None, as_json: AsJson = False
) -> None:
    """Show how many sessions and messages there are."""
    setup = load_setup(config, owner, all_owners=all_owners)
    async with setup.open_store(fallback=True) as store:
        counts = await store.count_sessions(SessionFilter(owner=setup.owner))
        queue, info = await store.count_recordings(), store.info
    average = counts.messages / counts.sessions if counts.sessions else 0.0
    # Under the names that clients of older systems know.
    stats = {
        "total_sessions": counts.sessions,
        "total_messages": counts.messages,
        "avg_messages_per_session": round(average, 2),
        "activeConversations": counts.active,
        "totalMessages": counts.messages,
        "averageMessagesPerConversation": round(average),
        "usingRedis": info.kind == "redis",
        "durable": info.durable,  # not for the store in memory that replaces a server that is down
        "by_status": counts.by_status,
        "recordings": queue.to_dict(),
        "store": {"kind": info.kind, "durable": info.durable, "url": without_password(setup.config.store.url)},
    }
    if as_json:
        write_json(stats)
    else:
        write_out(view.format_stats(stats), styled=True)


async def find_named_session(setup: Setup, name: str | None) -> SessionRecord:
    """Return the session that a user means, None: the one that was used last. Raises as `Sessions.find`."""
    async with setup.open_sessions() as sessions:
        return await sessions.find(name)


def choose_session(setup: Setup) -> SessionRecord:
    """Let the user choose one of the sessions used last, at the terminal.

    Raises InputError: there is no terminal, or no session.
    """
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise InputError("there is no terminal to choose a session at", "name it: massmem --session-id ID")
    newest = asyncio.run(_list(setup, SessionFilter(owner=setup.owner), _MAX_CHOICES))
    if not newest:
        raise InputError("there is no session yet", 'begin one: massmem "your question"')
    lines = view.format_table(newest).splitlines()[1:]
    return newest[choose_option("Which session?", lines)].session


async def export_session(
    setup: Setup, name: str, format_: str | None, output: Path | None, *, detailed: bool
) -> SessionRecord:
    """Write a session to a file, or to stdout when `output` is None.

    format_: one of FORMATS; None: by the suffix of the file, else json.

    Raises UnknownSessionError, InputError: the file cannot be written.
    """
    suffix = output.suffix.lower().lstrip(".") if output else ""
    guess = next((key for key, form in FORMATS.items() if suffix in (form.suffix, key)), "json")
    with open_output(output) as write, show_progress("exporting", quiet=output is None) as progress:
        async with setup.open_sessions() as sessions:
            session = await sessions.find(name)
            async with aclosing(sessions.export(session, FORMATS[format_ or guess], detailed=detailed)) as pieces:
                async for piece, done in pieces:
                    write(piece)
                    progress(done, max(done, session.message_count))
        return session


def _hit_to_dict(hit: SessionHit) -> dict[str, Any]:
    keys = {"id", "session_id", "turn", "round", "kind", "agent_id", "content", "final", "created_at"}
    return hit.message.model_dump(mode="json", include=keys) | {"title": hit.session.display_title}
