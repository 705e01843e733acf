"""How a backend finds its endpoint and key."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal
from urllib.parse import urlsplit

from massmem.config.addresses import complete_address, find_key_problem, is_loopback, is_server_address
from massmem.config.models import BackendConfig
from massmem.config.presets import PRESETS, Abilities, BackendType, CompletionLimit, Preset, Signer
from massmem.core.errors import ConfigError, MissingKeyError
from massmem.core.text import trim_value

NO_KEY = "no-key"
"""Sent where an SDK insists on a key and the server on this machine does not."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where and with which key a backend's requests go."""

    base_url: str
    key: str = field(repr=False)
    model: str
    loopback: bool
    abilities: Abilities
    completion_limit: CompletionLimit
    own: bool = False
    """These are OpenAI's servers, at OpenAI or Azure: they have all options of their API."""
    query: str = ""
    """Goes with every request: what the address has behind a question mark."""
    signer: Signer | Literal[""] = ""
    """Signs its requests; "": they have the key."""
    takes_environment: bool = False
    """It is the provider's own, or the environment names it: the headers that the environment sets are meant for it."""


def check_key(backend: BackendConfig, environ: Mapping[str, str]) -> None:
    """Check at once, without loading any library, that `backend` has what it needs for a request.

    Raises:
        MissingKeyError: the endpoint needs a key and neither the configuration nor `environ` has one.
        ConfigError: the endpoint's address or the model's name is missing or wrong.
    """
    if PRESETS[backend.type].kind in ("openai", "anthropic"):
        resolve(backend, environ)


def resolve(backend: BackendConfig, environ: Mapping[str, str]) -> Endpoint:
    """Return the endpoint of a backend that is reached over HTTP. Raises as check_key does."""
    preset = PRESETS[backend.type]
    base_url, _, query = find_base_url(backend, environ).partition("?")
    loopback = is_loopback(base_url)
    signer = backend.auth or preset.signer
    key = NO_KEY
    if backend.auth is None:
        key = _find_key(backend, preset, environ, required=preset.needs_key and not loopback and not signer)
    host = urlsplit(base_url).hostname or ""
    is_provider = f".{host}".endswith(f".{urlsplit(preset.base_url).hostname}")
    if is_provider and not loopback:
        _check_owner(key, backend.type)
    model = backend.model or preset.default_model
    if not model:
        raise ConfigError([f"backend.model: name the model to use with {backend.type!r}"])
    # Compatible servers know max_tokens; only OpenAI's own newer models insist on the other name.
    usual, is_own = preset.abilities, is_provider or backend.type == "azure_openai"
    own = is_own and preset.completion_limit == "max_completion_tokens"
    return Endpoint(
        base_url=base_url,
        key=key,
        model=model,
        loopback=loopback,
        abilities=replace(
            usual,
            tools=usual.tools if backend.tools is None else backend.tools,
            vision=usual.vision if backend.vision is None else backend.vision,
            spare_tools="none" if own else usual.spare_tools,
        ),
        completion_limit=preset.completion_limit if is_own else "max_tokens",
        own=own,
        query=query,
        signer=signer,
        # The SDKs read variables of OpenAI and Anthropic, also for servers that only speak their protocols.
        takes_environment=backend.type in ("openai", "anthropic") and (is_provider or not backend.base_url),
    )


_PATH_OF_REQUESTS = re.compile(r"(?:/chat)?/(?:completions|messages|responses|embeddings)$|(?<=/v1)/models$")
"""People copy the address of a request."""


def find_base_url(backend: BackendConfig, environ: Mapping[str, str]) -> str:
    """Return the address of a backend that is reached over HTTP, with its query; no key is needed.

    Raises ConfigError: the address is missing or wrong.
    """
    preset = PRESETS[backend.type]
    configured = backend.base_url or (environ.get(preset.url_variable) if preset.url_variable else None)
    address = trim_value(configured or "") or _fill_region(backend.type, preset, environ)
    if not address:
        raise ConfigError(
            [f"backend.base_url: {backend.type!r} needs the address of your endpoint"],
            f"Set backend.base_url or {preset.url_variable}, e.g. https://NAME.openai.azure.com",
        )
    name = "backend.base_url" if backend.base_url else preset.url_variable
    url, _, query = complete_address(address).partition("#")[0].partition("?")
    own = urlsplit(preset.base_url)
    if own.hostname and url.rstrip("/") in (own.hostname, f"https://{own.hostname}"):
        url = preset.base_url
    if not is_server_address(url):
        without_password = url[:200].rsplit("@", 1)[-1]
        raise ConfigError([f"{name}: {without_password!r} is not an http:// or https:// address"])
    url = _PATH_OF_REQUESTS.sub("", url.rstrip("/"))
    if preset.kind == "anthropic" and not preset.signer:
        url = url.removesuffix("/v1")  # each request adds it
    if backend.type == "azure_openai":
        # Addresses of before its version 1 name a deployment and a version, too.
        return re.sub(r"/openai(?:/.*)?$", "", url) + "/openai/v1"
    if backend.type == "ollama" and url.count("/") == 2:
        url = f"{url}/v1"  # its own tools want the address of the server alone
    return f"{url}?{query}" if query else url


_VERTEX_HOSTS = {"global": "aiplatform", "us": "aiplatform.us.rep", "eu": "aiplatform.eu.rep"}
"""Of its regions that have another host than the rest."""


def _fill_region(type_: BackendType, preset: Preset, environ: Mapping[str, str]) -> str:
    """Return the provider's own address. Raises ConfigError: it has regions, and no variable names one."""
    if not preset.region_variables:
        return preset.base_url
    region = next((value for name in preset.region_variables if (value := trim_value(environ.get(name, "")))), "")
    if not region:
        hint = f"Run `export {preset.region_variables[0]}=...` first, or set backend.base_url."
        raise ConfigError([f"backend.type: {type_!r} needs a region: {preset.region_variables[0]} is not set"], hint)
    host = _VERTEX_HOSTS.get(region) if type_ == "vertex" else None
    return preset.base_url.replace("{region}-aiplatform", host or "{region}-aiplatform").replace("{region}", region)


def _find_key(backend: BackendConfig, preset: Preset, environ: Mapping[str, str], *, required: bool) -> str:
    candidates = {"backend.api_key": backend.api_key.get_secret_value() if backend.api_key else ""}
    candidates |= {name: environ.get(name, "") for name in preset.key_variables}
    name, key = next(((name, key) for name, value in candidates.items() if (key := trim_value(value))), ("", ""))
    if not key and required:
        raise MissingKeyError(
            f"No API key for {backend.type!r}: {' or '.join(preset.key_variables)} is not set.",
            f"Run `massmem keys set {backend.type}` or `export {preset.key_variables[0]}=...`, or use the model on "
            "this machine with `backend: {type: local}`.",
        )
    if problem := find_key_problem(key, required=required):
        hint = f"Copy the key again into {preset.key_variables[0]}."
        raise MissingKeyError(f"The API key for {backend.type!r} in {name} {problem}.", hint)
    return key or NO_KEY


def _check_owner(key: str, type_: BackendType) -> None:
    """Raise MissingKeyError when a key is of another provider than the one whose own address it would be sent to."""
    own = PRESETS[type_]
    starts = {preset.key_start: name for name, preset in PRESETS.items() if preset.key_start}
    start = next((start for start in starts if key.startswith(start)), own.key_start)
    if start != own.key_start:
        other = starts[start]
        raise MissingKeyError(
            f"The API key for {type_!r} is one of {other!r}: it begins with {start!r}.",
            f"Set `type: {other}`, or put the key of {type_!r} into {own.key_variables[0]}.",
        )
