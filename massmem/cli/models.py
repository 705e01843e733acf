"""`massmem models`: the available models, and the weights of those that run on this machine."""

import asyncio
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from massmem.cli.options import AsJson, Config
from massmem.cli.setup import load_setup
from massmem.cli.streams import MB, notify, show_progress, write_json, write_out
from massmem.config.home import make_home, massmem_home
from massmem.config.models import BackendConfig, TeamConfig
from massmem.config.presets import PRESETS, BackendType
from massmem.core.errors import ConfigError, DownloadError, InputError, MassmemError, ProviderError
from massmem.core.text import is_web_address
from massmem.providers.discovery import find_local_servers
from massmem.providers.downloads import ask_hub_for_hash, fetch_weights, list_sources
from massmem.providers.endpoints import Endpoint, resolve
from massmem.providers.learnt import LearntModels
from massmem.providers.local import CONTEXT_WINDOW
from massmem.providers.pricing import fetch_prices, find_token_prices, list_name_of, read_date
from massmem.providers.weights import (
    DEFAULT,
    FETCH_COMMAND,
    KNOWN,
    LARGER,
    Weights,
    find_known_weights,
    models_folder,
    read_state,
    weights_from_url,
)
from massmem.render.text import pluralize
from massmem.session.registry import without_password

if TYPE_CHECKING:
    from massmem.providers.discovery import ListedModel

app = typer.Typer(no_args_is_help=True, help="List the available models; download those that run on this machine.")


@app.command("fetch")
def fetch_command(
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME|URL",
            help="A name of `massmem models list`, or a .gguf file on the web; for a backend with this `model:`.",
        ),
    ] = None,
    source: Annotated[
        str | None, typer.Option("--from", metavar="PATH|URL", help="Try this path or URL first.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Download a model, by default the embedded one (1.1 GB). Continues a download that was stopped."""
    weights = DEFAULT if model is None else _find_weights(model)
    is_present = read_state(models_folder() / weights.file, weights.sha256) == "verified"
    started = time.monotonic()
    if weights in LARGER and not is_present:
        weights = _learn_hash(weights, source)
    url = model if model and is_web_address(model) else None
    sources = list_sources(weights, *filter(None, (source, url)))
    with show_progress(weights.name, in_bytes=True) as progress:
        path = fetch_weights(weights, sources, models_folder(), progress, notify)
    seconds = time.monotonic() - started
    if as_json:
        write_json(_weights_to_dict(weights) | {"fetched": not is_present, "seconds": round(seconds, 1)})
    elif is_present:
        notify(f"{weights.name} is already there: {path}")
    else:
        notify(f"{weights.name} is ready after {seconds:.0f} s: {path}")


@app.command("list")
def list_command(
    config: Config = None,
    offline: Annotated[bool, typer.Option("--offline", help="Contact no server.")] = False,
    as_json: AsJson = False,
) -> None:
    """List the models at hand.

    These are the models that run inside massmem, and those that servers offer. Servers are the endpoints of the team,
    and Ollama, LM Studio, vLLM and llama.cpp at their usual ports here.
    """
    rows = [_weights_to_dict(weights) | {"source": "embedded", "context_window": CONTEXT_WINDOW} for weights in KNOWN]
    servers = [] if offline else asyncio.run(_query_servers(_load_team(config)))
    if as_json:
        write_json([*rows, *(row for server in servers for row in server.to_dicts())], indent=1)
    else:
        _print_models(rows, servers)
    for server in servers:
        if server.problem:
            notify(f"{server.type}: {server.problem}")
    if rows[0]["state"] != "verified" and not as_json:
        notify(f"get the embedded model with: {FETCH_COMMAND}; another one with: {FETCH_COMMAND} NAME")


@app.command("refresh")
def refresh_command(
    config: Config = None,
    source: Annotated[str, typer.Option("--from", metavar="URL", help="A mirror of the list of prices.")] = "",
    as_json: AsJson = False,
) -> None:
    """Fetch prices, windows and abilities of the newest models.

    Abilities are what the servers of the team say of their models. All are kept in ~/.massmem with their date. What the
    configuration says (price, context_window, tools) counts more.
    """
    home = massmem_home()
    make_home(home)
    servers = asyncio.run(_query_servers(_load_team(config)))
    learnt, known = LearntModels(home), 0
    for server in servers:
        listed = {model.name: model.abilities for model in server.models if model.abilities}
        if listed and server.endpoint is not None:
            learnt.remember_abilities(server.endpoint, listed)
            known += len(listed)
    problems = [f"{server.type}: {server.problem}" for server in servers if server.problem]
    priced, code = None, 0
    try:
        priced = fetch_prices(home, source)
    except ProviderError as e:
        code = e.exit_code
        problems.append(f"{e.message}; the prices of {read_date() or 'the installed release'} stay in use")
    offered = sum(len(server.models) for server in servers)
    if as_json:
        counts = {"prices": priced, "models": offered, "with_abilities": known, "date": read_date()}
        write_json({**counts, "problems": problems})
    else:
        if priced is not None:
            write_out(f"prices and windows of {priced:,} models\n")
        write_out(f"{offered:,} models of {pluralize(len(servers), 'server')}; {known:,} say what they can do\n")
    for problem in problems:
        notify(problem)
    raise typer.Exit(code)


@dataclass(frozen=True, slots=True)
class _ListedServer:
    type: BackendType
    base_url: str
    models: "tuple[ListedModel, ...]" = ()
    problem: str = ""
    """Why the models are unknown."""
    endpoint: Endpoint | None = None
    used: frozenset[str] = frozenset()
    """Models of this server that the team uses."""
    refusals: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    """In words, by model."""

    def to_dicts(self) -> list[dict[str, Any]]:
        return [
            {
                "name": model.name,
                "source": self.type,
                "base_url": self.base_url,
                "context_window": model.window,
                "chats": model.can_chat,
                "abilities": dict(model.abilities),
                "price": _price_to_dict(self.base_url, model.name),
                "used": model.name in self.used,
                "refusals": list(self.refusals.get(model.name, ())),
            }
            for model in self.models
        ]


def _price_to_dict(base_url: str, model: str) -> dict[str, float] | None:
    """Return the dollars for a million tokens by the list, None when they are not known."""
    provider = list_name_of(base_url)
    prices = find_token_prices(provider, model) if provider else None
    return None if prices is None else {"input": prices[0], "output": prices[1]}


async def _query_servers(team: TeamConfig | None) -> list[_ListedServer]:
    """Return the distinct servers of the team, then others on this machine."""
    servers = _find_servers(agent.backend for agent in team.agents) if team else []
    configured, local = await asyncio.gather(
        asyncio.gather(*map(_query_server, servers)), find_local_servers(os.environ)
    )
    known = {_normalize_host(server.base_url) for server in configured}
    others = [_ListedServer(s.type, s.base_url, s.models) for s in local if _normalize_host(s.base_url) not in known]
    return [*configured, *others]


def _find_servers(backends: Iterable[BackendConfig]) -> list[_ListedServer]:
    """Return the distinct servers with the models used there; one without an endpoint has a problem."""
    servers: dict[tuple[str, str], _ListedServer] = {}
    for backend in backends:
        if PRESETS[backend.type].kind not in ("openai", "anthropic"):
            continue
        try:
            endpoint = resolve(backend, os.environ)
            key, model = (endpoint.base_url, endpoint.key), endpoint.model
            server = _ListedServer(backend.type, endpoint.base_url, endpoint=endpoint)
        except MassmemError as e:
            key, model = (backend.type, ""), backend.model
            server = _ListedServer(backend.type, PRESETS[backend.type].base_url, problem=e.message)
        servers[key] = replace(server, used=servers.get(key, server).used | {model})
    return list(servers.values())


async def _query_server(server: _ListedServer) -> _ListedServer:
    if server.endpoint is None:
        return server
    from massmem.providers.discovery import list_models

    learnt, endpoint = LearntModels(massmem_home()), server.endpoint
    refusals = {model: learnt.describe_refusals(replace(endpoint, model=model)) for model in server.used}
    try:
        return replace(server, refusals=refusals, models=await list_models(server.type, endpoint))
    except MassmemError as e:
        return replace(server, refusals=refusals, problem=e.message)


def _normalize_host(url: str) -> str:
    return url.replace("127.0.0.1", "localhost").replace("[::1]", "localhost")


def _load_team(config: str | None) -> TeamConfig | None:
    """Return the team. An invalid default configuration is only reported: the list does not depend on it."""
    try:
        return load_setup(config).config
    except ConfigError as e:
        if config is not None:
            raise
        notify(e.message)
        return None


def _print_models(rows: Sequence[dict[str, Any]], servers: Sequence[_ListedServer]) -> None:
    for row in rows:
        size = f"{row['size'] / MB:,.0f} MB"
        path = "" if row["state"] == "missing" else f"\n  {row['path']}"
        write_out(f"{row['name']:<28} {size:>9}  {row['memory']:>4.1f} GB memory  {row['state']}{path}\n")
    for server in servers:
        if not server.problem:
            write_out(f"\n{server.type}, {without_password(server.base_url)}\n")
        width = max((len(model.name) for model in server.models), default=0)
        for model in server.models:
            window = f"{model.window:,} tokens" if model.window else "-"
            mark = "*" if model.name in server.used else " "
            price = _price_to_dict(server.base_url, model.name)
            dollars = f"${price['input']:g} in, ${price['output']:g} out" if price else ""
            abilities = ", ".join(name for name, value in model.abilities.items() if value)
            line = f"{mark} {model.name:<{width}}  {window:>16}  {dollars:<22} {abilities}"
            write_out(f"{line.rstrip()}\n")
        for model, lines in server.refusals.items():
            write_out("".join(f"  {model} {line}\n" for line in lines))
    if any(server.used for server in servers):
        notify("*: used by the team; dollars are for a million tokens")


def _learn_hash(weights: Weights, source: str | None) -> Weights:
    """Return the weights with the hash that the hub says; without it when the hub is away and the user has a source."""
    notify(f"{weights.name} needs {(weights.size or 0) / 1e9:.1f} GB of disk and {weights.memory:g} GB of memory")
    try:
        return ask_hub_for_hash(weights)
    except DownloadError as e:
        if source is None:
            raise
        notify(f"{e.message}; what comes from {without_password(source)} is taken without a comparison")
        return replace(weights, size=None)


def _find_weights(model: str) -> Weights:
    if is_web_address(model):
        return weights_from_url(model)
    known = find_known_weights(model)
    if known is None:
        names = [weights.name for weights in KNOWN]
        raise InputError(f"{model!r} is neither a known model nor an http(s) URL of one", f"known: {', '.join(names)}")
    return known


def _weights_to_dict(weights: Weights) -> dict[str, Any]:
    path = models_folder() / weights.file
    current = read_state(path, weights.sha256)
    size = weights.size if current == "missing" else path.stat().st_size
    return {
        "name": weights.name,
        "size": size,
        "memory": weights.memory or None,
        "state": current,
        "path": str(path),
        "sha256": weights.sha256,
    }
