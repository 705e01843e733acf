"""Find and load a configuration: a validated team, or all problems of the file at once."""

import difflib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from massmem.config.environment import expand_variables, read_history_overrides
from massmem.config.massgen import translate
from massmem.config.models import AgentConfig, AgentSpec, BackendType, MemoryConfig, TeamConfig
from massmem.config.problems import Report, describe_value, escape_unprintable
from massmem.config.validation import validate
from massmem.config.yaml import read_yaml
from massmem.core.errors import ConfigError

EXAMPLES = "@examples/"
_SUFFIXES = (".yaml", ".yml")
# Without a configuration, the first of these variables that is set decides on provider and model. An empty model means
# that of the shipped configuration with the provider's name.
PROVIDERS_BY_KEY: tuple[tuple[str, BackendType, str], ...] = (
    ("OPENAI_API_KEY", "openai", ""),
    ("ANTHROPIC_API_KEY", "anthropic", ""),
    ("GEMINI_API_KEY", "gemini", "gemini-flash-latest"),
    ("GOOGLE_API_KEY", "gemini", "gemini-flash-latest"),
    ("XAI_API_KEY", "grok", "grok-4"),
    ("MISTRAL_API_KEY", "mistral", "mistral-medium-latest"),
    ("DEEPSEEK_API_KEY", "deepseek", "deepseek-chat"),
    ("GROQ_API_KEY", "groq", "openai/gpt-oss-120b"),
    ("CEREBRAS_API_KEY", "cerebras", "gpt-oss-120b"),
    ("TOGETHER_API_KEY", "together", "openai/gpt-oss-120b"),
    ("FIREWORKS_API_KEY", "fireworks", "accounts/fireworks/models/gpt-oss-120b"),
    ("OPENROUTER_API_KEY", "openrouter", "openai/gpt-oss-120b"),
)


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

    Raises:
        ConfigError: all problems of the file, `file:line: dotted.key: message`; no message holds a secret.
    """
    file = find_config(str(path)) if str(path).startswith(EXAMPLES) else Path(path)
    loaded = load_file(file, os.environ if environ is None else environ)
    return loaded.team, loaded.warnings


def load_file(path: Path, environ: Mapping[str, str]) -> LoadedConfig:
    """Load one file as `load_config` does; return all that is known of it."""
    source = read_yaml(path)
    report = Report(escape_unprintable(str(path)), source.lines, source.problems)
    data = expand_variables(source.data, environ, report)
    if "source" in data:
        # The model has this field for the name of the file; no file may set it.
        del data["source"]
        report.add(("source",), "unknown key")
    warning = translate(data, environ, report)
    team = validate(data, report)
    problems = report.render() + read_history_overrides(environ)[1]
    if problems or team is None:
        raise ConfigError(problems)
    return LoadedConfig(team, [warning] if warning else [], report)


def load_named(name: str | None, environ: Mapping[str, str], home: Path) -> LoadedConfig:
    """Load the configuration that `--config` names; None: the default one (see `load_default`).

    Raises:
        ConfigError: as `load_config`.
    """
    return load_default(environ, home) if name is None else load_file(find_config(name), environ)


def load_default(environ: Mapping[str, str], home: Path) -> LoadedConfig:
    """Load the configuration that counts when none was named.

    It is `config.yaml` in massmem's folder `home`, else three agents of the provider whose key is in `environ`, else
    the embedded local model.

    Raises:
        ConfigError: as `load_config`.
    """
    path = default_config_path(home)
    if _may_exist(path):
        return load_file(path, environ)
    variable, kind, model = next((row for row in PROVIDERS_BY_KEY if environ.get(row[0])), ("", "local", ""))
    loaded = load_file(find_config(EXAMPLES + ("openai" if model else kind)), environ)
    if not model:
        return loaded
    return LoadedConfig(_replace_backend(loaded.team, kind, model), loaded.warnings, loaded.report, variable)


def default_config_path(home: Path) -> Path:
    """Return where the user's own configuration stands, which counts when none was named."""
    return home / "config.yaml"


def _replace_backend(team: TeamConfig, kind: BackendType, model: str) -> TeamConfig:
    agents = tuple(
        agent.model_copy(update={"backend": agent.backend.model_copy(update={"type": kind, "model": model})})
        for agent in team.agents
    )
    return team.model_copy(update={"agents": agents})


def find_config(name: str) -> Path:
    """Return the file that `--config` names: a path, or `@examples/NAME` for one of the shipped configurations.

    Raises:
        ConfigError: there is no such file; the hint suggests files with similar names.
    """
    if name.startswith(EXAMPLES):
        folder, stem = _examples_folder(), name.removeprefix(EXAMPLES).removesuffix(".yaml")
        known = sorted(path.stem for path in folder.glob("*.yaml"))
        if stem in known:
            return folder / f"{stem}.yaml"
        similar = [EXAMPLES + other for other in difflib.get_close_matches(stem[:60], known) or known]
    else:
        try:
            path = Path(name).expanduser()
        except RuntimeError as e:
            raise ConfigError([f"{describe_value(name)}: this home folder is not known"]) from e
        if _may_exist(path):
            return path
        similar = _list_similar(path)
    hint = f"did you mean {', '.join(similar)}?" if similar else f"shipped ones: {EXAMPLES}local, {EXAMPLES}openai, ..."
    raise ConfigError([f"{escape_unprintable(name[:200])}: there is no such configuration"], hint)


def _examples_folder() -> Path:
    # Inside the package when installed from a wheel, beside it in a checkout.
    package = Path(__file__).parents[1]
    inside = package / "configs"
    return inside if inside.is_dir() else package.parent / "configs"


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
    session_name differs from an explicit null. Both names of `compression.target_ratio` count.

    Raises:
        ConfigError: a CONVERSATION_HISTORY_* variable is wrong (`load_config` raises for that, too).
    """
    history, problems = read_history_overrides(environ)
    if problems:
        raise ConfigError(problems)
    memory = team.memory.model_dump(exclude_unset=True)
    target_ratio = team.coordination.compression_target_ratio
    if target_ratio is not None:
        memory = _override({"compression": {"target_ratio": target_ratio}}, memory)
    overrides = {"conversation_memory": history} if history else {}
    return tuple(_resolve_agent(spec, memory, overrides) for spec in team.agents)


def _resolve_agent(spec: AgentSpec, team_memory: dict[str, Any], overrides: dict[str, Any]) -> AgentConfig:
    memory = _override(_override(team_memory, spec.memory.model_dump(exclude_unset=True)), overrides)
    return AgentConfig(
        id=spec.id,
        backend=spec.backend,
        system_message=spec.system_message,
        memory=MemoryConfig.model_validate(memory),
        mcp_servers=spec.mcp_servers,
    )


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
