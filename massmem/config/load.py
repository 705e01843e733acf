"""Find, load and validate a configuration: a team, or all problems of the file at once."""

import difflib
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, cast, get_args, get_origin

from pydantic import ValidationError

from massmem.config.addresses import clean_store_url, complete_address, find_key_problem, is_server_address
from massmem.config.home import ALLOW_MISSING_VARIABLE, expand_home
from massmem.config.massgen import BACKEND_WORDS, PROGRAMS, SERVICES, list_mappings, translate
from massmem.config.models import NO_KEYS, NO_STORE, AgentConfig, FolderConfig, MemoryConfig, Section, TeamConfig
from massmem.config.presets import CLAUDE_TYPES, NEEDS_MODEL, NETWORK_TYPES, PRESETS, PROGRAM_TYPES, PROVIDERS_BY_KEY
from massmem.config.web_search import find_problems
from massmem.config.yaml import (
    MAX_SHOWN,
    KeyPath,
    Report,
    complete_redis_url,
    describe_value,
    escape_unprintable,
    expand_variables,
    read_history_overrides,
    read_yaml,
    suggest,
)
from massmem.core.errors import ConfigError, InputError
from massmem.core.ids import check_session_id
from massmem.core.redact import is_secret_key
from massmem.core.text import trim_value

EXAMPLES = "@examples/"
_GO_ON = "to go on without what is missing here: --allow-missing, or allow_missing: true in the file"
_SUFFIXES = (".yaml", ".yml")
_BREAK = re.compile(r"[\x00-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class LoadedConfig:
    """A configuration with everything that is known of its file."""

    team: TeamConfig
    warnings: list[str]
    report: Report
    """Knows where each value stands in the file."""
    key_variable: str = ""
    """The variable whose key replaced the file's provider by another one; empty: none did."""


def load_config(path: Path | str, environ: Mapping[str, str] | None = None) -> tuple[TeamConfig, list[str]]:
    """Read, expand and validate one file; return the configuration and its warnings, one line each.

    path: also `@examples/NAME`. environ: the variables for `${VAR}` and the CONVERSATION_HISTORY_* overrides; None: the
    environment of this process.

    Raises ConfigError: all problems of the file, `file:line: dotted.key: message`; no message holds a secret.
    """
    file = find_config(str(path)) if str(path).startswith(EXAMPLES) else Path(path)
    loaded = load_file(file, os.environ if environ is None else environ)
    return loaded.team, loaded.warnings


def load_file(path: Path, environ: Mapping[str, str]) -> LoadedConfig:
    """Load one file as `load_config` does; return all that is known of it."""
    source = read_yaml(path)
    report = Report(escape_unprintable(str(path)), source.lines, source.problems)
    data = expand_variables(source.data, environ, report)
    for name in NO_KEYS & data.keys():
        # The model has these fields for what it was made from; no file may set them.
        del data[name]
        report.add((name,), "unknown key" + (" (name it in the command: --job)" if name == "job" else ""))
    _clean_values(data, report)
    allow_missing = ALLOW_MISSING_VARIABLE in environ or str(data.get("allow_missing")).lower() == "true"
    warnings = translate(data, environ, report, allow_missing=allow_missing)
    team = validate(data, report)
    problems = report.render() + read_history_overrides(environ)[1]
    if problems or team is None:
        raise ConfigError(problems, _GO_ON if report.has_missing else "")
    team = _place_folders(team.model_copy(update={"store": complete_redis_url(team.store, environ)}), path.parent)
    return LoadedConfig(team, [*warnings, *filter(None, [_explain_budgets(team)])], report)


def _place_folders(team: TeamConfig, base: Path) -> TeamConfig:
    """Return the team with whole paths of its folders, which are relative to `base`. Raises InputError."""

    def place(section: Section, folders: Iterable[FolderConfig]) -> dict[str, Any]:
        placed = (
            folder.model_copy(update={"path": str(Path(base.absolute(), expand_home(folder.path)))})
            for folder in folders
        )
        return {"folders": tuple(placed)} if "folders" in section.model_fields_set else {}

    files = team.files.model_copy(update=place(team.files, team.files.folders))
    agents = tuple(agent.model_copy(update=place(agent, agent.folders)) for agent in team.agents)
    return team.model_copy(update={"files": files, "agents": agents})


_ADDRESSES = {"url", "base_url", "host"}


def _clean_values(data: dict[str, Any], report: Report, path: KeyPath = ()) -> None:
    """Take blanks, line breaks and quotes from around addresses and keys, and refuse keys that no header may hold."""
    for key, value in data.items():
        key_path = (*path, key)
        for inner_path, inner in [*list_mappings([value], path), *list_mappings(value, key_path)]:
            _clean_values(inner, report, key_path if inner is value else inner_path)
        is_secret = is_secret_key(key) or path[-1:] == ("headers",)
        if isinstance(value, str) and (key in _ADDRESSES or is_secret):
            data[key] = trim_value(value) if is_secret or key == "host" else complete_address(value)
            if is_secret and _BREAK.search(data[key]):
                report.add(key_path, "has a line break in it: give one line")
            elif key == "api_key" and (problem := find_key_problem(data[key], required=False)):
                report.add(key_path, problem)
    if path == ("store",) and isinstance(data.get("url"), str):
        data["url"] = clean_store_url(data["url"])


def _explain_budgets(team: TeamConfig) -> str:
    """Return what becomes of budgets for thinking, "" when there are none."""
    backends = [backend for agent in team.agents for backend in (agent.backend, *agent.backend.fallbacks)]
    mapped = {b.thinking_tokens: b.usual_effort for b in backends if b.thinking_tokens is not None and b.effort is None}
    if not mapped:
        return ""
    efforts = ", ".join(f"{tokens:,} as effort: {effort}" for tokens, effort in mapped.items())
    return f"backend.thinking_tokens: newer models take an effort instead, so this is sent: {efforts}."


def load_named(name: str | None, environ: Mapping[str, str], home: Path) -> LoadedConfig:
    """Load the configuration that `--config` names; None: the default one (see `load_default`).

    Raises ConfigError, as `load_config`.
    """
    return load_default(environ, home) if name is None else load_file(find_config(name), environ)


def load_default(environ: Mapping[str, str], home: Path) -> LoadedConfig:
    """Load the configuration that counts when none was named.

    It is `config.yaml` in massmem's folder `home`, else three agents of the provider whose key is in `environ`, else
    the embedded local model. The team that massmem chooses remembers across conversations, as people expect.

    Raises ConfigError, as `load_config`.
    """
    path = default_config_path(home)
    if _may_exist(path):
        return load_file(path, environ)
    variable, kind, model = next((row for row in PROVIDERS_BY_KEY if environ.get(row[0])), ("", "local", ""))
    loaded = load_file(find_config(EXAMPLES + ("openai" if model else kind)), environ)
    team = _search_all_sessions(loaded.team)
    if not model:
        return replace(loaded, team=team)
    backends = [agent.backend.model_copy(update={"type": kind, "model": model}) for agent in team.agents]
    agents = tuple(a.model_copy(update={"backend": b}) for a, b in zip(team.agents, backends, strict=True))
    return LoadedConfig(team.model_copy(update={"agents": agents}), loaded.warnings, loaded.report, variable)


def default_config_path(home: Path) -> Path:
    """Return where the user's own configuration stands, which counts when none was named."""
    return home / "config.yaml"


def _search_all_sessions(team: TeamConfig) -> TeamConfig:
    """Return the team with `session_name: null`, unless its file has a session_name."""
    persistent = team.memory.persistent_memory
    if "session_name" in persistent.model_fields_set:
        return team
    persistent = persistent.model_copy(update={"session_name": None})
    return team.model_copy(update={"memory": team.memory.model_copy(update={"persistent_memory": persistent})})


def find_config(name: str) -> Path:
    """Return the file that `--config` names: a path, or `@examples/NAME` for one of the shipped configurations.

    Raises ConfigError: there is no such file; the hint suggests files with similar names.
    """
    package, stem = Path(__file__).parents[1], name.removeprefix(EXAMPLES).removesuffix(".yaml")
    # Inside the package when installed from a wheel, beside it in a checkout.
    folder = inside if (inside := package / "configs").is_dir() else package.parent / "configs"
    files = (*folder.glob("*.yaml"), *folder.glob("memory/*.yaml"))
    shipped = sorted(path.relative_to(folder).with_suffix("").as_posix() for path in files)
    if name.startswith(EXAMPLES):
        if stem in shipped:
            return folder / f"{stem}.yaml"
        similar = [EXAMPLES + other for other in difflib.get_close_matches(stem[:60], shipped) or shipped]
    else:
        try:
            path = Path(name).expanduser()
        except RuntimeError as e:
            raise ConfigError([f"{describe_value(name)}: this home folder is not known"]) from e
        if _may_exist(path):
            return path
        similar = [EXAMPLES + other for other in shipped if other == stem] or _list_similar(path)
    hint = (
        f"did you mean {', '.join(similar)}?"
        if similar
        else f"check the path, or write one with: massmem init; shipped ones: {EXAMPLES}local, {EXAMPLES}openai, ..."
    )
    raise ConfigError([f"{escape_unprintable(name[:200])}: there is no such configuration"], hint)


def _may_exist(path: Path) -> bool:
    """Return False only when there is no such file; reading it says why another one cannot be read."""
    try:
        return path.exists()
    except OSError:
        return True
    except ValueError:
        return False


def _list_similar(path: Path) -> list[str]:
    """Return the YAML files in the same folder with a name like that of `path`."""
    try:
        files = {other.name: other for other in path.parent.iterdir() if other.suffix in _SUFFIXES}
    except (OSError, ValueError):
        return []
    return [
        escape_unprintable(str(files[name])) for name in difflib.get_close_matches(path.name, list(files), cutoff=0.5)
    ]


def resolve_agents(team: TeamConfig, environ: Mapping[str, str]) -> tuple[AgentConfig, ...]:
    """Return every agent with its memory settings: the team's, overridden by its own, then by the environment.

    Only keys that were given override. A key that nobody gave stays unset (`model_fields_set`), so that a missing
    session_name differs from an explicit null.

    Raises ConfigError: a CONVERSATION_HISTORY_* variable is wrong (`load_config` raises for that, too).
    """
    history, problems = read_history_overrides(environ)
    if problems:
        raise ConfigError(problems)
    memory = team.memory.model_dump(exclude_unset=True)
    overrides = {"conversation_memory": history} if history else {}
    agents: list[AgentConfig] = []
    for spec in team.agents:
        own = _override(_override(memory, spec.memory.model_dump(exclude_unset=True)), overrides)
        folders = tuple({folder.path: folder for folder in (*team.files.folders, *spec.folders)}.values())
        resolved = {"memory": MemoryConfig.model_validate(own), "folders": folders}
        if spec.backend.is_program:  # it has tools of its own, and reads the folder by itself
            place = spec.backend.folder or next((folder.path for folder in folders), None)
            resolved |= {"folders": (), "backend": spec.backend.model_copy(update={"folder": place})}
        agents.append(AgentConfig.model_validate(dict(spec) | resolved))
    return tuple(agents)


def _override(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Return `base` with `changes` laid over it, section by section."""
    if changes.get("provider", base.get("provider")) != base.get("provider"):
        # Another provider has its own models, address and key: nothing of the first one may reach it.
        return changes
    result = dict(base)
    for key, value in changes.items():
        current = result.get(key)
        if isinstance(value, dict) and isinstance(current, dict):
            result[key] = _override(cast("dict[str, Any]", current), cast("dict[str, Any]", value))
        else:
            result[key] = value
    return result


# Validation: the rules of pydantic's models and those between keys, in the words of a user's file

STORE_SCHEMES = ("sqlite", "postgresql", "redis", "rediss", "unix")
MIN_JWT_SECRET = 32
"""Bytes: as many as the hash has (RFC 7518, section 3.2)."""
RESERVED_ID = "user"
"""As massmem.memory.persistent.USER: an agent of that name would pass for the person who asks."""

# Fields of a backend that only some types have.
_FIELD_TYPES: dict[str, frozenset[str]] = {
    "script": frozenset({"scripted"}),
    "thinking_tokens": CLAUDE_TYPES,
    "api": NETWORK_TYPES - CLAUDE_TYPES,
    "auth": frozenset({"azure_openai"}),
    "code_execution": frozenset({"openai", "anthropic", "gemini"}),
    "extra_body": NETWORK_TYPES - CLAUDE_TYPES,
    "effort": NETWORK_TYPES,
    "api_key": NETWORK_TYPES,
    "base_url": NETWORK_TYPES,
    **dict.fromkeys(("command", "folder", "allow", "sandbox"), PROGRAM_TYPES),
}

# By the first word of pydantic's error types: int_type, int_parsing, int_from_float, ...
_EXPECTED = {
    "int": "a whole number",
    "float": "a number",
    "finite": "a finite number",
    "bool": "true or false",
    "dict": "a mapping",
    "model": "a mapping",
    "tuple": "a list",
}
_EXPECTED_TEXT = {
    "string_type": "text (put it in quotes)",
    "string_pattern_mismatch": "1 to 64 letters, digits, '_', '-' or '.', with no '-' or '.' first",
}

_Mapping = Mapping[str, Any]


def validate(data: _Mapping, report: Report) -> TeamConfig | None:
    """Return the configuration in `data`, or None when pydantic refuses it; add every problem to `report`."""
    # The rules between keys read the data as it is, valid or not: all problems of a file are reported at once.
    _check_rules(data, report)
    try:
        return TeamConfig.model_validate({**data, "source": report.file})
    except ValidationError as e:
        reported = {problem.path for problem in report.problems}
        # The input is needed to name it; `Report.describe_value` decides what of it may be seen.
        for error in e.errors(include_url=False, include_context=True, include_input=True):
            path: KeyPath = error["loc"]
            follows_from_items = error["type"] == "too_short" and error["input"]
            if not follows_from_items and report.path_in_file(path) not in reported:
                report.add(path, _explain(path, error["type"], error, report))
        return None


# The rules between keys


def _check_rules(data: _Mapping, report: Report) -> None:
    _check_session_id(data.get("session_id"), report)
    _check_store(_section(data, "store").get("url"), report)
    secret = _section(data, "server", "jwt").get("secret")
    if isinstance(secret, str) and 0 < len(secret.encode("utf-8", "replace")) < MIN_JWT_SECRET:
        report.add(("server", "jwt", "secret"), f"must be at least {MIN_JWT_SECRET} bytes")
    _check_memory(_section(data, "memory"), ("memory",), report, needs_provider=True)
    team_has_llm = bool(_section(data, "memory", "persistent_memory", "llm"))
    ids: dict[str, KeyPath] = {}
    for path, agent in list_mappings(data.get("agents"), ("agents",)):
        _check_agent_id(agent.get("id"), (*path, "id"), ids, report)
    _check_agent_names(data.get("agents"), ids, report)
    for path, agent in list_mappings(data.get("agents"), ("agents",)):
        backend, backend_path = _section(agent, "backend"), (*path, "backend")
        for model_path, model in [
            (backend_path, backend),
            *list_mappings(backend.get("fallback"), (*backend_path, "fallback")),
        ]:
            _check_backend(model, model_path, report)
        _check_memory(_section(agent, "memory"), (*path, "memory"), report, needs_provider=not team_has_llm)
        for server_path, server in list_mappings(agent.get("mcp_servers"), (*path, "mcp_servers")):
            _check_address(server.get("url"), (*server_path, "url"), report)


def _section(data: _Mapping, *names: str) -> _Mapping:
    for name in names:
        inner = data.get(name)
        data = cast("_Mapping", inner) if isinstance(inner, Mapping) else {}
    return data


def _check_session_id(value: Any, report: Report) -> None:
    if isinstance(value, str):
        try:
            check_session_id(value)
        except InputError:
            shown = report.describe_value(("session_id",), value)
            report.add(("session_id",), f"{shown} must be 1 to 128 letters, digits, '_', '-' or '.'")


def _check_store(url: Any, report: Report) -> None:
    if not isinstance(url, str) or url == NO_STORE:
        return
    scheme, colon, _ = url.partition("://")
    if scheme not in STORE_SCHEMES or not colon:
        # What follows :// may hold a password.
        shown = report.describe_value(("store", "url"), f"{scheme}://" if colon else url)
        supported = ", ".join(f"{name}://" for name in STORE_SCHEMES)
        hint = suggest(scheme, STORE_SCHEMES) if colon else "; a file is written as sqlite:///PATH"
        report.add(("store", "url"), f"{shown} is no supported store; supported: {supported}{hint}")


def _check_memory(memory: _Mapping, path: KeyPath, report: Report, *, needs_provider: bool) -> None:
    """needs_provider: an `llm` must name its provider, since no settings of the team do."""
    persistent = _section(memory, "persistent_memory")
    path = (*path, "persistent_memory")
    llm = persistent.get("llm")
    if needs_provider and isinstance(llm, Mapping) and not cast("_Mapping", llm).get("provider"):
        report.add((*path, "llm", "provider"), "is missing")
    for section in ("llm", "embedding"):
        _check_address(_section(persistent, section).get("base_url"), (*path, section, "base_url"), report)
    qdrant = _section(persistent, "qdrant")
    _check_address(qdrant.get("url"), (*path, "qdrant", "url"), report)
    if "/" in str(qdrant.get("host", "")):
        report.add((*path, "qdrant", "host"), "must be the name of a machine; an address is given as url instead")


def _check_agent_id(value: Any, path: KeyPath, ids: dict[str, KeyPath], report: Report) -> None:
    """ids: where each id was first given; `value` is added."""
    if not isinstance(value, str):
        return
    if value == RESERVED_ID:
        report.add(path, f"{RESERVED_ID!r} is the name of the person who asks; call the agent something else")
    if value in ids:
        first = report.find_line(report.path_in_file(ids[value]))
        report.add(path, f"{report.describe_value(path, value)} is already the id of the agent on line {first}")
    ids.setdefault(value, path)


def _check_agent_names(agents: Any, ids: Mapping[str, KeyPath], report: Report) -> None:
    """Check that nobody can take one agent for another. ids: where the id of each agent is given."""
    names: dict[str, KeyPath] = {}
    for path, agent in list_mappings(agents, ("agents",)):
        name, path = agent.get("name"), (*path, "name")
        if not isinstance(name, str) or not name:
            continue
        other = names.setdefault(name, path)
        if other == path and name != agent.get("id"):
            other = ids.get(name, path)
        if other != path:
            line = report.find_line(report.path_in_file(other))
            report.add(
                path, f"{report.describe_value(path, name)} is already the {other[-1]} of the agent on line {line}"
            )
        elif name.casefold() == RESERVED_ID:
            report.add(path, f"{name!r} is the name of the person who asks; call the agent something else")


def _check_backend(backend: _Mapping, path: KeyPath, report: Report) -> None:
    kind = backend.get("type")
    if not isinstance(kind, str) or kind not in PRESETS:
        return
    for key, types in _FIELD_TYPES.items():
        is_given = backend.get(key) not in (None, False) and (key, backend[key]) != ("extra_body", {})
        if is_given and kind not in types:
            only = (
                f"; only {', '.join(sorted(types))} {'has' if len(types) == 1 else 'have'} it"
                if len(types) <= 3
                else ""
            )
            report.add((*path, key), f"does not belong to type {kind}{only}")
    runs_code = backend.get("code_execution") is True
    if runs_code and kind == "openai" and backend.get("api") == "chat":
        report.add((*path, "api"), "with code_execution, openai is asked by the Responses API: leave out api")
    if kind == "gemini" and backend.get("extra_body") and (runs_code or backend.get("web_search")):
        report.add((*path, "extra_body"), "with web_search or code_execution Gemini's own API is asked, without it")
    if kind == "acp" and not backend.get("command"):
        report.add((*path, "command"), "is missing: the program that speaks the Agent Client Protocol")
    if kind in NEEDS_MODEL and not backend.get("model"):
        report.add((*path, "model"), f"is missing: type {kind} needs the name of a model")
    _check_address(backend.get("base_url"), (*path, "base_url"), report)
    for inner, problem in find_problems(kind, backend):
        report.add((*path, *inner), problem)
    thinking, most = backend.get("thinking_tokens"), backend.get("max_tokens")
    if isinstance(thinking, int) and isinstance(most, int) and thinking >= most:
        report.add((*path, "thinking_tokens"), "must be less than max_tokens, which counts thinking too")


def _check_address(url: Any, path: KeyPath, report: Report) -> None:
    if isinstance(url, str) and not is_server_address(url):
        report.add(path, f"{report.describe_value(path, url)} must be an address such as http://localhost:8080")


# Pydantic's errors in plain words


def _explain(path: KeyPath, kind: str, error: Mapping[str, Any], report: Report) -> str:
    # A file that is something else altogether has thousands of problems; to find similar words for all would take long.
    suggesting = len(report.problems) < 4 * MAX_SHOWN
    if kind == "extra_forbidden":
        return "unknown key" + (_suggest_key(path) if suggesting else "")
    if message := _explain_without_value(path, kind, error.get("ctx", {})):
        return message
    shown = report.describe_value(path, error["input"])
    if kind == "literal_error":
        annotation = _annotation(path)
        choices: tuple[str, ...] = get_args(annotation) if get_origin(annotation) is Literal else ()
        words = (*BACKEND_WORDS, *SERVICES, *PROGRAMS) if path[-2:] == ("backend", "type") else ()
        near = suggest(error["input"], [*choices, *words]) if suggesting and isinstance(error["input"], str) else ""
        return f"{shown} is not one of {', '.join(choices)}{near}"
    expected = _EXPECTED_TEXT.get(kind) or _EXPECTED.get(kind.split("_")[0])
    # Pydantic's own words have the form "Input should be less than or equal to 1".
    rule = f"be {expected}" if expected else re.sub(r"^[A-Z][a-z]+ should ", "", str(error["msg"]))
    return f"must {rule}, not {shown}"


def _explain_without_value(path: KeyPath, kind: str, context: Mapping[str, Any]) -> str:
    match kind:
        case "missing":
            return "is missing: give agents (a list) or agent" if path == ("agents",) else "is missing"
        case "too_short" | "string_too_short":
            return "must not be empty"
        case "too_long":
            return f"must have at most {context['max_length']} entries"
        case "value_error":
            return str(context["error"])
        case _:
            return ""


def _suggest_key(path: KeyPath) -> str:
    section, key = section_in(_annotation(path[:-1])), str(path[-1])
    if section is None:
        return ""
    fields = {name: info.annotation for name, info in section.model_fields.items() if name not in NO_KEYS}
    if near := suggest(key, fields):
        return near
    inner_sections = {name: section_in(annotation) for name, annotation in fields.items()}
    inside = [f"{name}.{key}" for name, inner in inner_sections.items() if inner and key in inner.model_fields]
    return f" (did you mean {inside[0]!r}?)" if inside else ""


def section_in(annotation: Any) -> type[Section] | None:
    """Return the section inside `Section | None` or `tuple[Section, ...]`."""
    for part in (annotation, *get_args(annotation)):
        if isinstance(part, type) and issubclass(part, Section):
            return part
    return None


def _annotation(path: KeyPath) -> Any:
    """Return the type of the key at `path`; None for an unknown key."""
    annotation: Any = TeamConfig
    for part in path:
        section = section_in(annotation)
        if get_origin(annotation) is dict:
            annotation = get_args(annotation)[1]  # the part is a name that the user chose
        elif isinstance(part, str) and section is not None:
            annotation = section.model_fields[part].annotation if part in section.model_fields else None
    return annotation
