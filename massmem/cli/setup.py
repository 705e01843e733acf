"""The setup of a command: the configuration, the home folder and the variables of .env."""

import asyncio
import logging
import os
import shlex
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing, contextmanager
from dataclasses import dataclass, replace
from functools import cache
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING

import dotenv
from dotenv.parser import parse_stream

from massmem.cli.keys import read_keys
from massmem.cli.streams import notify, show_progress
from massmem.config.home import ADDED_VARIABLES, massmem_home
from massmem.config.load import EXAMPLES, LoadedConfig, default_config_path, find_config, load_named, resolve_agents
from massmem.config.models import NO_STORE, StoreConfig, TeamConfig
from massmem.config.presets import PROVIDERS_BY_KEY
from massmem.config.projects import find_project
from massmem.config.yaml import decode_settings
from massmem.core.errors import InputError, MassmemError
from massmem.core.ids import PREFIX
from massmem.core.records import COMMAND_LINE_USER, EVERYBODY, Everybody, Owner
from massmem.providers.weights import DEFAULT, FETCH_COMMAND, models_folder, read_state
from massmem.session.registry import FORGETTING, Registry

if TYPE_CHECKING:
    from massmem.memory.indexed import IndexedMemory
    from massmem.recording.forgetting import DamageHandler
    from massmem.session.erasure import Receipt
    from massmem.session.memories import Memories
    from massmem.session.sessions import Sessions
    from massmem.session.team import Team
    from massmem.store.ports import SessionStore


EXTRAS = {
    "local": "models in this process",
    "postgres": "sessions in PostgreSQL",
    "redis": "sessions in Redis",
    "server": "the HTTP service",
    "otel": "OpenTelemetry spans",
    "mcp": "tools from MCP servers",
    "memory": "search by meaning",
    "azure": "Azure with Entra ID",
    "bedrock": "Claude on Amazon Bedrock",
    "vertex": "Claude on Google's Vertex AI",
    "mem0": "a Qdrant server as index, mem0's prompt and the providers that only mem0 reaches",
    "multilingual": "search by meaning in a hundred languages",
    "documents": "text of office files, tables in PDFs and pages of the web",
}
"""What each extra is for."""


@dataclass(frozen=True, slots=True)
class Setup:
    config: TeamConfig
    home: Path
    """massmem's own folder, which may not exist yet."""
    owner: Owner | Everybody
    """Whose sessions the command sees."""
    team: "Team | None" = None
    """The open team, whose store and memory are used; None outside of a conversation."""
    project: str | None = None
    """Of the conversation; None: the one of the working directory counts."""

    @asynccontextmanager
    async def open_store(self, *, fallback: bool = False, finishes: bool = True) -> AsyncGenerator["SessionStore"]:
        """Open the store for the block, and write its warnings to stderr.

        fallback: use a store in memory when Redis is down and the configuration allows that. finishes: before anything
        is shown, finish what was to be forgotten when a process was killed.

        Raises StoreError, InputError: see massmem.store.open_configured. MemoryUnavailable: see `finish_forgetting`.
        """
        if self.team is not None:
            yield self.team.store
            return
        from massmem.session.registry import require_database
        from massmem.store import open_configured

        await asyncio.to_thread(require_database, self.home, self.config.store.url)
        store = await open_configured(self.config.store, self.home, fallback=fallback)
        for warning in filter(None, (store.info.always, *store.info.once)):
            notify(warning)
        try:
            if finishes:
                await self.finish_forgetting(store)
            yield store
        finally:
            await store.close()

    async def finish_forgetting(self, store: "SessionStore") -> "list[Receipt]":
        """Finish what was to be forgotten when a process was killed, of every owner.

        Raises MemoryUnavailable: that is not possible now, and nothing is to be shown.
        """
        if not (self.home / FORGETTING).exists():
            return []
        from massmem.session.erasure import finish_forgetting

        receipts = await finish_forgetting(self.config, self.home, store, self.open_index, EVERYBODY)
        if receipts:
            notify("what was to be forgotten when a process ended is forgotten now")
        return receipts

    @asynccontextmanager
    async def open_memories(self) -> AsyncGenerator["Memories"]:
        """Open the store for the block, and the index when it is asked for. Raises as `open_store`."""
        from massmem.session.memories import Memories

        async with self.open_store() as store:
            is_own = self.owner in (EVERYBODY, COMMAND_LINE_USER)
            project = self.project if self.project is not None else find_project() if is_own else ""
            yield Memories(self.config, self.home, store, self.open_index, self.owner, project)

    @asynccontextmanager
    async def open_sessions(self) -> AsyncGenerator["Sessions"]:
        """Open the store for the block. Raises as `open_store`."""
        from massmem.session.lease import ProcessLock
        from massmem.session.sessions import Sessions

        with closing(ProcessLock(self.home)) as process:
            async with self.open_store() as store:
                yield Sessions(self.config, self.home, store, process, self.owner)

    def open_index(self, on_damage: "DamageHandler | None" = None) -> AbstractAsyncContextManager["IndexedMemory"]:
        """Open the memory on disk, also when the configuration stores nothing from now on. Raises MemoryUnavailable.

        on_damage: makes room for a new index when this one is damaged.
        """
        from massmem.recording.forgetting import open_durable_memory

        if self.team is not None:
            return self.team.open_durable_memory()
        return open_durable_memory(self.config.memory, self.home, on_damage)


def load_setup(config: str | None, owner: str | None = None, *, all_owners: bool = False, warn: bool = True) -> Setup:
    """Read .env and the configuration `config`, or the default one.

    owner: a user of the HTTP service, whose sessions the command sees; None: the user of the command line. all_owners:
    the command sees the sessions of all of them. warn: write the warnings of the configuration to stderr.

    Raises ConfigError, InputError, HomeError.
    """
    if owner is not None and all_owners:
        raise InputError("--owner and --all-owners exclude each other", "leave one of them out")
    home = massmem_home()
    read_environment()
    return Setup(load_team(config, home, warn=warn), home, EVERYBODY if all_owners else Owner(owner))


def load_team(
    config: str | None,
    home: Path,
    limits: Mapping[str, float] | None = None,
    *,
    store: bool = True,
    warn: bool = True,
) -> TeamConfig:
    """Load the configuration `config`, or the default of this machine.

    limits: values that replace those in `coordination`, by name. store: False to keep everything in memory and start a
    new session. warn: as for `load_setup`.

    Raises ConfigError, InputError.
    """
    loaded = load_and_check(config, home)
    team = loaded.team
    for warning in loaded.warnings if warn else ():
        notify(warning)
    if limits:
        team = change_coordination(team, **limits)
    return team if store else team.model_copy(update={"store": StoreConfig(url=NO_STORE), "session_id": None})


def change_coordination(team: TeamConfig, **values: object) -> TeamConfig:
    """Return the team with other values in `coordination`, by their keys."""
    return team.model_copy(update={"coordination": team.coordination.model_copy(update=values)})


def load_and_check(config: str | None, home: Path) -> LoadedConfig:
    """Load a configuration as `load_named`; its warnings also name the packages that its memory lacks."""
    from massmem.memory.mem0 import list_missing_packages

    loaded = load_named(config, os.environ, home)
    memories = [resolved.memory for resolved in resolve_agents(loaded.team, os.environ)]
    missing = dict.fromkeys(line for memory in memories for line in list_missing_packages(memory))
    return replace(loaded, warnings=[*loaded.warnings, *missing])


def fetch_embedded_model(team: TeamConfig) -> None:
    """Download the embedded model when the team needs it and it was never there, and show how far that is.

    Raises DownloadError, MachineError, HomeError: as `fetch_weights`.
    """
    is_needed = any(agent.backend.type == "local" and not agent.backend.model for agent in team.agents)
    is_missing = is_needed and read_state(models_folder() / DEFAULT.file, DEFAULT.sha256) == "missing"
    if not is_missing or find_spec("xllamacpp") is None:  # without llama.cpp, opening the model says what to install
        return
    notify(f"{DEFAULT.name} is downloaded first, 1.1 GB, once; what has arrived when you stop it (Ctrl-C) is kept")
    download_embedded_model()


def download_embedded_model() -> None:
    """Download the embedded model, and show how far that is. Raises as `fetch_embedded_model`."""
    from massmem.providers.downloads import fetch_weights, list_sources

    with show_progress(DEFAULT.name, in_bytes=True) as progress:
        fetch_weights(DEFAULT, list_sources(DEFAULT), models_folder(), progress, notify)


def load_server_teams(config: TeamConfig, home: Path) -> dict[str, TeamConfig]:
    """Load the other teams of a service, by name, as `load_team`. Raises ConfigError, InputError."""
    return {name: load_team(file, home) for name, file in config.server.teams.items()}


@contextmanager
def require_extra(extra: str, command: str) -> Generator[None]:
    """Raise InputError, which says what to install, when a package is missing that the block imports."""
    try:
        yield
    except ModuleNotFoundError as e:
        raise InputError(f"massmem {command} needs the package {e.name}", f"pip install 'massmem[{extra}]'") from e


def find_session_config(session_id: str) -> str | None:
    """Return the configuration that a session of this machine began with, and tell the user.

    session_id: also the beginning of one, or a name. None: as `use_session_config`.
    """
    try:
        entries = Registry(massmem_home()).read_entries()
    except MassmemError:  # whoever writes the list reports it
        return None
    by_id = [entry for entry in entries if entry.session_id == session_id]
    by_name = [entry for entry in entries if entry.description.casefold() == session_id.casefold()]
    by_start = [entry for entry in entries if entry.session_id.startswith((session_id, PREFIX + session_id))]
    matches = by_id or by_name or by_start
    return use_session_config(matches[0].config_path) if len(matches) == 1 else None


def use_session_config(path: str) -> str | None:
    """Return the configuration that a session began with, and tell the user.

    path: as the session has it. None: the default configuration is the right one, or nothing better is known.
    """
    home = massmem_home()
    defaults = (default_config_path(home), *(find_config(EXAMPLES + name) for name in ("local", "openai")))
    if not path or Path(path) in defaults:
        return None
    if not Path(path).is_file():
        notify(f"the session began with {path}, which is not there; the default configuration is used")
        return None
    notify(f"using {path}, with which the session began; --config names another one")
    return path


def choose_config(file: str | None, config: str | None) -> str | None:
    """Return the configuration that a command was given as its argument or as --config. Raises InputError for two."""
    if file is not None and config is not None and file != config:
        raise InputError(f"two configurations were given: {file} and {config}", "leave one of them out")
    return config if file is None else file


def read_environment() -> None:
    """Add the variables of ./.env, then the keys of `massmem keys`, to the environment; what is set already stays.

    Raises InputError: a file cannot be read.
    """
    before = {*os.environ}
    read_dotenv(Path(".env"))
    for variable, key in read_keys(massmem_home()).items():
        os.environ.setdefault(variable, key)
    ADDED_VARIABLES.update(os.environ.keys() - before)


def read_dotenv(path: Path) -> None:
    """Add the variables of a .env file to the environment, except those that are set already.

    Raises InputError: the file cannot be read or is not UTF-8 text.
    """
    if not path.is_file():
        return
    logging.getLogger("dotenv").setLevel(logging.ERROR)  # it names neither the file nor what is wrong
    try:
        text = decode_settings(path.read_bytes())
        mistakes = [binding.original.line for binding in parse_stream(StringIO(text)) if binding.error]
        dotenv.load_dotenv(stream=StringIO(text), override=False)
    except (OSError, ValueError) as e:
        raise InputError(f"{path} cannot be read: {e}", "correct it, or move it away") from e
    for line in mistakes:
        _report_line(path.absolute(), line)


@cache
def _report_line(path: Path, line: int) -> None:
    """Tell the user of a line that is no variable, once: the file is read twice where a first run is checked."""
    notify(f"{path}:{line}: this line does not count: it is not NAME=value")


def check_first_run(config: str | None, question: str | None) -> None:
    """Fail at once when there is no configuration, no key and no model, before heavy packages are imported.

    Raises InputError: nothing is set up; the hint lists every way to change that.
    """
    if config is not None:
        return
    own = default_config_path(massmem_home())
    if os.path.lexists(own):
        return
    read_environment()
    if any(os.environ.get(variable) for variable, _, _ in PROVIDERS_BY_KEY):
        return
    if read_state(models_folder() / DEFAULT.file, DEFAULT.sha256) == "missing":
        raise InputError(
            f"no model is set up: there is no {own}, no API key in the environment, and no model on this machine",
            _list_first_steps(question),
        )


def _list_first_steps(question: str | None) -> str:
    quoted = shlex.quote(question) if question and len(question) <= 60 else '"your question"'
    steps = (
        ("massmem init", "finds keys and model servers (Ollama, LM Studio, ...) and writes the configuration"),
        ("export OPENAI_API_KEY=...", "or ANTHROPIC_API_KEY, GEMINI_API_KEY, GROQ_API_KEY, ..."),
        (FETCH_COMMAND, "1.1 GB, once: a model that runs inside massmem; no data leaves this machine"),
        (f"massmem --config @examples/scripted {quoted}", "a demonstration without any model"),
    )
    lines = [f"  {command:<28}  {effect}" for command, effect in steps]
    return "\n".join(["choose one:", *lines])
