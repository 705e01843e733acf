"""Rules between keys, which no single field can check.

They read the data as it is, valid or not, so that all problems of a file are found in one go.
"""

from collections.abc import Iterator, Mapping
from typing import Any, cast, get_args
from urllib.parse import urlsplit

from massmem.config.models import NO_STORE, BackendType
from massmem.config.problems import KeyPath, Report, suggestion
from massmem.errors import InputError
from massmem.session_ids import check_session_id

STORE_SCHEMES = ("sqlite", "postgresql", "redis", "rediss", "unix")
MIN_JWT_SECRET = 32
# As massmem.memory.memories.USER: an agent of that name would pass for the person who asks.
RESERVED_ID = "user"

_ALL: frozenset[str] = frozenset(get_args(BackendType))
_NETWORK = _ALL - {"local", "scripted"}
# Fields of a backend that only some types have.
_BELONGS: dict[str, frozenset[str]] = {
    "script": frozenset({"scripted"}),
    "thinking_tokens": frozenset({"anthropic"}),
    "api_key": _NETWORK,
    "base_url": _NETWORK,
}
# The other types have a usual model.
NEEDS_MODEL = frozenset(
    {"grok", "groq", "together", "openrouter", "fireworks", "cerebras", "azure_openai", "ollama", "lmstudio", "vllm"}
)

_Mapping = Mapping[str, Any]


def check(data: _Mapping, report: Report) -> None:
    """Add to `report` what is wrong between the keys of `data`."""
    _session_id(data.get("session_id"), report)
    _store(_section(data, "store").get("url"), report)
    _jwt(_section(data, "server", "jwt"), report)
    _memory(_section(data, "memory"), ("memory",), False, report)
    team_llm = bool(_section(data, "memory", "persistent_memory", "llm"))
    ids: dict[str, KeyPath] = {}
    for path, agent in _items(data.get("agents"), ("agents",)):
        _agent_id(agent.get("id"), (*path, "id"), ids, report)
        _backend(_section(agent, "backend"), (*path, "backend"), report)
        _memory(_section(agent, "memory"), (*path, "memory"), team_llm, report)
        for server_path, server in _items(agent.get("mcp_servers"), (*path, "mcp_servers")):
            _http(server.get("url"), (*server_path, "url"), report)


def _section(data: _Mapping, *names: str) -> _Mapping:
    for name in names:
        inner = data.get(name)
        data = cast("_Mapping", inner) if isinstance(inner, Mapping) else {}
    return data


def _items(value: Any, path: KeyPath) -> Iterator[tuple[KeyPath, _Mapping]]:
    if isinstance(value, list):
        for i, item in enumerate(cast("list[Any]", value)):
            if isinstance(item, Mapping):
                yield (*path, i), cast("_Mapping", item)


def _session_id(value: Any, report: Report) -> None:
    if isinstance(value, str):
        try:
            check_session_id(value)
        except InputError:
            shown = report.show(("session_id",), value)
            report.add(("session_id",), f"{shown} must be 1 to 128 letters, digits, '_', '-' or '.'")


def _store(url: Any, report: Report) -> None:
    if not isinstance(url, str) or url == NO_STORE:
        return
    scheme, colon, _ = url.partition("://")
    if scheme not in STORE_SCHEMES or not colon:
        # A driver (postgresql+asyncpg) is chosen here, not in the URL. What follows :// may hold a password.
        shown = report.show(("store", "url"), f"{scheme}://" if colon else url)
        supported = ", ".join(f"{name}://" for name in STORE_SCHEMES)
        hint = suggestion(scheme.split("+")[0], STORE_SCHEMES)
        report.add(("store", "url"), f"{shown} is no supported store; supported: {supported}{hint}")


def _jwt(jwt: _Mapping, report: Report) -> None:
    secret = jwt.get("secret")
    if isinstance(secret, str) and 0 < len(secret.encode("utf-8", "replace")) < MIN_JWT_SECRET:
        report.add(("server", "jwt", "secret"), f"must be at least {MIN_JWT_SECRET} bytes")


def _memory(memory: _Mapping, path: KeyPath, has_llm: bool, report: Report) -> None:
    """has_llm: the team's own settings name a model that an agent's settings are laid over."""
    persistent = _section(memory, "persistent_memory")
    where = (*path, "persistent_memory")
    if isinstance(persistent.get("llm"), Mapping) and not has_llm and not _section(persistent, "llm").get("provider"):
        report.add((*where, "llm", "provider"), "is missing")
    for section in ("llm", "embedding"):
        _http(_section(persistent, section).get("base_url"), (*where, section, "base_url"), report)
    _http(_section(persistent, "qdrant").get("url"), (*where, "qdrant", "url"), report)


def _agent_id(value: Any, path: KeyPath, ids: dict[str, KeyPath], report: Report) -> None:
    if not isinstance(value, str):
        return
    if value == RESERVED_ID:
        report.add(path, f"{RESERVED_ID!r} is the name of the person who asks; call the agent something else")
    if value in ids:
        first = report.line(report.written(ids[value]))
        report.add(path, f"{report.show(path, value)} is already the id of the agent on line {first}")
    ids.setdefault(value, path)


def _backend(backend: _Mapping, path: KeyPath, report: Report) -> None:
    kind = backend.get("type")
    if not isinstance(kind, str) or kind not in _ALL:
        return
    for key, types in _BELONGS.items():
        if backend.get(key) is not None and kind not in types:
            only = f"; only {', '.join(sorted(types))} has it" if len(types) == 1 else ""
            report.add((*path, key), f"does not belong to type {kind}{only}")
    if kind in NEEDS_MODEL and not backend.get("model"):
        report.add((*path, "model"), f"is missing: type {kind} needs the name of a model")
    _http(backend.get("base_url"), (*path, "base_url"), report)
    thinking, most = backend.get("thinking_tokens"), backend.get("max_tokens")
    if isinstance(thinking, int) and isinstance(most, int) and thinking >= most:
        report.add((*path, "thinking_tokens"), "must be less than max_tokens, which counts thinking too")


def _http(url: Any, path: KeyPath, report: Report) -> None:
    if not isinstance(url, str):
        return
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        good = False
    if not good:
        report.add(path, f"{report.show(path, url)} must be an address such as http://localhost:8080")
