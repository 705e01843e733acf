"""The agents' models: keys are tried and not only found, weights are read and not only seen."""

import asyncio
import hashlib
import time
from collections.abc import Sequence
from contextlib import suppress
from difflib import get_close_matches

from massmem.cli.checks.finding import Finding, Situation, beginning, failed, ok, skipped, without_config
from massmem.cli.trial import tried
from massmem.config.models import BackendConfig, TeamConfig
from massmem.errors import MalformedResponse, MassmemError, MissingModelError, ModelNotFound
from massmem.providers.presets import NO_KEY, PRESETS, Endpoint, resolve
from massmem.providers.windows import context_window
from massmem.weights import DEFAULT, require

_LISTS_ALL = ("ollama", "lmstudio", "vllm")
"""What these do not list they do not have; the others also know names that their lists leave out."""


async def check_models(situation: Situation) -> Sequence[Finding]:
    """Every distinct backend of the team, all at once."""
    if situation.config is None:
        return without_config()
    return await asyncio.gather(*(_checked(b, who, situation) for b, who in _backends(situation.config)))


def _backends(team: TeamConfig) -> list[tuple[BackendConfig, str]]:
    """Each once, with the agents that use it."""
    found: list[tuple[BackendConfig, list[str]]] = []
    for agent in team.agents:
        same = next((who for backend, who in found if _place(backend) == _place(agent.backend)), None)
        if same is None:
            found.append((agent.backend, [agent.id]))
        else:
            same.append(agent.id)
    return [(backend, ", ".join(who)) for backend, who in found]


def _place(backend: BackendConfig) -> tuple[object, ...]:
    return backend.type, backend.model, backend.base_url, backend.api_key


async def _checked(backend: BackendConfig, who: str, situation: Situation) -> Finding:
    name = f"{who}: {' '.join([backend.type, backend.model]).strip()}"
    try:
        match PRESETS[backend.type].kind:
            case "scripted":
                return ok(f"{name}: says what its script says")
            case "local":
                return await asyncio.to_thread(_weights, backend, name)
            case _:
                return await _served(backend, name, situation)
    except MassmemError as e:
        return failed(f"{name}: {e.message}", e.hint)


def _weights(backend: BackendConfig, name: str) -> Finding:
    """Read once more in full: a disk may have changed what was right when it was fetched."""
    from massmem.providers.local import LocalRuntimes

    LocalRuntimes().open(backend)  # its library is there, and the file is known to be verified
    path = require(backend.model)
    began = time.monotonic()
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if not backend.model and found != DEFAULT.sha256:
        raise MissingModelError(
            f"{path} is damaged: its SHA-256 is {found}", f"rm '{path}', then: massmem models fetch"
        )
    return ok(f"{name}: {path}", f"SHA-256 {found}, read in {time.monotonic() - began:.1f} s")


async def _served(backend: BackendConfig, name: str, situation: Situation) -> Finding:
    endpoint = resolve(backend, situation.environ)
    if situation.offline:
        return skipped(f"{name}: {_key(endpoint)}, not tried (--offline)")
    try:
        accepted = await _offered(backend, endpoint)
    except ModelNotFound as e:
        return failed(f"{name}: {e.message}", e.hint)
    window = await context_window(backend, situation.environ)
    said = f"window {window.tokens:,} tokens ({window.source})"
    return ok(f"{name}: {accepted}", f"{endpoint.base_url}, {_key(endpoint)}, {said}")


async def _offered(backend: BackendConfig, endpoint: Endpoint) -> str:
    """That the server has the model and accepts the key, by its list, else by a tiny request. Raises ProviderError."""
    from massmem.providers.offers import offered_models

    names: list[str] = []
    with suppress(ModelNotFound, MalformedResponse):  # raised where it keeps no list
        names = [model.name for model in await offered_models(backend.type, endpoint)]
    if {endpoint.model, f"{endpoint.model}:latest"} & set(names) or (names and backend.type == "llamacpp"):
        return "the server has the model" if endpoint.key == NO_KEY else "the key is accepted, the model is there"
    if backend.type in _LISTS_ALL:
        raise _not_there(backend, endpoint, names)
    return f"answered in {await tried(backend):.1f} s"


def _not_there(backend: BackendConfig, endpoint: Endpoint, names: Sequence[str]) -> ModelNotFound:
    near = get_close_matches(endpoint.model, names, 3, 0.4) or list(names[:5])
    get = f"ollama pull {endpoint.model}" if backend.type == "ollama" else "load it there"
    fix = f"{get}, or set backend.model to one of: {', '.join(near)}" if near else get
    return ModelNotFound(f"{endpoint.base_url} has no model {endpoint.model!r}", fix)


def _key(endpoint: Endpoint) -> str:
    return "no key is needed" if endpoint.key == NO_KEY else f"key {beginning(endpoint.key)}"
