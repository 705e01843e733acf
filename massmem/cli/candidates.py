"""The models at hand: keys in the environment, model servers on this machine, the embedded model."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec

from massmem.config.load import EXAMPLES, PROVIDERS_BY_KEY, load_config
from massmem.config.models import BackendConfig, BackendType
from massmem.core.messages import ChatMessage, ChatRequest
from massmem.providers import Providers
from massmem.providers.base import ask
from massmem.providers.discovery import SERVER_NAMES, LocalServer, find_local_servers
from massmem.providers.weights import DEFAULT, models_folder, read_state

RUNTIME = "xllamacpp"
"""The package that runs the embedded model."""
PROBE_TOKENS = 64
"""Most tokens of the reply to a probe: a model that thinks first needs some to say anything."""
_PROBE_TIMEOUT = 60.0
_TEAM_SIZE = 3


@dataclass(frozen=True, slots=True)
class Draft:
    """A backend for a new configuration."""

    type: BackendType
    model: str = ""
    key: str = ""
    """The environment variable with the API key, "" for none."""
    base_url: str = ""
    """"" for the usual one of the type."""
    window: int | None = None
    """Tokens of the context window that the server reports now."""

    @property
    def name(self) -> str:
        return f"{self.type} {self.model}".strip()


@dataclass(frozen=True, slots=True)
class Choice:
    """A team that can be configured."""

    label: str
    backends: tuple[Draft, ...]
    models: tuple[Draft, ...] = ()
    """All models of the server, when the user can choose another one."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """What was found on this machine."""

    keys: tuple[Draft, ...]
    servers: tuple[LocalServer, ...]
    embedded: bool
    """The weights of the embedded model and its runtime are installed."""

    def list_choices(self) -> list[Choice]:
        """Return the possible teams, the best one first."""
        return [*_choices_of_keys(self.keys), *self._choices_of_servers(), *self._choices_of_weights()]

    def _choices_of_servers(self) -> Iterator[Choice]:
        for server in self.servers:
            models = _list_chat_models(server)
            if models:
                yield Choice(f"{models[0].model} of {SERVER_NAMES[server.type]} on this machine", models[:1], models)

    def _choices_of_weights(self) -> Iterator[Choice]:
        if self.embedded:
            yield Choice(f"{DEFAULT.name}, inside massmem: small, but no data leaves this machine", (Draft("local"),))


async def find_candidates(environ: Mapping[str, str]) -> Candidates:
    """Search the environment and this machine. Only loopback addresses are contacted, and no key is sent."""
    servers = await find_local_servers(environ)
    weights = read_state(models_folder() / DEFAULT.file, DEFAULT.sha256) == "verified"
    return Candidates(tuple(_find_keys(environ)), tuple(servers), weights and find_spec(RUNTIME) is not None)


async def probe_model(backend: BackendConfig) -> float:
    """Ask the model for one word; return the seconds that it took.

    Raises:
        MassmemError: it does not answer, see Providers.open and ChatProvider.stream.
    """
    limits = {
        "max_tokens": PROBE_TOKENS,
        "max_retries": 0,
        "timeout": min(backend.timeout, _PROBE_TIMEOUT),
        "thinking_tokens": None,
    }
    providers = Providers()
    started = time.monotonic()
    try:
        provider = await providers.open(backend.model_copy(update=limits))
        request = ChatRequest((ChatMessage("user", "Reply with the one word: ready"),), purpose="answer")
        await ask(provider, request)
    finally:
        await providers.close()
    return time.monotonic() - started


def _find_keys(environ: Mapping[str, str]) -> Iterator[Draft]:
    types: set[BackendType] = set()
    for variable, type_, model in PROVIDERS_BY_KEY:
        if environ.get(variable, "").strip() and type_ not in types:
            types.add(type_)
            yield Draft(type_, model or _example_model(type_), variable)


def _example_model(type_: BackendType) -> str:
    """Return the model of the shipped configuration for this type."""
    team, _ = load_config(f"{EXAMPLES}{type_}", {})
    return team.agents[0].backend.model


def _choices_of_keys(keys: Sequence[Draft]) -> Iterator[Choice]:
    if len(keys) > 1:
        # Models of different vendors make different mistakes. With two vendors, the first has two agents.
        council = tuple(keys[i % len(keys)] for i in range(_TEAM_SIZE))
        yield Choice("one council of " + ", ".join(draft.name for draft in dict.fromkeys(council)), council)
    for draft in keys:
        yield Choice(f"{draft.name} ({draft.key})", (draft,))


def _list_chat_models(server: LocalServer) -> tuple[Draft, ...]:
    """Return the models that chat; one that is loaded already, whose window is therefore known, comes first."""
    models = sorted((model for model in server.models if model.can_chat), key=lambda model: model.window is None)
    url = "" if server.has_usual_address else server.base_url
    return tuple(Draft(server.type, model.name, base_url=url, window=model.window) for model in models)
