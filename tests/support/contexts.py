"""Agents with a history, on a scripted model that refuses prompts above its window and keeps what it was sent."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from massmem.config.models import AgentConfig, BackendConfig, CompressionConfig, MemoryConfig
from massmem.events import Event
from massmem.memory.buffer import Buffer
from massmem.memory.conversation import Shown, View
from massmem.memory.tokens import estimate_tokens
from massmem.messages import Candidate, ChatMessage, ChatRequest, Usage
from massmem.providers import Providers
from massmem.providers.base import ChatProvider
from massmem.replies import Chunk
from massmem.turn.agent import Agent, Spent
from massmem.turn.context import Context, Recall
from massmem.turn.meter import Meter


@dataclass
class Watched:
    """A provider that keeps the requests it passes on."""

    inner: ChatProvider
    requests: list[ChatRequest] = field(default_factory=list[ChatRequest])

    @property
    def native_tools(self) -> bool:
        return self.inner.native_tools

    def stream(self, request: ChatRequest) -> AsyncGenerator[Chunk, None]:
        self.requests.append(request)
        return self.inner.stream(request)

    async def count_prompt(self, request: ChatRequest) -> int | None:
        return await self.inner.count_prompt(request)


def history(*texts: str) -> View:
    """Question, answer, question, answer, ... of earlier turns; seq from 1."""
    roles = ("user", "assistant")
    return View(tuple(Shown(ChatMessage(roles[i % 2], text), f"id{i + 1}", i + 1) for i, text in enumerate(texts)))


async def agent_with(
    window: int,
    view: View | None = None,
    *,
    believed: int | None = None,
    script: dict[str, Any] | None = None,
    recall: Recall | None = None,
    system: str = "",
    **compression: Any,
) -> tuple[Agent, Watched]:
    """window: what the model really takes; believed: what massmem takes it for."""
    backend = BackendConfig(type="scripted", script={"context_window": window, **(script or {})}, max_retries=0)
    memory = MemoryConfig(compression=CompressionConfig(**compression))
    config = AgentConfig(id="ann", backend=backend, system_message=system, memory=memory, mcp_servers=())
    provider = Watched(await Providers().open(backend))
    meter = Meter(believed or window, Buffer(estimate_tokens))
    return Agent(config, provider, Context(config, provider, meter, view, recall)), provider


async def answered(agent: Agent, question: str, spent: Spent | None = None) -> list[Event]:
    """All events of answering."""
    async with aclosing(agent.answer(question, 1, spent or Spent(Usage()))) as events:
        return [event async for event in events]


async def voted(agent: Agent, question: str, candidates: Sequence[Candidate]) -> list[Event]:
    """All events of a vote."""
    async with aclosing(agent.act(question, 2, candidates, Spent(Usage()), final=False)) as events:
        return [event async for event in events]


def orphans(messages: Sequence[ChatMessage]) -> list[str]:
    """Ids of tool calls without their result, and of results without their call."""
    called = [call.id for m in messages for call in m.tool_calls]
    given = [m.tool_call_id for m in messages if m.tool_call_id is not None]
    return sorted(set(called) ^ set(given))
