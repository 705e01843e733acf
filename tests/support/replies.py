"""What a provider streams, collected."""

from collections.abc import Iterable
from contextlib import aclosing

from massmem.core.messages import (
    ChatRequest,
    Chunk,
    Reply,
)
from massmem.providers.base import ChatProvider


async def collect(provider: ChatProvider, request: ChatRequest) -> list[Chunk]:
    async with aclosing(provider.stream(request)) as chunks:
        return [chunk async for chunk in chunks]


def replied(chunks: Iterable[Chunk]) -> Reply:
    reply = Reply()
    for chunk in chunks:
        reply.feed(chunk)
    return reply


async def ask(provider: ChatProvider, request: ChatRequest) -> Reply:
    return replied(await collect(provider, request))
