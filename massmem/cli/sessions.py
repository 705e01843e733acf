"""`massmem sessions`: find, read, name, export and delete conversations."""

import asyncio
import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from massmem.cli import session_actions as actions
from massmem.cli import session_view as view
from massmem.cli import times
from massmem.cli.completing import session_ids
from massmem.cli.progress import display
from massmem.cli.streams import say, write_out
from massmem.cli.team import Prepared, prepared
from massmem.errors import InputError, SessionBusyError
from massmem.events import now
from massmem.export.as_json import turn_object
from massmem.records import ListedSession, SessionFilter, SessionRecord
from massmem.render.figures import plural
from massmem.render.printable import one_line
from massmem.session.deletion import Deleted


class Status(StrEnum):
    ACTIVE = "active"
    COMPLETED = "completed"
    INTERRUPTED = "interrupted"
    FAILED = "failed"
    DELETING = "deleting"


class Form(StrEnum):
    JSON = "json"
    MARKDOWN = "markdown"
    TEXT = "text"
    HTML = "html"


app = typer.Typer(no_args_is_help=True, help="Find, read, name, export and delete conversations.")

Name = Annotated[
    str,
    typer.Argument(metavar="SESSION", help="Its id, the beginning of its id, or its name.", autocompletion=session_ids),
]
Config = Annotated[str | None, typer.Option(metavar="FILE", help="The team, as for a question.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Since = Annotated[
    str | None, typer.Option(metavar="WHEN", help="Used since then: 24h, 7d, or a day as 2026-11-21.")
]  # fmt: skip


@app.command("list")
def list_command(
    status: Annotated[Status | None, typer.Option(help="With this status only.")] = None,
    text: Annotated[str, typer.Option(metavar="TEXT", help="With this in id, title or last message.")] = "",
    since: Since = None,
    limit: Annotated[int, typer.Option(min=0, help="Most sessions; 0: all.")] = 20,
    offset: Annotated[int, typer.Option(min=0, help="Leave out so many.")] = 0,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """List the sessions, the last used first. SURE: the confidence of the last answer; !: escalated."""
    wanted = SessionFilter(status=status.value if status else None, text=text, since=_since(since))
    found = asyncio.run(actions.listed(prepared(config), wanted, limit or None, offset))
    if as_json:
        counts = {"total": found.counts.sessions, "limit": limit, "offset": offset}
        _print_json({"sessions": [_listed_row(each) for each in found.sessions], **counts})
        return
    if found.sessions:
        write_out(view.table(found.sessions))
    else:
        say("no session matches" if found.counts.sessions or wanted != SessionFilter() else "there is no session yet")
    if (rest := found.counts.sessions - len(found.sessions) - offset) > 0:
        say(f"{rest:,} more; see them with --limit 0, or fewer with --text, --status and --since")
    for name in found.cut_off:
        say(f"the deletion of {name} was cut off, or is under way; to finish it: massmem sessions delete {name}")


@app.command("show")
def show_command(
    name: Name,
    everything: Annotated[bool, typer.Option("--all", help="Also rounds, votes and reasoning.")] = False,
    turn: Annotated[int | None, typer.Option(metavar="N", min=1, help="This turn only.")] = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Show a conversation: questions and final answers, and how the council decided."""
    at = prepared(config)
    if as_json:
        said: dict[str, Any] = {"turns": []}
        asyncio.run(
            actions.read(
                at, name, turn, lambda s: said.update(_session_row(s)), lambda t: said["turns"].append(turn_object(t))
            )
        )
        _print_json(said)
        return
    asyncio.run(
        actions.read(
            at,
            name,
            turn,
            lambda session: write_out(view.heading(session)),
            lambda exchange: write_out(view.conversation(exchange, everything=everything)),
        )
    )


@app.command("search")
def search_command(
    query: Annotated[str, typer.Argument(help="What to look for, in words.")],
    session_id: Annotated[
        str | None, typer.Option(metavar="SESSION", help="In this session only.", autocompletion=session_ids)
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Most messages.")] = 20,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Find messages by their words, best first: where they stand, and in which turn."""
    found = asyncio.run(actions.found(prepared(config), query, session_id, limit))
    if as_json:
        _print_json({"query": query, "messages": [_found_row(each) for each in found]})
    elif found:
        write_out(view.matches(found, query))
    else:
        say("nothing that was said has one of these words")


@app.command("rename")
def rename_command(
    name: Name,
    title: Annotated[str, typer.Argument(metavar="NAME", help="80 characters at most, no other session's.")],
    config: Config = None,
) -> None:
    """Give a session a name, by which --session-id and these commands know it, too."""
    session = asyncio.run(actions.renamed(prepared(config), name, title))
    say(f'{session.session_id} is called "{session.title}" now')


@app.command("delete")
def delete_command(
    names: Annotated[
        list[str],
        typer.Argument(metavar="SESSION...", help="Ids, beginnings of ids, or names.", autocompletion=session_ids),
    ],
    yes: Yes = False,
    config: Config = None,
    as_json: AsJson = False,
) -> int:
    """Delete sessions for good: the log, memories, queue, list, locks and debug files, and their bytes on the disk.

    Debug files in other folders than this and your home are not known to massmem.
    """
    _check_terminal(yes)
    at = prepared(config)
    sessions = asyncio.run(actions.to_delete(at, names))
    if sessions and not (yes or _confirmed([_told(session) for session in sessions])):
        return 0
    return _report(_delete(at, sessions), as_json=as_json)


@app.command("cleanup")
def cleanup_command(
    older_than: Annotated[str, typer.Option(metavar="AGE", help="Not used for so long: 24h, 30d, 8w.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be deleted.")] = False,
    yes: Yes = False,
    config: Config = None,
    as_json: AsJson = False,
) -> int:
    """Delete sessions that were not used for a while. Nothing is ever deleted unasked."""
    longer_than = times.age(older_than)
    if not dry_run:
        _check_terminal(yes)
    at = prepared(config)
    found = asyncio.run(actions.unused(at, longer_than))
    if dry_run or not found:
        if as_json:
            key = "would_delete" if dry_run else "sessions"
            _print_json({key: [each.session.session_id for each in found]})
        elif found:
            write_out(view.table(found))
        say(f"{plural(len(found), 'session')} not used for {older_than}; nothing was deleted")
        return 0
    if not (yes or _confirmed([_told(each.session) for each in found])):
        return 0
    return _report(_delete(at, [each.session for each in found]), as_json=as_json)


@app.command("export")
def export_command(
    name: Name,
    form: Annotated[
        Form | None, typer.Option("--format", help="[default: what the name of the file says, else json]")
    ] = None,
    output: Annotated[Path | None, typer.Option(metavar="FILE", help="Write to this file. [default: stdout]")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Also rounds and reasoning; json has them always.")] = False,
    config: Config = None,
) -> None:
    """Write a conversation, with names and votes and without secrets, as json, markdown, text or html."""
    chosen = form.value if form else None
    session = asyncio.run(actions.written(prepared(config), name, chosen, output, detailed=everything))
    if output is not None:
        say(f"{session.session_id} was written to {output}")


@app.command("insights")
def insights_command(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[SESSION]", help="Of this one. [default: all]", autocompletion=session_ids),
    ] = None,
    since: Since = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Show what conversations were about, who won how often, how long it took and what it cost."""
    at = prepared(config)
    with display("reading") as progress:
        found = asyncio.run(actions.insights(at, name, SessionFilter(since=_since(since)), progress))
    if as_json:
        _print_json(found)
    else:
        write_out(view.insights(found))


@app.command("stats")
def stats_command(config: Config = None, as_json: AsJson = False) -> None:
    """Show how many sessions and messages there are, and where they live."""
    found = asyncio.run(actions.stats(prepared(config)))
    if as_json:
        _print_json(found)
    else:
        write_out(view.stats(found))


def _since(text: str | None) -> Any:
    return None if text is None else times.since(text, now())


def _check_terminal(yes: bool) -> None:
    if not yes and not sys.stdin.isatty():
        raise InputError("deleting cannot be undone, and there is no terminal to ask on", "add --yes")


def _confirmed(lines: list[str]) -> bool:
    for line in lines:
        say(line)
    question = "Delete it" if len(lines) == 1 else f"Delete these {len(lines):,} sessions"
    if typer.confirm(f"{question} for good, with all memories of it?", err=True):
        return True
    say("nothing was deleted")
    return False


def _told(session: SessionRecord) -> str:
    title = f'"{one_line(session.title, 60)}", ' if session.title else ""
    return (
        f"{session.session_id}: {title}{plural(session.message_count, 'message')}, "
        f"last used {times.moment(session.updated_at)}"
    )


def _delete(at: Prepared, sessions: list[SessionRecord]) -> Deleted:
    with display("deleting") as progress:
        return asyncio.run(actions.deleted(at, sessions, progress))


def _report(deleted: Deleted, *, as_json: bool) -> int:
    """Tell what was deleted; exit code 3 when a session was left."""
    if as_json:
        counts = {"messages": deleted.messages, "memories": deleted.memories, "erased": deleted.erased}
        _print_json({"deleted": list(deleted.sessions), "busy": list(deleted.busy), **counts})
    elif deleted.sessions:
        gone = plural(len(deleted.sessions), "session")
        say(f"deleted {gone}: {plural(deleted.messages, 'message')}, {deleted.memories:,} passages and facts")
    for busy in deleted.busy:
        say(f"{busy} was not deleted: a process runs a turn of it; stop it, or wait until it ends")
    if not deleted.erased:
        say("parts of it may stay in the free space of the database: it is very large, or another process reads it")
    return SessionBusyError.exit_code if deleted.busy else 0


def _listed_row(listed: ListedSession) -> dict[str, Any]:
    more = {"turns": listed.turns, "confidence": listed.confidence, "escalated": listed.escalated}
    return _session_row(listed.session) | more


def _session_row(session: SessionRecord) -> dict[str, Any]:
    return session.model_dump(mode="json", exclude={"user_id", "memory_group"})


def _found_row(found: actions.Found) -> dict[str, Any]:
    keys = {"id", "session_id", "turn", "round", "kind", "agent_id", "content", "final", "created_at"}
    return found.message.model_dump(mode="json", include=keys) | {"title": found.session.title}


def _print_json(value: Any) -> None:
    write_out(json.dumps(value, ensure_ascii=False) + "\n")
