"""What the adapters of HTTP APIs share: clients per endpoint and key, sending, reading a stream, and errors."""

import os
import ssl
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Iterator, Mapping
from typing import Any, ClassVar, Generic, TypeVar

import anyio
import httpx2

from massmem.config.models import BackendConfig
from massmem.core.errors import (
    MalformedResponse,
    ProviderConnectionError,
    ProviderError,
    ProviderTimeout,
    RequestRejected,
    StreamInterrupted,
)
from massmem.core.messages import ChatRequest, Chunk, FinishChunk, FinishReason, RetryChunk, Usage
from massmem.providers.base import ChatProvider, ProviderFactory
from massmem.providers.failures import ErrorContext, ErrorReply
from massmem.providers.presets import Endpoint, resolve
from massmem.providers.pricing import price_of
from massmem.providers.retry import Retrier, RetryBudget, RetryPolicy

_CONNECT_TIMEOUT = 10.0
"""Seconds."""

# SDKs let these through while a reply is being read.
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
SdkStream = Any
"""AsyncStream of the SDK in use; those of openai and anthropic have no base class in common."""


class ApiFactory(ProviderFactory, Generic[Client]):
    """Opens the providers of one API. Agents with the same endpoint and key share one client and its connections."""

    def __init__(self) -> None:
        self._clients: dict[tuple[str, str], Client] = {}
        self._connections: list[httpx2.AsyncClient] = []
        self._budgets: dict[str, RetryBudget] = {}

    def open(self, backend: BackendConfig) -> ChatProvider:
        """Return a provider. The first call blocks for up to two seconds (imports, TLS).

        Raises:
            MissingKeyError, ConfigError: see presets.resolve.
        """
        endpoint = resolve(backend, os.environ)
        client = self._clients.get((endpoint.base_url, endpoint.key))
        if client is None:
            connections = http_client(endpoint)
            self._connections.append(connections)
            client = self._clients[endpoint.base_url, endpoint.key] = self._make_client(endpoint, connections)
        budget = self._budgets.setdefault(endpoint.base_url, RetryBudget())
        return self._make_provider(client, backend, endpoint, budget)

    async def close(self) -> None:
        connections = self._connections.copy()
        self._connections.clear()
        self._clients.clear()
        for client in connections:
            await client.aclose()

    @abstractmethod
    def _make_client(self, endpoint: Endpoint, connections: httpx2.AsyncClient) -> Client: ...

    @abstractmethod
    def _make_provider(
        self, client: Client, backend: BackendConfig, endpoint: Endpoint, budget: RetryBudget
    ) -> ChatProvider: ...


class ReplyReader(ABC):
    """Turns the events of one reply into chunks."""

    finish_reasons: ClassVar[Mapping[str, FinishReason]]
    """The server's words for the end of a reply; any other is a stop."""
    failures: ClassVar[Mapping[str, type[ProviderError]]]
    """Words for the end of a reply that is no reply."""

    def __init__(self, context: ErrorContext) -> None:
        self._context = context
        self._finish = ""

    @property
    def is_complete(self) -> bool:
        """The finish reason has arrived; only the usage may be missing."""
        return bool(self._finish)

    def feed(self, event: Any) -> Iterator[Chunk]:
        try:
            yield from self._read(event)
        except (AttributeError, TypeError) as e:
            # Nothing checks the shape of what servers send; an unknown one fails here.
            raise self._context.error(MalformedResponse, "an event of the reply has an unknown form") from e

    def close(self) -> Iterator[Chunk]:
        """Yield the last chunks.

        Raises:
            StreamInterrupted: there was no finish reason.
            ProviderError: the finish reason is a failure.
        """
        if not self._finish:
            raise self._context.error(StreamInterrupted, "the stream ended without a finish reason")
        if kind := self.failures.get(self._finish):
            raise self._context.error(kind, f"the server ended the reply early ({self._finish})")
        yield from self._last_chunks()
        yield FinishChunk(self.finish_reasons.get(self._finish, "stop"), self._usage())

    @abstractmethod
    def _read(self, event: Any) -> Iterator[Chunk]:
        """Yield the chunks of one event and note its finish reason and usage."""

    def _last_chunks(self) -> Iterator[Chunk]:
        """Yield what was held back until the end of the stream."""
        yield from ()

    @abstractmethod
    def _usage(self) -> Usage: ...


class ApiProvider(ABC, Generic[Client]):
    """A model behind an HTTP API, used through the API's SDK."""

    sdk_errors: ClassVar[Mapping[type[Exception], type[ProviderError]]]
    """Exceptions of the SDK and of the HTTP client below it. The most derived class counts."""

    def __init__(self, client: Client, backend: BackendConfig, endpoint: Endpoint, budget: RetryBudget) -> None:
        self.abilities = endpoint.abilities
        self.price = price_of(backend, os.environ)
        self._client = client
        self._backend = backend
        self._endpoint = endpoint
        self._context = ErrorContext(backend.type, endpoint.model, endpoint.key)
        self._retrier = Retrier(RetryPolicy(backend.max_retries), budget, self.price)

    def stream(self, request: ChatRequest) -> AsyncGenerator[Chunk, None]:
        return self._retrier.stream(lambda: self._attempt(request))

    @abstractmethod
    async def count_prompt(self, request: ChatRequest) -> int | None: ...

    @abstractmethod
    def _body(self, request: ChatRequest) -> dict[str, Any]: ...

    @abstractmethod
    async def _send(self, body: Mapping[str, Any]) -> SdkStream: ...

    @abstractmethod
    def _reader(self, request: ChatRequest) -> ReplyReader: ...

    @abstractmethod
    def _error_reply(self, error: Exception) -> ErrorReply | None:
        """Return the error that the server sent, None for any other failure."""

    def _adapt(self, error: Exception, body: Mapping[str, Any]) -> str:
        """Change what later bodies hold after the server refused this one.

        Return the reason, or "" when nothing can be changed.
        """
        return ""

    async def _attempt(self, request: ChatRequest) -> AsyncGenerator[Chunk, None]:
        sdk_errors = tuple(self.sdk_errors)
        while True:
            body = self._body(request)
            try:
                stream = await self._send(body)
                break
            except sdk_errors as e:
                reason = self._adapt(e, body)
                if not reason:
                    raise self._translate(e) from e
                yield RetryChunk(reason, 0.0, 0)
        reader = self._reader(request)
        async with stream:
            self._check_content_type(stream)
            try:
                async for event in stream:
                    for chunk in reader.feed(event):
                        yield chunk
            except sdk_errors as e:
                if not reader.is_complete:
                    raise self._translate(e, in_stream=True) from e
        for chunk in reader.close():
            yield chunk

    def _check_content_type(self, stream: SdkStream) -> None:
        content_type = str(stream.response.headers.get("content-type", "text/event-stream"))
        if "text/event-stream" not in content_type:
            raise self._context.error(MalformedResponse, f"answered with {content_type} instead of an event stream")

    def _translate(self, error: Exception, *, in_stream: bool = False) -> ProviderError:
        if reply := self._error_reply(error):
            return reply.error(self._context)
        kind = kind_of(error, self.sdk_errors)
        if in_stream and issubclass(kind, ProviderConnectionError):
            kind = StreamInterrupted
        if kind is ProviderTimeout:
            patience = f"not a byte for {self._backend.timeout:g} s, or no connection in {_CONNECT_TIMEOUT:g} s"
            return self._context.error(kind, f"no answer: {patience}")
        cause = error.__cause__ or error  # the SDK itself says only "Connection error"
        return self._context.error(kind, str(cause) or type(cause).__name__)


def http_client(endpoint: Endpoint) -> httpx2.AsyncClient:
    """Return a client for one endpoint. Blocks for a moment."""
    # A redirect would carry the prompt to an address that nobody configured. A proxy is for the world outside.
    # Plain http has no certificates to verify, and loading them takes 30 to 80 ms.
    return httpx2.AsyncClient(
        verify=endpoint.base_url.startswith("https:"),
        follow_redirects=False,
        trust_env=not endpoint.loopback,
        limits=httpx2.Limits(max_connections=1000, max_keepalive_connections=100),
    )


def timeouts(seconds: float) -> httpx2.Timeout:
    """Return the limits of a request: seconds without any byte, and 10 seconds at most for the connection."""
    return httpx2.Timeout(seconds, connect=min(seconds, _CONNECT_TIMEOUT))


def kind_of(error: Exception, table: Mapping[type[Exception], type[ProviderError]]) -> type[ProviderError]:
    """Return the table's entry for the most derived class of `error`, or of the HTTP error that it wraps."""
    cause = error.__cause__ if isinstance(error.__cause__, tuple(HTTP_ERRORS)) else error
    return next(table[cls] for cls in type(cause).__mro__ if cls in table)
