"""What one question changes of the team that answers it: one agent, another model, a folder, a job."""

from dataclasses import dataclass
from typing import Literal

from massmem.config.home import expand_home, massmem_home
from massmem.config.models import AgentSpec, BackendConfig, FolderConfig, TeamConfig
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
    folder: str = ""
    """The agents read it, beside the folders of the team."""
    job: str = ""
    """They do this one, shipped or in massmem's home: a service works for no project's folder."""
    mode: Mode = "council"

    def apply(self, team: TeamConfig) -> TeamConfig:
        """Return the team as changed.

        Raises InputError: there is no such agent or job, or the model's provider is unknown.
        """
        if self.model:
            team = team.model_copy(update={"agents": (make_agent(team, self.model),)})
        elif self.agent or self.mode == "solo":
            team = team.select_agent(self.agent)
        if self.mode == "report" and team.coordination.presentation != "as_is":
            coordination = team.coordination.model_copy(update={"presentation": "report"})
            team = team.model_copy(update={"coordination": coordination})
        if self.job:
            team = self._do_job(team)
        if not self.folder:
            return team
        folder = FolderConfig(path=str(expand_home(self.folder).absolute()))
        files = team.files.model_copy(update={"folders": (*team.files.folders, folder)})
        return team.model_copy(update={"files": files})

    def _do_job(self, team: TeamConfig) -> TeamConfig:
        from massmem.config.jobs import find_job

        try:
            return find_job(self.job, massmem_home(), "").apply(team)
        except ConfigError as e:
            raise InputError(f"the file of the job {self.job} has mistakes", e.problems[0]) from e


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
