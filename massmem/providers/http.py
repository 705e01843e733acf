"""Common part of the adapters of HTTP APIs: clients per endpoint and key, sending, reading a stream, and errors."""

import asyncio
import logging
import os
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Collection, Mapping
from contextlib import aclosing
from dataclasses import replace
from difflib import get_close_matches
from typing import Any, ClassVar
from urllib.parse import urlsplit

import httpx2

from massmem.config.models import BackendConfig
from massmem.config.presets import Abilities
from massmem.core.errors import (
    ModelNotFound,
    ProviderConnectionError,
    ProviderError,
    ProviderTimeout,
    RequestRejected,
    StreamInterrupted,
    ToolsRefused,
    WrongAddress,
)
from massmem.core.messages import ChatRequest, Chunk, NoticeChunk, RetryChunk, ToolCallChunk
from massmem.providers.base import AlwaysReady, ChatProvider, ProviderFactory
from massmem.providers.clients import CONNECT_TIMEOUT, HTTP_ERRORS, ApiClient, http_client, kind_of
from massmem.providers.dialects import ToolDialect, make_calls_portable, sign_call
from massmem.providers.discovery import read_models
from massmem.providers.endpoints import Endpoint, resolve
from massmem.providers.failures import (
    ErrorContext,
    ErrorReply,
    Refusal,
    describe_refusal,
    find_refusal,
    find_wrong_address,
    parse_error_body,
    parse_exhaustion,
    parse_json,
)
from massmem.providers.learnt import LearntModels
from massmem.providers.normaliser import Frames, ReplyReader
from massmem.providers.pricing import price_of
from massmem.providers.retry import LocalPauses, Pause, Pauses, Retrier, RetryBudget, RetryPolicy

log = logging.getLogger(__name__)

_USAGE_PATIENCE = 5.0
"""Seconds for the usage of a reply that is whole."""
OPENAI_TOOLS = 128
"""Tools of one request, at most, of OpenAI and Azure."""

_REFUSED = (400, 422, 500, 501)
"""Statuses with which servers refuse a tool; some fail over its schema."""

_LIST_PATIENCE = 3.0
"""Seconds for the list of models, when the one that was asked does not exist."""

_ERRORS = tuple(HTTP_ERRORS)


class ApiFactory(ProviderFactory):
    """Opens the providers of one API. Agents with the same endpoint and key share one client and its connections."""

    provider: ClassVar[type["ApiProvider"]]

    def __init__(self, learnt: LearntModels | None = None, pauses: Pauses | None = None) -> None:
        """learnt, pauses: as for `Providers`."""
        self._learnt = learnt or LearntModels()
        self._pauses = pauses or LocalPauses()
        self._clients: dict[tuple[str, ...], ApiClient] = {}
        self._connections: list[httpx2.AsyncClient] = []
        self._budgets: dict[str, RetryBudget] = {}

    def open(self, backend: BackendConfig) -> ChatProvider:
        """Return a provider. The first call blocks for up to two seconds (imports, TLS).

        Raises MissingKeyError, ConfigError: see endpoints.resolve; of what is signed, see signing.open_signed.
        """
        endpoint = resolve(backend, os.environ)
        same = endpoint.base_url, endpoint.query, endpoint.key, endpoint.signer
        if same not in self._clients:
            self._connections.append(http_client(endpoint))
            self._clients[same] = self._open_client(endpoint, self._connections[-1])
        budget = self._budgets.setdefault(endpoint.base_url, RetryBudget())
        pause = Pause.of(endpoint, self._pauses)
        return self.provider(self._clients[same], backend, endpoint, budget, pause, self._learnt)

    async def close(self) -> None:
        connections = self._connections.copy()
        self._connections.clear()
        self._clients.clear()
        for client in connections:
            await client.aclose()

    def _open_client(self, endpoint: Endpoint, connections: httpx2.AsyncClient) -> ApiClient:
        if endpoint.signer:
            from massmem.providers.signing import open_signed  # it has an SDK, which no key needs

            return open_signed(endpoint, connections)
        return ApiClient(endpoint.base_url, connections, self._write_headers(endpoint))

    @abstractmethod
    def _write_headers(self, endpoint: Endpoint) -> Mapping[str, str]:
        """Return the headers of each request, with the key."""


class ApiProvider(AlwaysReady, ABC):
    """A model behind an HTTP API."""

    def __init__(
        self,
        client: ApiClient,
        backend: BackendConfig,
        endpoint: Endpoint,
        budget: RetryBudget,
        pause: Pause,
        learnt: LearntModels,
    ) -> None:
        self.price = price_of(backend, os.environ)
        self._client = client
        self._backend = backend
        self._endpoint = endpoint
        self._context = ErrorContext(backend.type, endpoint.model, endpoint.key)
        self._learnt = learnt
        address = urlsplit(endpoint.base_url)
        self._owner = f"{address.hostname}:{address.port or ''} {endpoint.model}"
        is_gemini = backend.type == "gemini" or "gemini" in endpoint.model.lower()
        self._tools = ToolDialect(endpoint.model, is_gemini, OPENAI_TOOLS if endpoint.own else None)
        self._is_unmarked = False
        self._pause = pause
        self._retrier = Retrier(RetryPolicy.of(backend), budget, self.price, pause)

    @property
    def abilities(self) -> Abilities:
        """Those of the model that it has not refused."""
        abilities, vision = self._endpoint.abilities, self._backend.vision
        if vision is None:
            listed = self._learnt.find_abilities(self._endpoint).get("vision", abilities.vision)
            vision = False if self._refuses("pictures") else listed
        return replace(abilities, tools=abilities.tools and not self._refuses("tools"), vision=vision)

    async def stream(self, request: ChatRequest) -> AsyncGenerator[Chunk, None]:
        async with aclosing(self._retrier.stream(lambda: self._attempt(request), request.deadline)) as chunks:
            async for chunk in chunks:
                for text in self._tools.take_notices():
                    yield NoticeChunk(text)
                yield ToolCallChunk(sign_call(chunk.call, self._owner)) if isinstance(chunk, ToolCallChunk) else chunk

    @abstractmethod
    def _body(self, request: ChatRequest) -> dict[str, Any]: ...

    @abstractmethod
    async def _send(self, body: Mapping[str, Any]) -> httpx2.Response:
        """Return the reply. Raises as ApiClient.post."""

    @abstractmethod
    def _reader(self, request: ChatRequest, body: Mapping[str, Any]) -> ReplyReader:
        """Return the reader of the reply to a request that was sent as `body`."""

    def _error_reply(self, error: Exception) -> ErrorReply | None:
        """Return the error that the server sent, None for any other failure."""
        if not isinstance(error, httpx2.HTTPStatusError):
            return None
        reply = error.response
        return parse_error_body(reply.status_code, parse_json(reply.text), reply.reason_phrase, reply.headers)

    @abstractmethod
    def _list_refusable(self, body: Mapping[str, Any]) -> Mapping[Refusal, bool]:
        """Return what a model may refuse and `_body` can leave out or replace, and whether the body holds it."""

    def _refuses(self, refusal: Refusal) -> bool:
        """Whether the model has refused this before, or its server's list says that it cannot."""
        is_configured = refusal == "tools" and self._backend.tools is not None
        is_listed = is_configured or self._learnt.find_abilities(self._endpoint).get(refusal, True)
        return not is_listed or refusal in self._learnt.find_refusals(self._endpoint)

    def _adapt(self, request: ChatRequest, refused: Collection[Refusal] = ()) -> ChatRequest:
        """Return the request with its calls and tools as this server takes them. refused: by this request alone."""
        owner = "" if "this_state" in refused or self._refuses("state") else self._owner
        messages = tuple(make_calls_portable(request.messages, owner))
        return replace(request, messages=messages, tools=self._tools.write(request.tools))

    def _learn(self, error: Exception, request: ChatRequest, body: Mapping[str, Any], before: set[Refusal]) -> str:
        """Remember what the server refused of this body, so that later ones do without.

        request: as the body has it. before: what was refused of earlier bodies of this request; this one is added.
        Return the reason for another body, "" when another would not help.

        Raises:
            ToolsRefused: the request must be made without tools.
            RequestRejected: the model does not see pictures; without them it would answer another question.
        """
        reply = self._error_reply(error)
        if reply is None:
            return ""
        text = f"{reply.param} {reply.text}" if reply.status in _REFUSED and request.tools else ""
        if text and (reason := self._tools.learn(text, request.tools, named=True)):
            return reason
        states = [any(call.state for call in m.tool_calls) for m in request.messages if m.tool_calls]
        forms: Mapping[Refusal, bool] = {
            **self._list_refusable(body),
            "tools": "tools" in body and bool(request.tools),
            "pictures": any(message.attachments for message in request.messages),
            **dict.fromkeys(("this_state", "state"), any(states)),
            "calls_without_state": not all(states),
        }
        refusal = find_refusal(reply, [name for name, is_sent in forms.items() if is_sent])
        if refusal is None or refusal in before:
            return self._tools.learn(text, request.tools, named=False) if text else ""
        before.add(refusal)
        if refusal not in ("this_state", "calls_without_state"):  # which other calls may have
            self._learnt.remember_refusal(self._endpoint, refusal)
        if refusal in ("tools", "calls_without_state"):
            raise self._context.error(ToolsRefused, reply.text) from error
        if refusal == "pictures":
            raise self._context.error(RequestRejected, f"it does not see pictures: {reply.text}") from error
        return f"{self._endpoint.model} does not take {describe_refusal(refusal)}"

    async def _attempt(self, request: ChatRequest) -> AsyncGenerator[Chunk, None]:
        refused: set[Refusal] = set()
        while True:
            sent = self._adapt(request, refused)
            body = self._body(sent)
            try:
                async with asyncio.timeout(self._backend.timeout):
                    reply = await self._send(body)
                break
            except _ERRORS as e:
                reason = self._learn(e, sent, body, refused)
                if not reason:
                    raise await self._suggest_models(self._translate(e)) from e
                yield RetryChunk(reason, 0.0, 0)
        reader = self._reader(request, body)
        reader.held = "" if self._is_unmarked else None
        try:
            async with aclosing(self._read_reply(reply, reader, body)) as chunks:
                async for chunk in chunks:
                    yield chunk
        except ProviderError as e:
            e.usage = reader.find_usage()
            raise
        self._is_unmarked |= reader.is_unmarked

    async def _read_reply(
        self, reply: httpx2.Response, reader: ReplyReader, body: dict[str, Any]
    ) -> AsyncGenerator[Chunk, None]:
        """Yield the reply, with what the server sends when it is asked to go on."""
        while True:
            async with aclosing(reply), aclosing(self._read_stream(reply, reader)) as chunks:
                async for chunk in chunks:
                    yield chunk
            if (more := self._go_on(reader, body)) is None:
                break
            body = more
            try:
                async with asyncio.timeout(self._backend.timeout):
                    reply = await self._send(body)
            except _ERRORS as e:
                raise self._translate(e) from e
        for chunk in reader.close():
            yield chunk

    def _go_on(self, reader: ReplyReader, body: dict[str, Any]) -> dict[str, Any] | None:
        """Return the body of the request that goes on with a reply which the server has paused; None: it is whole."""
        return None

    async def _read_stream(self, response: httpx2.Response, reader: ReplyReader) -> AsyncGenerator[Chunk, None]:
        if seconds := parse_exhaustion(response.headers):
            await self._pause.begin(seconds)
        try:
            async with aclosing(self._receive(response, reader)) as events:
                async for event in events:
                    for chunk in reader.feed(event):
                        yield chunk
        except _ERRORS as e:
            if not reader.is_complete:
                raise self._translate(e, in_stream=True) from e

    async def _suggest_models(self, failure: ProviderError) -> ProviderError:
        """Return the failure; of a model that does not exist, with names near it from the server's own list."""
        if not isinstance(failure, ModelNotFound):
            return failure
        names: list[str] = []
        try:
            names = [model.name for model in await read_models(self._backend.type, self._endpoint, _LIST_PATIENCE)]
        except ProviderError as e:
            log.info("the models of %s could not be listed: %s", self._endpoint.base_url, type(e).__name__)
        near = get_close_matches(self._endpoint.model, names, 3, 0.5)
        return ModelNotFound(failure.message, f"Did you mean {' or '.join(near)}? {failure.hint}") if near else failure

    async def _receive(self, response: httpx2.Response, reader: ReplyReader) -> AsyncGenerator[Any, None]:
        """Yield the elements of a reply, whatever its content type.

        Raises TimeoutError when `backend.timeout` seconds bring no content: comments that keep a connection open, and
        bytes that never make an event, are none. After the end of the reply only its usage may be missing.
        """
        frames, blocks, clock = Frames(), response.aiter_bytes(), asyncio.get_running_loop().time
        latest, progress, patience = clock(), reader.progress, self._backend.timeout
        while True:
            async with asyncio.timeout_at(latest + patience):
                block = await anext(blocks, None)
            for element in frames.feed(block or b"", final=block is None):
                yield element
            if block is None:
                return
            if progress != reader.progress:
                latest, progress = clock(), reader.progress
                patience = min(self._backend.timeout, _USAGE_PATIENCE) if reader.is_complete else self._backend.timeout

    def _translate(self, error: Exception, *, in_stream: bool = False) -> ProviderError:
        if reply := self._error_reply(error):
            return reply.error(self._context)
        kind = kind_of(error)
        if in_stream and issubclass(kind, ProviderConnectionError):
            kind = StreamInterrupted
        if kind is ProviderTimeout:
            patience = f"nothing for {self._backend.timeout:g} s, or no connection in {CONNECT_TIMEOUT:g} s"
            return self._context.error(kind, f"no answer: {patience}")
        text = str(error) or type(error).__name__
        if not issubclass(kind, ProviderConnectionError):
            return self._context.error(kind, text)
        parts = urlsplit(self._endpoint.base_url)
        host = parts.hostname if parts.port is None else f"{parts.hostname}:{parts.port}"
        reason = find_wrong_address(error)
        return self._context.error(WrongAddress if reason else kind, f"{host}: {reason or text}")
