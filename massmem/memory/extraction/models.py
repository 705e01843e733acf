"""The models that read what was said for memories: which one the configuration names, and one request to it."""

import asyncio
import importlib
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from massmem.config.models import BackendConfig, BackendType, MemoryLlmConfig
from massmem.core.errors import ConfigError, ContentRefused, InputError, MissingKeyError
from massmem.core.messages import (
    ChatMessage,
    ChatRequest,
    Chunk,
    FinishChunk,
    Purpose,
    Reply,
    TextChunk,
    Usage,
)
from massmem.memory.extraction.prompts import SCHEMA
from massmem.memory.extraction.replies import repeats
from massmem.memory.mem0_setup import prepare_mem0
from massmem.providers import Providers
from massmem.providers.failures import ErrorContext, translate_error
from massmem.providers.presets import PRESETS, Abilities
from massmem.providers.pricing import Price

if TYPE_CHECKING:
    from massmem.providers.base import ChatProvider

SETTING = "memory.persistent_memory.llm"

_ON_THIS_MACHINE = ("local", "scripted", "ollama", "lmstudio", "vllm", "llamacpp")
"""Backends whose model usually runs on the user's machine: see MemoryModel.compact."""


@dataclass(frozen=True, slots=True)
class LlmPreset:
    """How massmem reaches a provider that has another name, or another default model, for memories."""

    backend: BackendType
    model: str = ""
    base_url: str = ""
    key_variables: tuple[str, ...] = ()
    """Environment variables of its key, before those of the backend."""
    url_variable: str = ""


LLM_PRESETS: Mapping[str, LlmPreset] = {
    **{backend: LlmPreset(backend) for backend in PRESETS},
    "openai": LlmPreset("openai", "gpt-4.1-nano-2025-04-14"),
    "openai_structured": LlmPreset("openai", "gpt-4.1-nano-2025-04-14"),
    "anthropic": LlmPreset("anthropic", "claude-3-5-haiku-20241022"),
    "groq": LlmPreset("groq", "llama-3.1-8b-instant"),
    "azure_openai": LlmPreset(
        "azure_openai", key_variables=("LLM_AZURE_OPENAI_API_KEY",), url_variable="LLM_AZURE_ENDPOINT"
    ),
    "azure_openai_structured": LlmPreset(
        "azure_openai", key_variables=("LLM_AZURE_OPENAI_API_KEY",), url_variable="LLM_AZURE_ENDPOINT"
    ),
    "xai": LlmPreset("grok"),
    "minimax": LlmPreset("openai", "MiniMax-M2.7", "https://api.minimax.io/v1", ("MINIMAX_API_KEY",)),
    "sarvam": LlmPreset("openai", "sarvam-m", "https://api.sarvam.ai/v1", ("SARVAM_API_KEY",)),
}
"""mem0's names of providers, and all of massmem's backends."""

MEM0_ONLY: Mapping[str, str] = {"aws_bedrock": "boto3", "litellm": "litellm"}
"""Providers that only mem0 reaches, with the package that it needs for each."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Of one request."""

    timeout: float = 60
    """Seconds without any byte from the server."""
    retries: int = 2
    """Attempts after the first."""


@dataclass(frozen=True, slots=True)
class MemoryModel:
    """A model that reads messages for memories."""

    chat: "ChatProvider"
    compact: bool
    """It runs on the user's machine, where mem0's 8,000 tokens of instructions take minutes or do not fit: it is sent
    shorter prompts, and its replies are held to a JSON Schema."""

    async def ask(self, system: str, user: str, max_tokens: int, purpose: Purpose, agent_id: str = "") -> Reply:
        """Send one request. A reply to "extract" that starts to repeat itself is ended there.

        Raises:
            ProviderError: the request failed, or the model refused.
        """
        messages = (ChatMessage("system", system), ChatMessage("user", user))
        schema = SCHEMA if self.compact and purpose == "extract" else None
        request = ChatRequest(messages, purpose, agent_id, schema=schema, temperature=0.0, max_tokens=max_tokens)
        reply = Reply()
        async with aclosing(self.chat.stream(request)) as chunks:
            async for chunk in chunks:
                reply.feed(chunk)
                may_repeat = purpose == "extract" and isinstance(chunk, TextChunk) and "}" in chunk.text
                if may_repeat and repeats(reply.text):
                    # A small model that starts over does so until its last token, minutes later.
                    return Reply(f"{reply.text.rpartition('}')[0]}}}]}}", finish="stop")
        if reply.finish == "content_filter":
            raise ContentRefused("the model refused to read this for memories")
        return reply


async def open_model(
    llm: MemoryLlmConfig, providers: Providers, home: Path, environ: Mapping[str, str], bounds: Bounds
) -> MemoryModel:
    """Open the configured model. home: folder of massmem's own files.

    Raises:
        InputError: no such provider, its package is missing, or its endpoint or model is missing or wrong.
        MissingKeyError: no API key.
        MissingModelError: the local model is not on disk.
    """
    if llm.provider in MEM0_ONLY:
        client = await asyncio.to_thread(_open_mem0_client, llm, home)
        return MemoryModel(Mem0Chat(client, llm), compact=False)
    preset = _find_preset(llm.provider)
    backend = _as_backend(llm, preset, environ, bounds)
    hint = "Check it, or leave it out: then messages are remembered word for word, without extracted facts."
    try:
        chat = await providers.open(backend)
    except MissingKeyError as e:
        variables = list_key_variables(llm.provider)
        raise MissingKeyError(
            f"{SETTING}: no API key for extracting memories with {llm.provider!r}"
            + (f": {' or '.join(variables)} is not set" if llm.api_key is None else f": {e.message}"),
            f"Run `export {variables[0]}=...` first, or leave {SETTING} out.",
        ) from e
    except ConfigError as e:
        raise InputError(f"{SETTING}: {e.message}".replace("backend.", ""), e.hint or hint) from e
    return MemoryModel(chat, compact=preset.backend in _ON_THIS_MACHINE)


def list_key_variables(provider: str) -> tuple[str, ...]:
    """Return the environment variables that may hold the provider's key; none when it needs none."""
    preset = LLM_PRESETS.get(provider)
    if preset is None or not PRESETS[preset.backend].needs_key:
        return ()
    own = () if preset.base_url else PRESETS[preset.backend].key_variables
    return (*preset.key_variables, *own)


def _find_preset(provider: str) -> LlmPreset:
    if preset := LLM_PRESETS.get(provider):
        return preset
    names = (*LLM_PRESETS, *MEM0_ONLY)
    near = get_close_matches(provider, names, 1)
    raise InputError(
        f"{SETTING}.provider: there is no {provider!r}" + (f"; did you mean {near[0]!r}?" if near else ""),
        f"One of: {', '.join(sorted(names))}.",
    )


def _as_backend(llm: MemoryLlmConfig, preset: LlmPreset, environ: Mapping[str, str], bounds: Bounds) -> BackendConfig:
    """Return the backend that the section describes, with the key and endpoint that `environ` has for memories."""
    key = llm.api_key.get_secret_value() if llm.api_key else ""
    key = key or next((value for name in preset.key_variables if (value := environ.get(name, "").strip())), "")
    url = llm.base_url or environ.get(preset.url_variable, "") or preset.base_url
    if preset.backend == "ollama" and url and url.count("/") == 2:
        url = f"{url}/v1"  # mem0's own setting is the server's address alone
    if preset.base_url and not key:
        # Another company's key must not be sent to it.
        raise MissingKeyError(
            f"{SETTING}: no API key for extracting memories with {llm.provider!r}: "
            f"{' or '.join(preset.key_variables)} is not set",
            f"Run `export {preset.key_variables[0]}=...` first, or leave {SETTING} out.",
        )
    return BackendConfig.model_validate(
        {
            "type": preset.backend,
            "model": llm.model or preset.model,
            "api_key": key or None,
            "base_url": url or None,
            "timeout": bounds.timeout,
            "max_retries": bounds.retries,
        }
    )


class Mem0Chat:
    """A ChatProvider that asks one of mem0's own clients, for providers that only mem0 reaches."""

    def __init__(self, client: Any, llm: MemoryLlmConfig) -> None:
        self.abilities = Abilities(tools=False)
        self.price = Price()
        self._client = client
        self._errors = ErrorContext(llm.provider, llm.model or "default model", "", SETTING)

    async def stream(self, request: ChatRequest) -> AsyncGenerator[Chunk, None]:
        messages = [{"role": message.role, "content": message.content} for message in request.messages]
        answer = asyncio.to_thread(self._client.generate_response, messages=messages)
        # Each library has errors of its own.
        (text,) = await asyncio.gather(answer, return_exceptions=True)
        if isinstance(text, BaseException):
            raise translate_error(text, self._errors) from text
        yield TextChunk(text or "")
        yield FinishChunk("stop", Usage(reported=False))

    async def count_prompt(self, request: ChatRequest) -> int | None:
        """Return None: mem0's clients cannot count."""


def _open_mem0_client(llm: MemoryLlmConfig, home: Path) -> Any:
    prepare_mem0(home)
    if llm.base_url:
        raise InputError(f"{SETTING}.base_url cannot be set for {llm.provider!r}: mem0 has no such setting")
    key = llm.api_key.get_secret_value() if llm.api_key else None
    try:
        factory: Any = importlib.import_module("mem0.utils.factory").LlmFactory
        return factory.create(llm.provider, {"model": llm.model, "api_key": key, "max_tokens": 8_000})
    except ImportError as e:
        package = "'massmem[memory]'" if e.name == "mem0" else MEM0_ONLY[llm.provider]
        raise InputError(
            f"extracting memories with {llm.provider!r} needs the package {package}, which is not installed",
            f"pip install {package}",
        ) from e
