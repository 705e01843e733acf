"""What model requests cost, in US dollars: list prices per model, from data that `genai-prices` brings along.

Nothing is looked up over a network; the prices are those of the installed release of that package
(https://github.com/pydantic/genai-prices), without discounts, batch prices or taxes.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from massmem.config.models import BackendConfig, BackendType, PriceConfig
from massmem.errors import ConfigError
from massmem.messages import ChatRequest, Usage
from massmem.providers.base import ChatProvider
from massmem.providers.presets import PRESETS, address, is_loopback
from massmem.replies import Chunk, FinishChunk

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo, Provider

NOTHING = Decimal(0)
_STEP = Decimal("1e-10")
"""Dollars; a token of the cheapest models costs more."""

_IN_PROCESS = ("local", "scripted")
_LISTED: Mapping[BackendType, str] = {
    "openai": "openai", "anthropic": "anthropic", "gemini": "google", "grok": "x-ai", "groq": "groq",
    "together": "together", "openrouter": "openrouter", "deepseek": "deepseek", "mistral": "mistral",
    "fireworks": "fireworks", "cerebras": "cerebras",
}  # fmt: skip
"""The names under which genai-prices lists providers, where there is one."""
_AZURE = (".openai.azure.com", ".cognitiveservices.azure.com", ".services.ai.azure.com")


@dataclass(frozen=True, slots=True)
class Price:
    """What one backend's requests cost.

    given: the configuration says it. free: they run on this machine. named: the provider and the model as genai-prices
    calls them. Neither of these, or a name that it does not know: nobody knows.

    The first look at the list of prices takes 0.3 s, to load it: ask for `known` once in a thread.
    """

    given: PriceConfig | None = None
    free: bool = False
    named: tuple[str, str] | None = None

    @property
    def known(self) -> bool:
        return self.free or self.given is not None or self._listed is not None

    @property
    def _listed(self) -> "tuple[Provider, ModelInfo] | None":
        return None if self.named is None else _listed(*self.named)

    def cost(self, usage: Usage) -> Decimal | None:
        """Dollars for these tokens; None when the price is not known.

        Long prompts of some models cost more a token. That goes by request, so the price is that of the average one.
        """
        if not (usage.prompt or usage.completion):
            return NOTHING
        if self.given is not None:
            return _given(self.given, usage)
        if self.free:
            return NOTHING
        listed = self._listed
        if listed is None:
            return None
        from genai_prices import Usage as Tokens

        provider, model = listed
        requests = max(usage.requests, 1)
        each = Tokens(
            input_tokens=Decimal(usage.prompt) / requests,
            cache_read_tokens=Decimal(min(usage.cached, usage.prompt)) / requests,
            output_tokens=Decimal(usage.completion) / requests,
        )
        return (model.calc_price(each, provider).total_price * requests).quantize(_STEP)

    def priced(self, usage: Usage) -> Usage:
        """The same tokens, with what they cost."""
        cost = self.cost(usage)
        return replace(usage, cost=None if cost is None else float(cost))


class Priced:
    """A model whose replies say what they cost."""

    def __init__(self, provider: ChatProvider, price: Price) -> None:
        self._provider = provider
        self._price = price

    @property
    def native_tools(self) -> bool:
        return self._provider.native_tools

    async def count_prompt(self, request: ChatRequest) -> int | None:
        return await self._provider.count_prompt(request)

    async def stream(self, request: ChatRequest) -> AsyncGenerator[Chunk, None]:
        async with aclosing(self._provider.stream(request)) as chunks:
            async for chunk in chunks:
                if isinstance(chunk, FinishChunk):
                    yield FinishChunk(chunk.reason, self._price.priced(chunk.usage))
                else:
                    yield chunk


def price_of(backend: BackendConfig, environ: Mapping[str, str]) -> Price:
    """The price of what `backend` is sent.

    Models in this process, and servers on this machine, cost nothing. A model has a price when the list has it under
    the provider that its address belongs to; at any other address, a proxy or a server of one's own, it has none.
    """
    if backend.price is not None:
        return Price(backend.price)
    if backend.type in _IN_PROCESS:
        return Price(free=True)
    try:
        url = address(backend, environ)
    except ConfigError:  # said by whoever opens the backend
        return Price()
    if is_loopback(url):
        return Price(free=True)
    provider = _provider_at(url)
    model = backend.model or PRESETS[backend.type].default_model
    return Price(named=(provider, model)) if provider and model else Price()


def _given(price: PriceConfig, usage: Usage) -> Decimal:
    cached = min(usage.cached, usage.prompt)
    parts = (
        (usage.prompt - cached, price.input),
        (cached, price.input if price.cached is None else price.cached),
        (usage.completion, price.output),
    )
    return (sum((tokens * Decimal(str(dollars)) for tokens, dollars in parts), NOTHING) / 1_000_000).quantize(_STEP)


def _provider_at(url: str) -> str | None:
    host = urlsplit(url).hostname or ""
    if host.endswith(_AZURE):
        return "azure"
    return next((name for kind, name in _LISTED.items() if urlsplit(PRESETS[kind].base_url).hostname == host), None)


@cache
def _listed(provider: str, model: str) -> "tuple[Provider, ModelInfo] | None":
    from genai_prices.data_snapshot import get_snapshot

    try:
        found = get_snapshot().find_provider_model(model, None, provider, None)
    except LookupError:
        return None
    prices = vars(found[1].get_prices(datetime.now(UTC)))
    # The list also names models whose prices it does not have.
    return (
        found
        if {"input_mtok", "output_mtok"} <= {name for name, price in prices.items() if price is not None}
        else None
    )


if TYPE_CHECKING:
    _CONFORMS: type[ChatProvider] = Priced
