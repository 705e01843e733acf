"""The tools of each agent: what its servers offer, under names of their own, as far as the configuration allows it."""

import asyncio
import hashlib
import importlib.util
import logging
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from massmem.config.models import AgentConfig, AgentSpec, McpServerConfig
from massmem.core.errors import InputError, ToolServerError
from massmem.core.messages import ToolSpec
from massmem.tools.content import ToolResult

if TYPE_CHECKING:
    from massmem.tools.mcp import McpServer

_LONGEST_NAME = 64
"""Characters; OpenAI and Anthropic take no more."""

_INSTALL = "pip install --upgrade 'massmem[mcp]'"


@dataclass(frozen=True, slots=True)
class Tool:
    """spec: as the model is offered it. name: the server's own."""

    server: "McpServer"
    name: str
    spec: ToolSpec


@dataclass(slots=True)
class Toolbox:
    """What one agent may call, by the names that its model is told."""

    tools: dict[str, Tool] = field(default_factory=dict[str, Tool])

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        return tuple(tool.spec for tool in self.tools.values())

    def most_tokens(self, name: str) -> int:
        """Of a result that the model is shown."""
        return self.tools[name].server.config.max_result_tokens if name in self.tools else 1_000

    async def call(self, name: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Never fails: what went wrong is the result."""
        tool = self.tools.get(name)
        if tool is None:
            known = ", ".join(self.tools) or "none"
            return ToolResult(f"there is no tool {name[:_LONGEST_NAME]!r}; the tools are: {known}", failed=True)
        return await tool.server.call(tool.name, arguments)


class Toolboxes:
    """The tools of a team. Servers start in parallel with `start`; who needs a tool first waits for them."""

    def __init__(self, agents: Sequence[AgentConfig | AgentSpec]) -> None:
        self._agents = [agent for agent in agents if agent.mcp_servers]
        self._boxes: dict[str, Toolbox] = {}
        self._servers: list[McpServer] = []
        self._starting: asyncio.Task[None] | None = None
        self._notices: list[str] = []

    def check(self) -> None:
        """Raises InputError: a program is not there, or the package for all of this. Nothing was started."""
        if self._agents and importlib.util.find_spec("mcp") is None:
            raise InputError("tools need the package mcp, which is not installed", _INSTALL)
        for agent in self._agents:
            for server in agent.mcp_servers:
                _check(agent, server)

    def start(self) -> None:
        """Begin to start all servers; returns at once."""
        if self._agents:
            self._starting = asyncio.create_task(self._start())

    async def ready(self) -> None:
        """Wait until every server has started, or has failed to.

        Raises:
            ToolServerError: one that is `required` has failed.
            InputError: the package for all of this cannot be loaded.
        """
        if self._starting is not None:
            await asyncio.shield(self._starting)

    def of(self, agent_id: str) -> Toolbox:
        """What the agent can use now."""
        return self._boxes.get(agent_id) or Toolbox()

    def take_notices(self) -> list[str]:
        """Which servers did not start, each said once."""
        notices, self._notices = self._notices, []
        return notices

    async def close(self) -> None:
        """End every server."""
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.gather(self._starting, return_exceptions=True)
        await asyncio.gather(*(server.close() for server in self._servers))
        self._servers.clear()

    async def _start(self) -> None:
        mcp = await asyncio.to_thread(library)
        pairs = [(agent, mcp(config)) for agent in self._agents for config in agent.mcp_servers]
        self._servers = [server for _, server in pairs]
        offered = await asyncio.gather(*(server.start() for server in self._servers), return_exceptions=True)
        required: ToolServerError | None = None
        for (agent, server), tools in zip(pairs, offered, strict=True):
            if isinstance(tools, ToolServerError):
                self._notices.append(f"{tools.message}; {agent.id} goes on without its tools")
                required = required or (tools if server.config.required else None)
            elif isinstance(tools, BaseException):
                raise tools
            else:
                _add(self._boxes.setdefault(agent.id, Toolbox()), server, tools)
        if required is not None:
            raise required


def _add(box: Toolbox, server: "McpServer", tools: Sequence[ToolSpec]) -> None:
    config = server.config
    for tool in tools:
        if tool.name in config.deny or (config.allow is not None and tool.name not in config.allow):
            continue
        name = named(config.name, tool.name, box.tools)
        box.tools[name] = Tool(server, tool.name, ToolSpec(name, tool.description, tool.parameters))


def named(server: str, tool: str, taken: Mapping[str, Any]) -> str:
    """`mcp__server__tool`, as MassGen and others name them, in letters that every provider takes, and unique."""
    name = re.sub(r"[^A-Za-z0-9_-]", "_", f"mcp__{server}__{tool}")
    if len(name) <= _LONGEST_NAME and name not in taken:
        return name
    mark = hashlib.sha256(f"{server}\0{tool}".encode()).hexdigest()[:8]
    return f"{name[: _LONGEST_NAME - 9]}_{mark}"


def _check(agent: AgentConfig | AgentSpec, server: McpServerConfig) -> None:
    if server.command is None:
        return
    given = server.env.get("PATH")
    path = os.environ.get("PATH") if given is None else given.get_secret_value()
    if shutil.which(server.command, path=path) is None:
        raise InputError(
            f"agent {agent.id}: the program {server.command!r} of the tool server {server.name} is not there",
            "install it, or correct `command` under mcp_servers",
        )


def library() -> "type[McpServer]":
    """Takes a second the first time, with what the SDK loads on its first result.

    Raises InputError: the package is there, but broken or of another version.
    """
    try:
        from massmem.tools.mcp import McpServer

        importlib.import_module("jsonschema")
    except ImportError as e:
        raise InputError(f"tools need the package mcp, which cannot be loaded: {e}", _INSTALL) from e
    # It logs what servers say when it cannot read that, which is nobody's business; what fails is told in results.
    logging.getLogger("mcp").setLevel(logging.CRITICAL)

    return McpServer
