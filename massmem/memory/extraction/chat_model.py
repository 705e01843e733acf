"""A ChatProvider as a model that extracts facts, asked from a thread while its event loop goes on; or summarises."""

import asyncio
from concurrent.futures import Future
from contextlib import aclosing
from typing import TYPE_CHECKING

from massmem.core.errors import ContentRefused
from massmem.core.messages import (
    ChatMessage,
    ChatRequest,
    Purpose,
    Reply,
    TextChunk,
)
from massmem.memory.extraction.mem0_models import Answer, OpenModel
from massmem.memory.extraction.prompts import SCHEMA
from massmem.memory.extraction.replies import repeats

if TYPE_CHECKING:
    from massmem.providers.base import ChatProvider


def chat_model(chat: "ChatProvider", agent_id: str, max_tokens: int, purpose: Purpose = "extract") -> OpenModel:
    """A ChatProvider of the running event loop, to be asked from other threads.

    purpose extract: its replies have the form of SCHEMA; summary: plain text.
    """
    loop = asyncio.get_running_loop()
    pending: list[Future[Answer]] = []

    def ask(system: str, user: str) -> Answer:
        messages = (ChatMessage("system", system), ChatMessage("user", user))
        schema = SCHEMA if purpose == "extract" else None
        request = ChatRequest(messages, purpose, agent_id, schema=schema, temperature=0.0, max_tokens=max_tokens)
        pending.append(asyncio.run_coroutine_threadsafe(_answer(chat, request), loop))
        return pending[-1].result()

    def close() -> None:
        for request in pending:
            request.cancel()

    return OpenModel(ask, compact=True, close=close)


async def _answer(chat: "ChatProvider", request: ChatRequest) -> Answer:
    reply = Reply()
    async with aclosing(chat.stream(request)) as chunks_:
        async for chunk in chunks_:
            reply.feed(chunk)
            looping = isinstance(chunk, TextChunk) and "}" in chunk.text and repeats(reply.text)
            if request.schema is not None and looping:
                # A small model that starts over does so until its last token, minutes later.
                return Answer(f"{reply.text.rpartition('}')[0]}}}]}}", "stop")
    if reply.finish == "content_filter":
        raise ContentRefused("the model refused to read this for memories")
    return Answer(reply.text, reply.finish)
