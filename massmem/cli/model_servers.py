"""The models that the configured endpoints and the servers on this machine offer."""

import asyncio
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from massmem.config.models import BackendConfig, BackendType, TeamConfig
from massmem.errors import MassmemError
from massmem.providers.loopback import local_servers, places
from massmem.providers.presets import PRESETS, Endpoint, resolve

if TYPE_CHECKING:
    from massmem.providers.offers import Offered


@dataclass(frozen=True, slots=True)
class Server:
    """models: what it offers. problem: why that is not known, "" when it is. used: models that the team has there."""

    type: BackendType
    base_url: str
    models: "tuple[Offered, ...]" = ()
    problem: str = ""
    used: frozenset[str] = frozenset()

    def rows(self) -> Iterator[dict[str, Any]]:
        """As JSON: one row for each model."""
        for model in self.models:
            yield {
                "name": model.name,
                "source": self.type,
                "base_url": self.base_url,
                "context_window": model.window,
                "chats": model.chats,
                "used": model.name in self.used,
            }


async def model_servers(team: TeamConfig | None) -> list[Server]:
    """Those of the team first, each once, then those found on this machine."""
    configured = _endpoints(agent.backend for agent in team.agents) if team else []
    asked, found = await asyncio.gather(
        asyncio.gather(*(_asked(*each) for each in configured)), local_servers(places(os.environ), os.environ)
    )
    known = {_place(server.base_url) for server in asked}
    others = [Server(s.type, s.base_url, s.models) for s in found if _place(s.base_url) not in known]
    return [*asked, *others]


def _endpoints(backends: Iterable[BackendConfig]) -> list[tuple[BackendType, Endpoint | str, frozenset[str]]]:
    """The distinct endpoints, or why there is none, with the models that are used there."""
    found: dict[tuple[str, str], tuple[BackendType, Endpoint | str, frozenset[str]]] = {}
    for backend in backends:
        if PRESETS[backend.type].kind not in ("openai", "anthropic"):
            continue
        try:
            endpoint: Endpoint | str = resolve(backend, os.environ)
            place = endpoint.base_url, endpoint.key
        except MassmemError as e:
            endpoint, place = e.message, (backend.type, "")
        model = endpoint.model if isinstance(endpoint, Endpoint) else backend.model
        used = found[place][2] if place in found else frozenset[str]()
        found[place] = (backend.type, endpoint, used | {model})
    return list(found.values())


async def _asked(type_: BackendType, endpoint: Endpoint | str, used: frozenset[str]) -> Server:
    if isinstance(endpoint, str):
        return Server(type_, PRESETS[type_].base_url, problem=endpoint, used=used)
    from massmem.providers.offers import offered_models

    try:
        models = await offered_models(type_, endpoint)
    except MassmemError as e:
        return Server(type_, endpoint.base_url, problem=e.message, used=used)
    return Server(type_, endpoint.base_url, models, used=used)


def _place(url: str) -> str:
    return url.replace("127.0.0.1", "localhost").replace("[::1]", "localhost")
