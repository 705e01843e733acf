"""Prices and windows of models.

The price is the configured one, or the list price in US dollars without discounts and taxes. The list is that of
`genai-prices` (https://github.com/pydantic/genai-prices). Loading it takes 0.3 s: make the first call in a thread.
"""

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from importlib.metadata import version
from pathlib import Path
from statistics import median_low
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from massmem.config.addresses import is_loopback
from massmem.config.home import lock_file, massmem_home, replace_file
from massmem.config.models import BackendConfig, PriceConfig
from massmem.config.presets import PRESETS
from massmem.core.errors import ConfigError, HomeError, MalformedResponse, ProviderConnectionError
from massmem.core.events import now
from massmem.core.messages import Usage
from massmem.providers.endpoints import find_base_url

if TYPE_CHECKING:
    from genai_prices.data_snapshot import DataSnapshot
    from genai_prices.types import ModelInfo, Provider

log = logging.getLogger(__name__)

_PRECISION = Decimal("1e-10")
"""Dollars; a token of the cheapest models costs more."""


@dataclass(frozen=True, slots=True)
class Price:
    """The price of requests to one backend. It is unknown when no field is set, or the list lacks the model.

    The first use of the price list takes 0.3 s to load it: ask for `is_known` once in a thread.
    """

    configured: PriceConfig | None = None
    """The price from the configuration; it wins over the list."""
    free: bool = False
    """The model runs on this machine."""
    listed_as: tuple[str, str] | None = None
    """Provider and model in the names of the price list."""
    searches: bool = False
    """The model may search the web."""

    @property
    def is_known(self) -> bool:
        # The price of a token, since no tokens cost nothing at any price.
        return self.cost(Usage(1, searches=int(self.searches))) is not None

    def cost(self, usage: Usage) -> Decimal | None:
        """Return the dollars for these tokens and searches, None when the price is unknown."""
        if self.free or not (usage.prompt or usage.completion):
            return Decimal(0)
        tokens = None if self.listed_as is None else find_list_price(*self.listed_as, usage)
        if self.configured is not None:
            tokens = _cost_at(self.configured, usage)
        searches = self._find_search_cost(usage)
        return None if tokens is None or searches is None else (tokens + searches).quantize(_PRECISION)

    def _find_search_cost(self, usage: Usage) -> Decimal | None:
        if not usage.searches:
            return Decimal(0)
        if self.configured is not None and self.configured.search is not None:
            return usage.searches * Decimal(str(self.configured.search)) / 1_000
        return None if self.listed_as is None else find_search_cost(*self.listed_as, usage)

    def add_cost(self, usage: Usage) -> Usage:
        """Return the usage with its cost, and what the provider's cache saved, filled in.

        What the provider says to charge for a reply with searches counts more than a list of prices.
        """
        cost, saved = self.cost(usage), Decimal(0)
        if usage.searches and usage.cost is not None and self.configured is None and not self.free:
            cost = Decimal(str(usage.cost))
        if cost is not None and (usage.cached or usage.cache_written):
            saved = (self.cost(replace(usage, cached=0, cache_written=0)) or Decimal(0)) - cost
        return replace(usage, cost=None if cost is None else float(cost), saved=float(saved))


def price_of(backend: BackendConfig, environ: Mapping[str, str]) -> Price:
    """Return the price of requests to `backend`.

    Models in this process and servers on this machine are free. The list counts only for the provider's own address:
    a proxy or a private server has no known price.
    """
    searches = backend.web_search is not None
    if backend.is_program or (backend.price is not None and not (searches and backend.price.search is None)):
        return Price(backend.price, searches=searches)
    if backend.is_in_process and backend.price is None:
        return Price(free=True)
    if backend.code_execution and backend.type in ("openai", "anthropic"):
        return Price()  # they charge for their machines beside tokens
    try:
        url = find_base_url(backend, environ)
    except ConfigError:  # reported when the backend is opened
        return Price(backend.price, searches=searches)
    if is_loopback(url) and backend.price is None:
        return Price(free=True)
    provider = list_name_of(url)
    model = backend.model or PRESETS[backend.type].default_model
    listed_as = (provider, model) if provider and model else None
    return Price(backend.price, listed_as=listed_as, searches=searches)


def _cost_at(price: PriceConfig, usage: Usage) -> Decimal:
    cached = min(usage.cached, usage.prompt)
    parts = (
        (usage.prompt - cached, price.input),
        (cached, price.input if price.cached is None else price.cached),
        (usage.completion, price.output),
    )
    total = sum((tokens * Decimal(str(dollars)) for tokens, dollars in parts), Decimal(0))
    return (total / 1_000_000).quantize(_PRECISION)


# The list of models: their prices and context windows

_AZURE_HOSTS = (".openai.azure.com", ".cognitiveservices.azure.com", ".services.ai.azure.com")

# OpenAI takes 128,000 tokens of these windows for the reply.
_PROMPT_LIMITS = {400_000: 272_000}


def list_name_of(url: str) -> str | None:
    """Return the list's name of the provider at this address, None when it has none."""
    host = urlsplit(url).hostname or ""
    if host.endswith(_AZURE_HOSTS):
        return "azure"
    listed = (preset for preset in PRESETS.values() if preset.price_list)
    return next((preset.price_list for preset in listed if urlsplit(preset.base_url).hostname == host), None)


def find_list_price(provider: str, model: str, usage: Usage) -> Decimal | None:
    """Return what a provider asks for these tokens in US dollars, None when the list does not know.

    Some models charge more per token for long prompts. That depends on each request, so the average request counts.
    """
    entry = _find_entry(provider, model)
    if entry is None or not _has_prices(entry[1]):
        return None
    from genai_prices import Usage as ListUsage

    requests = max(usage.requests, 1)
    average = ListUsage(
        input_tokens=Decimal(usage.prompt) / requests,
        cache_read_tokens=Decimal(min(usage.cached, usage.prompt)) / requests,
        cache_write_tokens=Decimal(min(usage.cache_written, usage.prompt - min(usage.cached, usage.prompt))) / requests,
        output_tokens=Decimal(usage.completion) / requests,
    )
    return entry[1].calc_price(average, entry[0]).total_price * requests


_SEARCH_PRICES: Mapping[str, Decimal] = {
    # $5 for 1,000 calls: https://docs.x.ai/developers/pricing, 2026-11-26
    "x-ai": Decimal("0.005"),
    # At most 5 results at $4 for 1,000: https://openrouter.ai/docs/guides/features/plugins/web-search, 2026-11-26. A
    # reply says what was charged, which counts more.
    "openrouter": Decimal("0.02"),
    # In the price of a request, which the list has: https://docs.perplexity.ai/getting-started/pricing, 2026-11-26
    "perplexity": Decimal(0),
}
"""US dollars for a search of the web, where the list has none."""


def find_search_cost(provider: str, model: str, usage: Usage) -> Decimal | None:
    """Return what a provider asks for these searches beside their tokens, None when nobody knows.

    Gemini's models before 3 charge for a request with searches, not for each of them.
    """
    entry = _find_entry(provider, model)
    price: object = None if entry is None else vars(entry[1].get_prices(datetime.now(UTC))).get("web_searches_kcount")
    dollars = price / 1_000 if isinstance(price, Decimal) else _SEARCH_PRICES.get(provider)
    is_by_request = provider == "google" and entry is not None and entry[1].id.startswith(("gemini-1", "gemini-2"))
    times = min(usage.searches, max(usage.requests, 1)) if is_by_request else usage.searches
    return None if dollars is None else times * dollars


def find_listed_window(model: str, url: str) -> int | None:
    """Return the tokens that a model at an address reads, None when the list does not know the model.

    The entry of the provider at this address counts first, then what most providers give a model of this name.
    """
    provider = list_name_of(url)
    entry = _find_entry(provider, model) if provider else None
    tokens = (entry and entry[1].context_window) or _usual_window(model.rsplit("/", 1)[-1].lower())
    return None if tokens is None else _PROMPT_LIMITS.get(tokens, tokens)


def find_token_prices(provider: str, model: str) -> tuple[float, float] | None:
    """Return the dollars for a million tokens of prompt and of reply, None when the list does not know."""
    million = 1_000_000
    prompt = find_list_price(provider, model, Usage(million, requests=1_000))
    reply = find_list_price(provider, model, Usage(0, million, requests=1_000))
    return None if prompt is None or reply is None else (float(prompt), float(reply))


def _find_entry(provider: str, model: str) -> "tuple[Provider, ModelInfo] | None":
    try:
        return get_snapshot().find_provider_model(model, None, provider, None)
    except LookupError:
        return None


def _has_prices(model: "ModelInfo") -> bool:
    """Whether the list has the model's prices and not only its name."""
    prices = vars(model.get_prices(datetime.now(UTC)))
    return prices.get("input_mtok") is not None and prices.get("output_mtok") is not None


def _usual_window(name: str) -> int | None:
    """Return the window of the listed model with this name, or with its longest beginning ("-latest" is not listed)."""
    windows = _usual_windows()
    ends = (end for end in range(len(name), 0, -1) if not name[end : end + 1].isalnum())
    return next((windows[name[:end]] for end in ends if name[:end] in windows), None)


@cache
def _usual_windows() -> Mapping[str, int]:
    """Windows by model names without owners: the median of what providers give."""
    windows: dict[str, list[int]] = {}
    for provider in get_snapshot().providers:
        for model in provider.models:
            if model.context_window:
                windows.setdefault(model.id.rsplit("/", 1)[-1].lower(), []).append(model.context_window)
    return {name: median_low(values) for name, values in windows.items()}


# The list itself: the installed one, or one that `massmem models refresh` has fetched since. An update of the package
# is newer than what was fetched before.

FILE = "prices.json"
_PACKAGE = "genai-prices"
_PATIENCE = 30.0
"""Seconds for the list, which has about a megabyte."""


def fetch_prices(home: Path, url: str = "") -> int:
    """Fetch the newest list into `home`; return how many models it has. Blocks. url: "" for the usual address.

    Raises:
        ProviderConnectionError: it cannot be fetched.
        MalformedResponse: it is no list of prices.
        StoreError, HomeError: it cannot be written.
    """
    import httpx2
    from genai_prices.update_prices import DEFAULT_UPDATE_URL

    from massmem.providers.clients import open_blocking_client

    address = url or DEFAULT_UPDATE_URL
    try:
        with open_blocking_client(address, timeout=_PATIENCE) as client:
            reply = client.get(address).raise_for_status()
    except httpx2.HTTPError as e:
        raise ProviderConnectionError(f"the list of prices at {address} cannot be fetched: {e}") from e
    try:
        prices: Any = reply.json()
        snapshot = _to_snapshot(prices)
    except (ValueError, TypeError, LookupError) as e:
        raise MalformedResponse(f"what {address} sent is no list of prices: {type(e).__name__}") from e
    stored = {"date": now().date().isoformat(), "release": version(_PACKAGE), "prices": prices}
    with lock_file(home / FILE):
        replace_file(home / FILE, json.dumps(stored))
    get_snapshot.cache_clear()
    return sum(len(provider.models) for provider in snapshot.providers)


@cache
def get_snapshot() -> "DataSnapshot":
    """Return the list that counts. The first call takes 0.3 s: make it in a thread."""
    from genai_prices.data_snapshot import get_snapshot as get_installed

    stored = _read_list()
    try:
        return _to_snapshot(stored["prices"]) if stored else get_installed()
    except (ValueError, TypeError, LookupError) as e:
        log.warning("the fetched list of prices is damaged, so the installed one counts: %s", type(e).__name__)
        return get_installed()


def read_date() -> str | None:
    """Return the day (ISO) on which the list that counts was fetched, None when it is the installed one."""
    stored = _read_list()
    return str(stored["date"]) if stored else None


def _read_list() -> dict[str, Any] | None:
    """Return what was fetched since the package was installed, None when there is nothing."""
    try:
        stored: object = json.loads((massmem_home() / FILE).read_text("utf-8"))
    except (OSError, ValueError, HomeError):
        return None
    match stored:
        case {"date": str(), "release": str(release), "prices": list()} if release == version(_PACKAGE):
            return cast("dict[str, Any]", stored)
        case _:
            return None


def _to_snapshot(prices: list[Any]) -> "DataSnapshot":
    """Return a list as it was fetched. Raises ValueError, TypeError or LookupError for anything else."""
    from genai_prices import types
    from genai_prices.data_snapshot import DataSnapshot

    # The package has no public way to read a list that somebody else fetched.
    read = cast("Any", types)._providers_from_raw
    return DataSnapshot(read(prices), from_auto_update=True)
