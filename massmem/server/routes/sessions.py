"""`/api/v1/sessions`: conversations with their turns, as the page shows them; to name, fork, export and search them."""

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from datetime import datetime
from importlib.metadata import version
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import Field
from starlette.exceptions import HTTPException

from massmem.config.jobs import read_jobs
from massmem.config.models import AgentConfig, TeamConfig
from massmem.core.errors import InputError
from massmem.core.ids import MAX_NAME_LENGTH
from massmem.core.messages import clean_name, read_attached_files, split_question
from massmem.core.prompts import build_system_prompt
from massmem.core.records import MessageRecord, PublicSession, SessionRecord, TurnRecord
from massmem.core.text import cut_excerpt, match_any
from massmem.core.turn_result import TurnResult, TurnSummary
from massmem.export import FORMATS
from massmem.memory.tokens import Buffer
from massmem.server.dependencies import Authorized, CheckedRoute, Limit, Offset, QueryWords, SessionPath
from massmem.server.errors import PROBLEMS, TURN_PROBLEMS
from massmem.server.responses import read_results_of, show_event
from massmem.server.schemas import MAX_LIST_LENGTH, MAX_SESSION_ID_LENGTH, Body, SmallBody
from massmem.session.owners import public_session_id
from massmem.session.session import Session
from massmem.session.team import Team
from massmem.store.lookup import require_turn
from massmem.store.ports import SessionStore
from massmem.tools.documents import File, read_document, read_files
from massmem.turn.compressor import AgentContext

router = APIRouter(route_class=CheckedRoute, prefix="/api/v1", tags=["sessions"], responses=PROBLEMS)

_TEXTS = {"question", "answer", "data", "dissent", "candidates"}
_NOT_LISTED = {"last_message", "message_count", "model", "config_path", "description"}
"""Of a session; a session that is asked for has them."""
MAX_TEXT = 50_000
"""Characters of a message in a list; the rest is read with the message itself."""

_MAX_SEQ = 2**53
_MEDIA_TYPES = {"json": "application/json", "md": "text/markdown", "txt": "text/plain", "html": "text/html"}
_EXPORT: dict[int | str, dict[str, Any]] = {
    200: {
        "content": {
            media_type: {"schema": {"type": "object" if media_type == "application/json" else "string"}}
            for media_type in _MEDIA_TYPES.values()
        }
    }
}

_TEXT: dict[int | str, dict[str, Any]] = {200: {"content": {"text/plain": {"schema": {"type": "string"}}}}}
Within = Annotated[str | None, Query(max_length=MAX_SESSION_ID_LENGTH, description="It alone.", examples=["session_1"])]
_FILE_BODY: dict[str, Any] = {
    "requestBody": {"required": True, "content": {"application/octet-stream": {"schema": {"format": "binary"}}}}
}
_FILE: dict[int | str, dict[str, Any]] = {
    200: {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}
}


class AgentEntry(Body):
    id: str
    name: str
    """Its id when it has no name."""
    model: str
    """Its model, or the kind of its model when that has no name."""


class TeamEntry(Body):
    name: str | None
    """Empty: the default; null: no request can name it."""
    agents: list[AgentEntry]
    adaptive: bool
    """Not all of them are always asked, see `coordination.depth`."""


class JobEntry(Body):
    name: str
    summary: str


class OwnerUsage(Body):
    """Of the user; null: no limit."""

    bytes: int
    max_bytes: int | None
    sessions: int
    max_sessions: int | None
    messages: int
    max_messages: int | None


class About(Body):
    user: str | None
    version: str
    teams: list[TeamEntry]
    jobs: list[JobEntry]
    """What any of them can do with a question."""
    remembers: bool
    max_file_size: int
    is_operator: bool
    warning: str | None
    first_start: bool
    usage: OwnerUsage


class SessionList(Body):
    sessions: list[PublicSession]
    total: int


class FileEntry(Body):
    name: str
    media_type: str
    size: int
    hash: str


class TextEntry(Body):
    name: str
    length: int


class CheckedFile(Body):
    name: str
    kind: Literal["text", "seen"]
    """text: its text is added to the question; seen: models see it as it looks."""
    length: int


class SessionMessage(Body):
    """A question, a reply to the agents, a note or a final answer."""

    seq: int
    turn: int
    role: Literal["user", "assistant"]
    agent_id: str | None
    agent: str | None
    text: str
    """The text, or its beginning; of a question without the texts of files."""
    length: int
    texts: list[TextEntry]
    description: str
    """Of a question: how its pictures were described for agents that do not see; empty: they were not."""
    is_note: bool
    waiting_for: str | None
    param: str | None
    """The message was the reply to a question for the value with this name, and is not shown."""
    files: list[FileEntry]
    created_at: datetime


class SessionPart(Body):
    session: PublicSession
    messages: list[SessionMessage]
    turns: list[TurnSummary]
    """What they came to, without the texts that stand in `messages`."""
    has_older: bool
    follow_after: int | None
    """A turn is under way: follow its events from this number on; null: none is."""
    team: TeamEntry
    note: str
    """Why another team goes on; empty: the same one does."""


class TurnDetails(Body):
    turn: TurnResult
    """What it came to."""
    events: list[dict[str, Any]]
    """Its events in order, without the pieces of streamed replies; see the documentation of events."""


class NewTitle(SmallBody):
    title: Annotated[str, Field(min_length=1, max_length=MAX_NAME_LENGTH, examples=["Trip to Lisbon"])]


class ForkRequest(SmallBody):
    turn: Annotated[int | None, Field(ge=1, le=1_000_000)] = None
    """The last turn that is copied; left out: the last one that has ended."""
    event: Annotated[int | None, Field(ge=1, le=_MAX_SEQ)] = None
    """Everything up to the event with this number, as in the stream of events; goes before `turn`."""


class VersionChoice(SmallBody):
    turn: Annotated[int, Field(ge=1, le=1_000_000)]
    """The number of the version, see `versions` of a turn."""


class SearchHit(Body):
    session_id: str
    title: str
    turn: int
    seq: int | None
    """Of the message; null: it stands in the log of its turn, not among the messages of the conversation."""
    role: Literal["user", "assistant", "tool"]
    agent: str | None
    excerpt: str
    created_at: datetime


class SearchHits(Body):
    hits: list[SearchHit]


@router.get("/about")
async def about(caller: Authorized) -> About:
    """Who is asking, and which teams can be asked for what."""
    jobs, left_out = await asyncio.to_thread(read_jobs, caller.service.settings.home, "")
    service, limits = caller.service, caller.service.settings.config.server.limits
    used = await service.turns.measure(caller.owner)
    return About(
        user=caller.sub,
        version=version("massmem"),
        teams=[_show_team(name, team.config, team.agents) for name, team in service.teams.named.items()],
        jobs=[JobEntry(name=job.name, summary=job.config.summary) for job in jobs],
        remembers=service.team.memory.enabled,
        max_file_size=service.settings.config.files.max_size,
        is_operator=caller.is_operator,
        warning="\n".join(filter(None, [service.warning, *(left_out if caller.is_operator else [])])) or None,
        first_start=service.settings.first_start,
        usage=OwnerUsage(
            bytes=used.bytes,
            max_bytes=limits.bytes_per_user or None,
            sessions=used.sessions - used.by_status.get("deleting", 0),
            max_sessions=limits.sessions_per_user or None,
            messages=used.messages,
            max_messages=limits.memories_per_user or None,
        ),
    )


@router.get("/sessions", response_model_exclude={"sessions": {"__all__": _NOT_LISTED}})
async def sessions(
    caller: Authorized,
    limit: Limit = 50,
    offset: Offset = 0,
    text: Annotated[str, Query(max_length=200, description="With this in id, title or last message.")] = "",
) -> SessionList:
    """The user's sessions, the last used first."""
    page = await caller.sessions.list_conversations(limit, offset, text)
    return SessionList(sessions=[*map(caller.sessions.publish, page.sessions)], total=page.total)


@router.get("/sessions/{session_id}", response_model_exclude={"turns": {"__all__": _TEXTS}})
async def session(
    session_id: SessionPath,
    caller: Authorized,
    before: Annotated[int | None, Query(ge=1, le=_MAX_SEQ, description="Messages before this number.")] = None,
    limit: Limit = 50,
) -> SessionPart:
    """A session, and a part of its messages."""
    record, store = await caller.sessions.get(session_id), caller.service.team.store
    last = await store.get_last_turn(record.session_id)
    messages = (await store.read_conversation(record.session_id, before, limit + 1))[::-1]
    has_older, messages = len(messages) > limit, messages[-limit:]
    numbers = {message.turn for message in messages}
    if last is not None and before is None:
        numbers.add(last.turn)
    follow_after = await _find_start(store, record, last)
    teams = caller.service.teams
    upcoming = await teams.describe_next(record)
    name = next((name for name, team in teams.named.items() if team.config is upcoming.config), None)
    return SessionPart(
        session=await caller.sessions.describe(record),
        messages=[_show_message(message) for message in messages],
        turns=[*(await read_results_of(caller, record, numbers)).values()],
        has_older=has_older,
        follow_after=follow_after,
        team=_show_team(name, upcoming.config, upcoming.agents),
        note=upcoming.note,
    )


async def _find_start(store: SessionStore, session: SessionRecord, last: TurnRecord | None) -> int | None:
    """Return the number of the event before the turn that is under way; None when none is."""
    if last is None or last.status != "running" or session.status == "interrupted":
        return None
    messages = await store.read_turn_messages(session.session_id, last.turn)
    return messages[0].seq - 1 if messages else 0


@router.get("/sessions/{session_id}/turns/{turn}")
async def turn(
    session_id: SessionPath,
    turn: Annotated[int, Path(ge=1, le=1_000_000, description="Its number, from 1.", examples=[1])],
    caller: Authorized,
) -> TurnDetails:
    """A turn with its events."""
    record = await caller.sessions.get(session_id)
    store = caller.service.team.store
    try:
        await require_turn(store, record.session_id, turn)
    except InputError as e:
        raise HTTPException(404, "There is no such turn") from e
    events = await store.read_turn_events(record.session_id, turn)
    public = [*filter(None, (show_event(event, is_local=caller.is_local) for event in events))]
    [result] = (await read_results_of(caller, record, {turn})).values()
    return TurnDetails(turn=result, events=[event.model_dump(mode="json") for event in public])


@router.post("/sessions/{session_id}/version", status_code=204, responses={409: TURN_PROBLEMS[409]})
async def choose_version(session_id: SessionPath, body: VersionChoice, caller: Authorized) -> None:
    """Show another version of a turn, with what followed it, in place of the one that is shown."""
    record = await caller.sessions.get(session_id)
    await caller.service.turns.wait_for_end(record.session_id)
    await caller.sessions.choose_version(record, body.turn)


@router.get("/sessions/{session_id}/messages/{seq}", response_class=Response, responses=_TEXT)
async def message(
    session_id: SessionPath,
    seq: Annotated[int, Path(ge=1, le=_MAX_SEQ, description="Its number in the log.", examples=[1])],
    caller: Authorized,
    part: Annotated[
        int | None, Query(ge=0, le=MAX_LIST_LENGTH, description="0: the question alone; 1: the first text below it.")
    ] = None,
) -> Response:
    """The whole text of a question or a final answer, or of one of the files of a question."""
    record = await caller.sessions.get(session_id)
    messages = await caller.service.team.store.read_conversation(record.session_id, seq + 1, 1)
    if not messages or messages[0].seq != seq:
        raise HTTPException(404, "There is no such message")
    text = messages[0].public_text
    if part is not None:
        asked, texts, _ = split_question(text, read_attached_files(messages[0].metadata))
        if part > len(texts):
            raise HTTPException(404, "There is no such text")
        text = texts[part - 1][1] if part else asked
    return Response(text, media_type="text/plain; charset=utf-8")


@router.post("/files/check", openapi_extra=_FILE_BODY)
async def check_file(
    request: Request,
    caller: Authorized,
    name: Annotated[str, Query(min_length=1, max_length=200, description="Of the file.", examples=["notes.txt"])],
) -> CheckedFile:
    """Say whether the body, a file, can be attached to a question. Nothing is stored."""
    name, data = clean_name(name), await request.body()
    most = caller.service.settings.config.files.max_size
    if len(data) > most:
        raise InputError(f"{name} is larger than {most:,} bytes", "send a smaller one")
    try:
        [document] = await read_files([File(read_document, name, data)], caller.name)
    except InputError as e:
        raise InputError(f"{e.message}; {e.hint}") from e
    if document.is_seen:
        return CheckedFile(name=name, kind="seen", length=0)
    return CheckedFile(name=name, kind="text", length=len(document.text))


@router.get("/sessions/{session_id}/files/{file_hash}", response_class=Response, responses=_FILE)
async def file(
    session_id: SessionPath,
    file_hash: Annotated[
        str, Path(max_length=64, pattern="^[0-9a-f]{64}$", description="The hash of its bytes.", examples=["0" * 64])
    ],
    caller: Authorized,
) -> Response:
    """A file that a question came with."""
    record = await caller.sessions.get(session_id)
    files = await caller.service.team.store.load_files(record.session_id, [file_hash])
    if file_hash not in files:
        raise HTTPException(404, "There is no such file")
    # Never as what it claims to be: a browser must not run it.
    return Response(files[file_hash], media_type="application/octet-stream")


@router.post("/sessions/{session_id}/rename")
async def rename(session_id: SessionPath, body: NewTitle, caller: Authorized) -> PublicSession:
    """Give a session a name, which no other session of the user has."""
    sessions = caller.sessions
    return await sessions.describe(await sessions.rename(await sessions.get(session_id), body.title))


@router.post("/sessions/{session_id}/fork", responses={409: TURN_PROBLEMS[409]})
async def fork(session_id: SessionPath, body: ForkRequest, caller: Authorized) -> PublicSession:
    """Begin a new session with a copy of this one, up to the end of a turn, or to any event.

    A turn that had not ended at that event is unfinished in the new session, and can be continued.
    """
    sessions = caller.sessions
    record = await sessions.get(session_id)
    await caller.service.turns.check_room(caller.owner, is_new=True)
    return await sessions.describe(await sessions.fork(record, body.turn, body.event))


@router.get("/sessions/{session_id}/export", response_class=StreamingResponse, responses=_EXPORT)
async def export(
    session_id: SessionPath,
    caller: Authorized,
    format: Annotated[Literal["json", "markdown", "text", "html"], Query(description="Of the file.")] = "json",
    detailed: Annotated[bool, Query(description="With rounds and reasoning; json always has them.")] = False,
) -> StreamingResponse:
    """The conversation as a file, without secrets."""
    record = await caller.sessions.get(session_id)
    form = FORMATS[format]

    async def write() -> AsyncGenerator[str]:
        async with aclosing(caller.sessions.export(record, form, detailed=detailed)) as pieces:
            async for piece, _ in pieces:
                yield piece

    headers = {"Content-Disposition": f'attachment; filename="{session_id}.{form.suffix}"'}
    return StreamingResponse(write(), headers=headers, media_type=_MEDIA_TYPES[form.suffix])


@router.get("/search")
async def search(query: QueryWords, caller: Authorized, limit: Limit = 20, session_id: Within = None) -> SearchHits:
    """Find messages in one session, or in all sessions of the user, by their words."""
    within = None if session_id is None else await caller.sessions.get(session_id)
    words = query.split()
    roles: dict[str, Literal["user", "tool"]] = {"user": "user", "tool_result": "tool"}
    hits = [
        SearchHit(
            session_id=public_session_id(hit.session.session_id),
            title=hit.session.display_title,
            turn=hit.message.turn,
            seq=hit.message.seq if hit.message.kind == "user" or hit.message.final else None,
            role=roles.get(hit.message.kind, "assistant"),
            agent=hit.message.agent_name or None,
            excerpt=_excerpt_question(hit.message, words)
            if hit.message.kind == "user"
            else cut_excerpt(hit.text, words),
            created_at=hit.message.created_at,
        )
        for hit in await caller.sessions.search(query, limit, within)
    ]
    return SearchHits(hits=hits)


def _show_team(name: str | None, config: TeamConfig, agents: Sequence[AgentConfig]) -> TeamEntry:
    entries = [AgentEntry(id=a.id, name=a.display_name, model=a.backend.model or a.backend.type) for a in agents]
    return TeamEntry(name=name, agents=entries, adaptive=config.coordination.depth == "adaptive" and len(agents) > 1)


def _excerpt_question(message: MessageRecord, words: Sequence[str]) -> str:
    """Return the text around the words in a question, or in the text of one of its files, with the name of that."""
    asked, texts, _ = split_question(message.content, read_attached_files(message.metadata))
    pattern = match_any(words)
    for name, text in texts if pattern and not pattern.search(asked) else ():
        if pattern and pattern.search(text):
            return f"{name}: {cut_excerpt(text, words)}"
    return cut_excerpt(asked, words)


def _show_message(message: MessageRecord) -> SessionMessage:
    metadata, is_user = message.metadata, message.kind == "user"
    param, waiting_for = metadata.get("param"), metadata.get("waiting_for")
    files = read_attached_files(metadata)
    text, texts, description = message.public_text, list[tuple[str, str]](), ""
    if is_user:
        text, texts, description = split_question(text, files)
    return SessionMessage(
        seq=message.seq,
        turn=message.turn,
        role="user" if is_user else "assistant",
        agent_id=None if is_user else message.agent_id,
        agent=None if is_user else message.agent_name or None,
        text=text[:MAX_TEXT],
        length=len(text),
        texts=[TextEntry(name=name, length=len(text)) for name, text in texts],
        description=description[:MAX_TEXT],
        is_note=bool(metadata.get("note")),
        waiting_for=waiting_for if isinstance(waiting_for, str) else None,
        param=param if isinstance(param, str) else None,
        files=[FileEntry(name=file.name, media_type=file.media_type, size=file.size, hash=file.hash) for file in files],
        created_at=message.created_at,
    )


# What each agent would be sent next, part by part, with the tokens of each

_MAX_PART = 20_000
"""Characters of a part that are returned."""


class ContextQuestion(SmallBody):
    question: Annotated[str, Field(max_length=10_000, examples=["Why is the sky blue?"])] = ""
    """With it, the agents recall memories. Nothing is asked."""


PartKind = Literal["system", "tools", "summary", "history", "memories", "question"]


class ContextPart(Body):
    kind: PartKind
    """system: who the agent is; summary: stands for old messages; history: messages as they were said."""
    role: str | None
    tokens: int
    """By our count, corrected by what the provider has reported."""
    text: str
    length: int


class Compression(Body):
    removed: int
    remaining: int
    by: str
    """model: a model wrote the summary; extract: sentences were taken from the messages."""


class ContextEntry(Body):
    agent_id: str
    name: str
    model: str
    window: int
    is_assumed: bool
    threshold: float | None
    """The share of the window at which the prompt is compressed; null: only when the provider refuses."""
    tokens: int
    parts: list[ContextPart]
    compression: Compression | None


class ContextView(Body):
    agents: list[ContextEntry]


@router.post("/sessions/{session_id}/context")
async def context(session_id: SessionPath, body: ContextQuestion, caller: Authorized) -> ContextView:
    """The next prompt of each agent, part by part. Nothing is asked and nothing is stored."""
    record = await caller.sessions.get(session_id)
    team = await caller.service.teams.find(record)
    session = Session(team, record, owner=caller.owner)
    try:
        contexts = await session.preview(body.question)
    finally:
        await session.close()
    entries: list[ContextEntry] = []
    for agent_context in contexts.values():
        summary = await team.store.get_latest_summary(record.session_id, agent_context.prompt.agent_id)
        entries.append(_show_context(team, agent_context, summary))
    return ContextView(agents=entries)


def _show_context(team: Team, context: AgentContext, summary: MessageRecord | None) -> ContextEntry:
    compressor, prompt = context.compressor, context.prompt
    config, meter = compressor.config, compressor.meter
    parts = _list_parts(team, context, meter.buffer)
    settings = config.memory.compression
    compression = None
    if summary is not None and summary.content == prompt.summary:
        removed, remaining, by = (summary.metadata.get(name) for name in ("removed", "kept", "by"))
        compression = Compression(removed=int(removed or 0), remaining=int(remaining or 0), by=str(by or ""))
    return ContextEntry(
        agent_id=config.id,
        name=config.display_name,
        model=config.backend.model or config.backend.type,
        window=meter.window,
        is_assumed=meter.assumed,
        threshold=settings.trigger_threshold if settings.proactive else None,
        tokens=sum(part.tokens for part in parts),
        parts=parts,
        compression=compression,
    )


def _list_parts(team: Team, context: AgentContext, buffer: Buffer) -> list[ContextPart]:
    prompt = context.prompt
    specs = [tool.to_dict() for tool in team.tools.get_toolbox(prompt.agent_id).specs]
    parts = [
        _make_part("system", build_system_prompt(prompt.system), buffer),
        _make_part("tools", json.dumps(specs, indent=1, ensure_ascii=False) if specs else "", buffer),
        _make_part("summary", prompt.summary, buffer),
        *(_make_part("history", m.message.content, buffer, m.message.role) for m in prompt.history),
        _make_part("memories", prompt.memories, buffer),
        _make_part("question", prompt.question, buffer),
    ]
    return [part for part in parts if part.length]


def _make_part(kind: PartKind, text: str, buffer: Buffer, role: str | None = None) -> ContextPart:
    return ContextPart(kind=kind, role=role, tokens=buffer.cost_of_text(text), text=text[:_MAX_PART], length=len(text))
