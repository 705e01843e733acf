"""The MCP server: five tools, and sessions as resources."""

from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import aclosing, contextmanager
from datetime import datetime
from importlib.metadata import version
from typing import Annotated, Any, Literal

from mcp.server.context import CallNext, HandlerResult, ServerMiddleware, ServerRequestContext
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ResourceNotFoundError, ToolError
from mcp_types import ListResourcesResult, Resource
from pydantic import BaseModel, Field

from massmem.core.errors import InputError, MassmemError, SessionBusyError, UnknownSessionError
from massmem.core.events import Event, TurnCompleted, TurnResumed, TurnStarted
from massmem.core.outcome import TurnOutcome
from massmem.render.text import describe_event
from massmem.render.turn_view import TurnView
from massmem.server.mcp import access as sessions
from massmem.server.mcp.access import Access

MAX_LENGTH = 1_000_000
"""Characters of a question or a note."""

_INSTRUCTIONS = (
    "Several models answer a question together: they answer on their own, read each other's answers, vote, and the "
    "winner writes the final answer. What was said is remembered. ask_council takes seconds to minutes and costs as "
    "much as all its models: use it for questions that are worth several opinions."
)

GetAccess = Callable[[Any], Access]
"""Returns what the sender of a request may use; it is given the HTTP request, None over stdio."""

_MAX_RESOURCES = 200

Text = Annotated[str, Field(min_length=1, max_length=MAX_LENGTH)]
SessionId = Annotated[str, Field(max_length=128, description="The conversation, as list_sessions names it.")]


class CouncilAnswer(BaseModel):
    """The final answer of the council."""

    answer: str
    """The answer, or what the user is asked for."""
    session_id: str
    """Goes on with the conversation when it is given to ask_council again."""
    turn: int
    status: Literal["completed", "limit", "waiting", "abandoned"]
    """waiting: ask the user, and give the reply to ask_council as the next question of this session."""
    agent: str | None = None
    """Whose answer won."""
    confidence: float | None = None
    """The share of the agents that stand behind the answer, 0 to 1."""
    agreement: str = ""
    """What is known of how far the agents agree, one sentence."""


class FoundMemory(BaseModel):
    text: str
    session_id: str
    turn: int
    agent: str
    """Who said it; user: the user."""
    created_at: datetime


class SearchResult(BaseModel):
    memories: list[FoundMemory]
    """The best ones first."""


class SessionEntry(BaseModel):
    session_id: str
    title: str
    status: str
    turns: int
    last_used: datetime


class SessionList(BaseModel):
    sessions: list[SessionEntry]
    """The last used first."""


class SessionMessage(BaseModel):
    role: Literal["user", "assistant"]
    text: str
    agent: str = ""
    """Of an answer: whose answer won."""
    created_at: datetime


class SessionMessages(BaseModel):
    session_id: str
    messages: list[SessionMessage]
    """Questions and final answers, oldest first."""


class Noted(BaseModel):
    session_id: str
    """The session that the note is in."""


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


def _add_tools(server: MCPServer[Any], get_access: GetAccess) -> None:
    @server.tool()
    async def ask_council(question: Text, ctx: Context[Any, Any], session_id: SessionId | None = None) -> CouncilAnswer:
        """Ask a council of several models and wait for its answer. Without session_id a new conversation begins."""
        with _explain_errors():
            access = get_access(ctx.request_context.request)
            async with aclosing(access.ask(question, session_id)) as events:
                return _make_answer(await _follow(events, ctx))

    @server.tool()
    async def search_memory(
        query: Text, ctx: Context[Any, Any], limit: Annotated[int, Field(ge=1, le=100)] = 10
    ) -> SearchResult:
        """Find what was said, answered and noted in earlier conversations with the council, by meaning and words."""
        with _explain_errors():
            access = get_access(ctx.request_context.request)
            recalled = await sessions.search_memories(access, query, limit)
            return SearchResult(
                memories=[
                    FoundMemory(
                        text=memory.text,
                        session_id=access.to_public_id(memory.session_id),
                        turn=memory.turn,
                        agent=memory.agent_id,
                        created_at=memory.created_at,
                    )
                    for memory in recalled.memories
                ]
            )

    @server.tool()
    async def remember(text: Text, ctx: Context[Any, Any], session_id: SessionId | None = None) -> Noted:
        """Store a note, word for word; agents recall it where it bears on a question."""
        with _explain_errors():
            return Noted(session_id=await sessions.remember(get_access(ctx.request_context.request), text, session_id))

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


async def _list_sessions(access: Access, limit: int) -> SessionList:
    entries = [
        SessionEntry(
            session_id=access.to_public_id(listed.session.session_id),
            title=listed.session.display_title,
            status=listed.session.status,
            turns=listed.turns,
            last_used=listed.session.updated_at,
        )
        for listed in await sessions.list_sessions(access, limit)
    ]
    return SessionList(sessions=entries)


async def _read_session(access: Access, session_id: str, limit: int) -> SessionMessages:
    messages = [
        SessionMessage(
            role="user" if message.kind == "user" else "assistant",
            text=message.public_text,
            agent=message.agent_name or message.agent_id or "",
            created_at=message.created_at,
        )
        for message in await sessions.read_messages(access, session_id, limit)
    ]
    return SessionMessages(session_id=session_id, messages=messages)


async def _follow(events: AsyncGenerator[Event, None], ctx: Context[Any, Any]) -> TurnOutcome:
    """Return what the turn has come to; report its progress, a line for each step."""
    outcome, view, steps = TurnOutcome(), TurnView(), 0
    async for event in events:
        outcome.feed(event)
        view.feed(event)
        line = None if isinstance(event, TurnStarted | TurnResumed | TurnCompleted) else describe_event(event, view)
        if line is not None:
            steps += 1
            await ctx.report_progress(steps, None, line)
    return outcome


def _make_answer(outcome: TurnOutcome) -> CouncilAnswer:
    """Return the answer. Raise ToolError: there is none."""
    status = outcome.status
    if status not in ("completed", "limit", "waiting", "abandoned") or (status == "limit" and outcome.answer is None):
        raise ToolError("no agent could answer" if status in ("failed", "limit") else "the turn was stopped")
    return CouncilAnswer(
        answer=outcome.answer or outcome.prompt or "Cancelled.",
        session_id=outcome.session_id,
        turn=outcome.turn,
        status=status,
        agent=None if outcome.agent_id is None else outcome.name(outcome.agent_id),
        confidence=outcome.confidence,
        agreement=outcome.agreement,
    )


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
