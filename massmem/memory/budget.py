"""The meter of a turn, and its limits: each request is checked before it is sent, and its reply while it streams.

Every request of a turn and of its recording goes through a `MeteredProvider`, which books what the server reported, or
what it is about, under the request's purpose.

A request is sent only when three things fit into the limit together: what the turn has used, what the requests under
way are expected to use, and its own prompt, searches of the web and expected reply. So fifty agents do not overrun a
limit by fifty requests. A reply is expected to be as long as those of this turn so far (500 tokens before the first),
or max_tokens of the backend when that is less. The first request of all needs room for its prompt and its searches
only.

The first request that does not fit ends the turn: requests under way may finish. When their replies are longer than
expected, and the limit is passed while they stream, they are cut off.
"""

import asyncio
import math
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from massmem.config.models import BackendConfig, CoordinationConfig
from massmem.core.errors import LimitReached, ProviderConnectionError, ProviderError, ProviderTimeout, StreamInterrupted
from massmem.core.events import WorkCut
from massmem.core.messages import (
    ActivityChunk,
    ChatRequest,
    Chunk,
    CitationChunk,
    FinishChunk,
    NoticeChunk,
    Purpose,
    ReasoningChunk,
    RetryChunk,
    SearchChunk,
    TextChunk,
    ThoughtsEndChunk,
    ToolCallChunk,
    Usage,
)
from massmem.core.text import is_web_address
from massmem.memory.tokens import counter_for, estimate_tokens, load
from massmem.providers.base import Abilities, ChatProvider, searches_web
from massmem.providers.pricing import Price

SpendingLimit = Literal["cost", "tokens"]

_ANSWER_SHARE = 0.15
"""Part of a turn's time that is kept for the answers of agents that work with tools."""

_GROWTH = 1.15
"""How much longer than the last one a prompt of work with tools may be."""

_FIRST_REPLY = 500
"""Tokens of a reply that are expected before the first reply of a turn."""

_UNKNOWN = (ProviderConnectionError, ProviderTimeout, StreamInterrupted)
"""Failures after which the server may have worked for nothing."""

_USUAL_SEARCHES = 5
"""Searches of a request that are expected, where web_search.max_uses does not bound them."""

_HINTS: Mapping[SpendingLimit, str] = {
    "cost": "raise --max-cost or coordination.max_cost",
    "tokens": "raise --max-tokens or coordination.max_tokens",
}


@dataclass(slots=True, eq=False)
class _OpenRequest:
    price: Price
    prompt_tokens: int
    expected_tokens: int
    """Of the reply."""
    token_cost: float
    """Dollars for a token of the reply."""
    prompt_cost: float
    purpose: Purpose = "answer"
    search_cost: float = 0.0
    """Dollars for a search of the web."""
    expected_searches: int = 0
    searches: int = 0
    reply_tokens: int = 0
    attempts: int = 1
    failed: Usage = field(default_factory=Usage)
    """Of attempts that failed: what the server reported, else about what they wrote."""
    text: list[str] = field(default_factory=list[str])
    """The reply so far."""

    def estimate(self, min_reply: int, min_searches: int = 0) -> tuple[float, int]:
        """Return the dollars and the tokens of the request with a reply of at least so many tokens.

        min_searches: searches that are counted at least.
        """
        reply, searches = max(self.reply_tokens, min_reply), max(self.searches, min_searches)
        cost = self.prompt_cost * self.attempts + self.token_cost * reply + self.search_cost * searches
        return cost, self.prompt_tokens * self.attempts + reply

    def estimate_usage(self) -> Usage:
        prompt, requests = self.prompt_tokens * self.attempts, self.attempts
        usage = Usage(prompt, self.reply_tokens, requests=requests, reported=False, searches=self.searches)
        return self.price.add_cost(usage)

    def add(self, chunk: Chunk) -> None:
        """Take in a piece of the reply."""
        match chunk:
            case TextChunk(text):
                self.text.append(text)
                self.reply_tokens += estimate_tokens(text)
            case ReasoningChunk(text):
                self.reply_tokens += estimate_tokens(text)
            case ToolCallChunk(call):
                self.reply_tokens += estimate_tokens(call.arguments)
            case RetryChunk(attempt=attempt, usage=usage):
                # The reply that is void now is paid for as well.
                self.attempts += attempt > 0
                is_lost = self.reply_tokens and not usage.prompt
                self.failed += self.price.add_cost(Usage(0, self.reply_tokens, reported=False)) if is_lost else usage
                self.text.clear()
            case ThoughtsEndChunk():
                self.text.clear()
            case SearchChunk(query):
                self.searches += not is_web_address(query)  # a page that is opened
            case ActivityChunk() | CitationChunk() | NoticeChunk() | FinishChunk():
                pass


def _expect_searches(backend: BackendConfig) -> int:
    """Return how many searches of the web a request may need."""
    search = backend.web_search
    return 0 if search is None else search.max_uses or _USUAL_SEARCHES


class Budget:
    """The spending limits of one turn, and what it has used of them."""

    def __init__(
        self, settings: CoordinationConfig | None = None, report: Callable[[Usage], None] = lambda _: None
    ) -> None:
        """report: is told what is booked."""
        self._report = report
        self.reached: SpendingLimit | None = None
        """The limit for which no further request is sent."""
        self.exhausted = False
        """The limit is passed: whatever runs is to be cut off."""
        self._max_cost = None if settings is None else settings.max_cost
        self._max_tokens = None if settings is None else settings.max_tokens
        self.spent: dict[str, Usage] = {}
        """By purpose: what the turn has sent, since it began."""
        self._used, self._cost = Usage(), 0.0
        self._replies = 0
        self._reply_tokens = 0
        self._open: list[_OpenRequest] = []
        self._agents: set[str] = set()
        self._searches = 0
        """Most searches of a request of those who may search."""
        self._deadline = math.inf
        self._seconds = math.inf if settings is None else settings.timeout

    @property
    def is_limited(self) -> bool:
        return self._max_cost is not None or self._max_tokens is not None

    @property
    def usage(self) -> Usage:
        """Of all that is booked."""
        return sum(self.spent.values(), Usage())

    def begin(self, used: Usage, deadline: float = math.inf, spent: Mapping[str, Usage] | None = None) -> None:
        """Go on with a turn that has used this before. deadline: of the turn, by the event loop's clock.

        spent: what of it the end of the turn is to tell, by purpose.
        """
        self._used, self._cost = self._used + used, self._cost + (used.cost or 0.0)
        self._deadline = deadline
        self.spent |= {key: usage + self.spent.get(key, Usage()) for key, usage in (spent or {}).items()}

    def require_price(self, price: Price) -> None:
        """Raise LimitReached: the cost is limited, and nobody knows that of this model."""
        if self._max_cost is not None and not price.is_known:
            message = "the price of the model is not known, and coordination.max_cost is set"
            raise LimitReached(message, "limit tokens instead: coordination.max_tokens")

    def begin_another(self, used: Usage) -> None:
        """Go over to another turn, which has used this."""
        self.reached, self.exhausted, self._used, self._cost = None, False, used, used.cost or 0.0

    def book(self, purpose: str, usage: Usage) -> None:
        """Count what was sent and paid."""
        self._report(usage)
        self._used, self._cost = self._used + usage, self._cost + (usage.cost or 0.0)
        self.spent[purpose] = self.spent.get(purpose, Usage()) + usage

    def take(self) -> dict[str, Usage]:
        """Return what was booked since the last call, by purpose."""
        spent, self.spent = self.spent, {}
        return spent

    def limit(self, agent_id: str, backend: BackendConfig, provider: ChatProvider) -> "MeteredProvider":
        """Return a model of the agent with its requests checked and booked. backend: of this model."""
        self._agents.add(agent_id)
        self._searches = max(self._searches, _expect_searches(backend))
        return MeteredProvider(self, backend, provider)

    def find_near_limit(self, price: Price, prompt_tokens: int, seconds: float) -> WorkCut | None:
        """Return the limit that leaves an agent room for one more request, its answer; None: it may go on working.

        price: of its model. prompt_tokens: of the request. seconds: of its slowest request so far.
        """
        left = self._deadline - asyncio.get_running_loop().time()
        if left < min(self._seconds / 2, max(_ANSWER_SHARE * self._seconds, 2 * seconds)):
            return "time"
        # One more request for work, after which the prompt is longer, and each agent's answer.
        expected, times = max(_FIRST_REPLY, self._typical_reply), len(self._agents) + 1
        prompt_tokens = round(_GROWTH * prompt_tokens)
        searches = self._searches if price.searches else 0
        cost = float(price.cost(Usage(prompt_tokens, expected, searches=searches)) or 0)
        return self._find_passed_limit(times * cost, times * (prompt_tokens + expected))

    def open_request(
        self,
        price: Price,
        prompt_tokens: int,
        max_reply: int | None,
        searches: int = 0,
        purpose: Purpose = "answer",
    ) -> _OpenRequest:
        """Admit a request that may search the web so many times.

        Raises LimitReached: it does not fit, or an earlier one did not.
        """
        expected = self._typical_reply
        if max_reply is not None:
            expected = min(expected, max_reply)
        if not self._open and not self._used.requests:
            expected = 0
        prompt_cost = token_cost = search_cost = 0.0
        if self._max_cost is not None:  # else the price list need not be loaded
            prompt_cost = float(price.cost(Usage(prompt_tokens)) or 0)
            token_cost = (float(price.cost(Usage(prompt_tokens, 1_000)) or 0) - prompt_cost) / 1_000
            search_cost = max(0.0, float(price.cost(Usage(prompt_tokens, searches=1)) or 0) - prompt_cost)
        request = _OpenRequest(price, prompt_tokens, expected, token_cost, prompt_cost, purpose, search_cost, searches)
        self._open.append(request)
        self.reached = self.reached or self._find_limit_of_open(expected=True)
        if self.reached is not None:
            self._open.remove(request)
            raise self._error("")
        return request

    def check(self, request: _OpenRequest) -> None:
        """Check a reply that has grown. Raises LimitReached: the reply is to be cut off."""
        passed = None if self.exhausted else self._find_limit_of_open(expected=False)
        if passed is not None:
            self.reached, self.exhausted = passed, True
        if self.exhausted:
            raise self._error("".join(request.text))

    def close_request(self, request: _OpenRequest, usage: Usage | None) -> None:
        """Book a request that has ended, or was cut off. usage: what the provider reported, None for nothing."""
        self._open.remove(request)
        self.book(request.purpose, request.estimate_usage() if usage is None else usage)
        if usage is not None:
            self._replies += 1
            self._reply_tokens += usage.completion

    def explain_limit(self) -> tuple[str, str]:
        """Return a message about the limit that is reached, and a hint."""
        error = self._error("")
        return error.message, error.hint

    @property
    def _typical_reply(self) -> int:
        return round(self._reply_tokens / self._replies) if self._replies else _FIRST_REPLY

    def _find_limit_of_open(self, *, expected: bool) -> SpendingLimit | None:
        """Return the limit that is passed. expected: with the expected replies; else when all are cut off now."""
        sizes = [r.estimate(r.expected_tokens, r.expected_searches) if expected else r.estimate(0) for r in self._open]
        return self._find_passed_limit(sum(cost for cost, _ in sizes), sum(tokens for _, tokens in sizes))

    def _find_passed_limit(self, cost: float, tokens: int) -> SpendingLimit | None:
        """Return the limit that is passed with so much more than was used."""
        if self._max_cost is not None and self._cost + cost > self._max_cost:
            return "cost"
        tokens += self._used.prompt + self._used.completion
        return "tokens" if self._max_tokens is not None and tokens > self._max_tokens else None

    def _error(self, partial: str) -> LimitReached:
        reached = self.reached or "tokens"
        limit = f"${self._max_cost:g}" if reached == "cost" else f"{self._max_tokens:,} tokens"
        hint = _HINTS[reached] + (", or lower backend.web_search.max_uses" if self._searches else "")
        return LimitReached(f"the limit of {limit} for a turn is reached", hint, partial=partial)


class MeteredProvider:
    """A model whose requests are checked and booked."""

    def __init__(self, budget: Budget, backend: BackendConfig, provider: ChatProvider) -> None:
        self.price = provider.price
        self.last = Usage()
        """Of the last request that has ended, however it did."""
        self._budget = budget
        self._provider = provider
        self._count: Callable[[str], int] = counter_for(backend)
        self._backend = backend

    @property
    def abilities(self) -> Abilities:
        return self._provider.abilities

    def prepare(self) -> AsyncGenerator[ActivityChunk, None]:
        return self._provider.prepare()

    async def count_prompt(self, request: ChatRequest) -> int | None:
        return await self._provider.count_prompt(request)

    async def stream(self, request: ChatRequest) -> AsyncGenerator[Chunk, None]:
        """Stream a reply as the provider does. Raises LimitReached, besides."""
        self.last, is_limited = Usage(), self._budget.is_limited
        if is_limited:
            self._budget.require_price(self.price)
            await load([self._backend])
        max_reply = request.max_tokens or self._backend.max_tokens
        searches = _expect_searches(self._backend) if searches_web(self._backend, request) else 0
        prompt = self._count_prompt(request) if is_limited else 0
        entry = self._budget.open_request(self.price, prompt, max_reply, searches, request.purpose)
        usage: Usage | None = None
        try:
            async with aclosing(self._provider.stream(request)) as chunks:
                async for chunk in chunks:
                    entry.add(chunk)
                    if isinstance(chunk, FinishChunk):
                        usage = chunk.usage
                        if not (usage.prompt or usage.completion):
                            if not self.price.free:
                                await load([self._backend])  # for the bill
                            usage = self._estimate(entry, request)
                            chunk = FinishChunk(chunk.reason, usage)
                    yield chunk
                    if usage is None:
                        self._budget.check(entry)
        except ProviderError as e:
            usage = e.usage and replace(e.usage, requests=entry.attempts)
            if usage is None and not (entry.reply_tokens or e.partial or isinstance(e, _UNKNOWN)):
                usage = Usage(requests=entry.attempts)  # it was refused
            raise
        finally:
            self.last = (usage or self._estimate(entry, request)) + entry.failed
            self._budget.close_request(entry, self.last)

    def _estimate(self, entry: _OpenRequest, request: ChatRequest) -> Usage:
        entry.prompt_tokens = entry.prompt_tokens or self._count_prompt(request)
        return entry.estimate_usage()

    def _count_prompt(self, request: ChatRequest) -> int:
        messages = sum(self._count(message.content) for message in request.messages)
        tools = sum(self._count(f"{tool.name} {tool.description} {dict(tool.parameters)}") for tool in request.tools)
        return messages + tools + request.picture_tokens


if TYPE_CHECKING:
    _CONFORMS: type[ChatProvider] = MeteredProvider
