"""`massmem init`: from what is on this machine to a configuration that works."""

import asyncio
import json
import os
import shlex
from dataclasses import dataclass
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from massmem.cli.candidates import Choice, Draft, Found, find
from massmem.cli.config_text import EXTRACTORS, config_text
from massmem.cli.files import writing
from massmem.cli.questions import Questions
from massmem.cli.streams import say, write_out
from massmem.cli.team import read_dotenv
from massmem.cli.trial import tried
from massmem.config.load import load_config, own_config
from massmem.config.models import BackendConfig, TeamConfig
from massmem.errors import InputError, MassmemError
from massmem.home import make_home, massmem_home
from massmem.providers.loopback import NAMES
from massmem.render.printable import printable
from massmem.weights import DEFAULT, FETCH

SCHEMA_FILE = "config.schema.json"
NOTHING = (
    f"run `{FETCH}` (1.1 GB, once: a model inside massmem), or `export OPENAI_API_KEY=...` (ANTHROPIC_API_KEY, "
    "GEMINI_API_KEY, GROQ_API_KEY, ...), or start Ollama, LM Studio, vLLM or llama.cpp; then run massmem init again"
)

app = typer.Typer(help="Find keys and models, and write a configuration.")


@dataclass(frozen=True, slots=True)
class _Written:
    path: Path
    team: TeamConfig
    found: Found


@app.callback(invoke_without_command=True)
def init_command(
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Ask nothing: take the best of what is found.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace the file; the old one is kept beside it.")] = False,
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where to write it. [default: ~/.massmem/config.yaml]")
    ] = None,
    no_try: Annotated[bool, typer.Option("--no-try", help="Do not ask the models for a word.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> int:
    """Find keys in the environment and .env, model servers on this machine, and the embedded model; write a team.

    Three questions at most. The file holds no key, only the names of variables. Each model is tried once.
    """
    home = massmem_home()
    before = set(os.environ)
    read_dotenv(Path(".env"))
    questions = Questions(silent=yes or as_json or not Questions.possible())
    path = output.absolute() if output else own_config(home)
    _may_replace(path, questions, force=force)
    found = asyncio.run(find(os.environ))
    _tell_found(found, set(os.environ) - before)
    written = _write(path, home, found, questions)
    say(f"wrote {path}")
    trials = [] if no_try else asyncio.run(_try(written.team))
    if as_json:
        write_out(json.dumps(_row(written, trials), ensure_ascii=False) + "\n")
    else:
        write_out(f"{path}\n")
    failed = [error for _, error in trials if isinstance(error, MassmemError)]
    if failed:
        again = _with(path, home, "doctor")
        say(f"the configuration is written, but not every model answers; mend that, then run: {again}")
        return failed[0].exit_code
    say(f'ask with: {_with(path, home)} "your question"')
    return 0


def _may_replace(path: Path, questions: Questions, *, force: bool) -> None:
    """Raises InputError when the file is there and is to stay."""
    if force or not path.exists():
        return
    if not questions.confirm(f"{path} exists. Replace it (the old one is kept)?"):
        raise InputError(f"{path} exists already", "add --force to replace it, or --output FILE for another place")


def _tell_found(found: Found, from_file: set[str]) -> None:
    for draft in found.keys:
        where = " (in ./.env, which counts in this folder only)" if draft.key in from_file else ""
        say(f"found the key {draft.key}{where}")
    for server in found.servers:
        names = ", ".join(model.name for model in server.models if model.chats) or "no model yet"
        say(f"found {NAMES[server.type]} at {server.base_url}: {names[:300]}")
    if found.embedded:
        say(f"found {DEFAULT.name}, which runs inside massmem")


def _write(path: Path, home: Path, found: Found, questions: Questions) -> _Written:
    choices = found.choices()
    if not choices:
        raise InputError("there is no key, no model server and no model on this machine that could answer", NOTHING)
    choice = choices[questions.choose("Which models?", [printable(each.label) for each in choices])]
    backends = _backends(choice, questions)
    extractor = _extractor(backends, questions)
    own = path == own_config(home)
    text = config_text(backends, "" if own else shlex.quote(str(path)), SCHEMA_FILE if own else "", extractor)
    if own:
        make_home(home)
        _write_schema(path.with_name(SCHEMA_FILE))
    return _Written(path, _put(path, text), found)


def _backends(choice: Choice, questions: Questions) -> tuple[Draft, ...]:
    if not choice.models:
        return choice.backends
    return (choice.models[questions.choose("Which model?", [printable(draft.model) for draft in choice.models])],)


def _extractor(backends: tuple[Draft, ...], questions: Questions) -> Draft | None:
    able = next((draft for draft in backends if draft.type in EXTRACTORS), None)
    if able is None or find_spec("mem0") is None:
        return None
    model = EXTRACTORS[able.type]
    wanted = questions.confirm(
        f"Also extract facts for long-term memory (one cheap request of {model} after each turn)?"
    )
    return able if wanted else None


def _put(path: Path, text: str) -> TeamConfig:
    """Check the text, then put it in place; what was there is kept beside it."""
    draft = path.with_name(f".{path.name}.draft")
    with writing(draft) as write:
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
    from massmem.config.json_schema import json_schema

    with writing(path) as write:
        write(json.dumps(json_schema(), indent=1, ensure_ascii=False) + "\n")


async def _try(team: TeamConfig) -> list[tuple[BackendConfig, float | MassmemError]]:
    """Each distinct model once, all at the same time; the result is told."""
    backends = list({repr(agent.backend): agent.backend for agent in team.agents}.values())
    say(f"trying {', '.join(_name(backend) for backend in backends)} ...")
    results = await asyncio.gather(*map(_tried, backends))
    for backend, result in zip(backends, results, strict=True):
        if isinstance(result, MassmemError):
            say(f"{_name(backend)}: {result.message}" + (f"\n  {result.hint}" if result.hint else ""))
        else:
            say(f"{_name(backend)} answered in {result:.1f} s")
    return list(zip(backends, results, strict=True))


async def _tried(backend: BackendConfig) -> float | MassmemError:
    try:
        return await tried(backend)
    except MassmemError as e:
        return e


def _name(backend: BackendConfig) -> str:
    return f"{backend.type} {backend.model}".strip()


def _with(path: Path, home: Path, command: str = "") -> str:
    parts = ["massmem", command, "" if path == own_config(home) else f"--config {shlex.quote(str(path))}"]
    return " ".join(filter(None, parts))


def _row(written: _Written, trials: list[tuple[BackendConfig, float | MassmemError]]) -> dict[str, Any]:
    found = written.found
    servers = [
        {"type": s.type, "base_url": s.base_url, "models": [model.name for model in s.models]} for s in found.servers
    ]
    return {
        "schema_version": 1,
        "path": str(written.path),
        "found": {"keys": [draft.key for draft in found.keys], "servers": servers, "embedded": found.embedded},
        "agents": [{"id": a.id, "type": a.backend.type, "model": a.backend.model} for a in written.team.agents],
        "tried": [_trial_row(backend, result) for backend, result in trials],
    }


def _trial_row(backend: BackendConfig, result: float | MassmemError) -> dict[str, Any]:
    row: dict[str, Any] = {"type": backend.type, "model": backend.model}
    if isinstance(result, MassmemError):
        return row | {"ok": False, "error": result.message, "fix": result.hint or None}
    return row | {"ok": True, "seconds": round(result, 2)}
