"""Models that run in this process, by llama.cpp (the library xllamacpp).

Everything that touches the library is in `_Engine`. Its calls block, so they run in threads; they release the
interpreter lock, with one exception: while a model is being loaded (once, 1 to 3 seconds for a gigabyte) no other
thread of this process runs. The library also opens an HTTP port on loopback, behind a key that only this process
knows; we use it for nothing but counting tokens, which has no call of its own.

How requests share the machine, as measured with the 1.5B model and three agents on one thread of a busy two-core
machine: one slot needed 39 s for three answers and 38 s for three votes, three slots 31 s and 34 s, and the gap grows
with the cores. A slot keeps its agent's prompt, so that the vote read only 162 of 340 tokens again; more agents than
slots find theirs in a cache in RAM. Without any cache the votes took 55 s. Prompts are read 128 tokens at a time,
which costs a tenth of the speed and lets a request be cancelled within a second or two instead of at its first word.
"""

import asyncio
import importlib
import importlib.util
import json
import os
import secrets
import threading
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from massmem.config.models import BackendConfig
from massmem.errors import (
    ContextOverflow,
    InputError,
    MalformedResponse,
    MissingModelError,
    ProviderConnectionError,
    ProviderError,
    ProviderTimeout,
    ProviderUnavailable,
    RequestRejected,
    StreamInterrupted,
)
from massmem.messages import ChatMessage, ChatRequest, Usage, clean_text
from massmem.providers.ending import with_user_last
from massmem.replies import Chunk, FinishChunk, FinishReason, TextChunk
from massmem.weights import require

SLOTS = 3
CONTEXT_WINDOW = 4096
PROMPT_BATCH = 128
PROMPT_CACHE_MIB = 256
TEMPERATURE = 0.3
MAX_TOKENS = 512
LIBRARY = "xllamacpp"
# What the C++ exceptions of the library become in Python.
NATIVE_ERRORS = (RuntimeError, ValueError, MemoryError, LookupError, ArithmeticError, OSError)

Json = Mapping[str, Any]


class LocalRuntimes:
    """The models of one process: each file and window is loaded once, however many agents use it."""

    def __init__(self) -> None:
        self._models: dict[tuple[Path, int], _Model] = {}

    def open(self, backend: BackendConfig) -> "LocalProvider":
        """A provider for one agent. Cheap: the model is loaded by the first request.

        Raises:
            MissingModelError: the weights are not there or not verified; names the command that fetches them.
            InputError: llama.cpp is not installed here.
        """
        if importlib.util.find_spec(LIBRARY) is None:
            raise _not_installed()
        key = (require(backend.model).resolve(), backend.context_window or CONTEXT_WINDOW)
        if key not in self._models:
            self._models[key] = _Model(*key)
        return LocalProvider(self._models[key], backend)

    async def close(self) -> None:
        """Stop what is being generated and give the memory back."""
        models = list(self._models.values())
        self._models.clear()
        for model in models:
            await model.close()


class LocalProvider:
    """One agent's view of a model in this process."""

    native_tools = False

    def __init__(self, model: "_Model", backend: BackendConfig) -> None:
        self._model = model
        self._backend = backend

    async def stream(self, request: ChatRequest) -> AsyncGenerator[Chunk]:
        """See ChatProvider. Nothing is retried: the same request would fail the same way here."""
        if request.tools:
            raise RequestRejected("local models take no tools", "ask for JSON with a schema instead")
        reply = _Reply(self._model.name)
        events = self._model.chat(_payload(request, self._backend), self._backend.timeout)
        try:
            async for event in events:
                if text := reply.feed(event):
                    yield TextChunk(text)
        finally:
            await events.aclose()
        yield reply.finish()

    async def count_prompt(self, request: ChatRequest) -> int | None:
        """By the model's own template and tokenizer: 3 ms a thousand tokens. Loads the model when nobody has."""
        try:
            return await self._model.count_prompt(_messages(request))
        except (ProviderConnectionError, MalformedResponse):
            return None

    async def count_tokens(self, text: str) -> int:
        """Tokens of text by the model's own tokenizer, without the marks of a chat around it."""
        return await self._model.count_tokens(clean_text(text))


class _Reply:
    """Reads the events of one request; keeps what a failure has to tell."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._text: list[str] = []
        self._reason: FinishReason | None = None
        self._usage: Json = {}

    def feed(self, event: Json) -> str:
        """The text that this event adds, "" for none."""
        if "error" in event or "choices" not in event:
            raise _failure(event, "".join(self._text))
        self._usage = event.get("usage") or self._usage
        piece = ""
        for choice in event["choices"]:
            piece += choice.get("delta", {}).get("content") or ""
            if choice.get("finish_reason"):
                self._reason = "length" if choice["finish_reason"] == "length" else "stop"
        self._text.append(piece)
        return piece

    def finish(self) -> FinishChunk:
        if self._reason is None:
            raise StreamInterrupted(f"{self._model} stopped in the middle of its reply", partial="".join(self._text))
        cached: Json = self._usage.get("prompt_tokens_details", {})
        usage = Usage(
            prompt=self._usage.get("prompt_tokens", 0),
            completion=self._usage.get("completion_tokens", 0),
            cached=cached.get("cached_tokens", 0),
            requests=1,
            reported=bool(self._usage),
        )
        return FinishChunk(self._reason, usage)


class _Model:
    """One loaded model and its queue. A thread per slot; what waits for a slot costs nothing to cancel."""

    def __init__(self, path: Path, window: int) -> None:
        self.name = path.name
        self._path = path
        self._window = window
        self._threads = ThreadPoolExecutor(SLOTS, "massmem-local")
        self._engine: asyncio.Future[_Engine] | None = None
        self._closing = threading.Event()

    async def chat(self, payload: Json, patience: float) -> AsyncGenerator[Json]:
        """Yield the events of one request. Closing the generator ends it at the next token or prompt batch.

        patience: seconds without an event, counted from the first one, until it is given up.
        """
        engine = await self._loaded()
        loop = asyncio.get_running_loop()
        arrived: asyncio.Queue[Json | None] = asyncio.Queue()
        stopped = threading.Event()

        def on_event(event: Json) -> bool:
            if stopped.is_set() or self._closing.is_set():
                return True
            loop.call_soon_threadsafe(arrived.put_nowait, event)
            return False

        call = loop.run_in_executor(self._threads, engine.chat, payload, on_event)
        call.add_done_callback(lambda _: arrived.put_nowait(None))
        try:
            # No limit for the first event: it comes when a slot is free, and others may be generating.
            event = await arrived.get()
            while event is not None:
                yield event
                async with asyncio.timeout(patience):
                    event = await arrived.get()
            await call
        except TimeoutError as e:
            raise ProviderTimeout(
                f"{self.name} said nothing for {patience:g} s", "raise `timeout:` of the backend"
            ) from e
        finally:
            stopped.set()
            call.cancel()

    async def count_tokens(self, text: str) -> int:
        engine = await self._loaded()
        return await asyncio.to_thread(engine.count_tokens, text)

    async def count_prompt(self, messages: Sequence[Json]) -> int:
        engine = await self._loaded()
        return await asyncio.to_thread(engine.count_prompt, messages)

    async def close(self) -> None:
        self._closing.set()
        # Waits for threads that are in the middle of a batch: the model must outlive them.
        await asyncio.to_thread(self._threads.shutdown, wait=True, cancel_futures=True)
        loading, self._engine = self._engine, None
        if loading is not None and loading.done() and not loading.cancelled() and loading.exception() is None:
            await asyncio.to_thread(loading.result().close)

    async def _loaded(self) -> "_Engine":
        if self._engine is None:
            loop = asyncio.get_running_loop()
            self._engine = loop.run_in_executor(self._threads, _Engine, self._path, self._window)
        # One waiter may be cancelled; the others still want the model.
        return await asyncio.shield(self._engine)


class _Engine:
    """The library, which has no type stubs, behind a few typed calls. All of them block."""

    def __init__(self, path: Path, window: int) -> None:
        """Load the model.

        Raises:
            InputError: the library does not run here. MissingModelError: it cannot read the file.
        """
        try:
            library = cast(Any, importlib.import_module(LIBRARY))
        except ImportError as e:
            raise _not_installed() from e
        self._key = secrets.token_urlsafe(24)
        try:
            self._server: Any = library.Server(_parameters(library, path, window, self._key))
        except NATIVE_ERRORS as e:
            hint = "it is damaged, not a language model, or too large for this machine's memory"
            raise MissingModelError(f"llama.cpp cannot load {path}", hint) from e
        self._address = urlsplit(str(self._server.listening_address))

    def chat(self, payload: Json, on_event: Callable[[Json], bool]) -> None:
        """Run one request; on_event gets its chunks, or its error, and returns True to stop it."""
        try:
            self._server.handle_chat_completions(dict(payload), on_event)
        except ValueError as e:
            raise RequestRejected(f"llama.cpp cannot use this request: {e}") from e
        except NATIVE_ERRORS as e:
            raise ProviderError(f"llama.cpp failed: {e or type(e).__name__}") from e

    def count_tokens(self, text: str) -> int:
        return len(self._ask("/tokenize", {"content": text}, "tokens"))

    def count_prompt(self, messages: Sequence[Json]) -> int:
        prompt = self._ask("/apply-template", {"messages": messages}, "prompt")
        return len(self._ask("/tokenize", {"content": prompt, "add_special": True, "parse_special": True}, "tokens"))

    def _ask(self, path: str, body: Json, field: str) -> Any:
        """One field of the answer of the library's own port."""
        connection = HTTPConnection(self._address.hostname or "", self._address.port, timeout=60)
        headers = {"Authorization": f"Bearer {self._key}", "Content-Type": "application/json"}
        try:
            connection.request("POST", path, json.dumps(body), headers)
            return json.loads(connection.getresponse().read())[field]
        except (OSError, HTTPException) as e:
            raise ProviderConnectionError(f"the local tokenizer does not answer: {e}") from e
        except (ValueError, KeyError) as e:
            raise MalformedResponse("the local tokenizer answered something else than tokens") from e
        finally:
            connection.close()

    def close(self) -> None:
        """Give the memory back; no call may be running."""
        self._server = None


def _parameters(library: Any, path: Path, window: int, key: str) -> Any:
    parameters = library.CommonParams()
    parameters.model.path = str(path)
    # The window is divided among the slots.
    parameters.n_ctx = window * SLOTS
    parameters.n_parallel = SLOTS
    parameters.n_batch = parameters.n_ubatch = PROMPT_BATCH
    parameters.cache_ram_mib = PROMPT_CACHE_MIB
    # One core stays free: with all of them busy, a second program makes llama.cpp ten times slower.
    threads = max(1, (os.cpu_count() or 2) - 1)
    parameters.cpuparams.n_threads = threads
    parameters.cpuparams_batch.n_threads = threads
    # Would load the model a first time to find out what fits, a second or more.
    parameters.fit_params = False
    parameters.verbosity = -1
    parameters.port = 0
    parameters.api_keys = [key]
    parameters.ui = False
    parameters.endpoint_slots = False
    return parameters


def _payload(request: ChatRequest, backend: BackendConfig) -> dict[str, Any]:
    temperature = next((t for t in (request.temperature, backend.temperature) if t is not None), TEMPERATURE)
    payload: dict[str, Any] = {
        "messages": _messages(request),
        "temperature": temperature,
        # Always bounded: a small model that loops would otherwise fill its window.
        "max_tokens": request.max_tokens or backend.max_tokens or MAX_TOKENS,
        "stream": True,
        "stream_options": {"include_usage": True},
        # An event per prompt batch: without it a request could not be stopped before its first word.
        "return_progress": True,
    }
    if request.schema is not None:
        payload["response_format"] = {"type": "json_schema", "json_schema": {"schema": dict(request.schema)}}
    return payload


def _messages(request: ChatRequest) -> list[dict[str, str]]:
    return [_message(message) for message in with_user_last(request.messages)]


def _message(message: ChatMessage) -> dict[str, str]:
    """Tool calls and results of other models become plain text: a local template may not know them."""
    calls = [f"{call.name}({call.arguments})" for call in message.tool_calls]
    role = "user" if message.role == "tool" else message.role
    return {"role": role, "content": clean_text("\n".join(filter(None, (message.content, *calls))))}


def _failure(event: Json, partial: str) -> ProviderError:
    error: Json = event.get("error", event)
    text, kind = str(error.get("message", event)), error.get("type")
    if kind == "exceed_context_size_error":
        overflow = ContextOverflow(text, prompt_tokens=error.get("n_prompt_tokens"), window=error.get("n_ctx"))
        overflow.partial = partial
        return overflow
    fitting: dict[object, type[ProviderError]] = {
        "invalid_request_error": RequestRejected,
        "not_supported_error": RequestRejected,
        "unavailable_error": ProviderUnavailable,
    }
    return fitting.get(kind, ProviderError)(f"llama.cpp: {text}", partial=partial)


def _not_installed() -> InputError:
    return MissingModelError(
        "local models need the library xllamacpp, which is not installed or does not run on this machine",
        "pip install 'massmem[local]', or use another backend: ollama, lmstudio, openai, anthropic",
    )


if TYPE_CHECKING:
    from massmem.providers.base import ChatProvider

    _CONFORMS: type[ChatProvider] = LocalProvider
