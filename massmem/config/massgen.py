"""Translate MassGen's configurations into the shape of `massmem.config.models`.

Keys with the same meaning are moved to their place, keys that mean nothing here are removed and named in one warning,
and a backend that cannot run here is an error that says so.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any, cast
from urllib.parse import urlsplit

from massmem.config.models import MAX_SERVERS
from massmem.config.yaml import KeyPath, Report, format_path, how_to_set
from massmem.core.text import trim_value

BACKEND_WORDS = {
    "claude": "anthropic",
    "chatcompletion": "openai",
    "google": "gemini",
    "xai": "grok",
    "inference": "vllm",
    "sglang": "vllm",
}
# Services with the OpenAI protocol and no type of their own: the address, and the variable that holds the key.
SERVICES = {
    "zai": ("https://api.z.ai/api/paas/v4", "ZAI_API_KEY"),
    "moonshot": ("https://api.moonshot.ai/v1", "MOONSHOT_API_KEY"),
    "nebius": ("https://api.studio.nebius.ai/v1", "NEBIUS_API_KEY"),
    "poe": ("https://api.poe.com/v1", "POE_API_KEY"),
    "qwen": ("https://dashscope-intl.aliyuncs.com/compatible-mode/v1", "QWEN_API_KEY"),
}
# The host of base_url says which service `chatcompletion` means, and so which key it needs.
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
UNSUPPORTED_BACKENDS = {
    "claude_code": "runs the Claude Code program, which is no model endpoint; use type: anthropic",
    "ag2": "runs agents of the AG2 framework; give each of them as an agent with its own backend",
}

_COORDINATION: dict[KeyPath, str] = {
    ("orchestrator", "coordination", "compression_target_ratio"): "compression_target_ratio",
    ("orchestrator", "coordination", "max_rounds"): "max_rounds",
    ("orchestrator", "max_new_answers_per_agent"): "max_rounds",
    ("timeout_settings", "orchestrator_timeout_seconds"): "timeout",
}
_IGNORED = {"ui", "display", "streaming_display", "logging", "rate_limits", "cwd"}
_IGNORED_OF_AGENT = {"cwd", "append_system_prompt"}
_IGNORED_OF_BACKEND = {
    "cwd", "custom_tools", "agent_config", "group_config", "permission_mode", "allowed_tools", "exclude_tools",
    "upload_files", "betas", "text", "reasoning", "extra_body", "chat_template_kwargs", "top_p", "top_k",
    "agent_temporary_workspace", "context_paths", "enforce_read_before_delete",
}  # fmt: skip
_IGNORED_PREFIXES_OF_BACKEND = ("enable_", "command_line_")
_IGNORED_OF_SERVER = {"security", "description", "cwd"}
_TOOL_FILTERS = {"allowed_tools": "allow", "exclude_tools": "deny"}
_TRANSPORTS = {"stdio", "sse", "http", "streamable-http", "streamable_http"}

_Mapping = dict[str, Any]


def translate(data: _Mapping, environ: Mapping[str, str], report: Report) -> str:
    """Change `data`, whose variables are expanded, in place; return the warning or an empty text.

    `report` gets the keys that move or are ignored, and the problems.
    """
    _move_agent(data, report)
    for key in ("orchestrator", "timeout_settings"):
        if key in data:
            _move_to_coordination(data, data.pop(key), (key,), report)
    _ignore(data, (), _IGNORED.__contains__, report)
    _translate_memory(data, (), report)
    for path, agent in list_mappings(data.get("agents"), ("agents",)):
        _ignore(agent, path, _IGNORED_OF_AGENT.__contains__, report)
        _translate_memory(agent, path, report)
        backend = agent.get("backend")
        if isinstance(backend, dict):
            backend = cast("_Mapping", backend)
            _move_servers(agent, backend, path, report)
            for server_path, server in list_mappings(agent.get("mcp_servers"), (*path, "mcp_servers")):
                _translate_server(server, server_path, report)
            _move_tool_filters(agent, backend, path, report)
            _translate_backend(backend, (*path, "backend"), environ, report)
    if not report.ignored:
        return ""
    names = {re.sub(r"\.\d+(?=\.)", ".*", format_path(path)) for path in report.ignored}
    return f"{report.file}: keys of MassGen that mean nothing here are ignored: {', '.join(sorted(names))}"


def list_mappings(value: Any, path: KeyPath) -> Iterable[tuple[KeyPath, _Mapping]]:
    if isinstance(value, list):
        for i, part in enumerate(cast("list[Any]", value)):
            if isinstance(part, dict):
                yield (*path, i), cast("_Mapping", part)


def _ignore(mapping: _Mapping, path: KeyPath, is_ignored: Callable[[str], bool], report: Report) -> None:
    for key in [key for key in mapping if is_ignored(key)]:
        del mapping[key]
        report.ignored.add(report.path_in_file((*path, key)))


def _move_agent(data: _Mapping, report: Report) -> None:
    """Make a single `agent` the only one of `agents`."""
    if "agent" not in data:
        return
    agent = data.pop("agent")
    if "agents" in data:
        line = report.find_line(("agents",))
        report.add(("agent",), f"give either agent or agents, not both (agents is on line {line})")
        return
    data["agents"] = [agent]
    report.moved["agents", 0] = ("agent",)


def _move_to_coordination(data: _Mapping, section: Any, path: KeyPath, report: Report) -> None:
    """Move the keys of `_COORDINATION` below `path` to coordination; ignore the others, key by key."""
    if not isinstance(section, dict):
        report.ignored.add(path)
        return
    for key, value in cast("_Mapping", section).items():
        key_path = (*path, key)
        if key_path in _COORDINATION:
            _set_coordination(data, _COORDINATION[key_path], value, key_path, report)
        elif key_path == ("orchestrator", "coordination"):
            _move_to_coordination(data, value, key_path, report)
        else:
            report.ignored.add(key_path)


def _set_coordination(data: _Mapping, key: str, value: Any, path: KeyPath, report: Report) -> None:
    coordination = data.setdefault("coordination", {})
    if isinstance(coordination, dict) and key not in coordination:
        if path[-1] == "max_new_answers_per_agent" and isinstance(value, int):
            # That many answers take as many rounds; one more is needed to vote.
            value = min(value + 1, 20)
        coordination[key] = value
        report.moved["coordination", key] = path


def _translate_memory(mapping: _Mapping, path: KeyPath, report: Report) -> None:
    memory = mapping.get("memory")
    persistent = cast("_Mapping", memory).get("persistent_memory") if isinstance(memory, dict) else None
    if isinstance(persistent, dict):
        path = (*path, "memory", "persistent_memory")
        _ignore(cast("_Mapping", persistent), path, {"vector_store"}.__contains__, report)


def _move_servers(agent: _Mapping, backend: _Mapping, path: KeyPath, report: Report) -> None:
    """Move mcp_servers from the backend, where it is a list or a mapping from names, to the agent as a list."""
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


def _translate_server(server: _Mapping, path: KeyPath, report: Report) -> None:
    _ignore(server, path, _IGNORED_OF_SERVER.__contains__, report)
    if server.get("type") in _TRANSPORTS:
        # command or url says which transport it is.
        del server["type"]
    for key, target in _TOOL_FILTERS.items():
        if key in server and target not in server:
            server[target] = server.pop(key)
            report.moved[(*path, target)] = (*path, key)


def _move_tool_filters(agent: _Mapping, backend: _Mapping, path: KeyPath, report: Report) -> None:
    """Move a filter in the backend, which is for the tools of all servers, to each server.

    It names tools with or without the prefix of their server.
    """
    for key, target in _TOOL_FILTERS.items():
        tools = backend.get(key)
        if not isinstance(tools, list) or not agent.get("mcp_servers"):
            continue
        del backend[key]
        # More servers are refused; without this bound their number times that of the tools would fill the memory.
        servers = islice(list_mappings(agent["mcp_servers"], (*path, "mcp_servers")), MAX_SERVERS)
        for server_path, server in servers:
            prefix = f"mcp__{server.get('name')}__"
            names = [tool.removeprefix(prefix) if isinstance(tool, str) else tool for tool in cast("list[Any]", tools)]
            if target not in server:
                server[target] = names
                report.moved[(*server_path, target)] = (*path, "backend", key)
            elif target == "deny" and isinstance(server[target], list):
                server[target] = [*server[target], *names]


def _translate_backend(backend: _Mapping, path: KeyPath, environ: Mapping[str, str], report: Report) -> None:
    def is_ignored(key: str) -> bool:
        return key in _IGNORED_OF_BACKEND or key.startswith(_IGNORED_PREFIXES_OF_BACKEND)

    _ignore(backend, path, is_ignored, report)
    word = backend.get("type")
    if not isinstance(word, str):
        return
    kind = word.lower()
    if kind == "chatcompletion":
        kind = _find_service(backend.get("base_url"))
    if kind == "sglang":
        backend.setdefault("base_url", "http://localhost:30000/v1")
    if kind in UNSUPPORTED_BACKENDS:
        report.add((*path, "type"), f"{kind!r} {UNSUPPORTED_BACKENDS[kind]}")
        # This problem is enough: what else such a backend has, or lacks, does not matter.
        backend.clear()
        backend.update(type="local")
    elif kind in SERVICES:
        _translate_service(backend, path, kind, environ, report)
    else:
        backend["type"] = BACKEND_WORDS.get(kind, kind)


def _find_service(base_url: Any) -> str:
    """Return the type or service whose host `base_url` names, else `openai`."""
    try:
        host = (urlsplit(base_url).hostname or "") if isinstance(base_url, str) else ""
    except ValueError:
        host = ""
    return next((kind for end, kind in HOSTS.items() if host == end or host.endswith("." + end)), "openai")


def _translate_service(backend: _Mapping, path: KeyPath, kind: str, environ: Mapping[str, str], report: Report) -> None:
    base_url, variable = SERVICES[kind]
    backend["type"] = "openai"
    backend.setdefault("base_url", base_url)
    if backend.get("api_key") is not None:
        return
    if key := trim_value(environ.get(variable, "")):
        backend["api_key"] = key
        report.from_environment.add(report.path_in_file((*path, "api_key")))
    else:
        report.add((*path, "type"), f"{variable} is not set ({how_to_set(variable)})")
