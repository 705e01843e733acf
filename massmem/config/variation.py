"""What one question changes of the team that answers it: one agent, another model, a folder, a job."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

import msgspec

from massmem.config.home import expand_home, massmem_home
from massmem.config.models import AgentSpec, BackendConfig, FolderConfig, Shape, TeamConfig
from massmem.config.presets import PRESETS, BackendType
from massmem.core.errors import ConfigError, InputError

Mode = Literal["council", "solo", "report"]
"""solo: one agent alone; report: who says what."""


@dataclass(frozen=True, slots=True)
class Variation:
    agent: str = ""
    """This agent of the team answers alone."""
    model: str = ""
    """[TYPE/]MODEL of one agent that answers instead of the team."""
    folders: tuple[str, ...] = ()
    """The agents read them, beside the folders of the team."""
    job: str = ""
    """They do this one."""
    mode: Mode = "council"
    include: tuple[str, ...] = ()
    """Patterns of files in the folders that would be left out."""
    project: str = ""
    """Root of the project whose jobs come first; "": none, as a service works for no project's folder."""
    shape: Shape | None = None
    system: str = ""
    """Instructions for all agents, before their own."""
    max_cost: float | None = None
    """Dollars; as `max_seconds`, no more than the team's own limit."""
    max_seconds: float | None = None
    write_folder: str = ""
    """An agent program carries the answer out in it, where `TeamConfig.may_write`."""

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> Self:
        """Return the variation that `TeamConfig.variation` or the log has."""
        return msgspec.convert(fields, cls)

    def list_fields(self) -> dict[str, Any]:
        """Return what is set, by name, as JSON."""
        own: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(self))  # tuples as lists, as the log has them
        return {name: value for name, value in own.items() if value and (name, value) != ("mode", "council")}

    def apply(self, team: TeamConfig) -> TeamConfig:
        """Return the team as changed, which knows what was changed.

        Raises InputError: there is no such agent or job, the model's provider is unknown, or nobody may write there.
        """
        fields = self.list_fields()
        record = {"variation": combine(team.variation, fields), "base": team.base or team}
        return self._change(team).model_copy(update=record) if fields else team

    def _change(self, team: TeamConfig) -> TeamConfig:
        if self.system:
            team = team.model_copy(update={"agents": tuple(_instruct(agent, self.system) for agent in team.agents)})
        if self.model:
            agent = make_agent(team, self.model)
            team = team.model_copy(update={"agents": (_instruct(agent, self.system),)})
        elif self.agent or self.mode == "solo":
            team = team.select_agent(self.agent)
        own = team.coordination
        changes: dict[str, Any] = {"shape": self.shape or own.shape}
        changes["timeout"] = min(own.timeout, self.max_seconds or own.timeout)
        changes["max_cost"] = min(filter(None, (own.max_cost, self.max_cost)), default=None)
        if self.mode == "report" and own.presentation != "as_is":
            changes["presentation"] = "report"
        places = (str(expand_home(folder).absolute()) for folder in (*self.folders, self.write_folder) if folder)
        folders = (*team.files.folders, *(FolderConfig(path=place, include=self.include) for place in places))
        files = team.files.model_copy(update={"folders": folders})
        team = team.model_copy(update={"coordination": own.model_copy(update=changes), "files": files})
        team = self._do_job(team) if self.job else team
        if self.write_folder:
            _check_write_folder(team, Path(self.write_folder).resolve())
        return team

    def _do_job(self, team: TeamConfig) -> TeamConfig:
        from massmem.config.jobs import find_job

        try:
            return find_job(self.job, massmem_home(), self.project).apply(team)
        except ConfigError as e:
            raise InputError(f"the file of the job {self.job} has mistakes", e.problems[0]) from e


def combine(former: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Return what both change of a team; `own` goes before, and who it names answers alone."""
    names = {"agent", "model"} & own.keys()
    return {name: value for name, value in former.items() if not (names and name in ("agent", "model"))} | dict(own)


def _check_write_folder(team: TeamConfig, folder: Path) -> None:
    hint = "name the folder of a project: --allow-write DIR"
    if not folder.is_dir():
        raise InputError(f"there is no folder {folder}", hint)
    if Path.home().resolve().is_relative_to(folder) or folder.is_relative_to(massmem_home().resolve()):
        raise InputError(f"nobody may change {folder}: your home folder is in it, or it is massmem's own", hint)
    if not any(agent.backend.is_program for agent in team.agents):
        why = f"no agent of the team is an agent program, so nobody can change files in {folder}"
        raise InputError(why, "give one a backend such as {type: opencode}, or leave --allow-write out")


def _instruct(agent: AgentSpec, system: str) -> AgentSpec:
    return agent.model_copy(update={"system_message": f"{system}\n\n{agent.system_message}".strip()})


def make_agent(team: TeamConfig, model: str) -> AgentSpec:
    """Return the one agent that answers with this model instead of the team. Raises as `choose_backend`."""
    return AgentSpec(id="assistant", backend=choose_backend(team, model))


def choose_backend(team: TeamConfig, model: str) -> BackendConfig:
    """Return the backend of the team that has this model or type, with the model; else a new one."""
    if not model.strip():
        raise InputError("no model was named", "write it as [TYPE/]MODEL, such as gpt-5 or ollama/qwen3:8b")
    backends = [agent.backend for agent in team.agents]
    type_ = model.partition("/")[0]
    if type_ not in PRESETS:
        for backend in backends:
            if backend.model == model:
                return backend
        type_ = _guess_type(model)
        model = f"{type_}/{model}"
    similar = next((backend for backend in backends if backend.type == type_), backends[0])
    return replace_model(similar, model)


def _guess_type(model: str) -> BackendType:
    if model.endswith(".gguf"):
        return "local"
    if ":" in model:  # such as qwen3:8b
        return "ollama"
    for type_, preset in PRESETS.items():
        if preset.model_starts and model.startswith(preset.model_starts):
            return type_
    raise InputError(
        f"the provider of the model {model[:80]!r} is not known", f"write it as TYPE/MODEL, such as groq/{model[:80]}"
    )


def replace_model(backend: BackendConfig, model: str) -> BackendConfig:
    """Return the backend with another model; `model` may be TYPE/MODEL for a backend of another type."""
    type_, _, name = model.partition("/")
    if type_ not in PRESETS:
        return backend.model_copy(update={"model": model, "price": None})
    if type_ == backend.type:
        return backend.model_copy(update={"model": name, "price": None})
    if type_ == "scripted":
        raise InputError("a scripted model cannot be chosen here", "name it in the configuration, with its script")
    if type_ == "acp":
        raise InputError("a program cannot be chosen here", "name it in the configuration, with its command")
    common = {key: getattr(backend, key) for key in ("temperature", "max_tokens", "timeout", "max_retries")}
    return BackendConfig.model_validate({"type": type_, "model": name, **common})
