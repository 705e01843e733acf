"""Models and embedders that massmem has no client for, asked through mem0's factories; keys are in the environment."""

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any

from massmem.config.home import massmem_home
from massmem.config.models import EmbeddingConfig, MemoryLlmConfig
from massmem.config.presets import Abilities
from massmem.core.errors import EmbeddingError, InputError, ProviderError
from massmem.core.messages import ChatRequest, Chunk, FinishChunk, TextChunk, Usage
from massmem.memory.mem0 import MEM0_EMBEDDERS, MEM0_LLMS, import_mem0
from massmem.providers.base import AlwaysReady
from massmem.providers.failures import ErrorContext, clean_message, parse_error_body
from massmem.providers.pricing import Price


class Mem0Chat(AlwaysReady):
    """A ChatProvider that asks one of mem0's clients. What it uses is not reported. Raises (init) as _create."""

    def __init__(self, llm: MemoryLlmConfig) -> None:
        self.abilities, self.price = Abilities(tools=False), Price()
        self._client = _create("LlmFactory", llm, {"max_tokens": 8_000})
        if llm.provider == "litellm":
            sys.modules["litellm"].__dict__["suppress_debug_info"] = True  # it writes it to stdout
        self._errors = ErrorContext(llm.provider, llm.model or "default model", "")

    async def stream(self, request: ChatRequest) -> AsyncGenerator[Chunk, None]:
        messages = [{"role": message.role, "content": message.content} for message in request.messages]
        with _Translate(self._explain):
            text = await asyncio.to_thread(self._client.generate_response, messages=messages)
        yield TextChunk(text or "")
        yield FinishChunk("stop", Usage(reported=False))

    def _explain(self, error: Exception) -> ProviderError:
        reply = parse_error_body(int(getattr(error, "status_code", None) or 0), str(error))
        return self._errors.error(reply.kind, reply.text)


def open_encoders(config: EmbeddingConfig) -> tuple[Callable[[Sequence[str]], Any], Callable[[str], Any]]:
    """Return what gives texts, and a question, their vectors; both raise EmbeddingError. Raises as _create."""
    client = _create("EmbedderFactory", config, {}, None)

    def explain(error: Exception) -> EmbeddingError:
        message = f"the embedder {config.provider} failed: {clean_message(str(error))}"
        return EmbeddingError(message, "check memory.persistent_memory.embedding")

    def encode(texts: Sequence[str]) -> Any:
        with _Translate(explain):
            return client.embed_batch([*texts], "add")

    def encode_query(text: str) -> Any:
        with _Translate(explain):
            return client.embed(text, "search")

    return encode, encode_query


def _create(factory: str, config: MemoryLlmConfig | EmbeddingConfig, more: dict[str, Any], *arguments: None) -> Any:
    """Make a client. Raises InputError: a package is missing, a setting is not possible, or the client refuses."""
    is_llm = factory == "LlmFactory"
    setting = f"memory.persistent_memory.{'llm' if is_llm else 'embedding'}"
    package = (MEM0_LLMS if is_llm else MEM0_EMBEDDERS)[config.provider]
    if config.api_key is not None or config.base_url:
        key = "api_key" if config.api_key is not None else "base_url"
        hint = "leave it out, and set the variables that this package reads"
        raise InputError(f"{setting}.{key} cannot be set for {config.provider}: {package} reads it elsewhere", hint)
    # litellm asks a server for prices when it is imported, and waits for models for hours.
    os.environ.update(LITELLM_LOCAL_MODEL_COST_MAP="True", REQUEST_TIMEOUT="60")
    module = import_mem0("utils.factory", massmem_home())
    settings = {"model": config.model, **more} if config.model else more

    def explain(error: Exception) -> InputError:
        if isinstance(error, ImportError):
            return InputError(f"{setting}.provider: {config.provider} needs {package}", f"pip install {package}")
        return InputError(f"{setting}: {config.provider} cannot be used: {clean_message(str(error))}")

    with _Translate(explain):
        return getattr(module, factory).create(config.provider, settings, *arguments)


class _Translate:
    """Raises what `explain` makes of an error in its block: each library below mem0 has errors of its own."""

    def __init__(self, explain: Callable[[Exception], Exception]) -> None:
        self._explain = explain

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, Exception):
            raise self._explain(error) from error
