"""One MCP server: its process or its address, its tools and the calls to them. The only module that knows the SDK.

A server that runs here is started by a small shell which ends the whole group of its processes as soon as this process
is gone, however it went, and as soon as the server itself has ended: no process is left behind by a kill, and a call to
a server that has died fails at once. What a server writes to stderr is kept for its error message, not shown.
"""

import asyncio
import json
import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, cast

import httpx2
from mcp import Client, Implementation, MCPError, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CONNECTION_CLOSED
from pydantic import SecretStr

from massmem.config.models import McpServerConfig
from massmem.core.errors import InputError, ToolServerError
from massmem.core.messages import ToolResult, ToolSpec, clean_text
from massmem.core.redact import redact
from massmem.core.text import make_printable, one_line
from massmem.isolation import guard_command
from massmem.providers.clients import open_client
from massmem.providers.dialects import UnusableSchema
from massmem.tools.answer_schema import check_tool_schema

if TYPE_CHECKING:
    from mcp.client import Transport

MAX_TOOLS, _MAX_PAGES = 500, 100
"""Tools of one server; pages of its list of them."""

MAX_CHARACTERS = 1_000_000
"""Characters of one result that the log keeps."""

CLOSE_SECONDS = 8.0
"""Seconds for a server to end. Servers that run here are killed before; this is for those that cannot be killed."""

_MIN_UPTIME = 60.0
"""Seconds that a server must have run for before it is started a third time."""

_MAX_DESCRIPTION = 1_000
"""Characters of a description; OpenAI takes 1,024."""

_MAX_STDERR = 4_000
"""Bytes of what a server writes to stderr that are kept for its error message."""

_CONNECT_SECONDS = 30.0

# What a call may raise beside its own time-out: the server's error, a malformed reply, a broken connection.
_FAILURES = (MCPError, RuntimeError, ValueError, OSError, httpx2.HTTPError)


class McpServer:
    """One server of one agent. A failed call raises nothing: its result says what went wrong."""

    def __init__(self, config: McpServerConfig) -> None:
        self.config = config
        self._link: _Link | None = None
        self._starting = asyncio.Lock()
        self._started_at = 0.0
        self._restarted = False
        self._tools: dict[str, ToolSpec] = {}
        """As the first start has found them, and as the models are told of them."""
        self._changed: set[str] = set()
        self.notices: list[str] = []
        """Tools that cannot be used, and why, for the user."""

    async def start(self) -> tuple[ToolSpec, ...]:
        """Connect, and return the tools under their own names.

        Raises ToolServerError: the server cannot be used; the message says why, in one line.
        """
        link = self._link = _Link(self.config)
        tools = await link.open(self.config.start_timeout)
        self.notices = [f"the tool server {self.config.name}: {note}" for note in link.notes]
        self._tools = self._tools or {tool.name: tool for tool in tools}
        self._changed = {tool.name for tool in tools if tool != self._tools.get(tool.name, tool)}
        self._started_at = asyncio.get_running_loop().time()
        return tools

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Call a tool by its own name; cancelling this tells the server to stop. A call is never repeated."""
        try:
            link = await self._require_link()
        except ToolServerError as e:
            return ToolResult(e.message, failed=True)
        if tool in self._changed:
            message = "not called: its server was started anew, and describes the tool differently since then"
            return ToolResult(message, failed=True)
        try:
            async with asyncio.timeout(self.config.timeout):
                result = await link.client.call_tool(tool, dict(arguments))
            return ToolResult(getattr(result.content[0], "text", ""), failed=result.is_error)
        except TimeoutError:
            limit = f"{self.config.timeout:g} s"
            message = f"no answer within {limit}; the tool was told to stop, and may have done its work"
        except _FAILURES as e:
            closed = not isinstance(e, MCPError) or e.code == CONNECTION_CLOSED
            link.broken = link.broken or (closed and not isinstance(e, RuntimeError | ValueError))
            message = clean_result(f"{e}") or type(e).__name__
            if link.broken:
                message = f"the tool server {self.config.name} ended during the call, which may have done its work"
        return ToolResult(message, failed=True)

    async def close(self) -> None:
        """End the connection, and a server that runs here with it."""
        link, self._link = self._link, None
        if link is not None:
            await link.close()

    async def _require_link(self) -> "_Link":
        """Return the connection. Make a broken one anew, but not over and over.

        Raises ToolServerError: the server ended twice within a short time, or does not start.
        """
        async with self._starting:
            if self._link is not None and not self._link.broken:
                return self._link
            if asyncio.get_running_loop().time() - self._started_at < _MIN_UPTIME and self._restarted:
                raise ToolServerError(f"the tool server {self.config.name} has ended twice; its tools are gone for now")
            await self.close()
            await self.start()
            self._restarted = True
            assert self._link is not None
            return self._link


class _Link:
    """A connection, held by a task of its own: the SDK must be entered and left in the same one."""

    def __init__(self, config: McpServerConfig) -> None:
        self.broken = False
        self.client: Client
        self.notes: list[str] = []
        self._config = config
        self._tools: tuple[ToolSpec, ...] = ()
        self._opened, self._closing = asyncio.Event(), asyncio.Event()
        self._stderr = _Stderr()
        self._task = asyncio.create_task(self._hold(), name=f"mcp {config.name}")

    async def open(self, seconds: float) -> tuple[ToolSpec, ...]:
        opened = asyncio.create_task(self._opened.wait())
        try:
            await asyncio.wait({self._task, opened}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if self._opened.is_set():
                return self._tools
            late = not self._task.done()
        finally:
            opened.cancel()
        await self.close()
        why = f"it did not answer within {seconds:g} s" if late else self._explain_end()
        raise ToolServerError(
            f"the tool server {self._config.name} does not start: {why}",
            "try its command by hand, or raise its start_timeout" if self._config.command else "check its url",
        )

    async def close(self) -> None:
        self._closing.set()
        if not self._opened.is_set():
            self._task.cancel()
        _, pending = await asyncio.wait({self._task}, timeout=CLOSE_SECONDS)
        for task in pending:
            task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _hold(self) -> None:
        async with AsyncExitStack() as stack:
            stack.callback(self._stderr.close)
            transport = _clean_replies(await self._create_transport(stack), self.notes)
            about = Implementation(name="massmem", version="1")
            client = await stack.enter_async_context(Client(transport, client_info=about, cache=None))
            self._tools = await self._list_tools(client)
            self.client = client
            self._opened.set()
            await self._closing.wait()

    async def _create_transport(self, stack: AsyncExitStack) -> "Transport":
        config = self._config
        if config.url is not None:
            timeout = httpx2.Timeout(_CONNECT_SECONDS, read=config.timeout + _CONNECT_SECONDS)
            http = await asyncio.to_thread(open_client, config.url, headers=_reveal(config.headers), timeout=timeout)
            return streamable_http_client(config.url, http_client=await stack.enter_async_context(http))
        command = guard_command([config.command or "", *config.args])
        server = StdioServerParameters(command=command[0], args=command[1:], env=_reveal(config.env))
        return stdio_client(server, errlog=self._stderr.open())

    async def _list_tools(self, client: Client) -> tuple[ToolSpec, ...]:
        """Return the tools as far as the server lists them: a page that fails costs itself, unless it is the first."""
        specs: dict[str, ToolSpec] = {}
        cursors, cursor = set[str | None](), None
        deadline = asyncio.get_running_loop().time() + self._config.start_timeout / 2
        while cursor not in cursors and len(cursors) < _MAX_PAGES and len(specs) < MAX_TOOLS:
            try:
                async with asyncio.timeout_at(None if cursor is None else deadline):
                    page = await client.list_tools(cursor=cursor)
            except (TimeoutError, *_FAILURES) as e:
                if cursor is None:
                    raise
                self.notes.append(f"a page of its tools cannot be read: {redact(one_line(_describe_error(e)))}")
                break
            new = [tool for tool in page.tools if tool.name not in specs]
            for tool in new:
                description = clean_result(tool.description or tool.title or "")[:_MAX_DESCRIPTION]
                specs.setdefault(tool.name, ToolSpec(tool.name, description, tool.input_schema))
            cursors.add(cursor)
            cursor = page.next_cursor if new or not page.tools else None
            if not cursor:
                break
        else:
            self.notes.append(f"its list of tools does not end; the first {min(len(specs), MAX_TOOLS)} are used")
        return tuple(specs.values())[:MAX_TOOLS]

    def _explain_end(self) -> str:
        """Return the last line that the server wrote to stderr, or what went wrong here."""
        lines = [line for line in self._stderr.text.splitlines() if line.strip()]
        reason = lines[-1] if lines else _describe_error(None if self._task.cancelled() else self._task.exception())
        return redact(one_line(reason))


class _Stderr:
    """The end of what a server writes to stderr."""

    def __init__(self) -> None:
        self._tail = b""
        self._reading: int | None = None
        self._writing: Any = None

    @property
    def text(self) -> str:
        return self._tail.decode("utf-8", "replace")

    def open(self) -> Any:
        """The file that the server gets."""
        self._reading, writing = os.pipe()
        os.set_blocking(self._reading, False)
        self._writing = os.fdopen(writing, "w")
        asyncio.get_running_loop().add_reader(self._reading, self._read)
        return self._writing

    def close(self) -> None:
        if self._reading is None:
            return
        self._read()
        self._writing.close()
        asyncio.get_running_loop().remove_reader(self._reading)
        os.close(self._reading)
        self._reading = None

    def _read(self) -> None:
        if self._reading is not None:
            with suppress(BlockingIOError):
                self._tail = (self._tail + os.read(self._reading, 65_536))[-_MAX_STDERR:]


def _describe_error(error: BaseException | None) -> str:
    """Return what was raised; of a group, its first error."""
    if isinstance(error, BaseExceptionGroup):
        return _describe_error(cast("BaseExceptionGroup[BaseException]", error).exceptions[0])
    return str(error) or type(error).__name__


@asynccontextmanager
async def _clean_replies(transport: "Transport", notes: list[str]) -> AsyncGenerator[Any]:
    """Yield the streams of a transport; what comes has the form that the SDK wants, which else refuses the whole.

    notes: takes up what of the server's tools cannot be used.
    """
    async with transport as (incoming, outgoing):
        yield _CleanStream(incoming, notes), outgoing


class _CleanStream:
    """Messages of a server, with what is odd in lists of tools and in results left out or as text."""

    def __init__(self, stream: Any, notes: list[str]) -> None:
        self._stream = stream
        self._notes = notes

    def __aiter__(self) -> "_CleanStream":
        return self

    async def __anext__(self) -> Any:
        item = await anext(self._stream)
        response = getattr(item, "message", None)
        result: object = getattr(response, "result", None)
        if isinstance(result, dict) and response is not None:
            # Many tools with large schemas take seconds.
            response.result, notes = await asyncio.to_thread(clean_reply, cast("dict[str, Any]", result))
            self._notes.extend(notes)
        return item

    async def __aenter__(self) -> "_CleanStream":
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> bool | None:
        return await self._stream.__aexit__(*error)


def _reveal(secrets: Mapping[str, SecretStr]) -> dict[str, str]:
    return {name: secret.get_secret_value() for name, secret in secrets.items()}


def clean_result(text: str) -> str:
    """Return the text without escape sequences and lone surrogates, no longer than the log keeps."""
    cleaned = clean_text(make_printable(text[:MAX_CHARACTERS]))
    left_out = len(text) - MAX_CHARACTERS
    return cleaned if left_out <= 0 else f"{cleaned}\n[{left_out:,} more characters were not kept]"


def clean_reply(reply: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return a reply of a server with the form of the protocol, and what cannot be used of it, a line each.

    Of a list of tools those are left out that cannot be called; what a result has in no known form becomes text.
    """
    cleaned: dict[str, Any] = {
        name: value for name, value in reply.items() if name != "_meta" or isinstance(value, dict)
    }
    if "tools" in reply:
        tools, left_out = _clean_tools(reply["tools"])
        cursor = reply.get("nextCursor")
        cleaned.pop("nextCursor", None)
        return cleaned | {"tools": tools} | ({"nextCursor": cursor} if isinstance(cursor, str) else {}), left_out
    if reply.keys() & {"content", "structuredContent", "isError", "toolResult"}:
        content = reply.get("content", cleaned.pop("toolResult", None))
        structured = cleaned.pop("structuredContent", None)
        blocks = cast("list[object]", content) if isinstance(content, list) else [content]
        texts = [_block_to_text(cast("Mapping[str, Any] | str", block)) for block in blocks if block is not None]
        if not texts and structured is not None:
            texts = [json.dumps(structured, ensure_ascii=False)]
        text = {"type": "text", "text": clean_result("\n".join(texts) or "(nothing)")}
        return cleaned | {"content": [text], "isError": str(reply.get("isError")).lower() in ("true", "1")}, []
    return cleaned, []


def _clean_tools(tools: object) -> tuple[list[dict[str, Any]], list[str]]:
    """Return those tools of a list that can be called, and why others cannot."""
    items = list(cast("Mapping[str, object]", tools).values()) if isinstance(tools, Mapping) else tools
    usable: list[dict[str, Any]] = []
    left_out: list[str] = []
    for number, item in enumerate(cast("list[object]", items) if isinstance(items, list) else [], 1):
        tool: Mapping[str, Any] = cast("Mapping[str, Any]", item) if isinstance(item, Mapping) else {}
        name = tool.get("name")
        if not isinstance(name, str) or not name.strip():
            left_out.append(f"its tool number {number} has no name, and is left out")
            continue
        try:
            schema = check_tool_schema(tool.get("inputSchema") or {})
        except (UnusableSchema, InputError) as e:
            left_out.append(f"its tool {one_line(make_printable(name))} is left out: {e}")
            continue
        texts = {key: text for key in ("title", "description") if isinstance(text := tool.get(key), str)}
        usable.append({"name": name, "inputSchema": schema, **texts})
    return usable, left_out


def _block_to_text(block: Mapping[str, Any] | str) -> str:
    match block:
        case {"type": "image" | "audio" as kind, "data": str(data), **rest}:
            return f"[{kind}, {rest.get('mimeType') or 'binary'}, {_format_size(data)}: not shown]"
        case {"type": "resource_link", **rest}:
            return f"[resource {rest.get('name')}: {rest.get('uri')}]"
        case {"type": "resource", "resource": {"text": str(text), **rest}}:
            return f"[resource {rest.get('uri')}]\n{text}"
        case {"type": "resource", "resource": {"blob": str(data), **rest}}:
            return f"[resource {rest.get('uri')}, {rest.get('mimeType') or 'binary'}, {_format_size(data)}: not shown]"
        case str(text) | {"text": str(text)}:
            return text
        case _:
            return json.dumps(block, ensure_ascii=False)


def _format_size(encoded: str) -> str:
    """Return the size of what Base64 stands for."""
    return f"{max(1, len(encoded) * 3 // 4 // 1000):,} kB"
