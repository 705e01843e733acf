"""The tools of each agent: those of massmem itself, and what its tool servers offer and the configuration allows, under
unique names."""

import asyncio
import hashlib
import importlib.util
import json
import logging
import os
import re
import shutil
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from massmem.config.home import replace_file
from massmem.config.models import AgentConfig
from massmem.core.calls import parse_object
from massmem.core.errors import InputError, ToolServerError
from massmem.core.messages import ToolResult, ToolSpec

if TYPE_CHECKING:
    from massmem.tools.file_tools import FileTools
    from massmem.tools.mcp import McpServer

_MAX_NAME = 64
"""Characters; OpenAI and Anthropic take no more."""

_MAX_RESULT_TOKENS = 10_000
"""Of a result of massmem's own tools that the model is shown, as of a server where nothing else is said."""

FILE_TOOLS = ("list_files", "read_file", "search_text")
"""Tools of massmem itself, which read folders."""

_INSTALL = "pip install --upgrade 'massmem[mcp]'"


@dataclass(frozen=True, slots=True)
class Tool:
    server: "McpServer"
    name: str
    """The server's own name for it."""
    spec: ToolSpec
    """As the model is offered it."""

    @property
    def mark(self) -> str:
        """Hash of all that the model is told of the tool."""
        definition = json.dumps([self.spec.description, self.spec.parameters], sort_keys=True)
        return hashlib.sha256(definition.encode()).hexdigest()[:16]

    @property
    def key(self) -> str:
        """Names the tool for as long as the configuration has this server."""
        config = self.server.config
        place = json.dumps([config.name, config.command, config.args, config.url])
        return f"{hashlib.sha256(place.encode()).hexdigest()[:16]} {self.name}"


class AllowedTools:
    """How each tool was described when the user allowed it: by having its server in the configuration, or when asked.

    A server may describe a tool as something else later on, once it is trusted. What cannot be read counts as empty.
    """

    def __init__(self, home: Path | None = None) -> None:
        """home: massmem's own folder; None: what is allowed is forgotten with this process."""
        self._path = None if home is None else home / "tools.json"
        self._marks: dict[str, str] = {}

    def find_changed_tools(self, tools: Collection[Tool]) -> list[Tool]:
        """Return those that were described differently before; those that nobody has seen are allowed."""
        known = self._read()
        self._write({tool.key: tool.mark for tool in tools if tool.key not in known})
        return [tool for tool in tools if known.get(tool.key, tool.mark) != tool.mark]

    def allow(self, tool: Tool) -> None:
        self._write({tool.key: tool.mark})

    def _read(self) -> dict[str, str]:
        with suppress(OSError, UnicodeDecodeError):
            stored = {} if self._path is None else parse_object(self._path.read_text()) or {}
            self._marks |= {key: mark for key, mark in stored.items() if isinstance(mark, str)}
        return self._marks

    def _write(self, marks: Mapping[str, str]) -> None:
        """Add to what this and other processes know. A file that cannot be written costs another question, no more."""
        if marks:
            self._marks = {**self._read(), **marks}
            if self._path is not None:
                with suppress(OSError):
                    replace_file(self._path, json.dumps(self._marks, indent=1) + "\n")


@dataclass(slots=True)
class Toolbox:
    tools: dict[str, Tool] = field(default_factory=dict[str, Tool])
    """Those of servers, by the names that the model is told."""
    changed: set[str] = field(default_factory=set[str])
    """Names of those that the user has to allow anew."""
    files: "FileTools | None" = None
    """The tools that read the agent's folders."""

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        return (*(self.files.specs if self.files else ()), *(tool.spec for tool in self.tools.values()))

    @property
    def names(self) -> list[str]:
        return [spec.name for spec in self.specs]

    def add(self, server: "McpServer", tools: Sequence[ToolSpec]) -> None:
        """Add those tools of a server that its configuration allows."""
        config = server.config
        for tool in tools:
            if tool.name not in config.deny and (config.allow is None or tool.name in config.allow):
                name = build_tool_name(config.name, tool.name, self.tools)
                self.tools[name] = Tool(server, tool.name, ToolSpec(name, tool.description, tool.parameters))

    def put_first(self) -> None:
        """Put those first that matter most where a server takes only so many: those that the configuration names, then
        those that are described like none before them."""
        known: set[str] = set()
        ranks: dict[str, tuple[bool, bool]] = {}
        for name, tool in self.tools.items():
            description = f"{tool.spec.description} {tool.spec.parameters}"
            ranks[name] = (tool.server.config.allow is None, description in known)
            known.add(description)
        self.tools = {name: self.tools[name] for name in sorted(self.tools, key=ranks.__getitem__)}

    def max_tokens(self, name: str) -> int:
        """Return the most tokens of this tool's result that the model is shown."""
        if self.files is not None and name in self.files.tools:
            return _MAX_RESULT_TOKENS
        return self.tools[name].server.config.max_result_tokens if name in self.tools else 1_000

    async def call(self, name: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Call a tool. Raises nothing: the result of a call that failed says what went wrong."""
        if self.files is not None and name in self.files.tools:
            return await self.files.call(name, arguments)
        tool = self.tools.get(name)
        if tool is None:
            known = ", ".join(self.names) or "none"
            return ToolResult(f"there is no tool {name[:_MAX_NAME]!r}; the tools are: {known}", failed=True)
        return await tool.server.call(tool.name, arguments)


class Toolboxes:
    """The tools of a team. `start` starts the servers in parallel; `wait_until_ready` waits for them."""

    def __init__(self, agents: Sequence[AgentConfig], home: Path | None = None, *, agents_file: bool = True) -> None:
        """home: massmem's own folder, where allowed tools are remembered; None: nowhere. agents_file: agents are shown
        what their folders say of themselves."""
        self._allowed = AllowedTools(home)
        self._agents = [agent for agent in agents if agent.mcp_servers]
        self._readers = [agent for agent in agents if agent.folders]
        self._agents_file = agents_file
        self._boxes: dict[str, Toolbox] = {}
        self._servers: list[McpServer] = []
        self._starting: asyncio.Task[None] | None = None
        self._notices: list[str] = []
        self._reading: list[str] = []

    def check(self) -> None:
        """Check that the tools can be used, without starting anything.

        Raises InputError: the package for tools, the program of a server or a folder is missing.
        """
        self._open_folders()
        if self._agents and importlib.util.find_spec("mcp") is None:
            raise InputError("tools need the package mcp, which is not installed", _INSTALL)
        pairs = [(agent.id, server) for agent in self._agents for server in agent.mcp_servers]
        for agent_id, server in pairs:
            own_path = server.env.get("PATH")
            path = os.environ.get("PATH") if own_path is None else own_path.get_secret_value()
            if server.command is not None and shutil.which(server.command, path=path) is None:
                raise InputError(
                    f"agent {agent_id}: the program {server.command!r} of the tool server {server.name} is not there",
                    "install it, or correct `command` under mcp_servers",
                )

    def start(self) -> None:
        """Begin to start all servers, and to count the files of folders; return at once.

        Raises InputError: a folder cannot be read.
        """
        for agent_id, files in self._open_folders().items():
            self._boxes[agent_id] = Toolbox(files=files)
        if self._agents or self._boxes:
            self._starting = asyncio.create_task(self._start())

    async def wait_until_ready(self) -> None:
        """Wait until every server has started, or has failed to.

        Raises:
            ToolServerError: one that is `required` has failed.
            InputError: the package for tools cannot be loaded.
        """
        if self._starting is not None:
            await asyncio.shield(self._starting)

    def get_toolbox(self, agent_id: str) -> Toolbox:
        """Return the tools that the agent can use now."""
        return self._boxes.get(agent_id) or Toolbox()

    async def read_notes(self, agent_id: str, most: int) -> str:
        """Return what the agent's folders say of themselves, "" for nothing. most: characters."""
        files = self.get_toolbox(agent_id).files
        return await files.read_notes(most) if files is not None and self._agents_file else ""

    def take_reading(self) -> list[str]:
        """Return a line for each folder that is read, once."""
        reading, self._reading = self._reading, []
        return reading

    def find_changed_tools(self) -> dict[str, Tool]:
        """Return the tools that the user has to allow anew, by the names that the models are told."""
        return {name: box.tools[name] for box in self._boxes.values() for name in box.changed}

    def allow(self, name: str) -> None:
        """Remember that the user allows a tool as it is described now."""
        for box in self._boxes.values():
            if name in box.changed:
                box.changed.remove(name)
                self._allowed.allow(box.tools[name])

    def take_notices(self) -> list[str]:
        """Return a message for each server that did not start since the last call."""
        notices, self._notices = self._notices, []
        return notices

    async def close(self) -> None:
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.gather(self._starting, return_exceptions=True)
        await asyncio.gather(*(server.close() for server in self._servers))
        self._servers.clear()

    def _open_folders(self) -> "dict[str, FileTools]":
        """Return the tools of agents with folders, by their ids; those with the same folders share them.

        Raises InputError: a folder cannot be read.
        """
        if not self._readers:
            return {}
        from massmem.tools.file_tools import FileTools

        tools = {agent.folders: FileTools(agent.folders) for agent in self._readers}
        return {agent.id: tools[agent.folders] for agent in self._readers}

    async def _start(self) -> None:
        files = {id(box.files): box.files for box in self._boxes.values() if box.files is not None}
        lines = [await tools.describe(agents_file=self._agents_file) for tools in files.values()]
        self._reading = [*dict.fromkeys(line for of_tools in lines for line in of_tools)]
        if self._agents:
            await self._start_servers()

    async def _start_servers(self) -> None:
        server_class = await asyncio.to_thread(load_server_class)
        pairs = [(agent, server_class(config)) for agent in self._agents for config in agent.mcp_servers]
        self._servers = [server for _, server in pairs]
        results = await asyncio.gather(*(server.start() for server in self._servers), return_exceptions=True)
        required: ToolServerError | None = None
        self._notices += dict.fromkeys(note for _, server in pairs for note in server.notices)
        for (agent, server), tools in zip(pairs, results, strict=True):
            if isinstance(tools, ToolServerError):
                self._notices.append(f"{tools.message}; {agent.name or agent.id} goes on without its tools")
                required = required or (tools if server.config.required else None)
            elif isinstance(tools, BaseException):
                raise tools
            else:
                self._boxes.setdefault(agent.id, Toolbox()).add(server, tools)
        for box in self._boxes.values():
            box.put_first()
            changed = await asyncio.to_thread(self._allowed.find_changed_tools, box.tools.values())
            box.changed = {tool.spec.name for tool in changed}
            self._notices += [
                f"the tool {tool.name} of {tool.server.config.name} is not described as it was when you allowed it; "
                "you are asked before it is called"
                for tool in changed
            ]
        if required is not None:
            raise required


def build_tool_name(server: str, tool: str, taken: Mapping[str, Any]) -> str:
    """Return `mcp__server__tool`, as MassGen and others name them, in letters that every provider takes.

    taken: names that other tools have.
    """
    name = re.sub(r"[^A-Za-z0-9_-]", "_", f"mcp__{server}__{tool}")
    if len(name) <= _MAX_NAME and name not in taken:
        return name
    mark = hashlib.sha256(f"{server}\0{tool}".encode()).hexdigest()[:8]
    return f"{name[: _MAX_NAME - 9]}_{mark}"


def load_server_class() -> "type[McpServer]":
    """Import the SDK, with what it would load on its first result. Takes a second the first time.

    Raises InputError: the package is there, but broken or of another version.
    """
    try:
        from massmem.tools.mcp import McpServer

        importlib.import_module("jsonschema")
    except ImportError as e:
        raise InputError(f"tools need the package mcp, which cannot be loaded: {e}", _INSTALL) from e
    # It logs what servers write when it cannot read that, which may be private. Results say what fails.
    logging.getLogger("mcp").setLevel(logging.CRITICAL)
    return McpServer
