"""What model requests cost, in US dollars: the configured price, or the list price without discounts and taxes."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal

from massmem.config.models import BackendConfig, PriceConfig
from massmem.core.errors import ConfigError
from massmem.core.messages import Usage
from massmem.providers.presets import PRESETS, find_base_url, is_loopback
from massmem.providers.price_list import find_list_price, list_name_of

_PRECISION = Decimal("1e-10")
"""Dollars; a token of the cheapest models costs more."""

_IN_PROCESS = ("local", "scripted")


@dataclass(frozen=True, slots=True)
class Price:
    """What requests to one backend cost. The price is unknown when no field is set, or the list lacks the model.

    The first use of the price list takes 0.3 s to load it: ask for `is_known` once in a thread.
    """

    configured: PriceConfig | None = None
    """The price from the configuration; it wins over the list."""
    free: bool = False
    """The model runs on this machine."""
    listed_as: tuple[str, str] | None = None
    """Provider and model in the names of the price list."""

    @property
    def is_known(self) -> bool:
        # The price of a token, since no tokens cost nothing at any price.
        return self.cost(Usage(1)) is not None

    def cost(self, usage: Usage) -> Decimal | None:
        """Return the dollars for these tokens, None when the price is unknown."""
        if self.free or not (usage.prompt or usage.completion):
            return Decimal(0)
        if self.configured is not None:
            return _cost_at(self.configured, usage)
        if self.listed_as is None:
            return None
        cost = find_list_price(*self.listed_as, usage)
        return None if cost is None else cost.quantize(_PRECISION)

    def add_cost(self, usage: Usage) -> Usage:
        """Return the usage with its cost filled in."""
        cost = self.cost(usage)
        return replace(usage, cost=None if cost is None else float(cost))


def price_of(backend: BackendConfig, environ: Mapping[str, str]) -> Price:
    """Return the price of requests to `backend`.

    Models in this process and servers on this machine are free. The list counts only for the provider's own address:
    a proxy or a private server has no known price.
    """
    if backend.price is not None:
        return Price(backend.price)
    if backend.type in _IN_PROCESS:
        return Price(free=True)
    try:
        url = find_base_url(backend, environ)
    except ConfigError:  # reported when the backend is opened
        return Price()
    if is_loopback(url):
        return Price(free=True)
    provider = list_name_of(url)
    model = backend.model or PRESETS[backend.type].default_model
    return Price(listed_as=(provider, model)) if provider and model else Price()


def _cost_at(price: PriceConfig, usage: Usage) -> Decimal:
    cached = min(usage.cached, usage.prompt)
    parts = (
        (usage.prompt - cached, price.input),
        (cached, price.input if price.cached is None else price.cached),
        (usage.completion, price.output),
    )
    total = sum((tokens * Decimal(str(dollars)) for tokens, dollars in parts), Decimal(0))
    return (total / 1_000_000).quantize(_PRECISION)
