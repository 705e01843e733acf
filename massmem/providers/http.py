"""The HTTP client below the SDKs: one for each endpoint and key, and what its own exceptions mean."""

import ssl
from collections.abc import Awaitable, Callable, Mapping
from typing import Generic, TypeVar

import anyio
import httpx2  # noqa: TID253 - part of the two adapters; nothing else imports this module
from anyio.from_thread import start_blocking_portal

from massmem.config.models import BackendConfig
from massmem.errors import MalformedResponse, ProviderConnectionError, ProviderError, ProviderTimeout, RequestRejected
from massmem.providers.presets import Endpoint
from massmem.providers.retry import RetryBudget

_CONNECT_TIMEOUT = 10.0

# They leak through the SDKs while a reply is being read. The most derived class that is listed counts.
HTTP_ERRORS: Mapping[type[Exception], type[ProviderError]] = {
    httpx2.TimeoutException: ProviderTimeout,
    httpx2.TransportError: ProviderConnectionError,
    httpx2.UnsupportedProtocol: RequestRejected,
    httpx2.LocalProtocolError: RequestRejected,
    httpx2.SSEError: MalformedResponse,
    httpx2.DecodingError: MalformedResponse,
    httpx2.HTTPError: RequestRejected,
    httpx2.InvalidURL: RequestRejected,
    httpx2.CookieConflict: RequestRejected,
    httpx2.StreamError: ProviderConnectionError,
    ssl.SSLError: ProviderConnectionError,
    anyio.EndOfStream: ProviderConnectionError,
    OSError: ProviderConnectionError,
    # A chunk that is no JSON, no text, or nested without end.
    ValueError: MalformedResponse,
    RecursionError: MalformedResponse,
}

Client = TypeVar("Client")


class Pool(Generic[Client]):
    """The SDK clients of one provider kind: one per endpoint and key; one retry budget per endpoint."""

    def __init__(self, make: Callable[[Endpoint, httpx2.AsyncClient], Client]) -> None:
        self._make = make
        self._clients: dict[tuple[str, str], Client] = {}
        self._budgets: dict[str, RetryBudget] = {}

    def client(self, endpoint: Endpoint) -> Client:
        """The shared client; made (30 ms of TLS set-up) when it is the first for this endpoint and key."""
        key = (endpoint.base_url, endpoint.key)
        if key not in self._clients:
            if not self._clients:
                _load_backend()
            self._clients[key] = self._make(endpoint, http_client(endpoint))
        return self._clients[key]

    def budget(self, endpoint: Endpoint) -> RetryBudget:
        return self._budgets.setdefault(endpoint.base_url, RetryBudget())

    async def close(self, close: Callable[[Client], Awaitable[None]]) -> None:
        """Close all connections."""
        clients = list(self._clients.values())
        self._clients.clear()
        for client in clients:
            await close(client)


def timeouts(seconds: float) -> httpx2.Timeout:
    """Seconds without any byte; a connection that takes over 10 is not going to come."""
    return httpx2.Timeout(seconds, connect=min(seconds, _CONNECT_TIMEOUT))


def kind_of(error: Exception, table: Mapping[type[Exception], type[ProviderError]]) -> type[ProviderError]:
    """The entry of the most derived class of `error`, or of the HTTP client's error that it wraps, in the table."""
    cause = error.__cause__ if isinstance(error.__cause__, tuple(HTTP_ERRORS)) else error
    return next(table[cls] for cls in type(cause).__mro__ if cls in table)


def words(error: Exception, kind: type[ProviderError], backend: BackendConfig) -> str:
    """What happened, where the library itself says only "Connection error" or nothing."""
    if kind is ProviderTimeout:
        return f"no answer: not a byte for {backend.timeout:g} s, or no connection in {_CONNECT_TIMEOUT:g} s"
    cause = error.__cause__ or error
    return str(cause) or type(cause).__name__


def _load_backend() -> None:
    """Load what anyio imports at the first connection, which would be on the event loop (15 ms)."""
    _ = anyio.connect_tcp
    with start_blocking_portal():
        pass


def http_client(endpoint: Endpoint) -> httpx2.AsyncClient:
    """A client for one endpoint. Blocks for a moment."""
    # A redirect would carry the prompt to an address that nobody configured. A proxy is for the world outside.
    # Plain http has no certificates to verify, and loading them takes 30 to 80 ms.
    return httpx2.AsyncClient(
        verify=endpoint.base_url.startswith("https:"),
        follow_redirects=False,
        trust_env=not endpoint.loopback,
        limits=httpx2.Limits(max_connections=1000, max_keepalive_connections=100),
    )
