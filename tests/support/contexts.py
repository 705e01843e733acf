"""Agents with a history, on a scripted model that refuses prompts above its window and keeps what it was sent."""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from typing import Any

from massmem.config.models import AgentConfig, BackendConfig, CompressionConfig, MemoryConfig
from massmem.core.events import Event
from massmem.core.messages import ActivityChunk, Candidate, ChatMessage, ChatRequest, Chunk
from massmem.memory.budget import Budget
from massmem.memory.conversation import HistoryMessage
from massmem.memory.tokens import Buffer, estimate_tokens
from massmem.providers import Providers
from massmem.providers.base import Abilities, ChatProvider
from massmem.providers.pricing import Price
from massmem.turn.agent import Agent
from massmem.turn.compressor import AgentContext, Compressor, Recall, TokenMeter
from massmem.turn.prompt_builder import Prompt
from massmem.turn.request import StepCost, Task
from tests.support.turns import Collector


@dataclass
class RequestKeeper:
    """A provider that keeps the requests it passes on."""

    inner: ChatProvider
    requests: list[ChatRequest] = field(default_factory=list[ChatRequest])
    activities: list[ActivityChunk] = field(default_factory=list[ActivityChunk])
    """What its model does before a request."""

    @property
    def abilities(self) -> Abilities:
        return self.inner.abilities

    @property
    def price(self) -> Price:
        return self.inner.price

    async def prepare(self) -> AsyncGenerator[ActivityChunk, None]:
        for activity in self.activities:
            yield activity

    def stream(self, request: ChatRequest) -> AsyncGenerator[Chunk, None]:
        self.requests.append(request)
        return self.inner.stream(request)

    async def count_prompt(self, request: ChatRequest) -> int | None:
        return await self.inner.count_prompt(request)


def history(*texts: str) -> tuple[HistoryMessage, ...]:
    """Return question, answer, question, answer, ... of earlier turns; seq from 1."""
    roles = ("user", "assistant")
    return tuple(HistoryMessage(ChatMessage(roles[i % 2], text), f"id{i + 1}", i + 1) for i, text in enumerate(texts))


async def agent_with(
    window: int,
    history: tuple[HistoryMessage, ...] = (),
    *,
    believed: int | None = None,
    script: dict[str, Any] | None = None,
    recall: Recall | None = None,
    system: str = "",
    **compression: Any,
) -> tuple[Agent, RequestKeeper]:
    """window: what the model really takes; believed: what massmem takes it for."""
    backend = BackendConfig(type="scripted", script={"context_window": window, **(script or {})}, max_retries=0)
    memory = MemoryConfig(compression=CompressionConfig(**compression))
    config = AgentConfig(id="ann", backend=backend, system_message=system, memory=memory, mcp_servers=())
    provider = RequestKeeper(await Providers().open(backend))
    meter = TokenMeter(believed or window, Buffer(estimate_tokens))
    prompt = Prompt(config.id, system, history=history)
    metered = Budget().limit(config.id, backend, provider)
    return Agent(config, metered, AgentContext(prompt, Compressor(config, metered, meter, recall))), provider


async def answer(agent: Agent, question: str, cost: StepCost | None = None) -> list[Event]:
    """Return all events of answering."""
    outbox = Collector()
    result = await agent.answer(Task(question, 1, cost or StepCost(), outbox))
    return [*outbox.events, result]


async def vote(agent: Agent, question: str, candidates: Sequence[Candidate]) -> list[Event]:
    """Return all events of a vote."""
    outbox = Collector()
    result = await agent.vote(Task(question, 2, StepCost(), outbox, candidates), final=False)
    return [*outbox.events, result]


def find_orphans(messages: Sequence[ChatMessage]) -> list[str]:
    """Return the ids of tool calls without their result, and of results without their call."""
    called = {call.id for message in messages for call in message.tool_calls}
    returned = {message.tool_call_id for message in messages if message.tool_call_id is not None}
    return sorted(called ^ returned)
