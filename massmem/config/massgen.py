"""Configurations as MassGen's users write them, brought into the shape of `massmem.config.models`.

What means the same here is moved to its place, what means nothing is taken out and named in one warning, and
a backend that cannot run here is an error that says so.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any, cast
from urllib.parse import urlsplit

from massmem.config.environment import how_to_set
from massmem.config.models import MAX_SERVERS
from massmem.config.problems import KeyPath, Report, dotted

TYPE_WORDS = {
    "claude": "anthropic",
    "chatcompletion": "openai",
    "google": "gemini",
    "xai": "grok",
    "inference": "vllm",
    "sglang": "vllm",
}
# Services of the OpenAI protocol without a type of their own: the address and the variable that holds the key.
SERVICES = {
    "zai": ("https://api.z.ai/api/paas/v4", "ZAI_API_KEY"),
    "moonshot": ("https://api.moonshot.ai/v1", "MOONSHOT_API_KEY"),
    "nebius": ("https://api.studio.nebius.ai/v1", "NEBIUS_API_KEY"),
    "poe": ("https://api.poe.com/v1", "POE_API_KEY"),
    "qwen": ("https://dashscope-intl.aliyuncs.com/compatible-mode/v1", "QWEN_API_KEY"),
}
# Whose key `chatcompletion` needs is told by the host of its base_url.
HOSTS = {
    "cerebras.ai": "cerebras",
    "together.xyz": "together",
    "together.ai": "together",
    "fireworks.ai": "fireworks",
    "groq.com": "groq",
    "openrouter.ai": "openrouter",
    "deepseek.com": "deepseek",
    "mistral.ai": "mistral",
    "z.ai": "zai",
    "bigmodel.cn": "zai",
    "moonshot.ai": "moonshot",
    "moonshot.cn": "moonshot",
    "nebius.com": "nebius",
    "nebius.ai": "nebius",
    "poe.com": "poe",
    "aliyuncs.com": "qwen",
}
NO_BACKEND = {
    "claude_code": "runs the Claude Code program, which is no model endpoint; use type: anthropic",
    "ag2": "runs agents of the AG2 framework; give each of them as an agent with its own backend",
}

_TAKEN: dict[KeyPath, str] = {
    ("orchestrator", "coordination", "compression_target_ratio"): "compression_target_ratio",
    ("orchestrator", "coordination", "max_rounds"): "max_rounds",
    ("orchestrator", "max_new_answers_per_agent"): "max_rounds",
    ("timeout_settings", "orchestrator_timeout_seconds"): "timeout",
}
_TOP = {"ui", "display", "streaming_display", "logging", "rate_limits", "cwd"}
_AGENT = {"cwd", "append_system_prompt"}
_BACKEND = {
    "cwd", "custom_tools", "agent_config", "group_config", "permission_mode", "allowed_tools", "exclude_tools",
    "upload_files", "betas", "text", "reasoning", "extra_body", "chat_template_kwargs", "top_p", "top_k",
    "agent_temporary_workspace", "context_paths", "enforce_read_before_delete",
}  # fmt: skip
_BACKEND_PREFIXES = ("enable_", "command_line_")
_MCP = {"security", "description", "cwd"}
_FILTERS = {"allowed_tools": "allow", "exclude_tools": "deny"}
_MCP_TYPES = {"stdio", "sse", "http", "streamable-http", "streamable_http"}

_Mapping = dict[str, Any]


def translate(data: _Mapping, environ: Mapping[str, str], report: Report) -> str:
    """Change `data`, with its variables expanded, in place; returns the warning or an empty text.

    What moves, what is ignored and what is wrong goes to `report`.
    """
    _agent_to_agents(data, report)
    for key in ("orchestrator", "timeout_settings"):
        if key in data:
            _take_over(data, data.pop(key), (key,), report)
    _drop(data, (), _TOP.__contains__, report)
    _memory(data, (), report)
    for path, agent in _mappings(data.get("agents"), ("agents",)):
        _drop(agent, path, _AGENT.__contains__, report)
        _memory(agent, path, report)
        backend = agent.get("backend")
        if isinstance(backend, dict):
            _agent(agent, cast("_Mapping", backend), path, environ, report)
    return _warning(report)


def _agent(agent: _Mapping, backend: _Mapping, path: KeyPath, environ: Mapping[str, str], report: Report) -> None:
    _mcp_servers(agent, backend, path, report)
    for server_path, server in _mappings(agent.get("mcp_servers"), (*path, "mcp_servers")):
        _mcp_server(server, server_path, report)
    _tool_filters(agent, backend, path, report)
    _backend(backend, (*path, "backend"), environ, report)


def _warning(report: Report) -> str:
    if not report.ignored:
        return ""
    names = {re.sub(r"\.\d+(?=\.)", ".*", dotted(path)) for path in report.ignored}
    return f"{report.file}: keys of MassGen that mean nothing here are ignored: {', '.join(sorted(names))}"


def _mappings(value: Any, path: KeyPath) -> Iterable[tuple[KeyPath, _Mapping]]:
    if isinstance(value, list):
        for i, part in enumerate(cast("list[Any]", value)):
            if isinstance(part, dict):
                yield (*path, i), cast("_Mapping", part)


def _drop(mapping: _Mapping, path: KeyPath, unwanted: Callable[[str], bool], report: Report) -> None:
    for key in [key for key in mapping if unwanted(key)]:
        del mapping[key]
        report.ignored.add(report.written((*path, key)))


def _agent_to_agents(data: _Mapping, report: Report) -> None:
    if "agent" not in data:
        return
    agent = data.pop("agent")
    if "agents" in data:
        report.add(("agent",), f"give either agent or agents, not both (agents is on line {report.line(('agents',))})")
        return
    data["agents"] = [agent]
    report.moved["agents", 0] = ("agent",)


def _take_over(data: _Mapping, section: Any, path: KeyPath, report: Report) -> None:
    """Move what `_TAKEN` knows below `path` to coordination; ignore the rest, key by key."""
    if not isinstance(section, dict):
        report.ignored.add(path)
        return
    for key, value in cast("_Mapping", section).items():
        here = (*path, key)
        if here in _TAKEN:
            _move(data, _TAKEN[here], value, here, report)
        elif here == ("orchestrator", "coordination"):
            _take_over(data, value, here, report)
        else:
            report.ignored.add(here)


def _move(data: _Mapping, key: str, value: Any, written: KeyPath, report: Report) -> None:
    coordination = data.setdefault("coordination", {})
    if isinstance(coordination, dict) and key not in coordination:
        if written[-1] == "max_new_answers_per_agent" and isinstance(value, int):
            # Its answers come in as many rounds; one more is needed to vote.
            value = min(value + 1, 20)
        coordination[key] = value
        report.moved["coordination", key] = written


def _memory(mapping: _Mapping, path: KeyPath, report: Report) -> None:
    memory = mapping.get("memory")
    persistent = cast("_Mapping", memory).get("persistent_memory") if isinstance(memory, dict) else None
    if isinstance(persistent, dict):
        where = (*path, "memory", "persistent_memory")
        _drop(cast("_Mapping", persistent), where, {"vector_store"}.__contains__, report)


def _backend(backend: _Mapping, path: KeyPath, environ: Mapping[str, str], report: Report) -> None:
    _drop(backend, path, lambda key: key in _BACKEND or key.startswith(_BACKEND_PREFIXES), report)
    word = backend.get("type")
    if not isinstance(word, str):
        return
    kind = word.lower()
    if kind == "chatcompletion":
        kind = _service_of(backend.get("base_url"))
    if kind == "sglang":
        backend.setdefault("base_url", "http://localhost:30000/v1")
    if kind in NO_BACKEND:
        report.add((*path, "type"), f"{kind!r} {NO_BACKEND[kind]}")
        # Said once: what else such a backend has, or lacks, does not matter.
        backend.clear()
        backend.update(type="local")
    elif kind in SERVICES:
        _service(backend, path, kind, environ, report)
    else:
        backend["type"] = TYPE_WORDS.get(kind, kind)


def _service_of(base_url: Any) -> str:
    try:
        host = (urlsplit(base_url).hostname or "") if isinstance(base_url, str) else ""
    except ValueError:
        host = ""
    return next((kind for end, kind in HOSTS.items() if host == end or host.endswith("." + end)), "openai")


def _service(backend: _Mapping, path: KeyPath, kind: str, environ: Mapping[str, str], report: Report) -> None:
    base_url, variable = SERVICES[kind]
    backend["type"] = "openai"
    backend.setdefault("base_url", base_url)
    if backend.get("api_key") is not None:
        return
    if environ.get(variable):
        backend["api_key"] = environ[variable]
        report.environment.add(report.written((*path, "api_key")))
    else:
        report.add((*path, "type"), f"{variable} is not set ({how_to_set(variable)})")


def _mcp_servers(agent: _Mapping, backend: _Mapping, path: KeyPath, report: Report) -> None:
    """mcp_servers stands in the backend there, as a list or as a mapping from names."""
    if "mcp_servers" in backend and "mcp_servers" not in agent:
        agent["mcp_servers"] = backend.pop("mcp_servers")
        report.moved[(*path, "mcp_servers")] = (*path, "backend", "mcp_servers")
    servers = agent.get("mcp_servers")
    if isinstance(servers, dict):
        named = cast("_Mapping", servers)
        agent["mcp_servers"] = [
            {"name": name, **cast("_Mapping", server)} if isinstance(server, dict) else server
            for name, server in named.items()
        ]
        for i, name in enumerate(named):
            report.moved[(*path, "mcp_servers", i)] = (*path, "mcp_servers", name)


def _tool_filters(agent: _Mapping, backend: _Mapping, path: KeyPath, report: Report) -> None:
    """A filter in the backend is for the tools of all servers, by their full or their own names."""
    for key, target in _FILTERS.items():
        tools = backend.get(key)
        if not isinstance(tools, list) or not agent.get("mcp_servers"):
            continue
        del backend[key]
        # More servers than that are refused; without this bound their number times the tools' fills the memory.
        for server_path, server in islice(_mappings(agent["mcp_servers"], (*path, "mcp_servers")), MAX_SERVERS):
            prefix = f"mcp__{server.get('name')}__"
            names = [tool.removeprefix(prefix) if isinstance(tool, str) else tool for tool in cast("list[Any]", tools)]
            if target not in server:
                server[target] = names
                report.moved[(*server_path, target)] = (*path, "backend", key)
            elif target == "deny" and isinstance(server[target], list):
                server[target] = [*server[target], *names]


def _mcp_server(server: _Mapping, path: KeyPath, report: Report) -> None:
    _drop(server, path, _MCP.__contains__, report)
    if server.get("type") in _MCP_TYPES:
        # Which transport it is follows from command or url.
        del server["type"]
    for key, target in _FILTERS.items():
        if key in server and target not in server:
            server[target] = server.pop(key)
            report.moved[(*path, target)] = (*path, key)
