"""`massmem memory`: what is remembered, where it came from, and how to forget it."""

import asyncio
import json
import sys
from typing import Annotated, Any

import typer

from massmem.cli import memory_actions as actions
from massmem.cli.completing import agent_ids, session_ids
from massmem.cli.memory_view import head, indented, print_list, print_stats
from massmem.cli.progress import display
from massmem.cli.streams import say, write_out
from massmem.cli.team import prepared
from massmem.errors import InputError, MemoryUnavailable
from massmem.memory.memories import Memory, Selection
from massmem.records import MessageRecord
from massmem.render.printable import one_line, printable

app = typer.Typer(no_args_is_help=True, help="Search, show, forget and rebuild what is remembered.")

Config = Annotated[str | None, typer.Option(metavar="FILE", help="The team, as for a question.")]
SessionId = Annotated[
    str | None,
    typer.Option(
        metavar="SESSION", help="Of this session only: id, beginning of it, or name.", autocompletion=session_ids
    ),
]
AgentId = Annotated[
    str | None,
    typer.Option("--agent", metavar="ID", help="Of this agent only; user: the user.", autocompletion=agent_ids),
]
TurnNumber = Annotated[int | None, typer.Option("--turn", metavar="N", min=1, help="Of this turn only.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


@app.command("search")
def search_command(
    query: Annotated[str, typer.Argument(help="What to look for, in words.")],
    session_id: SessionId = None,
    agent: Annotated[
        str | None,
        typer.Option(
            metavar="ID", help="Find what this agent would recall. [default: what all may]", autocompletion=agent_ids
        ),
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, max=1000, help="Most memories.")] = None,
    tokens: Annotated[int | None, typer.Option(min=1, help="Token budget.")] = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Find memories by meaning and words, best first: what the user said, what winners said, and the agent's own."""
    at = prepared(config)
    found, unavailable = asyncio.run(actions.search(at, query, session_id, agent, (limit, tokens)))
    memories = found.memories[:limit]  # an agent is shown so many messages; here each of their passages has its line
    if as_json:
        rows = [memory_row(m) | {"score": round(m.score, 4)} for m in memories]
        how = {"lexical_only": found.lexical_only, "unavailable": unavailable or None}
        _print_json({"query": query, "memories": rows, "tokens": found.tokens} | how)
        return
    if unavailable:
        say(f"{unavailable}: the log was searched by words instead")
    print_list(memories)


@app.command("list")
def list_command(
    session_id: SessionId = None,
    agent: AgentId = None,
    turn: TurnNumber = None,
    facts: Annotated[bool, typer.Option("--facts", help="Facts only, no verbatim passages.")] = False,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="Most memories.")] = 20,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """List memories, newest first."""
    selection = Selection(session_id, agent, turn, "fact" if facts else None)
    found = asyncio.run(actions.listed(prepared(config), selection, limit))
    if as_json:
        _print_json({"memories": [memory_row(memory) for memory in found]})
    else:
        print_list(found)


@app.command("show")
def show_command(
    memory_id: Annotated[str, typer.Argument(metavar="ID", help="As list and search show it.")],
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Show a memory in full, with the messages that it came from."""
    memory, messages = asyncio.run(actions.shown(prepared(config), memory_id))
    if as_json:
        _print_json(memory_row(memory) | {"messages": [_message_row(message) for message in messages]})
        return
    write_out(f"{head(memory)}\n{indented(memory.text)}\n\nFrom:\n")
    for message in messages:
        who = message.agent_id or "user"
        said = f"{who}, {message.session_id} turn {message.turn}, {_moment(message)}"
        write_out(f"  {printable(said)}\n{indented(message.content, 4)}\n")
    if not messages:
        write_out("  messages that are no longer in the store\n")


@app.command("forget")
def forget_command(
    ids: Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="As list and search show them.")] = None,
    session_id: SessionId = None,
    agent: AgentId = None,
    turn: TurnNumber = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Delete memories for good, also from the queue; a rebuild does not bring them back.

    The log of the session itself is not touched.
    """
    selection = Selection(session_id, agent, turn, ids=tuple(ids or ()))
    if selection == Selection():
        raise InputError("nothing was named to forget", "name ids, --session-id, --agent or --turn")
    if not yes and not sys.stdin.isatty():
        raise InputError("forgetting cannot be undone, and there is no terminal to ask on", "add --yes")
    at = prepared(config)
    if not yes:
        count = asyncio.run(actions.counted(at, selection))
        if not typer.confirm(f"Memories to be forgotten for good: {count}. Go on?", err=True):
            say("nothing was forgotten")
            return
    forgotten = asyncio.run(actions.forgotten(at, selection))
    if as_json:
        _print_json({"forgotten": forgotten})
    else:
        say(f"forgotten: {forgotten}; the log of the session still holds what was said")


@app.command("stats")
def stats_command(config: Config = None, as_json: AsJson = False) -> None:
    """Show how much is remembered, what waits to be recorded, and where it is kept."""
    found = asyncio.run(actions.stats(prepared(config)))
    if as_json:
        _print_json(found.row())
        return
    print_stats(found)


@app.command("rebuild")
def rebuild_command(session_id: SessionId = None, config: Config = None, as_json: AsJson = False) -> int:
    """Make all memories again from the log, for example for another embedder. What was forgotten stays forgotten.

    Interrupted, it goes on with `massmem memory record`, or by itself with the next question.
    """
    at = prepared(config)
    say("clearing the index")
    with display("recording") as progress:
        result = asyncio.run(actions.rebuilt(at, session_id, progress))
    for copy in result.removed:
        say(f"the copy of a damaged index was removed: {copy}")
    return _recorded(result, as_json=as_json)


@app.command("record")
def record_command(session_id: SessionId = None, config: Config = None, as_json: AsJson = False) -> int:
    """Record now what is in the queue, also what had failed before."""
    at = prepared(config)
    with display("recording") as progress:
        result = asyncio.run(actions.recorded(at, session_id, progress))
    return _recorded(result, as_json=as_json)


def _recorded(result: actions.Recorded, *, as_json: bool) -> int:
    """Tell what was recorded; exit code 1 when something is left."""
    if result.counts.unavailable:
        raise MemoryUnavailable(
            f"{result.counts.unavailable}; {result.queue.pending} recordings are pending",
            "run `massmem memory record` later, or just ask the next question",
        )
    if as_json:
        _print_json(result.row())
    else:
        counts, queue = result.counts, result.queue
        say(f"recorded {counts.episodes:,} messages, {counts.turns:,} ends of turns, {counts.facts:,} new facts")
        if queue.pending or queue.failed:
            say(f"{queue.pending:,} pending, {queue.failed:,} failed: {one_line(queue.reason or 'not due yet')}")
    return 0 if result.whole else 1


def memory_row(memory: Memory) -> dict[str, Any]:
    """A memory as JSON."""
    return {
        "id": memory.id,
        "kind": memory.kind,
        "session_id": memory.session_id,
        "turn": memory.turn,
        "agent_id": memory.agent_id,
        "text": memory.text,
        "message_ids": list(memory.message_ids),
        "created_at": memory.created_at.isoformat(),
    }


def _message_row(message: MessageRecord) -> dict[str, Any]:
    keys = {"id", "session_id", "seq", "turn", "round", "kind", "agent_id", "content", "created_at"}
    return message.model_dump(mode="json", include=keys)


def _moment(message: MessageRecord) -> str:
    return f"{message.created_at.astimezone():%Y-%m-%d %H:%M:%S}"


def _print_json(value: Any) -> None:
    write_out(json.dumps(value, ensure_ascii=False) + "\n")
