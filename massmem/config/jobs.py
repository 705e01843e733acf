"""Jobs by name, such as `decide`: files that say how a team does them, shipped ones and the user's own."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field, ValidationError, field_validator

from massmem.config.models import AgentSpec, Draft, ItemsConfig, Presentation, Shape, TeamConfig
from massmem.config.section import Section
from massmem.config.yaml import escape_unprintable, format_path, read_yaml, suggest
from massmem.core.errors import ConfigError, InputError

_SHIPPED = Path(__file__).parents[1] / "jobs"


class Role(Section):
    """What one of the agents pays attention to."""

    id: str = Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_-]{0,30}$")
    """The name of the agent, where one model plays all roles."""
    task: str
    """Stands behind the agent's own `system_message`."""


class Criterion(Section):
    """What a good result has, for `massmem eval`."""

    text: str
    weight: float = Field(default=1, gt=0)


class JobConfig(Section):
    """A file of a job."""

    summary: str
    """One line for people who choose."""
    shape: Shape = "union"
    items: ItemsConfig = ItemsConfig()
    draft: Draft = "own"
    max_rounds: int | None = Field(default=None, ge=1, le=20)
    presentation: Presentation | None = None
    roles: tuple[Role, ...] = Field(default=(), max_length=20)
    """The agents take them in turn; a single agent plays all of them."""
    rubric: tuple[Criterion, ...] = ()

    @field_validator("roles")
    @classmethod
    def _refuse_twins(cls, roles: tuple[Role, ...]) -> tuple[Role, ...]:
        if len({role.id for role in roles}) < len(roles):
            raise ValueError("two roles have the same id")
        return roles


@dataclass(frozen=True, slots=True)
class Job:
    name: str
    path: Path
    config: JobConfig

    def apply(self, team: TeamConfig) -> TeamConfig:
        """Return the team as it does the job."""
        settings = {
            name: getattr(self.config, name) for name in ("shape", "items", "draft", "max_rounds", "presentation")
        }
        changes = {name: value for name, value in settings.items() if value is not None}
        coordination = team.coordination.model_copy(update=changes)
        doing = {"agents": self._cast(team.agents), "job": self.name, "note": self.describe_cast(team)}
        return team.model_copy(update={"coordination": coordination, **doing})

    def describe_cast(self, team: TeamConfig) -> str:
        """Return that one model plays all roles; "" where several agents do the job."""
        roles = ", ".join(role.id for role in self.config.roles)
        if len(team.agents) > 1 or len(self.config.roles) < 2:
            return ""
        return f"one model plays all roles ({roles}): what it does not know, none of them knows"

    def _cast(self, agents: tuple[AgentSpec, ...]) -> tuple[AgentSpec, ...]:
        """Return the agents with roles; of a single one, one for each role."""
        roles = self.config.roles
        if not roles:
            return agents
        if len(agents) > 1:
            return tuple(_assign(agent, roles[number % len(roles)]) for number, agent in enumerate(agents))
        return tuple(
            _assign(agent, role).model_copy(update={"id": role.id, "name": ""}) for agent in agents for role in roles
        )


def _assign(agent: AgentSpec, role: Role) -> AgentSpec:
    return agent.model_copy(update={"system_message": f"{agent.system_message}\n\n{role.task}".strip()})


def find_job(name: str, home: Path, project: str) -> Job:
    """Return a job. home: massmem's folder. project: root of the project, whose jobs come first; "": none.

    Raises InputError: there is no such job; ConfigError: its file has problems.
    """
    files = list_jobs(home, project)
    if name not in files:
        there = f"there is no job {name[:60]!r}{suggest(name, files)}, only {', '.join(files)}"
        raise InputError(there, "see what they do with: massmem jobs list")
    return read_job(files[name])


def list_jobs(home: Path, project: str) -> Mapping[str, Path]:
    """Return the files of all jobs by name; a job of the project or of the user takes the place of a shipped one."""
    folders = [_SHIPPED, home / "jobs", *([Path(project, ".massmem", "jobs")] if project else [])]
    files = {path.stem: path for folder in folders for path in _list_files(folder)}
    return dict(sorted(files.items()))


def read_jobs(home: Path, project: str) -> tuple[list[Job], list[str]]:
    """Return all jobs by name, as `list_jobs`, and which ones are left out since their files have problems."""
    jobs, left_out = list[Job](), list[str]()
    for name, path in list_jobs(home, project).items():
        try:
            jobs.append(read_job(path))
        except ConfigError as e:
            left_out.append(f"the job {name} is left out: {e.problems[0]}")
    return jobs, left_out


def _list_files(folder: Path) -> Iterable[Path]:
    try:
        return [*folder.glob("*.yaml"), *folder.glob("*.yml")]
    except OSError:
        return []


def read_job(path: Path) -> Job:
    """Raise ConfigError, with all problems of the file."""
    source, file = read_yaml(path), escape_unprintable(str(path))
    problems = [f"{file}:{problem.line or 1}: {problem.message}" for problem in source.problems]
    try:
        config = None if problems else JobConfig.model_validate(source.data)
    except ValidationError as e:
        config = None
        for error in e.errors(include_url=False, include_input=False):
            key = format_path(error["loc"])
            text = "unknown key" if error["type"] == "extra_forbidden" else error["msg"]
            problems.append(f"{file}:{source.lines.get(error['loc'], 1)}: {key}: {text}")
    if config is None:
        raise ConfigError(problems)
    return Job(path.stem, path, config)
