"""One request of an agent: made to fit, sent, streamed, brought to its end, and what it cost."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass

from massmem.config.models import AgentConfig
from massmem.errors import ContextOverflow, LimitReached, ProviderError
from massmem.events import AgentDelta, AgentRetrying, AgentStarted, Channel, ContextCompressed, ContextMeasured
from massmem.memory.tokens import estimate_tokens
from massmem.messages import ChatRequest, Usage, clean_text
from massmem.providers.base import ChatProvider
from massmem.providers.truncation import prompt_truncated, truncated
from massmem.replies import ReasoningChunk, Reply, RetryChunk, TextChunk
from massmem.turn.context import Context, Task

Progress = AgentStarted | AgentDelta | AgentRetrying | ContextCompressed | ContextMeasured


@dataclass(slots=True)
class Spent:
    """Tokens used by one step so far; still right when the step fails half-way."""

    usage: Usage


class Sender:
    """Sends one agent's requests, for one turn. Each is an async generator of progress. Raises ProviderError."""

    def __init__(self, config: AgentConfig, provider: ChatProvider, context: Context) -> None:
        self._id = config.id
        self._config = config
        self._provider = provider
        self._context = context

    async def send(self, task: Task, round_: int, reply: Reply, spent: Spent) -> AsyncGenerator[Progress, None]:
        """Send a request, made to fit; when it is refused nevertheless, once more, and smaller. Fills `reply`."""
        if compressed := await self._context.fit(task, round_):
            spent.usage += compressed.usage
            yield compressed
        try:
            async with aclosing(self._reply(task, round_, reply, spent)) as progress:
                async for event in progress:
                    yield event
            return
        except ContextOverflow as e:
            compressed = await self._context.overflowed(task, round_, e, reply)
            again = RetryChunk(e.message, 0.0, 1)
        spent.usage += compressed.usage
        yield compressed
        yield AgentRetrying(
            agent_id=self._id, round=round_, error=again.error, delay=again.delay, attempt=again.attempt
        )
        reply.feed(again)
        try:
            async with aclosing(self._reply(task, round_, reply, spent)) as progress:
                async for event in progress:
                    yield event
        except ContextOverflow as e:
            raise self._context.too_large(task) from e

    async def _reply(self, task: Task, round_: int, reply: Reply, spent: Spent) -> AsyncGenerator[Progress, None]:
        """Send one request, and when its reply comes near the end of the window, a second one to end it."""
        begun = Reply()
        request, may_stop = self._context.request(task), self._context.can_wrap_up(task)
        async with aclosing(self._stream(request, round_, begun, spent, may_stop=may_stop)) as progress:
            async for event in progress:
                reply.text, reply.reasoning = begun.text, begun.reasoning
                yield event
        if begun.finish is None:
            request, compressed = self._context.wrap_up(task, round_, begun.text)
            yield compressed
            ended = Reply()
            async with aclosing(self._stream(request, round_, ended, spent)) as progress:
                async for event in progress:
                    yield event
            begun.text += ended.text
            begun.finish, begun.usage = ended.finish, ended.usage
        reply.text, reply.reasoning, reply.tool_calls = begun.text, begun.reasoning, begun.tool_calls
        reply.finish, reply.usage = begun.finish, begun.usage

    async def _stream(
        self, request: ChatRequest, round_: int, reply: Reply, spent: Spent, *, may_stop: bool = False
    ) -> AsyncGenerator[Progress, None]:
        """Fill `reply` and add what it cost to `spent`. may_stop: leave it without a finish when the window is full."""
        retries = 0
        # An answer is never JSON: this is what a model without tool calls decides before it.
        quiet = request.purpose == "answer" and request.schema is not None
        try:
            async with aclosing(self._provider.stream(request)) as chunks:
                async for chunk in chunks:
                    reply.feed(chunk)
                    match chunk:
                        case TextChunk(text) if text:
                            if not quiet:
                                yield self._delta(round_, text)
                            if self._context.streamed(text) and may_stop:
                                break
                        case ReasoningChunk(text) if text:
                            self._context.streamed(text, reasoning=True)
                            yield AgentDelta(
                                agent_id=self._id, round=round_, channel="reasoning", text=clean_text(text)
                            )
                        case RetryChunk(error, delay, attempt):
                            retries += 1
                            yield AgentRetrying(
                                agent_id=self._id, round=round_, error=error, delay=delay, attempt=attempt
                            )
                        case _:
                            pass
        except (ProviderError, LimitReached, asyncio.CancelledError) as e:
            spent.usage += _unended(request, e, reply.text + reply.reasoning, retries + 1)
            raise
        known = reply.usage.prompt or reply.usage.completion
        used = reply.usage if known else _estimated(request, reply.text + reply.reasoning, retries + 1)
        spent.usage += used
        reply.text, reply.reasoning = clean_text(reply.text), clean_text(reply.reasoning)
        expected = self._context.at_least
        if used.reported and truncated(expected, used.prompt):
            raise prompt_truncated(self._config.backend, expected, used.prompt)
        yield self._context.measured(round_, used)

    def _delta(self, round_: int, text: str, channel: Channel = "text") -> AgentDelta:
        return AgentDelta(agent_id=self._id, round=round_, channel=channel, text=clean_text(text))


def _unended(request: ChatRequest, error: BaseException, reply: str, requests: int) -> Usage:
    """What a request cost that did not end well; one that a limit held back was not sent."""
    if isinstance(error, LimitReached) and not reply:
        return Usage()
    partial = error.partial if isinstance(error, ProviderError) else ""
    return _estimated(request, partial or reply, requests)


def _estimated(request: ChatRequest, reply: str, requests: int) -> Usage:
    prompt = sum(estimate_tokens(m.content) for m in request.messages)
    return Usage(prompt, estimate_tokens(reply), requests=requests, reported=False)
