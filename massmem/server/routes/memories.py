"""`/api/v1/memories`: what is remembered; to search as an agent does, to trace, add, correct, pin and forget."""

from collections import Counter
from dataclasses import replace
from datetime import UTC, date, datetime, time
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Path, Query, Response
from pydantic import Field
from starlette.exceptions import HTTPException

from massmem.core.events import MemoryAction, now
from massmem.core.records import is_remembered
from massmem.memory.persistent import USER, Memory, Selection
from massmem.memory.quoting import find_author
from massmem.server.dependencies import Authorized, Caller, CheckedRoute, Limit, Offset, QueryWords
from massmem.server.errors import PROBLEMS
from massmem.server.schemas import Body, ProjectName, SmallBody
from massmem.session.erasure import Receipt
from massmem.session.memories import MAX_MEMORY_LENGTH, Backlog, Memories, View
from massmem.session.owners import public_session_id

router = APIRouter(route_class=CheckedRoute, prefix="/api/v1/memories", tags=["memories"], responses=PROBLEMS)

_COUNTED = 20_000
"""Memories that are counted by agent and day, the newest."""

InSession = Annotated[str | None, Query(max_length=200, description="The session; left out: all of the user.")]
InProject = Annotated[
    str | None, Query(max_length=4_096, description="Without a session: in this project, and what is global.")
]
OfAgent = Annotated[str | None, Query(max_length=200, description="The id of an agent, or user.")]
FromOrigin = Annotated[
    str | None,
    Query(
        max_length=300,
        pattern=r"^(user|agent|import|outside|web|tool|tool:.+)$",
        description="Only what is from: user, agent, import, outside, web, tool, or tool:NAME.",
    ),
]
MemoryId = Annotated[
    str, Path(max_length=20, pattern=r"^[0-9A-Za-z]{1,20}$", description="Its id, or its short one.", examples=["1"])
]
Mark = Annotated[Literal["pin", "global"], Path(description="What it is marked as.", examples=["pin"])]
MemoryText = Annotated[str, Field(min_length=1, max_length=MAX_MEMORY_LENGTH, pattern=r"\S")]


class MemoryEntry(Body):
    id: str
    short_id: str
    """For people; every route takes it, too."""
    kind: Literal["episode", "fact"]
    """episode: word for word; fact: extracted from messages."""
    session_id: str
    turn: int
    """The turn that it is from; 0: a note."""
    agent_id: str
    """Whose it is; user: the user's own words."""
    text: str
    score: float
    relevance: float
    pinned: bool
    project: str
    """Outside of it nobody recalls the memory; empty: it is global."""
    is_global: bool
    """The user has made it global."""
    edited_at: datetime | None
    """When the user gave it this text; null: it has the words that it was recorded with."""
    seen_because: Literal["own", "user", "won"] | None
    """Of a search: the agent said it itself, the user did, or it won the turn in which it was said."""
    note: str
    """withdrawn: no agent recalls it; queued: the index does not have it like this yet, and why; of a search: since
    when or until when it holds, on which outdated value it rests, who says otherwise."""
    origin: str | None
    """Who said it: user, agent, import, outside, or tool:NAME for its result; null: not noted."""
    rests_on: str | None
    call: str
    created_at: datetime


class MemoryView(Body):
    notice: str
    """What the user should know of it; empty: nothing."""
    not_recorded: int = 0
    """Messages that become memories in a while."""


class MemoryPage(MemoryView):
    memories: list[MemoryEntry]


class MemoryHits(MemoryView):
    memories: list[MemoryEntry]
    beyond: list[MemoryEntry]
    """With `all`: what the agent would not be shown, the best first."""
    decision: str
    """Why these memories are shown, or why nothing is; empty: nothing was found."""
    tokens: int
    by_words_alone: bool


class Value(Body):
    value: str
    since: datetime
    until: datetime | None
    by: list[str]
    disputed_by: list[str]
    memory_ids: list[str]
    note: str
    """queued: the user changed it so, and the index cannot be written now; else empty."""


class Topic(Body):
    subject: str
    attribute: str
    values: list[Value]


class MemoryHistory(MemoryView):
    topics: list[Topic]


class Source(Body):
    seq: int
    turn: int
    agent: str | None
    text: str
    created_at: datetime


class Change(Body):
    action: MemoryAction
    by: str
    changed_at: datetime
    old: str
    text: str


class NewMemory(SmallBody):
    text: MemoryText
    session_id: Annotated[str | None, Field(max_length=200)] = None
    """In this conversation; null: in one of its own, called Notes."""
    project: ProjectName | None = None
    """Without `session_id`: recalled in this project; empty: in all, also by teams with a session_name."""


class NewText(SmallBody):
    text: MemoryText


class MemoryDetails(Body):
    memory: MemoryEntry
    changes: list[Change]
    sources: list[Source]


class Forgotten(Body):
    id: str
    entries: int
    """Passages and facts that were deleted from the index; the log of the session keeps its messages."""
    forgotten_at: datetime
    receipt: dict[str, Any] | None = None
    """With `everywhere`: what went from where, what was left, and how that was checked, without content."""


class AgentMemories(Body):
    agent_id: str
    episodes: int
    facts: int


class DayMemories(Body):
    day: str
    agents: dict[str, int]


class Queue(Body):
    pending: int
    done: int
    failed: int
    reason: str | None


class MemoryFigures(MemoryView):
    agents: list[AgentMemories]
    days: list[DayMemories]
    turns: dict[str, int]
    """Memories by the number of their turn; from the tenth on together as 10."""
    counted: int
    queue: Queue | None
    size: int | None


async def _read_view(
    caller: Authorized,
    session_id: InSession = None,
    agent: OfAgent = None,
    turn: Annotated[int | None, Query(ge=1, le=1_000_000, description="The turn of the session; the next.")] = None,
    as_of: Annotated[date | None, Query(description="As if nothing had been said after this day (UTC).")] = None,
    origin: FromOrigin = None,
) -> View:
    moment = None if as_of is None else datetime.combine(as_of, time.max, UTC)
    return View(agent, await _find_session(caller, session_id), turn, moment, origin)


async def _read_selection(
    caller: Authorized,
    session_id: InSession = None,
    agent: OfAgent = None,
    kind: Annotated[Literal["episode", "fact"] | None, Query(description="Only these.")] = None,
    origin: FromOrigin = None,
    pinned: Annotated[bool, Query(description="Pinned ones only.")] = False,
) -> Selection:
    return Selection(await _find_session(caller, session_id), agent, kind=kind, origin=origin, is_pinned=pinned)


OfView = Annotated[View, Depends(_read_view)]
OfSelection = Annotated[Selection, Depends(_read_selection)]


@router.get("")
async def memories(
    caller: Authorized,
    selection: OfSelection,
    limit: Limit = 50,
    offset: Offset = 0,
) -> MemoryPage:
    """The memories, the newest first."""
    listed, backlog = await _open(caller).list(selection, limit, offset)
    return MemoryPage(memories=[_show_memory(memory) for memory in listed], **_explain(backlog))


@router.get("/search")
async def search_memories(
    query: QueryWords,
    caller: Authorized,
    view: OfView,
    project: InProject = None,
    limit: Limit = 20,
    all: Annotated[bool, Query(description="All of `beyond`, what an agent would not be shown, not only ten.")] = False,
) -> MemoryHits:
    """The memories that an agent recalls: its own words, the user's, and the winners' of complete turns."""
    reader, memories = view.agent_id or USER, await _open(caller).of_project(project)
    hits = await memories.search(query, view, limit, shows_all=all)
    return MemoryHits(
        memories=[_show_memory(memory, reader) for memory in (*hits.recalled.pinned, *hits.recalled.memories)],
        beyond=[_show_memory(memory, reader) for memory in hits.beyond],
        decision=hits.recalled.decision.reason,
        tokens=hits.recalled.tokens,
        by_words_alone=hits.recalled.lexical_only,
        **_explain(hits.backlog, hits.unavailable),
    )


@router.get("/history")
async def memory_history(
    query: QueryWords,
    caller: Authorized,
    view: OfView,
    project: InProject = None,
) -> MemoryHistory:
    """Which values something had, since when and until when, and who said so, as an agent sees it."""
    memories = await _open(caller).of_project(project)
    chains, backlog = await memories.read_history(query, view)
    return MemoryHistory(topics=[Topic.model_validate(chain.to_dict()) for chain in chains], **_explain(backlog))


@router.get("/figures")
async def memory_figures(caller: Authorized) -> MemoryFigures:
    """How much is remembered, by agent, turn and day."""
    memories, backlog = await _open(caller).list(Selection(), _COUNTED)
    queue = await caller.service.team.store.count_recordings() if caller.is_operator else None
    agents: dict[str, Counter[str]] = {}
    days: dict[str, Counter[str]] = {}
    turns: Counter[str] = Counter()
    for memory in memories:
        agents.setdefault(memory.agent_id, Counter())[memory.kind] += 1
        days.setdefault(memory.created_at.date().isoformat(), Counter())[memory.agent_id] += 1
        turns[str(min(memory.turn, 10))] += 1
    ranking = sorted(agents.items(), key=lambda item: (-item[1].total(), item[0]))
    return MemoryFigures(
        agents=[AgentMemories(agent_id=name, episodes=c["episode"], facts=c["fact"]) for name, c in ranking],
        days=[DayMemories(day=day, agents=dict(counts)) for day, counts in sorted(days.items())],
        turns=dict(sorted(turns.items(), key=lambda item: int(item[0]))),
        counted=len(memories),
        queue=None if queue is None else Queue.model_validate(queue, from_attributes=True),
        size=await _open(caller).measure() if caller.is_operator else None,
        **_explain(backlog),
    )


@router.get("/{memory_id}")
async def memory_details(memory_id: MemoryId, caller: Authorized) -> MemoryDetails:
    """A memory, and the messages that it comes from."""
    record = await _find(caller, memory_id)
    sources = [
        Source(
            seq=message.seq,
            turn=message.turn,
            agent=message.agent_name or None,
            text=message.public_text,
            created_at=message.created_at,
        )
        for message in await _open(caller).read_sources(record)
        if is_remembered(message)
    ]
    changes = [
        Change(action=change.action, by=change.by, changed_at=change.created_at, old=change.old, text=change.text)
        for change in await _open(caller).read_changes(record)
    ]
    return MemoryDetails(memory=_show_memory(record), changes=changes, sources=sources)


@router.post("", status_code=201)
async def add_memory(body: NewMemory, caller: Authorized, response: Response) -> MemoryEntry:
    """Remember a text as the user's words."""
    await caller.service.turns.check_room(caller.owner)
    memories, session_id = await _open(caller).of_project(body.project), await _find_session(caller, body.session_id)
    _, memory = await memories.add(body.text, session_id, everywhere=body.project == "")
    return _show_change(memory, response)


@router.patch("/{memory_id}")
async def edit_memory(memory_id: MemoryId, body: NewText, caller: Authorized, response: Response) -> MemoryEntry:
    """Give a memory another text; what it said before is among its changes."""
    await caller.service.turns.check_room(caller.owner)
    return _show_change(await _open(caller).change(memory_id, "edit", body.text), response)


@router.put("/{memory_id}/{mark}")
async def mark_memory(memory_id: MemoryId, mark: Mark, caller: Authorized, response: Response) -> MemoryEntry:
    """pin: show a memory to agents with every question, whatever it is about; global: recall it in every project."""
    await caller.service.turns.check_room(caller.owner)
    return _show_change(await _open(caller).change(memory_id, "pin" if mark == "pin" else "promote"), response)


@router.delete("/{memory_id}/{mark}")
async def unmark_memory(memory_id: MemoryId, mark: Mark, caller: Authorized, response: Response) -> MemoryEntry:
    """Show a memory only where it matters for the question, or recall it in its project only."""
    await caller.service.turns.check_room(caller.owner)
    return _show_change(await _open(caller).change(memory_id, "unpin" if mark == "pin" else "demote"), response)


@router.delete("/{memory_id}")
async def forget(
    memory_id: MemoryId,
    caller: Authorized,
    response: Response,
    everywhere: Annotated[
        bool, Query(description="What it says goes from the log, files and all memories, too.")
    ] = False,
) -> Forgotten:
    """Forget a memory for good: it is never recorded again. The log of the session keeps its messages.

    With `everywhere` it does not: each sentence of the user's conversations that says the same goes.
    """
    memory = await _find(caller, memory_id)
    if not everywhere:
        entries, note = await _open(caller).forget(Selection(ids=(memory.id,)))
        response.status_code = 202 if note else 200
        return Forgotten(id=memory_id, entries=entries, forgotten_at=now())
    async with _open(caller).open_eraser() as eraser:
        receipt = await eraser.erase(await eraser.read_orders([memory.id], ()))
    return Forgotten(
        id=memory_id,
        entries=receipt.deleted.memories,
        forgotten_at=receipt.forgotten_at,
        receipt=_show_receipt(receipt),
    )


def _show_change(memory: Memory, response: Response) -> MemoryEntry:
    """Show a memory as it is, or, with status 202, as it will be."""
    if memory.is_queued:
        response.status_code = 202
    return _show_memory(memory)


def _open(caller: Caller) -> Memories:
    return Memories.of(caller.service.team, caller.owner)


def _explain(backlog: Backlog, unavailable: str = "") -> dict[str, Any]:
    """Return what to say of what was read. unavailable: why the index was not used; "": it was."""
    waiting = backlog.waiting
    notice = unavailable and f"{unavailable}: this is what was said; facts are in the index alone"
    if waiting:
        notice = f"{'1 message is' if waiting == 1 else f'{waiting:,} messages are'} not recorded yet"
    return {"notice": notice, "not_recorded": waiting}


def _show_receipt(receipt: Receipt) -> dict[str, Any]:
    """Return the receipt as its user knows the sessions."""
    sessions = [public_session_id(session_id) for session_id in receipt.deleted.sessions]
    near = [replace(near, session_id=public_session_id(near.session_id)) for near in receipt.near]
    return replace(receipt, deleted=replace(receipt.deleted, sessions=sessions), near=near).to_dict()


async def _find_session(caller: Caller, session_id: str | None) -> str | None:
    """Return the id under which the store knows the session. Raise UnknownSessionError."""
    if session_id is None:
        return None
    return (await caller.sessions.get(session_id)).session_id


async def _find(caller: Caller, memory_id: str) -> Memory:
    memory = await _open(caller).find(memory_id)
    if memory is None:
        raise HTTPException(404, "There is no such memory")
    return memory


def _show_memory(memory: Memory, reader: str | None = None) -> MemoryEntry:
    """reader: the agent that recalls it; None: nobody does."""
    seen_because: Literal["own", "user", "won"] | None = None
    if reader is not None:
        seen_because = "user" if memory.agent_id == USER else "own" if find_author(memory, reader) == reader else "won"
    shown = {"session_id": public_session_id(memory.session_id), "seen_because": seen_because}
    return MemoryEntry.model_validate(memory.to_dict() | shown)
