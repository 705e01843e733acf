"""What a provider streams, collected."""

from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing

from massmem.core.messages import (
    ChatRequest,
    Chunk,
    Reply,
    TextChunk,
)
from massmem.providers.base import ChatProvider


async def collect(provider: ChatProvider, request: ChatRequest) -> list[Chunk]:
    async with aclosing(provider.stream(request)) as chunks:
        return [chunk async for chunk in chunks]


def collect_reply(chunks: Iterable[Chunk]) -> Reply:
    reply = Reply()
    for chunk in chunks:
        reply.feed(chunk)
    return reply


async def ask(provider: ChatProvider, request: ChatRequest) -> Reply:
    return collect_reply(await collect(provider, request))


async def wait_for_text(chunks: AsyncGenerator[Chunk, None]) -> TextChunk:
    """Return the first text, after what a model does before its first word. The stream goes on."""
    async for chunk in chunks:
        if isinstance(chunk, TextChunk):
            return chunk
    raise AssertionError("the stream has no text")
