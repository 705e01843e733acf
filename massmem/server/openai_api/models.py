"""The names under which clients of OpenAI's API know the teams and their agents."""

from collections.abc import Mapping
from dataclasses import dataclass

from massmem.server.errors import InvalidField
from massmem.session.team import DEFAULT_TEAM, Team

PREFIX = "massmem"
"""Alone it is the team of `massmem serve`."""

DEFAULT_NAME = "default"
"""The team of `massmem serve` in names of models, unless one of server.teams has this name."""


@dataclass(frozen=True, slots=True)
class CouncilModel:
    """A team, or one of its agents."""

    team_name: str
    """As `Question.team`."""
    team: Team
    agent_id: str | None = None
    """None: the whole team."""


def list_models(teams: Mapping[str, Team]) -> dict[str, CouncilModel]:
    """Return the models by name. teams: by name, see `Service.teams`."""
    by_name = {DEFAULT_NAME: DEFAULT_TEAM, **{name: name for name in teams if name != DEFAULT_TEAM}}
    models = {PREFIX: CouncilModel(DEFAULT_TEAM, teams[DEFAULT_TEAM])}
    for shown, name in by_name.items():
        team = teams[name]
        models[f"{PREFIX}/{shown}"] = CouncilModel(name, team)
        for agent in team.agents:
            models[f"{PREFIX}/{shown}/{agent.id}"] = CouncilModel(name, team, agent.id)
    return models


def find_model(teams: Mapping[str, Team], name: str) -> CouncilModel:
    """Return the model with this name. Raise InvalidField: 404, there is none."""
    model = list_models(teams).get(name)
    if model is None:
        message = f"there is no model {name[:100]!r}; GET /v1/models lists those that there are"
        raise InvalidField(message, "model", status=404, code="model_not_found")
    return model
