"""massmem as an MCP server: other agents ask the council, and search what it remembers.

Tools, sessions and reports as resources, jobs as prompts. Nothing here needs FastAPI; `massmem.server.routes.mcp` does.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence
from contextlib import aclosing, contextmanager
from datetime import datetime
from importlib.metadata import version
from inspect import Parameter, signature
from typing import Annotated, Any, Literal
from urllib.parse import unquote, urlsplit

from mcp.server.context import CallNext, HandlerResult, ServerMiddleware, ServerRequestContext
from mcp.server.mcpserver import Context, ListRoots, MCPServer, Resolve
from mcp.server.mcpserver.exceptions import ResourceNotFoundError, ToolError
from mcp.server.mcpserver.prompts import Prompt
from mcp_types import CallToolResult, ListResourcesResult, ListRootsResult, Resource, TextContent, ToolAnnotations
from pydantic import AfterValidator, BaseModel, Field

from massmem.config.home import massmem_home
from massmem.config.jobs import Job, read_jobs
from massmem.core.errors import InputError, MassmemError, SessionBusyError, UnknownSessionError
from massmem.core.events import Event, TurnCompleted, TurnResumed, TurnStarted
from massmem.core.records import PublicSession
from massmem.core.text import shorten
from massmem.core.transcript import LoggedTurn
from massmem.core.turn_result import TurnResult, TurnSummary
from massmem.export import Markdown, describe_status
from massmem.memory.persistent import Memory, Selection
from massmem.render.text import describe_event
from massmem.render.turn_view import TurnView
from massmem.server.mcp_access import Access, CouncilQuestion, Project, SessionId, Text
from massmem.server.schemas import MAX_QUERY_LENGTH, check_words
from massmem.session.memories import Memories, View
from massmem.session.owners import public_session_id
from massmem.session.sessions import Sessions

_INSTRUCTIONS = (
    "Several models answer a question together: they answer on their own, read each other's answers, vote, and the "
    "winner writes the final answer. What was said is remembered. ask_council takes seconds to minutes and costs as "
    "much as all its models: use it for questions that are worth several opinions."
)

_MAX_RESOURCES, _JSON = 200, "application/json"
_MAX_QUESTION, _STEPS = 1_000, 5
"""Characters of a question, and newest steps of a turn under way, that a reply shows."""
_POLL_SECONDS, _STOP_SECONDS = 0.25, 5.0
_READS = ToolAnnotations(read_only_hint=True)
_ASK = (
    "Ask a council of several models, and wait for its answer. Without session_id a new conversation begins. "
    "When the call ends before, check_council has the answer later."
)
_START = "Ask as ask_council does, and return at once: check_council has the answer when it is there."
_DO_JOB = (
    "Let the council of massmem do this: call ask_council with job {job!r} ({summary}) and the question below. The "
    "council does not see this conversation: put what bears on it word for word into evidence (diffs, logs, excerpts, "
    "what we know and what binds us), and name files or a folder where they matter. Give no secrets. If the call ends "
    "before the answer is there, check_council has it. Show me the result as it is, with who disagrees and why."
)
_NOTES = {
    "running": "The council is at work; check_council shows how far it is, and its answer.",
    "interrupted": "The turn was stopped; start_council with this session_id, and no question, goes on with it.",
}

GetAccess = Callable[[Any], Access]
"""Returns what the sender of a request may use; it is given the HTTP request, None over stdio."""

QueryText = Annotated[str, Field(min_length=1, max_length=MAX_QUERY_LENGTH), AfterValidator(check_words)]
MemoryIds = Annotated[list[Annotated[str, Field(max_length=100)]], Field(min_length=1, max_length=100)]
WaitSeconds = Annotated[float, Field(ge=0, le=50, description="For the answer.")]
Events = AsyncGenerator[Event, None]
Answer = Callable[[Access, Events, Context[Any, Any]], Awaitable[CallToolResult]]
CouncilReply = Annotated[CallToolResult, TurnSummary]


class FoundMemory(BaseModel):
    id: str
    text: str
    session_id: str
    turn: int
    agent_id: str
    """Who said it; user: the user."""
    project: str
    """Empty: it is global."""
    created_at: datetime


class SearchResult(BaseModel):
    memories: list[FoundMemory]
    beyond: list[FoundMemory]
    """What bears less on the words."""
    not_recorded: int = 0
    """Messages that become memories in a while."""


class SessionList(BaseModel):
    sessions: list[PublicSession]


class SessionMessage(BaseModel):
    role: Literal["user", "assistant"]
    text: str
    agent: str = ""
    created_at: datetime


class SessionMessages(BaseModel):
    session_id: str
    messages: list[SessionMessage]


class Noted(BaseModel):
    session_id: str
    id: str
    note: str


def create_mcp_server(get_access: GetAccess) -> MCPServer[Any]:
    """Return the server; run it over stdio or HTTP. get_access: called for each request."""

    async def read_prompts(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        if ctx.method.startswith("prompts/"):
            jobs, _ = await asyncio.to_thread(read_jobs, massmem_home(), "")
            for prompt in await server.list_prompts():
                server.remove_prompt(prompt.name)
            for job in jobs:
                server.add_prompt(_make_prompt(job))
        return await call_next(ctx)

    server: MCPServer[Any] = MCPServer(
        "massmem",
        instructions=_INSTRUCTIONS,
        version=version("massmem"),
        log_level="WARNING",
        subscriptions=False,
        middleware=[_list_resources_for(get_access), read_prompts],
    )
    _add_council(server, get_access)
    _add_memory(server, get_access)
    _add_sessions(server, get_access)
    return server


def _make_prompt(job: Job) -> Prompt:
    """Return what a user of the calling agent chooses to have the council do the job."""

    def prompt(question: Annotated[str, Field(description="What it is about.")]) -> str:
        return f"{_DO_JOB.format(job=job.name, summary=job.config.summary)}\n\n{question}"

    return Prompt.from_function(prompt, job.name, description=job.config.summary)


def _show_memory(memory: Memory) -> FoundMemory:
    return FoundMemory.model_validate(memory.to_dict() | {"session_id": public_session_id(memory.session_id)})


def _add_council(server: MCPServer[Any], get_access: GetAccess) -> None:
    def make_tool(
        answer: Callable[[Access, Events, Context[Any, Any]], Awaitable[CallToolResult]],
    ) -> Callable[..., Any]:
        async def tool(
            ctx: Context[Any, Any], roots: Annotated[ListRootsResult, Resolve(_ask_for_roots)], **fields: Any
        ) -> CouncilReply:
            folders = [unquote(urlsplit(str(root.uri)).path) for root in roots.roots]
            with _explain_errors():
                access = get_access(ctx.request_context.request)
                async with aclosing(access.ask(CouncilQuestion(**fields), folders)) as events:
                    return await answer(access, events, ctx)

        return _take_fields(tool, CouncilQuestion)

    server.add_tool(make_tool(_follow), "ask_council", description=_ASK)
    server.add_tool(make_tool(_begin), "start_council", description=_START)

    @server.tool(annotations=_READS)
    async def check_council(
        ctx: Context[Any, Any], session_id: SessionId | None = None, wait_seconds: WaitSeconds = 0
    ) -> CouncilReply:
        """Show how the last question of a conversation stands, by default the newest one; no model is asked."""
        with _explain_errors():
            return await _check(get_access(ctx.request_context.request), session_id, wait_seconds)

    @server.tool()
    async def cancel_council(session_id: SessionId, ctx: Context[Any, Any]) -> CouncilReply:
        """Stop the question of a conversation that is under way."""
        with _explain_errors():
            access = get_access(ctx.request_context.request)
            await access.stop((await Sessions.of(access.team, access.owner).get(session_id)).session_id)
            return await _check(access, session_id, _STOP_SECONDS)


def _take_fields(tool: Callable[..., Any], source: Callable[..., Any]) -> Callable[..., Any]:
    """Return a tool whose `**fields` are the parameters of `source`: the library reads them from its signature."""
    plain = signature(tool)
    own = [p for p in plain.parameters.values() if p.kind is not Parameter.VAR_KEYWORD]
    fields = [*own, *signature(source).parameters.values()]
    parameters = [field.replace(kind=Parameter.KEYWORD_ONLY) for field in fields]
    tool.__signature__ = plain.replace(parameters=parameters)  # pyright: ignore[reportFunctionMemberAccess]
    return tool


def _ask_for_roots(ctx: Context[Any, Any], files: Sequence[str], folder: str | None) -> ListRoots | ListRootsResult:
    """Ask a client on this machine for its folders, when it has some and the question names files."""
    capabilities, is_local = ctx.client_capabilities, ctx.request_context.request is None
    has_roots = is_local and capabilities is not None and capabilities.roots is not None
    return ListRoots() if has_roots and (files or folder) else ListRootsResult(roots=[])


def _add_memory(server: MCPServer[Any], get_access: GetAccess) -> None:
    @server.tool(annotations=_READS)
    async def recall(
        query: QueryText,
        ctx: Context[Any, Any],
        limit: Annotated[int, Field(ge=1, le=100)] = 10,
        project: Project = None,
    ) -> SearchResult:
        """Find what was said, answered and noted in earlier conversations with the council, by meaning and words."""
        with _explain_errors():
            access = get_access(ctx.request_context.request)
            memories = await Memories.of(access.team, access.owner, access.project).of_project(project)
            hits = await memories.search(query, View(), limit)
            return SearchResult(
                not_recorded=hits.backlog.waiting,
                memories=[*map(_show_memory, hits.recalled.memories)],
                beyond=[*map(_show_memory, hits.beyond)],
            )

    @server.tool()
    async def remember(
        text: Text, ctx: Context[Any, Any], session_id: SessionId | None = None, project: Project = None
    ) -> Noted:
        """Store a note, word for word; agents recall it where it bears on a question. forget takes its id."""
        with _explain_errors():
            access = get_access(ctx.request_context.request)
            await access.check_room()
            memories = await Memories.of(access.team, access.owner, access.project).of_project(project)
            if session_id is not None:
                session_id = (await Sessions.of(access.team, access.owner).get(session_id)).session_id
            stored_id, memory = await memories.add(text, session_id)
            return Noted(session_id=public_session_id(stored_id), id=memory.id, note=memory.note)

    @server.tool(annotations=ToolAnnotations(destructive_hint=True))
    async def forget(ids: MemoryIds, ctx: Context[Any, Any]) -> dict[str, int | str]:
        """Delete memories for good, by the ids that recall gives."""
        with _explain_errors():
            access = get_access(ctx.request_context.request)
            count, note = await Memories.of(access.team, access.owner).forget(Selection(ids=tuple(ids)))
            return {"memories": count, "note": note}


def _add_sessions(server: MCPServer[Any], get_access: GetAccess) -> None:
    @server.tool(annotations=_READS)
    async def list_sessions(ctx: Context[Any, Any], limit: Annotated[int, Field(ge=1, le=200)] = 20) -> SessionList:
        """List the conversations with the council, the last used first."""
        with _explain_errors():
            return await _list_sessions(get_access(ctx.request_context.request), limit)

    @server.tool(annotations=_READS)
    async def read_session(
        session_id: SessionId, ctx: Context[Any, Any], limit: Annotated[int, Field(ge=1, le=1_000)] = 50
    ) -> SessionMessages:
        """Read the newest questions and final answers of a conversation."""
        with _explain_errors():
            return await _read_session(get_access(ctx.request_context.request), session_id, limit)

    @server.resource("massmem://sessions/{session_id}", mime_type=_JSON)
    async def session_resource(session_id: str, ctx: Context[Any, Any]) -> str:
        """A conversation: its questions and final answers."""
        with _explain_absence():
            return (await _read_session(get_access(ctx.request_context.request), session_id, 1_000)).model_dump_json()

    @server.resource("massmem://reports/{session_id}", mime_type="text/markdown")
    async def report_resource(session_id: str, ctx: Context[Any, Any]) -> str:
        """What the last question of a conversation came to: answer, sources, who said what, votes."""
        with _explain_absence():
            result, _ = await _look(get_access(ctx.request_context.request), session_id)
            return _write(result.model_copy(update={"report": result.make_report()}))


def _list_resources_for(get_access: GetAccess) -> ServerMiddleware[Any]:
    """Return what answers `resources/list` with the sessions of the sender: the SDK lists the same for everybody."""

    async def list_resources(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        if ctx.method != "resources/list":
            return await call_next(ctx)
        listed = await _list_sessions(get_access(ctx.request), _MAX_RESOURCES)
        named = [(entry.session_id, entry.title or None) for entry in listed.sessions]
        resources = [Resource(name=n, title=t, uri=f"massmem://sessions/{n}", mime_type=_JSON) for n, t in named]
        return ListResourcesResult(resources=resources)

    return list_resources


async def _list_sessions(access: Access, limit: int) -> SessionList:
    sessions = Sessions.of(access.team, access.owner)
    page = await sessions.list_conversations(limit)
    return SessionList(sessions=[*map(sessions.publish, page.sessions)])


async def _read_session(access: Access, session_id: str, limit: int) -> SessionMessages:
    session = await Sessions.of(access.team, access.owner).get(session_id)
    newest_first = await access.team.store.read_conversation(session.session_id, None, limit)
    messages = [
        SessionMessage(role=m.speaker, text=m.public_text, agent=m.agent_name, created_at=m.created_at)
        for m in reversed(newest_first)
    ]
    return SessionMessages(session_id=session_id, messages=messages)


async def _begin(_access: Access, events: Events, _ctx: Context[Any, Any]) -> CallToolResult:
    """Return the turn once it has begun."""
    result = TurnResult()
    while not result.turn:
        result.feed(await anext(events))
    return _reply(result)


async def _follow(access: Access, events: Events, ctx: Context[Any, Any]) -> CallToolResult:
    """Return what the turn has come to; report its progress, a line for each step. Raise ToolError: nothing."""
    view, steps = TurnView(), 0
    async for event in events:
        view.feed(event)
        if (line := _describe(event, view)) is not None:
            steps += 1
            await ctx.report_progress(steps, None, line)
    result = view.result
    if result.status in ("failed", "limit") and result.answer is None:
        raise ToolError("no agent could answer")
    if result.status in ("running", "interrupted"):
        raise ToolError("the turn was stopped")
    return await _check(access, result.session_id, 0)


def _describe(event: Event, view: TurnView) -> str | None:
    is_silent = isinstance(event, TurnStarted | TurnResumed | TurnCompleted)
    return None if is_silent else describe_event(event, view)


async def _check(access: Access, session_id: str | None, seconds: float) -> CallToolResult:
    """Return how the last turn of a session stands: once it has ended, or after so many seconds. Raise InputError."""
    clock = asyncio.get_running_loop().time
    until = clock() + seconds
    while True:
        result, steps = await _look(access, session_id)
        if result.status != "running" or clock() >= until:
            return _reply(result, steps[-_STEPS:])
        session_id = result.session_id
        await asyncio.sleep(_POLL_SECONDS)


async def _look(access: Access, session_id: str | None) -> tuple[TurnResult, list[str]]:
    """Return the last turn of a session, and the steps of that. session_id: None: the session that was asked last."""
    sessions, store = Sessions.of(access.team, access.owner), access.team.store
    if session_id is None:
        candidates = [listed.session for listed in (await sessions.list_conversations(_MAX_RESOURCES)).sessions]
    else:
        candidates = [await sessions.get(session_id)]
    for session in candidates:
        if (turn := await store.get_last_turn(session.session_id)) is None:
            continue
        view, steps = TurnView(), list[str]()
        logged = await store.read_turn_events(session.session_id, turn.turn)
        for event in filter(None, map(access.show, logged)):
            view.feed(event)
            steps += filter(None, [_describe(event, view)])
        if view.result.status == "running" and session.status == "interrupted":
            view.result.status = "interrupted"  # a kill cut it off
        return view.result, steps
    raise InputError("no question has been asked", "ask_council asks one")


def _reply(result: TurnResult, steps: Sequence[str] = ()) -> CallToolResult:
    """Return what a turn has come to so far, as text and in its public form."""
    parts = [_write(result), f"session_id: {result.session_id}, turn {result.turn}: {describe_status(result)}"]
    parts += [*(steps if result.status == "running" else ()), *filter(None, [_NOTES.get(result.status)])]
    summary = TurnSummary.model_validate(result.model_dump(include=set(TurnSummary.model_fields)))
    summary.question = shorten(summary.question, _MAX_QUESTION)
    content = TextContent(type="text", text="\n".join(parts))
    return CallToolResult(content=[content], structured_content=summary.model_dump(mode="json"))


def _write(result: TurnResult) -> str:
    asked = {"question": shorten(result.question, _MAX_QUESTION)}
    return Markdown().write_turn(LoggedTurn(result.model_copy(update=asked), ()), first=True, detailed=False)


@contextmanager
def _explain_absence() -> Generator[None]:
    try:
        yield
    except (UnknownSessionError, InputError) as e:
        raise ResourceNotFoundError("there is no such session") from e


@contextmanager
def _explain_errors() -> Generator[None]:
    """Make errors that the caller can do something about errors of the tool; others name hosts and files."""
    try:
        yield
    except UnknownSessionError as e:
        raise ToolError("there is no such session; list_sessions lists those that there are") from e
    except SessionBusyError as e:
        raise ToolError("another question to this session is under way; ask again when it has ended") from e
    except InputError as e:
        raise ToolError(f"{e.message}: {e.hint}" if e.hint else e.message) from e
    except MassmemError as e:
        raise ToolError("massmem cannot answer now; its log says why") from e
