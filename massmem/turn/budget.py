"""What a turn may spend: a request is weighed before it is sent, and its reply while it streams.

The rule, by which fifty agents do not overrun a limit by fifty requests: a request is sent only when what was used,
what open requests are expected to use, and its own prompt and expected reply fit into the limit together. A reply is
expected to be as long as those of this turn so far (500 tokens before the first), or max_tokens of the backend when
that is less. The first request that does not fit ends the turn: those that run may finish. When their replies are
longer than expected, and the limit is passed while they stream, they are cut off. The first request of all needs room
for its prompt only.
"""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from massmem.config.models import AgentConfig, CoordinationConfig
from massmem.errors import LimitReached
from massmem.memory.tokens import counter_for, estimate_tokens
from massmem.messages import ChatRequest, Usage
from massmem.providers.base import ChatProvider
from massmem.providers.costs import Price
from massmem.replies import Chunk, FinishChunk, ReasoningChunk, RetryChunk, TextChunk, ToolCallChunk

Spending = Literal["cost", "tokens"]

_USUAL_REPLY = 500
_HINTS: Mapping[Spending, str] = {
    "cost": "raise --max-cost or coordination.max_cost",
    "tokens": "raise --max-tokens or coordination.max_tokens",
}


@dataclass(slots=True, eq=False)
class _Open:
    """A request under way. prompt, expected, said: tokens. rate: dollars for a token of the reply."""

    price: Price
    prompt: int
    expected: int
    rate: float
    prompt_cost: float
    said: int = 0
    requests: int = 1
    text: list[str] = field(default_factory=list[str])

    def tokens(self, least: int) -> int:
        """With a reply of `least` tokens, at least."""
        return self.prompt * self.requests + max(self.said, least)

    def cost(self, least: int) -> float:
        return self.prompt_cost * self.requests + self.rate * max(self.said, least)

    @property
    def usage(self) -> Usage:
        return self.price.priced(Usage(self.prompt * self.requests, self.said, requests=self.requests, reported=False))


class Budget:
    """The limits of one turn, and what it has used of them; without limits it only knows prices.

    reached: the limit for which no further request is sent. exhausted: it is passed, whatever runs is to be cut off.
    """

    def __init__(self, settings: CoordinationConfig | None = None, prices: Mapping[str, Price] | None = None) -> None:
        """prices: by the agents' ids."""
        self.reached: Spending | None = None
        self.exhausted = False
        self._prices = prices or {}
        self._max_cost = None if settings is None else settings.max_cost
        self._max_tokens = None if settings is None else settings.max_tokens
        self._used = Usage()
        self._replies = (0, 0)
        self._open: list[_Open] = []

    def begin(self, used: Usage) -> None:
        """The turn goes on, and has used this before."""
        self._used += used

    def priced(self, agent_id: str, usage: Usage) -> Usage:
        """The same tokens with their cost, when that is not in it and the agent's price is known."""
        price = self._prices.get(agent_id)
        return usage if price is None or usage.cost is not None else price.priced(usage)

    def metered(self, agent: AgentConfig, provider: ChatProvider) -> ChatProvider:
        """The agent's model, weighed; `provider` itself when there is no limit."""
        if self._max_cost is None and self._max_tokens is None:
            return provider
        return _Metered(self, agent, provider, self._prices.get(agent.id, Price()))

    def enter(self, price: Price, prompt: int, most: int | None) -> _Open:
        """A request is about to be sent. Raises LimitReached: it does not fit, or an earlier one did not."""
        number, tokens = self._replies
        expected = round(tokens / number) if number else _USUAL_REPLY
        prompt_cost = float(price.cost(Usage(prompt)) or 0)
        rate = (float(price.cost(Usage(prompt, 1_000)) or 0) - prompt_cost) / 1_000
        request = _Open(price, prompt, expected if most is None else min(expected, most), rate, prompt_cost)
        if not self._open and not self._used.requests:
            request.expected = 0
        self._open.append(request)
        self.reached = self.reached or self._passed(expected=True)
        if self.reached is not None:
            self._open.remove(request)
            raise self._error("")
        return request

    def check(self, request: _Open) -> None:
        """The reply of `request` has grown. Raises LimitReached: no more of it is wanted."""
        passed = None if self.exhausted else self._passed(expected=False)
        if passed is not None:
            self.reached, self.exhausted = passed, True
        if self.exhausted:
            raise self._error("".join(request.text))

    def leave(self, request: _Open, usage: Usage | None) -> None:
        """The request has ended, or was cut off. usage: what the provider says of it."""
        self._open.remove(request)
        self._used += request.usage if usage is None else request.price.priced(usage)
        if usage is not None:
            self._replies = (self._replies[0] + 1, self._replies[1] + usage.completion)

    def failure(self) -> tuple[str, str]:
        """What to say, and what to do, of the limit that is reached."""
        error = self._error("")
        return error.message, error.hint

    def _passed(self, *, expected: bool) -> Spending | None:
        """The limit that is passed when open requests are replied to as `expected`, or are cut off now."""
        opened = [(request, request.expected if expected else 0) for request in self._open]
        if self._max_cost is not None:
            cost = (self._used.cost or 0.0) + sum(request.cost(least) for request, least in opened)
            if cost > self._max_cost:
                return "cost"
        tokens = self._used.prompt + self._used.completion + sum(request.tokens(least) for request, least in opened)
        return "tokens" if self._max_tokens is not None and tokens > self._max_tokens else None

    def _error(self, partial: str) -> LimitReached:
        reached = self.reached or "tokens"
        limit = f"${self._max_cost:g}" if reached == "cost" else f"{self._max_tokens:,} tokens"
        return LimitReached(f"the limit of {limit} for a turn is reached", _HINTS[reached], partial=partial)


class _Metered:
    """A model whose requests a budget weighs."""

    def __init__(self, budget: Budget, agent: AgentConfig, provider: ChatProvider, price: Price) -> None:
        self._budget = budget
        self._provider = provider
        self._price = price
        self._count: Callable[[str], int] = counter_for(agent.backend)
        self._most = agent.backend.max_tokens

    @property
    def native_tools(self) -> bool:
        return self._provider.native_tools

    async def count_prompt(self, request: ChatRequest) -> int | None:
        return await self._provider.count_prompt(request)

    async def stream(self, request: ChatRequest) -> AsyncGenerator[Chunk, None]:
        """As the provider does. Raises LimitReached, besides."""
        opened = self._budget.enter(self._price, self._prompt(request), request.max_tokens or self._most)
        usage: Usage | None = None
        try:
            async with aclosing(self._provider.stream(request)) as chunks:
                async for chunk in chunks:
                    if isinstance(chunk, FinishChunk) and (chunk.usage.prompt or chunk.usage.completion):
                        usage = chunk.usage
                    _note(opened, chunk)
                    yield chunk
                    if usage is None:
                        self._budget.check(opened)
        finally:
            self._budget.leave(opened, usage)

    def _prompt(self, request: ChatRequest) -> int:
        said = sum(self._count(message.content) for message in request.messages)
        tools = sum(self._count(f"{tool.name} {tool.description} {dict(tool.parameters)}") for tool in request.tools)
        return said + tools


def _note(opened: _Open, chunk: Chunk) -> None:
    match chunk:
        case TextChunk(text):
            opened.text.append(text)
            opened.said += estimate_tokens(text)
        case ReasoningChunk(text):
            opened.said += estimate_tokens(text)
        case ToolCallChunk(call):
            opened.said += estimate_tokens(call.arguments)
        case RetryChunk(attempt=attempt):
            # What was said before is paid for as well.
            opened.requests += attempt > 0
            opened.text.clear()
        case FinishChunk():
            pass


if TYPE_CHECKING:
    _CONFORMS: type[ChatProvider] = _Metered
