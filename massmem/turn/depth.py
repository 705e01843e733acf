"""As much council as a question needs: whom to ask first, and whether the others are needed."""

from collections.abc import Callable, Sequence

from massmem.config.models import AgentConfig


def choose_first_agents(agents: Sequence[AgentConfig]) -> tuple[str, ...]:
    """Return the ids of the two agents that `coordination.depth: adaptive` asks first; all of a smaller team.

    The first of the team, and the next one with another model, else with another system message, else with another
    temperature, else the next one: what different agents say alike is worth more.
    """
    if len(agents) <= 2:
        return tuple(agent.id for agent in agents)
    first, *others = agents
    second = next(
        (other for differs in _DIFFERENCES for other in others if differs(other) != differs(first)), others[0]
    )
    return first.id, second.id


_DIFFERENCES: tuple[Callable[[AgentConfig], object], ...] = (
    lambda agent: (agent.backend.type, agent.backend.base_url, agent.backend.model),
    lambda agent: agent.system_message,
    lambda agent: agent.backend.temperature,
)
