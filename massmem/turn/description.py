"""What a question shows, described by an agent that sees it, for those that do not."""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

from massmem.core import prompts
from massmem.core.attachments import Attachment
from massmem.core.errors import NotAnActionError
from massmem.core.messages import ChatRequest, Reply, Usage, clean_text
from massmem.providers.base import ChatProvider


@dataclass(frozen=True, slots=True)
class Description:
    """A description, as it stands below the question."""

    text: str = ""
    usage: Usage = field(default_factory=Usage)
    """Of the request for it."""


async def describe(
    question: str, attachments: Sequence[Attachment], agent_id: str, provider: ChatProvider, stop: asyncio.Event
) -> Description | None:
    """Return the description by this agent's model. None: `stop` was set meanwhile.

    Raises:
        ProviderError, LimitReached: there is none.
    """
    asking = asyncio.create_task(_ask(question, attachments, agent_id, provider))
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({asking, stopping}, return_when=asyncio.FIRST_COMPLETED)
        return asking.result() if asking.done() else None
    finally:
        asking.cancel()
        stopping.cancel()
        await asyncio.gather(asking, stopping, return_exceptions=True)


async def _ask(question: str, attachments: Sequence[Attachment], agent_id: str, provider: ChatProvider) -> Description:
    reply = Reply()
    request = ChatRequest(prompts.build_description_request(question, attachments), "describe", agent_id)
    async with aclosing(provider.stream(request)) as chunks:
        async for chunk in chunks:
            reply.feed(chunk)
    text = clean_text(reply.text).strip()
    if not text:
        raise NotAnActionError(f"{agent_id} was to describe what is attached, and sent an empty reply")
    return Description(prompts.frame_description(agent_id, text), reply.usage)
