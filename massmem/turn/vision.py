"""Which agents see what a question shows, and its description for those that do not."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from massmem.config.models import TeamConfig
from massmem.config.presets import Abilities
from massmem.core import prompts
from massmem.core.errors import InputError, NotAnActionError, ProviderError
from massmem.core.messages import Attachment, ChatRequest, Usage, clean_text
from massmem.providers.base import ChatProvider, ask
from massmem.turn.outbox import run_until


@dataclass(frozen=True, slots=True)
class Description:
    """A description, as it stands below the question."""

    text: str = ""
    usage: Usage = field(default_factory=Usage)
    """Of the request for it."""


async def find_abilities(models: Mapping[str, ChatProvider]) -> dict[str, Abilities]:
    """Return what models can do, by agent id. A program is started first: only then it says what it takes."""

    async def find(model: ChatProvider) -> Abilities:
        if model.abilities.vision is None:
            with suppress(ProviderError):  # its agent fails in the turn
                async for _ in model.prepare():
                    pass
        return model.abilities

    return dict(zip(models, await asyncio.gather(*map(find, models.values())), strict=True))


def choose_visible(
    config: TeamConfig, abilities: Mapping[str, Abilities], attachments: Sequence[Attachment]
) -> tuple[Attachment, ...]:
    """Check, before anything is paid, that every agent can be shown pictures, or that another describes them to it.

    abilities: of the models, by agent id.

    Returns:
        What is shown: of the optional ones only what all models are known to see, or one describes.

    Raises InputError: an agent does not see what must be shown.
    """
    sees_all = all(ability.vision for ability in abilities.values())
    described = config.files.describe and any(ability.vision for ability in abilities.values())
    attachments = tuple(a for a in attachments if not a.optional or sees_all or described)
    blind = [agent_id for agent_id, ability in abilities.items() if ability.vision is False]
    if not attachments or not blind or (config.files.describe and len(blind) < len(abilities)):
        return attachments
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


async def describe(
    question: str, attachments: Sequence[Attachment], agent_id: str, provider: ChatProvider, stop: asyncio.Event
) -> Description | None:
    """Return the description by this agent's model. None: `stop` was set meanwhile.

    Raises ProviderError, LimitReached: there is none.
    """
    request = ChatRequest(prompts.build_description_request(question, attachments), "describe", agent_id)
    reply = await run_until(stop, ask(provider, request))
    if reply is None:
        return None
    text = clean_text(reply.text).strip()
    if not text:
        raise NotAnActionError(f"{agent_id} was to describe what is attached, and sent an empty reply")
    return Description(prompts.frame_description(agent_id, text), reply.usage)
