"""Models that run in this process, by llama.cpp (the library xllamacpp).

`_Engine` is the only code that touches the library. Its calls block, so they run in threads; they release the
interpreter lock, with one exception: while a model is being loaded (once, 1 to 3 seconds for a gigabyte) no other
thread of this process runs. The library also opens an HTTP port on loopback, behind a key that only this process
knows; massmem uses it only to count tokens, which has no call of its own.

Three slots need a fifth less time than one on a busy two-core machine, and the gap grows with the cores. A slot keeps
its agent's prompt, so that a vote reads only what is new; with more agents than slots, a cache in RAM keeps them.
Prompts are read 128 tokens at a time, which costs a tenth of the speed and lets a request be cancelled within a second
or two instead of at its first word.

Votes go one after another: their prompts are long, the same for agents with the same system message but for the last
line, and a slot reads only what differs from the prompt before. In parallel each slot would read the whole of it.
"""

import asyncio
import importlib
import importlib.util
import json
import math
import os
import secrets
import threading
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, nullcontext, suppress
from dataclasses import replace
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

from massmem.config.models import BackendConfig
from massmem.core.errors import (
    InputError,
    MalformedResponse,
    MissingModelError,
    ProviderConnectionError,
    ProviderError,
    ProviderTimeout,
    RequestRejected,
)
from massmem.core.messages import ActivityChunk, ChatRequest, Chunk, clean_text
from massmem.providers.base import Abilities, ProviderFactory, end_with_user
from massmem.providers.chat_reader import ChatReader
from massmem.providers.failures import ErrorContext
from massmem.providers.normaliser import Json
from massmem.providers.pricing import price_of
from massmem.providers.retry import Retrier, RetryBudget, RetryPolicy
from massmem.providers.weights import require_weights

LIBRARY = "xllamacpp"
CONTEXT_WINDOW = 4096
"""Tokens, unless the backend configures more."""

_SLOTS = 3
"""Requests that generate at the same time."""
_PROMPT_BATCH = 128
_PROMPT_CACHE_MIB = 256
_READ_BYTES = 8 << 20
_SHOW_SECONDS = 0.5
"""Seconds between two reports of what the model does before its first word."""
_TEMPERATURE = 0.3
_VOTE_TEMPERATURE = 0.0
"""Answers may differ from agent to agent, which gives a choice; what a small model thinks of them should not."""
_MAX_TOKENS = 512
# What the C++ exceptions of the library become in Python.
_NATIVE_ERRORS = (RuntimeError, ValueError, MemoryError, LookupError, ArithmeticError, OSError)


class LocalFactory(ProviderFactory):
    """Opens providers on models in this process. Each file and window is loaded once, however many agents use it."""

    def __init__(self) -> None:
        self._models: dict[tuple[Path, int], _Model] = {}

    def open(self, backend: BackendConfig) -> "LocalProvider":
        """Return a provider for one agent. Cheap: the first request loads the model.

        Raises MissingModelError: the weights are missing or not verified (the hint names the command that fetches
        them), or llama.cpp is not installed here.
        """
        if importlib.util.find_spec(LIBRARY) is None:
            raise _not_installed()
        key = (require_weights(backend.model).resolve(), backend.context_window or CONTEXT_WINDOW)
        if key not in self._models:
            self._models[key] = _Model(*key)
        return LocalProvider(self._models[key], backend)

    async def close(self) -> None:
        """Stop what is being generated and free the memory."""
        models = list(self._models.values())
        self._models.clear()
        for model in models:
            await model.close()


class LocalProvider:
    """One agent's access to a model in this process."""

    abilities = Abilities(tools=False, vision=False)

    def __init__(self, model: "_Model", backend: BackendConfig) -> None:
        self.price = price_of(backend, os.environ)
        self._model = model
        self._backend = backend
        # Nothing is retried: the same request would fail the same way here.
        # The model shares this machine with all agents: how long a reply takes depends on how many wait.
        policy = replace(RetryPolicy.of(backend), max_retries=0, deadline=backend.deadline or math.inf)
        self._retrier = Retrier(policy, RetryBudget(), self.price)

    async def prepare(self) -> AsyncGenerator[ActivityChunk, None]:
        async with aclosing(self._model.load()) as shares:
            async for share in shares:
                yield ActivityChunk("loading", share)

    def stream(self, request: ChatRequest) -> AsyncGenerator[Chunk, None]:
        return self._retrier.stream(lambda: self._attempt(request), request.deadline)

    async def count_prompt(self, request: ChatRequest) -> int | None:
        """Count with the model's own template and tokenizer: 3 ms per thousand tokens. Loads the model if needed."""
        try:
            return await self._model.count_prompt(_messages(request))
        except (ProviderConnectionError, MalformedResponse):
            return None

    async def _attempt(self, request: ChatRequest) -> AsyncGenerator[Chunk, None]:
        if request.tools:
            raise RequestRejected("local models take no tools", "ask for JSON with a schema instead")
        reader, shown_at = ChatReader(request, ErrorContext("local", self._model.name, "")), 0.0
        turn = self._model.votes if request.purpose == "vote" else nullcontext()
        events = self._model.chat(_body(request, self._backend), self._backend.timeout)
        async with turn, aclosing(events):
            async for event in events:
                for chunk in reader.feed(event):
                    yield chunk
                match event.get("prompt_progress"):
                    case {"total": int(total), "processed": int(read)} if total:
                        if time.monotonic() >= shown_at + _SHOW_SECONDS:
                            shown_at = time.monotonic()
                            yield ActivityChunk("reading", read / total)
                    case _:
                        pass
        for chunk in reader.close():
            yield chunk


class _Model:
    """One loaded model and its queue. A thread per slot; what waits for a slot costs nothing to cancel."""

    def __init__(self, path: Path, window: int) -> None:
        self.name = path.name
        self.votes = asyncio.Lock()
        """Held by the one vote that is being written."""
        self._path = path
        self._window = window
        self._threads = ThreadPoolExecutor(_SLOTS, "massmem-local")
        self._engine: asyncio.Future[_Engine] | None = None
        self._closing = threading.Event()
        self._share: float | None = None
        """Of the file, how much has been read; None when all is."""

    async def load(self) -> AsyncGenerator[float | None, None]:
        """Load the model unless it is loaded, and yield how much of the file is read, None at the end of it."""
        if self._engine is not None and self._engine.done():
            return
        loading = asyncio.ensure_future(self._load())
        try:
            while not loading.done():
                yield self._share
                await asyncio.wait({loading}, timeout=_SHOW_SECONDS)
            await loading
        finally:
            loading.cancel()

    async def chat(self, body: Json, patience: float) -> AsyncGenerator[Json, None]:
        """Yield the events of one request. Closing the generator ends it at the next token or prompt batch.

        patience: seconds without an event, counted from the first one.
        """
        engine = await self._load()
        loop = asyncio.get_running_loop()
        events: asyncio.Queue[Json | None] = asyncio.Queue()
        stopped = threading.Event()

        def on_event(event: Json) -> bool:
            if stopped.is_set() or self._closing.is_set():
                return True
            loop.call_soon_threadsafe(events.put_nowait, event)
            return False

        call = loop.run_in_executor(self._threads, engine.chat, body, on_event)
        call.add_done_callback(lambda _: events.put_nowait(None))
        try:
            # No limit for the first event: it comes when a slot is free, and others may be generating.
            event = await events.get()
            while event is not None:
                yield event
                async with asyncio.timeout(patience):
                    event = await events.get()
            await call
        except TimeoutError as e:
            raise ProviderTimeout(
                f"{self.name} said nothing for {patience:g} s", "raise `timeout:` of the backend"
            ) from e
        finally:
            stopped.set()
            call.cancel()

    async def count_prompt(self, messages: Sequence[Json]) -> int:
        engine = await self._load()
        return await asyncio.to_thread(engine.count_prompt, messages)

    async def close(self) -> None:
        self._closing.set()
        # Waits for threads that are in the middle of a batch: the model must outlive them.
        await asyncio.to_thread(self._threads.shutdown, wait=True, cancel_futures=True)
        loading, self._engine = self._engine, None
        if loading is not None and loading.done() and not loading.cancelled() and loading.exception() is None:
            await asyncio.to_thread(loading.result().close)

    async def _load(self) -> "_Engine":
        if self._engine is None:
            self._engine = asyncio.get_running_loop().run_in_executor(self._threads, self._open)
        # One waiter may be cancelled; the others still want the model.
        return await asyncio.shield(self._engine)

    def _open(self) -> "_Engine":
        """Load the model, in a thread.

        No other thread runs while the library loads, so nothing could be shown if the disk were slow: the file is read
        before, which leaves it in the memory of the system.
        """
        with suppress(OSError), self._path.open("rb", buffering=0) as file:  # the library says what is wrong with it
            size, part = self._path.stat().st_size, bytearray(_READ_BYTES)
            while (count := file.readinto(part)) and not self._closing.is_set():
                self._share = (self._share or 0.0) + count / size
        self._share = None
        return _Engine(self._path, self._window)


class _Engine:
    """The library, which has no type stubs, behind a few typed calls. All of them block."""

    def __init__(self, path: Path, window: int) -> None:
        """Load the model. Raises MissingModelError: the library does not run here, or cannot read the file."""
        # Threads that wait for one another spin for milliseconds by default, which takes the core from whoever they
        # wait for when another program is busy: so a request takes half the time beside two of them. OpenMP reads this
        # once, when it is loaded.
        os.environ.setdefault("GOMP_SPINCOUNT", "1000")
        try:
            library = cast(Any, importlib.import_module(LIBRARY))
        except ImportError as e:
            raise _not_installed() from e
        self._key = secrets.token_urlsafe(24)
        try:
            self._server: Any = library.Server(_parameters(library, path, window, self._key))
        except _NATIVE_ERRORS as e:
            hint = "it is damaged, not a language model, or too large for this machine's memory"
            raise MissingModelError(f"llama.cpp cannot load {path}", hint) from e
        self._address = urlsplit(str(self._server.listening_address))

    def chat(self, body: Json, on_event: Callable[[Json], bool]) -> None:
        """Run one request; on_event gets its chunks, or its error, and returns True to stop it."""
        try:
            self._server.handle_chat_completions(dict(body), on_event)
        except ValueError as e:
            raise RequestRejected(f"llama.cpp cannot use this request: {e}") from e
        except _NATIVE_ERRORS as e:
            raise ProviderError(f"llama.cpp failed: {e or type(e).__name__}") from e

    def count_prompt(self, messages: Sequence[Json]) -> int:
        prompt = self._post("/apply-template", {"messages": messages}, "prompt")
        return len(self._post("/tokenize", {"content": prompt, "add_special": True, "parse_special": True}, "tokens"))

    def close(self) -> None:
        """Free the memory; no call may be running."""
        self._server = None

    def _post(self, path: str, body: Json, field: str) -> Any:
        """Return one field of the reply of the library's own port."""
        connection = HTTPConnection(self._address.hostname or "", self._address.port, timeout=60)
        headers = {"Authorization": f"Bearer {self._key}", "Content-Type": "application/json"}
        try:
            connection.request("POST", path, json.dumps(body), headers)
            return json.loads(connection.getresponse().read())[field]
        except (OSError, HTTPException) as e:
            raise ProviderConnectionError(f"the local tokenizer does not answer: {e}") from e
        except (ValueError, KeyError) as e:
            raise MalformedResponse("the local tokenizer sent no tokens") from e
        finally:
            connection.close()


def _parameters(library: Any, path: Path, window: int, key: str) -> Any:
    parameters = library.CommonParams()
    parameters.model.path = str(path)
    # The window is divided among the slots.
    parameters.n_ctx = window * _SLOTS
    parameters.n_parallel = _SLOTS
    parameters.n_batch = parameters.n_ubatch = _PROMPT_BATCH
    parameters.cache_ram_mib = _PROMPT_CACHE_MIB
    for threads in (parameters.cpuparams, parameters.cpuparams_batch):
        threads.n_threads = os.cpu_count() or 1
        threads.poll = 1  # per cent; as GOMP_SPINCOUNT, where llama.cpp has threads of its own
    # Would load the model a first time to find out what fits, a second or more.
    parameters.fit_params = False
    parameters.verbosity = -1
    parameters.port = 0
    parameters.api_keys = [key]
    parameters.ui = False
    parameters.endpoint_slots = False
    return parameters


def _body(request: ChatRequest, backend: BackendConfig) -> dict[str, Any]:
    temperature = next((t for t in (request.temperature, backend.temperature) if t is not None), _TEMPERATURE)
    body: dict[str, Any] = {
        "messages": _messages(request),
        "temperature": _VOTE_TEMPERATURE if request.purpose == "vote" else temperature,
        # Always bounded: a small model that loops would otherwise fill its window.
        "max_tokens": request.max_tokens or backend.max_tokens or _MAX_TOKENS,
        "stream": True,
        "stream_options": {"include_usage": True},
        # An event per prompt batch: without it a request could not be stopped before its first word.
        "return_progress": True,
    }
    if request.schema is not None:
        body["response_format"] = {"type": "json_schema", "json_schema": {"schema": dict(request.schema)}}
    return body


def _messages(request: ChatRequest) -> list[dict[str, str]]:
    """Tool calls and results of other models become plain text: a local template may not know them."""
    messages: list[dict[str, str]] = []
    for message in end_with_user(request.messages):
        calls = [f"{call.name}({call.arguments})" for call in message.tool_calls]
        role = "user" if message.role == "tool" else message.role
        messages.append({"role": role, "content": clean_text("\n".join(filter(None, (message.content, *calls))))})
    return messages


def _not_installed() -> InputError:
    return MissingModelError(
        "local models need the library xllamacpp, which is not installed or does not run on this machine",
        "pip install 'massmem[local]', or use another backend: ollama, lmstudio, openai, anthropic",
    )
