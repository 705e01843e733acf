"""What can answer on this machine: keys in the environment, model servers on loopback, the embedded model."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec

from massmem.config.load import EXAMPLES, KEYED, load_config
from massmem.config.models import BackendType
from massmem.providers.loopback import NAMES, LocalServer, local_servers, places
from massmem.weights import DEFAULT, models_folder, state

LIBRARY = "xllamacpp"
_TEAM = 3


@dataclass(frozen=True, slots=True)
class Draft:
    """A backend to be written. key: the environment variable that holds it, "" for none. base_url: "" for the usual.

    window: tokens that the server says its model reads now, None when it does not say.
    """

    type: BackendType
    model: str = ""
    key: str = ""
    base_url: str = ""
    window: int | None = None

    @property
    def name(self) -> str:
        return f"{self.type} {self.model}".strip()


@dataclass(frozen=True, slots=True)
class Choice:
    """A team that could be written. models: others that the same server offers."""

    label: str
    backends: tuple[Draft, ...]
    models: tuple[Draft, ...] = ()


@dataclass(frozen=True, slots=True)
class Found:
    """keys: what is used with the key in each variable. embedded: its weights are here, and what runs them."""

    keys: tuple[Draft, ...]
    servers: tuple[LocalServer, ...]
    embedded: bool

    def choices(self) -> list[Choice]:
        """Teams, the best one first."""
        return [*_of_keys(self.keys), *self._of_servers(), *self._of_weights()]

    def _of_servers(self) -> Iterator[Choice]:
        for server in self.servers:
            models = _models(server)
            if models:
                yield Choice(f"{models[0].model} of {NAMES[server.type]} on this machine", models[:1], models)

    def _of_weights(self) -> Iterator[Choice]:
        if self.embedded:
            yield Choice(f"{DEFAULT.name}, inside massmem: small, but nothing leaves this machine", (Draft("local"),))


async def find(environ: Mapping[str, str]) -> Found:
    """Look everywhere at once; no address but loopback is contacted, and no key is sent anywhere."""
    servers = await local_servers(places(environ), environ)
    weights = state(models_folder() / DEFAULT.file, DEFAULT.sha256) == "verified"
    return Found(tuple(_keys(environ)), tuple(servers), weights and find_spec(LIBRARY) is not None)


def _keys(environ: Mapping[str, str]) -> Iterator[Draft]:
    told: set[BackendType] = set()
    for variable, kind, model in KEYED:
        if environ.get(variable, "").strip() and kind not in told:
            told.add(kind)
            yield Draft(kind, model or _shipped_model(kind), variable)


def _shipped_model(kind: BackendType) -> str:
    team, _ = load_config(f"{EXAMPLES}{kind}", {})
    return team.agents[0].backend.model


def _of_keys(keys: Sequence[Draft]) -> Iterator[Choice]:
    if len(keys) > 1:
        # Models of different makers make different mistakes. Where there are but two, the first speaks twice.
        council = tuple(keys[i % len(keys)] for i in range(_TEAM))
        yield Choice("one council of " + ", ".join(draft.name for draft in dict.fromkeys(council)), council)
    for draft in keys:
        yield Choice(f"{draft.name} ({draft.key})", (draft,))


def _models(server: LocalServer) -> tuple[Draft, ...]:
    """Those that chat; what is loaded already, as its known window tells, comes first."""
    offered = sorted((model for model in server.models if model.chats), key=lambda model: model.window is None)
    url = "" if server.usual else server.base_url
    return tuple(Draft(server.type, model.name, base_url=url, window=model.window) for model in offered)
