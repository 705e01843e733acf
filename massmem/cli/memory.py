"""`massmem memory`: what is remembered, where it came from, and how to correct, keep and forget it."""

import asyncio
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, time
from pathlib import Path
from typing import Annotated, Any

import typer

from massmem.cli import memory_view
from massmem.cli.options import (
    MAX_TURN,
    AllOwners,
    AsJson,
    Config,
    InSession,
    IsGlobal,
    OwnerName,
    ProjectName,
    Yes,
    offer_agents,
    read_project,
)
from massmem.cli.setup import Setup, load_setup
from massmem.cli.streams import notify, show_progress, write_json, write_out
from massmem.config.load import resolve_agents
from massmem.config.models import MemoryConfig
from massmem.config.projects import name_project
from massmem.core.errors import InputError, MemoryUnavailable, UnknownSessionError
from massmem.core.events import MemoryAction
from massmem.core.ids import SESSION_ID
from massmem.core.records import EVERYBODY, RecordingCounts
from massmem.core.text import one_line
from massmem.memory.budget import Budget
from massmem.memory.extraction.extractor import open_extractor
from massmem.memory.indexed import IndexedMemory
from massmem.memory.opening import index_root, remove_damaged_copies, set_index_aside
from massmem.memory.origins import AGENT, IMPORT, OUTSIDE, TOOL, find_tool_name
from massmem.memory.persistent import USER, Memory, Selection, find_ids
from massmem.recording.comparison import mend
from massmem.recording.forgetting import unknown_memory
from massmem.recording.jobs import DrainCounts
from massmem.recording.standing import find_originals, read_standing
from massmem.recording.worker import Recorder
from massmem.session.erasure import Findings, Receipt
from massmem.session.memories import Backlog, Memories, View
from massmem.session.recall import explain_recall
from massmem.store.lookup import find_session
from massmem.store.ports import SessionStore

EXIT_QUEUED = 7
_ALL = 1_000_000
_MOST_LISTED = 20
"""Memories that are listed before they are forgotten."""
app = typer.Typer(no_args_is_help=True, help="Search, show, correct, pin, forget and rebuild memories.")

Agent = Annotated[
    str | None,
    typer.Option("--agent", metavar="ID", help="Of this agent only; user: the user.", autocompletion=offer_agents),
]
AsAgent = Annotated[
    str | None,
    typer.Option(
        "--agent",
        metavar="ID",
        help="Find what this agent would recall. [default: what every agent may recall]",
        autocompletion=offer_agents,
    ),
]
AsOf = Annotated[
    str | None,
    typer.Option(metavar="DATE", help="As if nothing had been said after this day (YYYY-MM-DD) or time."),
]
FromOrigin = Annotated[
    str | None,
    typer.Option(
        "--origin", metavar="ORIGIN", help="Only what is from: user, agent, import, outside, web, tool, or tool:NAME."
    ),
]
MemoryName = Annotated[str, typer.Argument(metavar="ID", help="As list and search show it, or a beginning of that.")]
Turn = Annotated[int | None, typer.Option("--turn", metavar="N", min=1, max=MAX_TURN, help="Of this turn only.")]


@app.command("search")
async def search_command(
    query: Annotated[str, typer.Argument(metavar="WORDS", help="What to look for, in words.")],
    session_id: InSession = None,
    agent: AsAgent = None,
    limit: Annotated[int | None, typer.Option(metavar="N", min=1, max=1000, help="Most memories.")] = None,
    tokens: Annotated[int | None, typer.Option(metavar="N", min=1, help="Token budget.")] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="All that an agent would not be shown, not only the first ten.")
    ] = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="Say why these are shown, how much each matters, and what is left out.")
    ] = False,
    as_of: AsOf = None,
    origin: FromOrigin = None,
    project: ProjectName = None,
    is_global: IsGlobal = False,
    owner: OwnerName = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Find what agents would be shown here, then the rest.

    By meaning and words; FITS is how much a memory matters, from 0 to 1.

    Those of the user, of winners, and of the agent itself are searched. Values that no longer hold are left out unless
    the words ask for history.
    """
    setup, name = load_setup(config, owner), read_project(project, is_global=is_global)
    view = View(agent, session_id, as_of=parse_as_of(as_of), origin=check_origin(origin))
    async with setup.open_memories() as opened:
        opened = await opened.of_project(name)
        view = await _resolve_view(setup, opened, view)
        hits = await opened.search(query, view, limit, tokens, shows_all=everything)
    recalled = hits.recalled
    memories = recalled.memories[:limit]  # the limit counts messages, of which each passage has its own line here
    if as_json:
        pinned, rows, more = ([m.to_dict() for m in part] for part in (recalled.pinned, memories, hits.beyond))
        notes = {"lexical_only": recalled.lexical_only, "unavailable": hits.unavailable or None}
        notes |= hits.backlog.to_dict() | {"beyond": more}
        notes |= {"explanation": explain_recall(recalled)} if explain else {}
        notes |= {} if session_id else {"project": opened.project or None}
        write_json({"query": query, "pinned": pinned, "memories": rows, "tokens": recalled.tokens} | notes)
        return
    memory_view.print_hits(hits, memories, here=opened.project)
    if session_id is None and (opened.project or not memories):
        where = f"in the project {name_project(opened.project)} and" if opened.project else "outside of any project,"
        notify(f"looked {where} in what is global")
    if explain:
        memory_view.print_explanation(recalled)


@app.command("history")
async def history_command(
    query: Annotated[str, typer.Argument(metavar="WORDS", help="What the values are of, or one of them.")],
    session_id: InSession = None,
    agent: AsAgent = None,
    as_of: AsOf = None,
    project: ProjectName = None,
    is_global: IsGlobal = False,
    owner: OwnerName = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Show which values something had, and when."""
    view = View(agent, session_id, as_of=parse_as_of(as_of))
    setup, name = load_setup(config, owner), read_project(project, is_global=is_global)
    async with setup.open_memories() as opened:
        opened = await opened.of_project(name)
        chains, backlog = await opened.read_history(query, await _resolve_view(setup, opened, view))
    if as_json:
        write_json({"query": query, "topics": [chain.to_dict() for chain in chains]} | backlog.to_dict())
    else:
        memory_view.print_history(chains)
        memory_view.print_backlog(backlog)


@app.command("list")
async def list_command(
    session_id: InSession = None,
    agent: Agent = None,
    turn: Turn = None,
    facts: Annotated[bool, typer.Option("--facts", help="Facts only, without verbatim passages.")] = False,
    pinned: Annotated[bool, typer.Option("--pinned", help="Pinned ones only.")] = False,
    origin: FromOrigin = None,
    limit: Annotated[int, typer.Option(metavar="N", min=1, max=100_000, help="Most memories.")] = 20,
    owner: OwnerName = None,
    all_owners: AllOwners = False,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """List memories, newest first."""
    selection = Selection(
        session_id, agent, turn, "fact" if facts else None, origin=check_origin(origin), is_pinned=pinned
    )
    setup = load_setup(config, owner, all_owners=all_owners)
    async with setup.open_memories() as opened:
        memories, backlog = await opened.list(await _resolve_session(setup, opened, selection), limit)
    if as_json:
        write_json({"memories": [memory.to_dict() for memory in memories]} | backlog.to_dict())
    else:
        memory_view.print_memories(memories, opened.project)
        memory_view.print_backlog(backlog)


@app.command("show")
def show_command(
    memory_id: MemoryName, owner: OwnerName = None, config: Config = None, as_json: AsJson = False
) -> None:
    """Show a memory in full: its changes, and its messages."""
    details = asyncio.run(_load_memory(load_setup(config, owner), memory_id))
    if as_json:
        write_json(memory_view.details_to_dict(details))
    else:
        memory_view.print_memory(details)


async def _load_memory(setup: Setup, name: str) -> memory_view.MemoryDetails:
    """Return a memory with what it came from. Raises UnknownMemoryError, InputError: several begin so.

    name: its id or a short form; or the id of a message, as a search by words gives it.
    """
    async with setup.open_memories() as memories:
        messages = await memories.store.get_messages([name])
        session = await memories.store.get_session(messages[0].session_id) if messages else None
        is_own = session is not None and setup.owner in (EVERYBODY, session.owner)
        if is_own and (standing := await read_standing(memories.store, await find_originals(memories.store, messages))):
            return memory_view.MemoryDetails(standing[0][0], messages)
        memory = await memories.find(name)
        if memory is None:
            raise unknown_memory(name)
        return memory_view.MemoryDetails(
            memory, await memories.read_sources(memory), await memories.read_changes(memory)
        )


@app.command("add")
async def add_command(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What is to be remembered; -: from standard input.")],
    session_id: InSession = None,
    project: ProjectName = None,
    is_global: IsGlobal = False,
    owner: OwnerName = None,
    config: Config = None,
    as_json: AsJson = False,
) -> int:
    """Remember a text as the user's words.

    Where the team remembers across conversations it needs no conversation: it is in one called Notes. With --global it
    is for all conversations, also for those that share a session_name.
    """
    setup, text, name = load_setup(config, owner), _read_text(text), read_project(project, is_global=is_global)
    if session_id is not None and name is not None:
        raise InputError("a note in a conversation belongs to its project", "leave out --session-id, or the project")
    async with setup.open_memories() as memories:
        memories = await memories.of_project(name)
        session_id = await _find_id(setup, memories.store, session_id)
        place, memory = await memories.add(text, session_id, everywhere=is_global)
    return report_change(memory, "remembered", {"session_id": place, "memory": memory.to_dict()} if as_json else None)


@app.command("edit")
def edit_command(
    memory_id: MemoryName,
    text: Annotated[
        str | None, typer.Argument(metavar="[TEXT]", help="What it is to say; -: from standard input. [default: asks]")
    ] = None,
    owner: OwnerName = None,
    config: Config = None,
    as_json: AsJson = False,
) -> int:
    """Correct a memory: agents recall the new text.

    `massmem memory show` still shows what it said before. The messages of the conversation stay as they are.
    """
    setup = load_setup(config, owner)
    if text is None:
        if not sys.stdin.isatty():
            raise InputError("the new text is missing", f"massmem memory edit {memory_id[:40]} TEXT")
        write_out(f"{asyncio.run(_load_memory(setup, memory_id)).memory.text}\n")
        answer: str = typer.prompt("What it is to say", err=True)
        text = answer
    memory = asyncio.run(change_memory(setup, memory_id, "edit", _read_text(text)))
    return report_change(memory, "edited", memory.to_dict() if as_json else None)


def _add_mark(action: MemoryAction, summary: str, describe: Callable[[Memory], str]) -> None:
    """Add a command that sets or removes a mark of a memory. describe: says what became of it."""

    @app.command(action, help=summary)
    def command(  # pyright: ignore[reportUnusedFunction]
        memory_id: MemoryName, owner: OwnerName = None, config: Config = None, as_json: AsJson = False
    ) -> int:
        memory = asyncio.run(change_memory(load_setup(config, owner), memory_id, action))
        return report_change(memory, describe(memory), memory.to_dict() if as_json else None)


_add_mark("pin", "Show a memory to agents with every question.", lambda _: "pinned")
_add_mark("unpin", "Show a memory only where it matters for the question again.", lambda _: "no longer pinned")
_add_mark("promote", "Recall a memory of a project in every project.", lambda _: "global")
_add_mark(
    "demote",
    "Recall a promoted memory in its project only again.",
    lambda memory: f"in {name_project(memory.project)}" if memory.project else "global",
)


def _read_text(text: str) -> str:
    return sys.stdin.read() if text == "-" else text


def report_change(memory: Memory, done: str, reply: dict[str, Any] | None = None) -> int:
    """Say what became of a memory; return the exit code. done: in words. reply: what a program is told instead."""
    if reply is not None:
        write_json(reply)
    else:
        notify(f"{'it will be' if memory.is_queued else done}: {memory.short_id}  {one_line(memory.text, 60)}")
    return _report_queue(memory.note if memory.is_queued else "")


def _report_queue(note: str) -> int:
    """Say why a change is only queued; return the exit code. note: "": it is not."""
    if note:
        notify(f"{note}; the next command that can write there does it, such as `massmem memory record`")
    return EXIT_QUEUED if note else 0


@app.command("forget")
def forget_command(
    ids: Annotated[list[str] | None, typer.Argument(metavar="ID", help="As list and search show them.")] = None,
    session_id: InSession = None,
    agent: Agent = None,
    turn: Turn = None,
    everywhere: Annotated[
        bool, typer.Option("--everywhere", help="In the log, files, debug files and all memories, too; with a receipt.")
    ] = False,
    text: Annotated[
        list[str] | None,
        typer.Option("--text", metavar="TEXT", help="What to forget everywhere, in words; may be repeated."),
    ] = None,
    yes: Yes = False,
    owner: OwnerName = None,
    config: Config = None,
    as_json: AsJson = False,
) -> int:
    """Delete memories for good.

    They leave the queue, too, and a rebuild does not restore them. The log of the session keeps its messages. With
    --everywhere it does not: each sentence that says the same goes from whatever massmem has stored of you, and a
    receipt says what went, and how that was checked.
    """
    selection = Selection(session_id, agent, turn, ids=tuple(ids or ()))
    texts = tuple(filter(str.strip, text or ()))
    if (everywhere or text) and (selection != Selection(ids=selection.ids) or not everywhere):
        raise InputError("--everywhere takes ids and --text only", "massmem memory forget --everywhere ID...")
    if selection == Selection() and not texts:
        others = "a statement: --text TEXT" if everywhere else "--session-id, --agent or --turn"
        raise InputError("no memory was named", f"name ids, or {others}")
    if not yes and not sys.stdin.isatty():
        raise InputError("forgetting cannot be undone, and there is no terminal to confirm it", "add --yes")
    setup = load_setup(config, owner)
    if everywhere:
        return _forget_everywhere(setup, selection.ids, texts, yes=yes, as_json=as_json)
    if not yes:
        memories = asyncio.run(list_memories(setup, selection))
        memory_view.print_memories(memories[:_MOST_LISTED])
        if not typer.confirm(f"Forget {memory_view.count_memories(len(memories))} for good?", err=True):
            notify("nothing was forgotten")
            return 0
    count, note = asyncio.run(forget_memories(setup, selection))
    if as_json:
        write_json({"forgotten": count, "note": note})
    elif not note:
        notify(f"forgotten: {count}; the log of the session keeps its messages (forget --everywhere: there, too)")
    return _report_queue(note)


def _forget_everywhere(setup: Setup, ids: Sequence[str], texts: Sequence[str], *, yes: bool, as_json: bool) -> int:
    """Return exit code 1 when something is left. yes: near paraphrases stay. Raises what Eraser raises."""
    if not yes:
        findings = asyncio.run(_find_everywhere(setup, ids, texts))
        memory_view.print_findings(findings, setup.owner)
        near = memory_view.choose_near(findings.near) if findings.near else []
        if not typer.confirm("Forget this for good?", err=True):
            notify("nothing was forgotten")
            return 0
        texts = [*texts, *(one.text for one in near)]
    receipt = asyncio.run(_erase_everywhere(setup, ids, texts, says_what=yes))
    if as_json:
        write_json(receipt.to_dict())
    memory_view.print_receipt(receipt)
    return 0 if receipt.checks.is_clean else 1


async def _find_everywhere(setup: Setup, ids: Sequence[str], texts: Sequence[str]) -> Findings:
    async with setup.open_memories() as memories, memories.open_eraser() as eraser:
        with show_progress("looking for it in sessions") as progress:
            return await eraser.find(await eraser.read_orders(ids, texts), progress)


async def _erase_everywhere(setup: Setup, ids: Sequence[str], texts: Sequence[str], *, says_what: bool) -> Receipt:
    async with setup.open_store(finishes=False) as store:
        finished = await setup.finish_forgetting(store)
        memories = Memories(setup.config, setup.home, store, setup.open_index, setup.owner)
        for receipt in finished:
            numbers = [*map(int, receipt.memory_ids)]
            if ids and not texts and all(name in receipt.memory_ids or find_ids(name, numbers) for name in ids):
                return receipt  # the same command as before
        async with memories.open_eraser() as eraser:
            orders = await eraser.read_orders(ids, texts)
            with show_progress("looking for it in sessions") as progress:
                findings = await eraser.find(orders, progress)
            if says_what:
                notify(memory_view.describe_reach(findings, setup.owner))
            with show_progress("looking for what is left in sessions") as progress:
                return await eraser.erase(orders, findings, progress)


@app.command("stats")
def stats_command(config: Config = None, as_json: AsJson = False) -> None:
    """Show how much is remembered, and what waits to be recorded."""
    stats = asyncio.run(collect_stats(load_setup(config)))
    if as_json:
        write_json(stats.to_dict())
    else:
        memory_view.print_stats(stats)


@app.command("rebuild")
async def rebuild_command(session_id: InSession = None, config: Config = None, as_json: AsJson = False) -> int:
    """Make all memories again from the log.

    Do this for another embedder, for example. Forgotten memories stay forgotten. After an interruption `massmem memory
    record` or the next question continues it.
    """
    setup = load_setup(config)
    notify("clearing the index")
    _require_on_disk(setup)
    async with setup.open_store() as store:
        session_id = await _find_id(setup, store, session_id)
        sessions = [session_id] if session_id else [s.session_id for s in await store.list_sessions()]
        # Without an extraction model nothing would make the facts again.
        kind = None if setup.config.memory.persistent_memory.llm else "episode"
        # A damaged index is set aside first; when everything is recorded, it and earlier ones are deleted.
        async with setup.open_index(_refuse_damaged if session_id else set_index_aside) as memory:
            if session_id is None and (foreign := (await mend(store, memory)).foreign):
                await memory.forget(Selection(session_ids=tuple(foreign)))
            await store.requeue_recordings(session_id, done=True)
            if sessions:
                await memory.forget(Selection(session_ids=tuple(sessions), kind=kind))
            result = await _drain_queue(setup, store, memory, session_id)
    if session_id is None and result.is_complete:
        result = replace(result, removed=tuple(await remove_damaged_copies(setup.config.memory, setup.home)))
    for copy in result.removed:
        notify(f"the copy of a damaged index was removed: {copy}")
    return _report_recording(result, as_json=as_json)


@app.command("record")
async def record_command(session_id: InSession = None, config: Config = None, as_json: AsJson = False) -> int:
    """Record the queue now, with the recordings that failed before."""
    setup = load_setup(config)
    _require_on_disk(setup)
    async with setup.open_store() as store:
        session_id = await _find_id(setup, store, session_id)
        await store.requeue_recordings(session_id, done=False)
        async with setup.open_index() as memory:
            await mend(store, memory)
            result = await _drain_queue(setup, store, memory, session_id)
    return _report_recording(result, as_json=as_json)


@dataclass(frozen=True, slots=True)
class RecordingResult:
    counts: DrainCounts
    queue: RecordingCounts
    """Afterwards."""
    removed: tuple[Path, ...] = ()
    """Copies of damaged indexes that were removed."""

    @property
    def is_complete(self) -> bool:
        """Nothing is left to record."""
        return not (self.counts.unavailable or self.queue.pending or self.queue.failed)

    def to_dict(self) -> dict[str, Any]:
        counts = asdict(self.counts)
        del counts["unavailable"]
        return counts | {"recordings": self.queue.to_dict(), "removed": [str(copy) for copy in self.removed]}


async def _refuse_damaged(config: MemoryConfig, home: Path, environ: Mapping[str, str]) -> None:
    raise InputError(
        "the memory index is damaged, with the memories of all sessions",
        "run `massmem memory rebuild` without --session-id",
    )


async def _drain_queue(
    setup: Setup, store: SessionStore, memory: IndexedMemory, session_id: str | None
) -> RecordingResult:
    total = (await store.count_recordings(session_id)).pending
    settings = {agent.id: agent.memory.recording for agent in resolve_agents(setup.config, os.environ)}

    def report(c: DrainCounts) -> None:
        progress(min(total, c.episodes + c.turns + c.extractions + c.retried + c.failed), total)

    memory_settings = setup.config.memory.persistent_memory
    with show_progress("recording") as progress:
        budget = Budget(setup.config.coordination)
        async with open_extractor(memory_settings, setup.home, memory.get_known_facts(), budget=budget) as extractor:
            counts = await Recorder(store, memory, extractor, settings, session_id).drain(on_progress=report)
        if not counts.unavailable:
            progress(total, total)
    return RecordingResult(counts, await store.count_recordings(session_id))


def _report_recording(result: RecordingResult, *, as_json: bool) -> int:
    """Write what was recorded. Returns exit code 1 when something is left."""
    counts, queue = result.counts, result.queue
    if counts.unavailable:
        raise MemoryUnavailable(
            f"{counts.unavailable}; {queue.pending} recordings are pending",
            "run `massmem memory record` later, or just ask the next question",
        )
    if as_json:
        write_json(result.to_dict())
    else:
        notify(f"recorded {counts.episodes:,} messages, {counts.turns:,} ends of turns, {counts.facts:,} new facts")
        if queue.pending or queue.failed:
            notify(f"{queue.pending:,} pending, {queue.failed:,} failed: {one_line(queue.reason or 'not due yet')}")
    return 0 if result.is_complete else 1


def _require_on_disk(setup: Setup) -> None:
    if not setup.config.memory.persistent_memory.on_disk:
        raise InputError(
            "memories are not stored: memory.persistent_memory.on_disk is false",
            "set it to true; messages from before then are still in the queue",
        )


async def change_memory(setup: Setup, name: str, action: MemoryAction, text: str = "") -> Memory:
    """Change a memory, and return it as it is then. Raises as `Memories.change`."""
    async with setup.open_memories() as memories:
        return await memories.change(name, action, text)


def parse_as_of(text: str | None) -> datetime | None:
    """Return the moment that is meant, in UTC: the end of a day, or a time; without a zone this machine's.

    Raises InputError: it is neither.
    """
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
        if len(text) <= len("2026-05-08"):
            moment = datetime.combine(moment.date(), time.max)
        return moment.astimezone(UTC)
    except (ValueError, OverflowError) as e:  # the first and the last day have no such moment in every zone
        raise InputError(f"{one_line(text, 40)!r} is no date", "write it like this: --as-of 2026-05-08") from e


def check_origin(text: str | None) -> str | None:
    """Return the text when it is an origin. Raise InputError."""
    if text is None or text in (USER, AGENT, IMPORT, OUTSIDE, TOOL) or find_tool_name(text):
        return text
    raise InputError(
        f"{one_line(text, 40)!r} is no origin", "write user, agent, import, outside, web, tool, or tool:NAME"
    )


async def list_memories(setup: Setup, selection: Selection) -> Sequence[Memory]:
    """Return all selected memories, newest first. Raises UnknownSessionError, UnknownMemoryError."""
    async with setup.open_memories() as memories:
        return (await memories.list(await _resolve_session(setup, memories, selection), _ALL))[0]


async def forget_memories(setup: Setup, selection: Selection) -> tuple[int, str]:
    """Delete the selected memories and never record them again; return how many there were, and a note, see there.

    Raises:
        InputError: one of the ids does not exist.
        UnknownSessionError
    """
    async with setup.open_memories() as memories:
        return await memories.forget(await _resolve_session(setup, memories, selection))


async def collect_stats(setup: Setup) -> memory_view.Stats:
    """Return counts of memory and queue; of the queue alone when the memory is unavailable."""
    stats, note, unavailable, backlog = None, "", "", Backlog()
    async with setup.open_memories() as memories:
        try:
            async with memories.open_view() as (index, backlog):
                stats, note = await index.stats(), index.note
        except MemoryUnavailable as e:
            unavailable = e.message
        queue, size = await memories.store.count_recordings(), await memories.measure()
    location = stats.location if stats else str(index_root(setup.config.memory, setup.home))
    return memory_view.Stats(stats, queue, location, size, unavailable, note, backlog)


async def _find_id(setup: Setup, store: SessionStore, name: str | None) -> str | None:
    """Return the id of the session with this name. Raises UnknownSessionError, InputError."""
    return None if name is None else (await find_session(store, name, setup.owner)).session_id


async def _resolve_view(setup: Setup, memories: Memories, view: View) -> View:
    return replace(view, session_id=await _find_id(setup, memories.store, view.session_id))


async def _resolve_session(setup: Setup, memories: Memories, selection: Selection) -> Selection:
    """Return the selection with the id of its session, which its memories may have outlived.

    Raises UnknownSessionError, InputError.
    """
    name = selection.session_id
    try:
        return replace(selection, session_id=await _find_id(setup, memories.store, name))
    except UnknownSessionError:
        is_gone = name and SESSION_ID.fullmatch(name) and await memories.store.get_session(name) is None
        with suppress(MemoryUnavailable):  # then nobody can tell
            if is_gone and (await memories.list(Selection(name), 1))[0]:
                return selection
        raise
