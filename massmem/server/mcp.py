"""massmem as an MCP server: other agents ask the council, and search what it remembers.

Five tools, and sessions as resources, for one user. Nothing here needs FastAPI; `massmem.server.routes.mcp` does.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import aclosing, contextmanager
from datetime import datetime
from importlib.metadata import version
from typing import Annotated, Any, Literal, Protocol

from mcp.server.context import CallNext, HandlerResult, ServerMiddleware, ServerRequestContext
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ResourceNotFoundError, ToolError
from mcp_types import ListResourcesResult, Resource
from pydantic import AfterValidator, BaseModel, Field

from massmem.core.errors import InputError, MassmemError, SessionBusyError, UnknownSessionError
from massmem.core.events import Event, TurnCompleted, TurnResumed, TurnStarted, hide_private_fields
from massmem.core.records import COMMAND_LINE_USER, Owner, PublicSession
from massmem.core.turn_result import TurnSummary
from massmem.memory.persistent import Memory
from massmem.render.text import describe_event
from massmem.render.turn_view import TurnView
from massmem.server.schemas import MAX_QUERY_LENGTH, check_words
from massmem.session.memories import Memories, View
from massmem.session.owners import find_project, memory_group, name_notes, public_session_id, to_stored_id
from massmem.session.session import Session
from massmem.session.sessions import Sessions
from massmem.session.team import Team
from massmem.store.lookup import complete_result

MAX_LENGTH = 1_000_000
"""Characters of a question or a note."""

_INSTRUCTIONS = (
    "Several models answer a question together: they answer on their own, read each other's answers, vote, and the "
    "winner writes the final answer. What was said is remembered. ask_council takes seconds to minutes and costs as "
    "much as all its models: use it for questions that are worth several opinions."
)

_MAX_RESOURCES = 200


class Access(Protocol):
    team: Team
    owner: Owner
    project: str
    """The one of a caller who names none."""

    def show(self, event: Event) -> Event | None:
        """Return the event as the user may see it; None: not at all."""
        ...

    async def check_room(self) -> None:
        """Raise InputError: the user has no room for more."""
        ...

    def ask(self, question: str, session_id: str | None, project: str | None) -> AsyncGenerator[Event, None]:
        """Ask, and yield the events of the turn, with the id of the session as its user knows it.

        When nobody takes them to the end, the turn is stopped for good.

        session_id: as its user knows it; None: a new session. project: of a new one, as its user names it. Raises as
        `Session.ask`.
        """
        ...


GetAccess = Callable[[Any], Access]
"""Returns what the sender of a request may use; it is given the HTTP request, None over stdio."""

Text = Annotated[str, Field(min_length=1, max_length=MAX_LENGTH)]
QueryText = Annotated[str, Field(min_length=1, max_length=MAX_QUERY_LENGTH), AfterValidator(check_words)]
SessionId = Annotated[str, Field(max_length=128, description="The conversation, as list_sessions names it.")]


Project = Annotated[
    str | None,
    Field(
        max_length=4_096,
        description="Only what is in this project and what is global is recalled; empty: only what is global.",
    ),
]


class FoundMemory(BaseModel):
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


def create_mcp_server(get_access: GetAccess) -> MCPServer[Any]:
    """Return the server; run it over stdio or HTTP. get_access: called for each request."""
    server: MCPServer[Any] = MCPServer(
        "massmem",
        instructions=_INSTRUCTIONS,
        version=version("massmem"),
        log_level="WARNING",
        subscriptions=False,
        middleware=[_list_resources_for(get_access)],
    )
    _add_tools(server, get_access)
    _add_resource(server, get_access)
    return server


def _show_memory(memory: Memory) -> FoundMemory:
    return FoundMemory.model_validate(memory.to_dict() | {"session_id": public_session_id(memory.session_id)})


def _add_tools(server: MCPServer[Any], get_access: GetAccess) -> None:
    @server.tool()
    async def ask_council(
        question: Text, ctx: Context[Any, Any], session_id: SessionId | None = None, project: Project = None
    ) -> TurnSummary:
        """Ask a council of several models and wait for its answer. Without session_id a new conversation begins."""
        with _explain_errors():
            access = get_access(ctx.request_context.request)
            async with aclosing(access.ask(question, session_id, project)) as events:
                return await _follow(access, events, ctx)

    @server.tool()
    async def search_memory(
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
        """Store a note, word for word; agents recall it where it bears on a question."""
        with _explain_errors():
            access = get_access(ctx.request_context.request)
            return Noted(session_id=await _remember(access, text, session_id, project))

    @server.tool()
    async def list_sessions(ctx: Context[Any, Any], limit: Annotated[int, Field(ge=1, le=200)] = 20) -> SessionList:
        """List the conversations with the council, the last used first."""
        with _explain_errors():
            return await _list_sessions(get_access(ctx.request_context.request), limit)

    @server.tool()
    async def read_session(
        session_id: SessionId, ctx: Context[Any, Any], limit: Annotated[int, Field(ge=1, le=1_000)] = 50
    ) -> SessionMessages:
        """Read the newest questions and final answers of a conversation."""
        with _explain_errors():
            return await _read_session(get_access(ctx.request_context.request), session_id, limit)


def _add_resource(server: MCPServer[Any], get_access: GetAccess) -> None:
    @server.resource("massmem://sessions/{session_id}", mime_type="application/json")
    async def session_resource(session_id: str, ctx: Context[Any, Any]) -> str:
        """A conversation: its questions and final answers."""
        try:
            return (await _read_session(get_access(ctx.request_context.request), session_id, 1_000)).model_dump_json()
        except (UnknownSessionError, InputError) as e:
            raise ResourceNotFoundError("there is no such session") from e


def _list_resources_for(get_access: GetAccess) -> ServerMiddleware[Any]:
    """Return what answers `resources/list` with the sessions of the sender: the SDK lists the same for everybody."""

    async def list_resources(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        if ctx.method != "resources/list":
            return await call_next(ctx)
        listed = await _list_sessions(get_access(ctx.request), _MAX_RESOURCES)
        resources = [
            Resource(
                name=entry.session_id,
                title=entry.title or None,
                uri=f"massmem://sessions/{entry.session_id}",
                mime_type="application/json",
            )
            for entry in listed.sessions
        ]
        return ListResourcesResult(resources=resources)

    return list_resources


async def _remember(access: Access, text: str, session_id: str | None, project: str | None) -> str:
    """Store a note in a session of the user, by default in that of notes; return it. Raise as `Session.remember`."""
    name = session_id
    if name is None:
        project = (await Memories.of(access.team, access.owner, access.project).of_project(project)).project
        name = name_notes(access.owner, memory_group(access.team.config, access.owner), project)
    await access.check_room()
    stored_id = to_stored_id(access.owner, name)
    record = await access.team.store.get_session(stored_id)
    if session_id is not None or record is not None:
        record = await Sessions.of(access.team, access.owner).get(name)
    session = Session(access.team, record, session_id=stored_id, owner=access.owner, project=project)
    try:
        await session.remember(text)
    finally:
        await session.close()
    await access.team.memory.catch_up(stored_id)  # who notes something expects to find it
    return name


async def _list_sessions(access: Access, limit: int) -> SessionList:
    sessions = Sessions.of(access.team, access.owner)
    page = await sessions.list_conversations(limit)
    return SessionList(sessions=[*map(sessions.publish, page.sessions)])


async def _read_session(access: Access, session_id: str, limit: int) -> SessionMessages:
    session = await Sessions.of(access.team, access.owner).get(session_id)
    newest_first = await access.team.store.read_conversation(session.session_id, None, limit)
    messages = [
        SessionMessage(
            role=message.speaker,
            text=message.public_text,
            agent=message.agent_name or message.agent_id or "",
            created_at=message.created_at,
        )
        for message in reversed(newest_first)
    ]
    return SessionMessages(session_id=session_id, messages=messages)


async def _follow(access: Access, events: AsyncGenerator[Event, None], ctx: Context[Any, Any]) -> TurnSummary:
    """Return what the turn has come to; report its progress, a line for each step. Raise ToolError: nothing."""
    view, steps = TurnView(), 0
    async for event in events:
        view.feed(event)
        line = None if isinstance(event, TurnStarted | TurnResumed | TurnCompleted) else describe_event(event, view)
        if line is not None:
            steps += 1
            await ctx.report_progress(steps, None, line)
    result = view.result
    if result.status in ("failed", "limit") and result.answer is None:
        raise ToolError("no agent could answer")
    if result.status in ("running", "interrupted"):
        raise ToolError("the turn was stopped")
    result = await complete_result(
        access.team.store, to_stored_id(access.owner, result.session_id), result, access.show
    )
    return TurnSummary.model_validate(result.model_dump(include=set(TurnSummary.model_fields)))


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


class LocalAccess:
    owner = COMMAND_LINE_USER

    def __init__(self, team: Team, project: str = "") -> None:
        self.team, self.project = team, project
        self._tasks: set[asyncio.Task[None]] = set()

    def show(self, event: Event) -> Event | None:
        return hide_private_fields(event)

    async def check_room(self) -> None:
        """This machine's user has the whole disk."""

    async def ask(self, question: str, session_id: str | None, project: str | None) -> AsyncGenerator[Event, None]:
        record = None if session_id is None else await Sessions.of(self.team, self.owner).get(session_id)
        if project is not None:
            project = await find_project(self.team.store, self.owner, project)
        elif record is None:
            project = self.project
        session = Session(self.team, record, owner=self.owner, project=project)
        queue = asyncio.Queue[Event | MassmemError | None]()

        async def run() -> None:
            try:
                async with aclosing(session.ask(question)) as events:
                    async for event in events:
                        queue.put_nowait(event)
                queue.put_nowait(None)
            except MassmemError as e:
                queue.put_nowait(e)
            finally:
                await session.close()

        # Apart from the request: what cancels that must not keep the turn from storing that it was stopped.
        task = asyncio.create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            while (item := await queue.get()) is not None:
                if isinstance(item, MassmemError):
                    raise item
                yield item
        finally:
            session.stop("user")

    async def close(self) -> None:
        """Wait until the turns that were stopped have stored that."""
        await asyncio.gather(*self._tasks, return_exceptions=True)
