"""The models that mem0 can ask for facts: opened with our endpoint, key and time-outs."""

import importlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, cast

from massmem.config.models import MemoryLlmConfig
from massmem.core.errors import ContentRefused, InputError, MissingKeyError
from massmem.core.messages import FinishReason

_NO_KEY = "none"
"""Sent to servers that need no key; the libraries refuse to send nothing."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One of mem0's providers.

    keys: environment variables of its API key, none when it needs none. url: mem0's name for its endpoint, "" when
    mem0 has none. package: what pip installs for it, "" when it comes with mem0 or massmem. compact: it runs on the
    user's machine, where 8,000 tokens of instructions take minutes or do not fit.
    """

    keys: tuple[str, ...] = ()
    url: str = ""
    package: str = ""
    model: str = ""
    compact: bool = False


KINDS: Mapping[str, Kind] = {
    "openai": Kind(("OPENAI_API_KEY",), "openai_base_url", model="gpt-4.1-nano-2025-04-14"),
    "openai_structured": Kind(("OPENAI_API_KEY",), "openai_base_url", model="gpt-4.1-nano-2025-04-14"),
    "anthropic": Kind(("ANTHROPIC_API_KEY",), "anthropic_base_url", model="claude-3-5-haiku-20241022"),
    "groq": Kind(("GROQ_API_KEY",), package="groq", model="llama-3.1-8b-instant"),
    "together": Kind(("TOGETHER_API_KEY",), package="together"),
    "azure_openai": Kind(("LLM_AZURE_OPENAI_API_KEY", "AZURE_OPENAI_API_KEY"), "azure", "azure-identity"),
    "azure_openai_structured": Kind(("LLM_AZURE_OPENAI_API_KEY", "AZURE_OPENAI_API_KEY"), "azure", "azure-identity"),
    "gemini": Kind(("GOOGLE_API_KEY", "GEMINI_API_KEY"), package="google-genai"),
    "deepseek": Kind(("DEEPSEEK_API_KEY",), "deepseek_base_url", model="deepseek-chat"),
    "xai": Kind(("XAI_API_KEY",), "xai_base_url"),
    "minimax": Kind(("MINIMAX_API_KEY",), "minimax_base_url"),
    "sarvam": Kind(("SARVAM_API_KEY",)),
    "ollama": Kind(url="ollama_base_url", package="ollama", compact=True),
    "lmstudio": Kind(url="lmstudio_base_url", compact=True),
    "vllm": Kind(url="vllm_base_url", compact=True),
    "aws_bedrock": Kind(package="boto3"),
    "litellm": Kind(package="litellm"),
}


_SAID: Mapping[str, FinishReason] = {
    "length": "length",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "content_filter": "content_filter",
    "refusal": "content_filter",
    "safety": "content_filter",
    "prohibited_content": "content_filter",
    "blocklist": "content_filter",
}
"""Why a reply ended, in each provider's word. Every other word is a normal end."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Of one request. timeout: seconds for an attempt. retries: attempts after the first. max_tokens: of the reply."""

    timeout: float
    retries: int
    max_tokens: int


@dataclass(frozen=True, slots=True)
class Answer:
    """A model's reply, word for word. finish None: the provider does not say why it ended."""

    text: str | None
    finish: FinishReason | None = None


@dataclass(frozen=True, slots=True)
class OpenModel:
    """A model that can be asked: system and user prompt to the reply, blocking. compact: as in Kind."""

    ask: Callable[[str, str], Answer]
    compact: bool
    close: Callable[[], None]


def open_model(config: MemoryLlmConfig, environ: Mapping[str, str], bounds: Bounds, *, json: bool = True) -> OpenModel:
    """Make a model of mem0's ready; nothing is sent. What its `ask` raises is read by mem0_failures.failure.

    json: its replies are JSON, else plain text.

    Imports mem0: the environment must be as mem0 may find it (massmem.memory.extraction.mem0).

    Raises:
        InputError: mem0 does not have the provider, its package is missing, or its endpoint is wrong.
        MissingKeyError: no API key.
    """
    kind = _kind(config.provider)
    url = _url(config)
    key = _key(config, kind, environ)
    llm = _made(config, kind, _settings(config, kind, key, bounds))
    _bind(llm, config.provider, url or environ.get("OPENAI_BASE_URL", ""), key, bounds)
    read: Callable[[Any, Any], Any] | None = getattr(llm, "_parse_response", None)
    if read is not None:
        # mem0 keeps the text of a response and drops why it ended; what this returns is passed on as it is.
        def read_whole(response: Any, tools: Any) -> Answer:
            return _answer(response, read, tools)

        vars(llm)["_parse_response"] = read_whole

    form = {"type": "json_object"} if json else None

    def ask(system: str, user: str) -> Answer:
        messages = [{"role": "system", "content": system}, {"role": "user", "content": user}]
        said = llm.generate_response(messages=messages, response_format=form)
        return said if isinstance(said, Answer) else Answer(said)

    return OpenModel(ask, kind.compact, lambda: _close(llm))


def _kind(name: str) -> Kind:
    if name in KINDS:
        return KINDS[name]
    near = get_close_matches(name, (*KINDS, "local"), 1)
    raise InputError(
        f"memory.persistent_memory.llm.provider: mem0 has no {name!r}"
        + (f"; did you mean {near[0]!r}?" if near else ""),
        f"One of: local, {', '.join(KINDS)}.",
    )


def _url(config: MemoryLlmConfig) -> str:
    url = config.base_url or ""
    if url and not re.fullmatch(r"https?://[^\s/]+\S*", url):
        raise InputError("memory.persistent_memory.llm.base_url is no http:// or https:// address")
    return url


def _key(config: MemoryLlmConfig, kind: Kind, environ: Mapping[str, str]) -> str:
    given = config.api_key.get_secret_value().strip() if config.api_key else ""
    key = given or next((value for name in kind.keys if (value := environ.get(name, "").strip())), "")
    if kind.keys and not key:
        raise MissingKeyError(
            f"No API key for extracting memories with {config.provider!r}: {' or '.join(kind.keys)} is not set.",
            f"Run `export {kind.keys[0]}=...` first, or leave memory.persistent_memory.llm out.",
        )
    if not all("!" <= char <= "~" for char in key):
        raise MissingKeyError(f"The API key for {config.provider!r} has characters that no key has.")
    return key or _NO_KEY


def _settings(config: MemoryLlmConfig, kind: Kind, key: str, bounds: Bounds) -> dict[str, Any]:
    """mem0's configuration of the model."""
    settings: dict[str, Any] = {"model": config.model or kind.model or None, "max_tokens": bounds.max_tokens}
    if kind.url == "azure":
        endpoint = {"azure_endpoint": config.base_url} if config.base_url else {}
        return {**settings, "azure_kwargs": {"api_key": key, "azure_deployment": config.model, **endpoint}}
    if kind.keys or kind.compact:
        settings["api_key"] = key
    if config.base_url and kind.url:
        settings[kind.url] = config.base_url
    return settings


def _made(config: MemoryLlmConfig, kind: Kind, settings: dict[str, Any]) -> Any:
    factory: Any = importlib.import_module("mem0.utils.factory").LlmFactory
    try:
        return factory.create(config.provider, settings)
    except ImportError as e:
        package = kind.package or e.name or config.provider
        raise InputError(
            f"extracting memories with {config.provider!r} needs the package {package}, which is not installed",
            f"pip install {package}",
        ) from e


def _bind(llm: Any, provider: str, url: str, key: str, bounds: Bounds) -> None:
    """Set what mem0 has no setting for: time-outs and retries; and the endpoint and key once more.

    OPENROUTER_API_KEY in the environment makes mem0 send everything for "openai" there, whatever was configured.
    """
    client: Any = getattr(llm, "client", None)
    if provider == "ollama":
        make = cast("Any", type(client))
        llm.client = make(host=url or None, timeout=bounds.timeout)
    elif hasattr(client, "with_options"):
        options: dict[str, Any] = {"timeout": bounds.timeout, "max_retries": bounds.retries}
        if provider.startswith("openai"):
            options |= {"api_key": key, "base_url": url or "https://api.openai.com/v1"}
        elif url and not KINDS[provider].url:
            options["base_url"] = url
        llm.client = client.with_options(**options)
    elif url and not KINDS[provider].url:
        raise InputError(
            f"memory.persistent_memory.llm.base_url cannot be set for {provider!r}: mem0 has no such setting"
        )


def _answer(response: Any, read: Callable[[Any, Any], Any], tools: Any) -> Answer:
    finish = finish_of(response)
    if finish == "content_filter":
        raise ContentRefused("the model refused to extract memories from this conversation")
    return Answer(read(response, tools), finish)


def finish_of(response: Any) -> FinishReason | None:
    """Why the reply ended, from the response object or dict of any of mem0's providers; None when it does not say."""
    choice = _first(response, "choices") or _first(response, "candidates")
    if _field(_field(choice, "message"), "refusal"):
        return "content_filter"
    found = (_field(choice, "finish_reason"), _field(response, "stop_reason"), _field(response, "done_reason"))
    reason = next((value for value in found if value), None)
    if reason is None:
        return None
    return _SAID.get(str(getattr(reason, "name", reason)).lower(), "stop")


def _first(value: Any, name: str) -> Any:
    items = _field(value, name)
    return cast("list[Any]", items)[0] if isinstance(items, list) and items else None


def _field(value: Any, name: str) -> Any:
    return cast("dict[str, Any]", value).get(name) if isinstance(value, dict) else getattr(value, name, None)


def _close(llm: Any) -> None:
    close = getattr(getattr(llm, "client", None), "close", None)
    if close is not None:
        close()
