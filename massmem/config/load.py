"""A configuration file in, a validated team out, or every problem at once."""

import difflib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import massmem
from massmem.config.checks import check
from massmem.config.environment import expand, history_overrides
from massmem.config.massgen import translate
from massmem.config.models import AgentConfig, AgentSpec, BackendType, MemoryConfig, TeamConfig
from massmem.config.problems import Report, plain, shown
from massmem.config.schema import validate
from massmem.config.yaml_source import read_yaml
from massmem.errors import ConfigError

EXAMPLES = "@examples/"
_SUFFIXES = (".yaml", ".yml")
# With no configuration, the first variable that is set decides: who answers and with which model. A model of "" is that
# of the shipped configuration of this name.
KEYED: tuple[tuple[str, BackendType, str], ...] = (
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
class Loaded:
    """A configuration, its warnings, and the report that knows where each value was written.

    chosen: the variable whose key has put another provider in the place of the file's, "" when there was none.
    """

    team: TeamConfig
    warnings: list[str]
    report: Report
    chosen: str = ""


def load_config(path: Path | str, environ: Mapping[str, str] | None = None) -> tuple[TeamConfig, list[str]]:
    """Read, expand and validate one file; returns the configuration and warnings, one line each.

    path: also `@examples/NAME`. environ: where `${VAR}` and the CONVERSATION_HISTORY_* overrides are looked up; None:
    the environment of this process.

    Raises:
        ConfigError: all problems of the file, `file:line: dotted.key: message`; no message holds a secret.
    """
    found = find_config(str(path)) if str(path).startswith(EXAMPLES) else Path(path)
    loaded = load(found, os.environ if environ is None else environ)
    return loaded.team, loaded.warnings


def load(path: Path, environ: Mapping[str, str]) -> Loaded:
    """As load_config, with all that is known of the file."""
    source = read_yaml(path)
    report = Report(plain(str(path)), source.lines, source.problems)
    data = expand(source.data, environ, report)
    if "source" in data:
        # A field of the model for the file's own name, which no file may set.
        del data["source"]
        report.add(("source",), "unknown key")
    warning = translate(data, environ, report)
    check(data, report)
    team = validate(data, report)
    problems = report.rendered() + history_overrides(environ)[1]
    if problems or team is None:
        raise ConfigError(problems)
    return Loaded(team, [warning] if warning else [], report)


def default_config(environ: Mapping[str, str], home: Path) -> tuple[TeamConfig, list[str]]:
    """The team when no configuration was named, and warnings; see load_default."""
    loaded = load_default(environ, home)
    return loaded.team, loaded.warnings


def load_default(environ: Mapping[str, str], home: Path) -> Loaded:
    """The team when no configuration was named; home is massmem's own folder, `~/.massmem`.

    `config.yaml` in it, else three agents of the provider whose key is in `environ`, else the embedded local model.

    Raises:
        ConfigError: as `load_config`.
    """
    own = own_config(home)
    if _exists(own):
        return load(own, environ)
    variable, kind, model = next((row for row in KEYED if environ.get(row[0])), ("", "local", ""))
    loaded = load(find_config(EXAMPLES + ("openai" if model else kind)), environ)
    if not model:
        return loaded
    return Loaded(_with_backend(loaded.team, kind, model), loaded.warnings, loaded.report, variable)


def own_config(home: Path) -> Path:
    """The configuration that counts when none was named."""
    return home / "config.yaml"


def _with_backend(team: TeamConfig, kind: BackendType, model: str) -> TeamConfig:
    agents = tuple(
        agent.model_copy(update={"backend": agent.backend.model_copy(update={"type": kind, "model": model})})
        for agent in team.agents
    )
    return team.model_copy(update={"agents": agents})


def find_config(name: str) -> Path:
    """The file that `--config` names: a path, or `@examples/NAME` for one of the shipped configurations.

    Raises:
        ConfigError: there is none; files with similar names are suggested.
    """
    if name.startswith(EXAMPLES):
        folder, wanted = _examples(), name.removeprefix(EXAMPLES).removesuffix(".yaml")
        known = sorted(path.stem for path in folder.glob("*.yaml"))
        if wanted in known:
            return folder / f"{wanted}.yaml"
        near = [EXAMPLES + other for other in difflib.get_close_matches(wanted[:60], known) or known]
    else:
        try:
            path = Path(name).expanduser()
        except RuntimeError as e:
            raise ConfigError([f"{shown(name)}: this home folder is not known"]) from e
        if _exists(path):
            return path
        near = _near(path)
    hint = f"did you mean {', '.join(near)}?" if near else f"shipped ones: {EXAMPLES}local, {EXAMPLES}openai, ..."
    raise ConfigError([f"{plain(name[:200])}: there is no such configuration"], hint)


def _examples() -> Path:
    """Inside the package when installed from a wheel, beside it in a checkout."""
    package = Path(massmem.__file__).parent
    inside = package / "configs"
    return inside if inside.is_dir() else package.parent / "configs"


def _exists(path: Path) -> bool:
    """Also True where that cannot be found out: reading the file will say why."""
    try:
        return path.exists()
    except OSError:
        return True
    except ValueError:
        return False


def _near(path: Path) -> list[str]:
    """YAML files in the same folder with a name like that of `path`."""
    try:
        files = {other.name: other for other in path.parent.iterdir() if other.suffix in _SUFFIXES}
    except (OSError, ValueError):
        return []
    return [plain(str(files[name])) for name in difflib.get_close_matches(path.name, list(files), cutoff=0.5)]


def resolve_agents(team: TeamConfig, environ: Mapping[str, str]) -> tuple[AgentConfig, ...]:
    """Every agent with its whole memory settings: the team's, under the agent's own, under the environment's.

    Only keys that were given are laid over. A key that is absent everywhere stays absent (`model_fields_set`), so that
    no session_name and an explicit null are kept apart. `compression.target_ratio` has both its names considered.

    Raises:
        ConfigError: a CONVERSATION_HISTORY_* variable is wrong (`load_config` has found that already).
    """
    history, problems = history_overrides(environ)
    if problems:
        raise ConfigError(problems)
    given = team.memory.model_dump(exclude_unset=True)
    second = team.coordination.compression_target_ratio
    if second is not None:
        given = _merged({"compression": {"target_ratio": second}}, given)
    return tuple(_resolved(spec, given, {"conversation_memory": history} if history else {}) for spec in team.agents)


def _resolved(spec: AgentSpec, team: dict[str, Any], environment: dict[str, Any]) -> AgentConfig:
    own = spec.memory.model_dump(exclude_unset=True)
    return AgentConfig(
        id=spec.id,
        backend=spec.backend,
        system_message=spec.system_message,
        memory=MemoryConfig.model_validate(_merged(_merged(team, own), environment)),
        mcp_servers=spec.mcp_servers,
    )


def _merged(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    if over.get("provider", base.get("provider")) != base.get("provider"):
        # Another provider has its own models, address and key: nothing of the first one may reach it.
        return over
    result = dict(base)
    for key, value in over.items():
        below = result.get(key)
        both = isinstance(value, dict) and isinstance(below, dict)
        result[key] = _merged(cast("dict[str, Any]", below), cast("dict[str, Any]", value)) if both else value
    return result
