"""Which agents see what a question shows, and what becomes of those that do not."""

from collections.abc import Mapping

from massmem.config.models import TeamConfig
from massmem.core.errors import InputError
from massmem.providers.presets import Abilities


def check_sight(config: TeamConfig, abilities: Mapping[str, Abilities]) -> None:
    """Check, before anything is paid, that every agent can be shown pictures, or that another describes them to it.

    abilities: of the models, by agent id.

    Raises:
        InputError: an agent sees no pictures.
    """
    blind = [agent_id for agent_id, ability in abilities.items() if ability.vision is False]
    if not blind or (config.files.describe and len(blind) < len(abilities)):
        return
    backends = {agent.id: agent.backend for agent in config.agents}
    names = ", ".join(f"{agent_id} ({backends[agent_id].model or backends[agent_id].type})" for agent_id in blind)
    if len(blind) == len(abilities):
        raise InputError(
            f"no agent of the team sees pictures: {names}",
            "ask a model that does, with --model or in the configuration; backend.vision: true says that one does",
        )
    raise InputError(
        f"not every agent of the team sees pictures: {names} cannot",
        "add --describe (files.describe: true), and another agent describes them; or ask one agent with --model",
    )


def find_describer(abilities: Mapping[str, Abilities]) -> str | None:
    """Return the agent that describes what a question shows: one that is known to see it, else one that may.

    None: every agent sees it, or none.
    """
    sighted = {agent_id: ability.vision for agent_id, ability in abilities.items() if ability.vision is not False}
    if len(sighted) in (0, len(abilities)):
        return None
    return max(sighted, key=lambda agent_id: sighted[agent_id] is True)
