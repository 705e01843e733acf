"""Checks of the configuration, of the agents' models and tool servers, and of the HTTP service's secret."""

import asyncio
import hashlib
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from massmem.cli.candidates import probe_model
from massmem.cli.checks import (
    CheckResult,
    DoctorContext,
    fail,
    ok,
    skip,
    skip_without_config,
)
from massmem.cli.setup import require_extra
from massmem.cli.token import SECRET, SECRET_FILE, add_secret, needs_secret
from massmem.config.home import expand_home
from massmem.config.models import BackendConfig, JwtConfig, McpServerConfig, TeamConfig
from massmem.core.errors import MalformedResponse, MassmemError, MissingModelError, ModelNotFound, ToolServerError
from massmem.core.redact import show_start
from massmem.providers.learnt import LearntModels
from massmem.providers.presets import NO_KEY, PRESETS, Endpoint, resolve
from massmem.providers.weights import DEFAULT, require_weights
from massmem.providers.windows import find_window
from massmem.render.text import pluralize
from massmem.tools.toolbox import Toolboxes, load_server_class

if TYPE_CHECKING:
    from massmem.tools.mcp import McpServer

_COMPLETE_LISTS = ("ollama", "lmstudio", "vllm")
"""Servers that list all their models; the others also accept names that they do not list."""
_MAX_TOOLS = 10


async def check_config(context: DoctorContext) -> Sequence[CheckResult]:
    """Check that the configuration is valid."""
    if context.config is None:
        problems = context.config_error.problems if context.config_error else []
        hint = context.config_error.hint if context.config_error else ""
        text = f"{pluralize(len(problems), 'problem')} in the configuration"
        fix = hint or "correct these lines; massmem config validate reports what is left"
        return [fail(text, fix, *problems)]
    agents = ", ".join(agent.id for agent in context.config.agents)
    return [ok(f"{context.config.source}: {agents}", *context.warnings)]


async def check_models(context: DoctorContext) -> Sequence[CheckResult]:
    """Check the key and the model of every distinct backend, all at the same time."""
    if context.config is None:
        return skip_without_config()
    backends = _group_backends(context.config)
    return await asyncio.gather(*(_check_backend(backend, agents, context) for backend, agents in backends))


def _group_backends(team: TeamConfig) -> list[tuple[BackendConfig, str]]:
    """Return the distinct backends with the agents that use them."""
    groups: dict[tuple[object, ...], tuple[BackendConfig, list[str]]] = {}
    for agent in team.agents:
        backend = agent.backend
        key = backend.type, backend.model, backend.base_url, backend.api_key
        groups.setdefault(key, (backend, []))[1].append(agent.id)
    return [(backend, ", ".join(agents)) for backend, agents in groups.values()]


async def _check_backend(backend: BackendConfig, agents: str, context: DoctorContext) -> CheckResult:
    name = f"{agents}: {backend.label}"
    try:
        match PRESETS[backend.type].kind:
            case "scripted":
                return ok(f"{name}: replies with its script")
            case "local":
                return await asyncio.to_thread(_check_weights, backend, name)
            case _:
                return await _check_endpoint(backend, name, context)
    except MassmemError as e:
        return fail(f"{name}: {e.message}", e.hint)


def _check_weights(backend: BackendConfig, name: str) -> CheckResult:
    """Verify the whole file again: a disk may have changed it since the download."""
    from massmem.providers.local import LocalFactory

    LocalFactory().open(backend)  # fails when the runtime is missing or the file was never verified
    path = require_weights(backend.model)
    started = time.monotonic()
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if not backend.model and digest != DEFAULT.sha256:
        raise MissingModelError(
            f"{path} is damaged: its SHA-256 is {digest}", f"rm '{path}', then: massmem models fetch"
        )
    return ok(f"{name}: {path}", f"SHA-256 {digest}, read in {time.monotonic() - started:.1f} s")


async def _check_endpoint(backend: BackendConfig, name: str, context: DoctorContext) -> CheckResult:
    endpoint = resolve(backend, context.environ)
    key = "no key needed" if endpoint.key == NO_KEY else f"key {show_start(endpoint.key)}"
    if context.offline:
        return skip(f"{name}: {key}, not tried (--offline)")
    try:
        answer = await _try_endpoint(backend, endpoint)
    except ModelNotFound as e:
        return fail(f"{name}: {e.message}", e.hint)
    learnt = LearntModels(context.home)
    window = await find_window(backend, context.environ, learnt)
    text = f"{endpoint.base_url}, {key}, window {window.tokens:,} tokens ({window.source})"
    return ok(f"{name}: {answer}", text, *learnt.describe_refusals(endpoint))


async def _try_endpoint(backend: BackendConfig, endpoint: Endpoint) -> str:
    """Check the model and the key by the server's list of models, else by a tiny request. Raises ProviderError."""
    from massmem.providers.discovery import list_models

    names: list[str] = []
    with suppress(ModelNotFound, MalformedResponse):  # the server has no list
        names = [model.name for model in await list_models(backend.type, endpoint)]
    if {endpoint.model, f"{endpoint.model}:latest"} & set(names) or (names and backend.type == "llamacpp"):
        return "the server has the model" if endpoint.key == NO_KEY else "key accepted, model available"
    if backend.type in _COMPLETE_LISTS:
        raise _missing_model(backend, endpoint, names)
    return f"answered in {await probe_model(backend):.1f} s"


def _missing_model(backend: BackendConfig, endpoint: Endpoint, names: Sequence[str]) -> ModelNotFound:
    near = get_close_matches(endpoint.model, names, 3, 0.4) or list(names[:5])
    load = f"ollama pull {endpoint.model}" if backend.type == "ollama" else "load it there"
    fix = f"{load}, or set backend.model to one of: {', '.join(near)}" if near else load
    return ModelNotFound(f"{endpoint.base_url} has no model {endpoint.model!r}", fix)


async def check_tools(context: DoctorContext) -> Sequence[CheckResult]:
    """Start every tool server of every agent, list its tools, and stop it."""
    if context.config is None:
        return skip_without_config()
    servers = [(agent.id, server) for agent in context.config.agents for server in agent.mcp_servers]
    if not servers:
        return [skip("no agent has tool servers")]
    Toolboxes(context.config.agents).check()
    if context.offline:
        return [skip(f"{pluralize(len(servers), 'tool server')}: not started (--offline)")]
    server_class = await asyncio.to_thread(load_server_class)
    return await asyncio.gather(*(_check_tool_server(agent, server_class(server)) for agent, server in servers))


async def _check_tool_server(agent: str, server: "McpServer") -> CheckResult:
    try:
        tools = await server.start()
    except ToolServerError as e:
        return fail(f"{agent}: {e.message}", e.hint)
    finally:
        await server.close()
    return _check_tool_names(f"{agent}: {server.config.name}", server.config, [tool.name for tool in tools])


def _check_tool_names(name: str, config: McpServerConfig, tools: Sequence[str]) -> CheckResult:
    """Check that the names in allow and deny exist: a typo there would go unnoticed."""
    unknown = [tool for tool in (*(config.allow or ()), *config.deny) if tool not in tools]
    if unknown:
        fix = f"correct allow and deny under mcp_servers; it has: {', '.join(tools)}"
        return fail(f"{name} has no tool {', '.join(map(repr, unknown))}", fix)
    usable = [tool for tool in tools if tool not in config.deny and (config.allow is None or tool in config.allow)]
    listed = ", ".join(usable[:_MAX_TOOLS]) + (", ..." if len(usable) > _MAX_TOOLS else "")
    return ok(f"{name}: {pluralize(len(usable), 'tool')} of {len(tools)}", listed or "none may be called")


async def check_service(context: DoctorContext) -> Sequence[CheckResult]:
    """Check that `massmem serve` has a usable secret or public keys to check tokens with, or will make a secret.

    It is skipped without a `server` section and without a secret in the environment: nothing is served then.

    Raises:
        InputError: there is no usable secret or key, or a package is missing.
    """
    config, environ = context.config, context.environ
    if config is None:
        return skip_without_config()
    if "server" not in config.model_fields_set and not environ.get(SECRET):
        return [skip(f"the configuration has no server section, and {SECRET} is not set")]
    with require_extra("server", "serve"):
        from massmem.server.auth import Tokens
    jwt, with_secret = config.server.jwt, add_secret(config, environ, context.home).server.jwt
    if needs_secret(with_secret):
        return [ok("there is no secret for tokens yet: `massmem serve` makes one")]
    Tokens(with_secret)
    return [ok(f"tokens are checked with {jwt.algorithm}, by {_describe_keys(jwt, environ, context.home)}")]


def _describe_keys(jwt: JwtConfig, environ: Mapping[str, str], home: Path) -> str:
    """Return where the keys come from, without any part of a secret."""
    if jwt.algorithm != "HS256":
        return f"the public keys in {expand_home(jwt.jwks_file or '')}"
    sources = ["server.jwt.secret"] if jwt.secret is not None else []
    sources += [f"{pluralize(len(jwt.keys), 'key')} of server.jwt.keys"] if jwt.keys else []
    return " and ".join(sources) or f"the secret in {SECRET if environ.get(SECRET) else home / SECRET_FILE}"
