"""The port to a model: what it can do, what it costs, and one method that streams one reply."""

import re
from abc import ABC, abstractmethod
from base64 import b64encode
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, NamedTuple, Protocol

from massmem.config.models import BackendConfig
from massmem.config.presets import Abilities
from massmem.config.web_search import SearchLocation
from massmem.core.messages import (
    WRAPPER,
    ActivityChunk,
    Attachment,
    ChatMessage,
    ChatRequest,
    Chunk,
    Purpose,
    Reply,
    Usage,
)
from massmem.providers.pricing import Price

GO_ON = ChatMessage("user", "Go on.")

_BOUNDS = ("minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "pattern")

MOST_TOKENS = 100_000_000
"""No request has more; a server that says so is wrong."""


ReadFile = Callable[[str, str, int, int | None], Awaitable[str]]
"""Returns the text of a file of a folder. It is given the folder, the path, the first line (from 1), and the number of
lines; None: all. Raises InputError: it may not be read, or cannot."""


class Writer(NamedTuple):
    """Of a folder that an agent program may change. `write` raises OSError, ValueError, RuntimeError."""

    allows: Callable[[Mapping[str, Any]], bool]
    write: Callable[[str, str], None]


class ChatProvider(Protocol):
    """A model behind an endpoint, configured for one agent."""

    @property
    def abilities(self) -> Abilities: ...

    @property
    def price(self) -> Price: ...

    def prepare(self) -> AsyncGenerator[ActivityChunk, None]:
        """Make the model ready for requests, and yield how far that is; a model that is ready yields nothing.

        A request does the same silently. Raises ProviderError.
        """
        ...

    def stream(self, request: ChatRequest) -> AsyncGenerator[Chunk, None]:
        """Send one request and yield its chunks as they arrive; the last one is a FinishChunk with the cost.

        Transient failures are retried, each announced by a RetryChunk. Closing the generator ends the request at the
        server.

        Raises:
            ContextOverflow: the prompt does not fit.
            StreamInterrupted: the stream ended without a finish reason; `partial` holds its text.
            ProviderError: any other failure, as the subclass that fits (see massmem.core.errors).
        """
        ...

    async def count_prompt(self, request: ChatRequest) -> int | None:
        """Return the tokens of the request by the model's own tokenizer, including its chat template.

        Return None when there is no such count, or it is not available now. It may take a request (Anthropic: 0.2 s,
        free of charge), so use it for the first prompt and for prompts near a limit, and an estimate otherwise.
        """
        ...


async def ask(provider: ChatProvider, request: ChatRequest) -> Reply:
    """Send one request and return its whole reply. Raises as `ChatProvider.stream`."""
    reply = Reply()
    async with aclosing(provider.stream(request)) as chunks:
        async for chunk in chunks:
            reply.feed(chunk)
    return reply


_SEARCHING: tuple[Purpose, ...] = ("answer", "vote", "items", "check")
"""What agents may search the web for; a presentation rests on what the answers found."""


def searches_web(backend: BackendConfig, request: ChatRequest) -> bool:
    """Whether the provider may search the web for the reply; Perplexity's models do unless told not to."""
    is_meant = backend.type == "perplexity" and "web_search" not in backend.model_fields_set
    is_wanted = (is_meant or backend.web_search is not None) and request.purpose in _SEARCHING
    # With the choice "none" OpenAI's own servers are told which tools are only named for the cache (`Abilities`).
    return is_wanted and (request.tool_choice != "none" or backend.type in ("openai", "azure_openai"))


def runs_code(backend: BackendConfig, request: ChatRequest) -> bool:
    """Whether the provider may run programs of the model for the reply."""
    return backend.code_execution and request.purpose in _SEARCHING and request.tool_choice != "none"


def writes_for_people(request: ChatRequest) -> bool:
    """Whether the text of the reply is an answer, and not JSON, or beside the tool calls of a vote."""
    return request.purpose == "answer" and request.schema is None


def write_location(location: SearchLocation) -> dict[str, Any]:
    """Return about where the user is, as OpenAI, Anthropic, xAI and OpenRouter take it."""
    return {"type": "approximate", **list_places(location)}


def list_places(location: SearchLocation) -> dict[str, str]:
    places = {"country": location.country, "region": location.region, "city": location.city}
    places["timezone"] = location.timezone
    return {name: place for name, place in places.items() if place is not None}


class AlwaysReady:
    """Part of a provider whose model needs no preparation, and by itself counts no prompt."""

    async def prepare(self) -> AsyncGenerator[ActivityChunk, None]:
        for chunk in ():
            yield chunk

    async def count_prompt(self, request: ChatRequest) -> int | None: ...


class ProviderFactory(ABC):
    """Opens the providers of one kind, and holds what they share: clients, connections, loaded models."""

    @abstractmethod
    def open(self, backend: BackendConfig) -> ChatProvider:
        """Return the provider that a backend describes. May block for seconds."""

    @abstractmethod
    async def close(self) -> None:
        """Close all connections and unload all models."""


def encode_data(attachment: Attachment) -> str:
    return b64encode(attachment.data).decode()


def data_url(attachment: Attachment) -> str:
    return f"data:{attachment.file.media_type};base64,{encode_data(attachment)}"


def end_with_user(messages: Sequence[ChatMessage]) -> Sequence[ChatMessage]:
    """Return the conversation with a short user message after a last message of the assistant.

    Only OpenAI's models answer a conversation that ends with the assistant. Servers of Anthropic, Mistral and Gemini
    refuse it, and those on llama.cpp or Ollama continue the assistant's last message in mid-sentence.
    """
    if messages and messages[-1].role == "assistant":
        return (*messages, GO_ON)
    return messages


def portable_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema as OpenAI and Anthropic take it: an object at the root, and no bounds on values."""
    portable = _without_bounds(schema)
    if portable.get("type") == "object":
        return portable
    wrapped = {"type": "object", "properties": {WRAPPER: portable}, "required": [WRAPPER]}
    return wrapped | {"additionalProperties": False}


def takes_strict(schema: Mapping[str, Any]) -> bool:
    """Whether OpenAI takes the schema with `strict`; other servers ignore the flag and always follow the schema."""
    return schema.get("type") == "object" and _is_closed(schema)


def _is_closed(schema: Mapping[str, Any]) -> bool:
    """Whether every object in the schema has exactly the properties that it names."""
    if "anyOf" in schema:
        return all(map(_is_closed, schema["anyOf"]))
    if schema.get("type") == "array":
        return _is_closed(schema.get("items", {}))
    if schema.get("type") != "object":
        return bool(schema)
    properties: Mapping[str, Any] = schema.get("properties", {})
    closed = schema.get("additionalProperties") is False and set(schema.get("required", ())) == set(properties)
    return closed and all(map(_is_closed, properties.values()))


def _without_bounds(schema: Mapping[str, Any]) -> dict[str, Any]:
    out: dict[str, Any] = {key: value for key, value in schema.items() if key not in _BOUNDS}
    if "properties" in out:
        out["properties"] = {name: _without_bounds(value) for name, value in out["properties"].items()}
    if "anyOf" in out:
        out["anyOf"] = [_without_bounds(option) for option in out["anyOf"]]
    if isinstance(out.get("items"), Mapping):
        out["items"] = _without_bounds(out["items"])
    return out


def read_usage(counts: Mapping[str, int], estimate: Usage) -> Usage:
    """Return the usage of a reply by the counts that its server names, in the words of any API.

    estimate: our own count, which stands for a number that is missing or impossible. A reply is never lost because of
    its usage.
    """
    prompt_tokens = counts.get("prompt_tokens", counts.get("input_tokens", 0))
    completion_tokens = counts.get("completion_tokens", counts.get("output_tokens", 0))
    names = ("cached_tokens", "prompt_cache_hit_tokens", "cache_read_input_tokens")
    cached = next((counts[name] for name in names if counts.get(name)), 0)
    written, total = counts.get("cache_creation_input_tokens", 0), counts.get("total_tokens")
    # Anthropic leaves out of input_tokens what came from the cache or went into it. So do gateways, under any name.
    is_apart = "input_tokens" in counts and any(re.fullmatch("cache_.*_input_tokens", name) for name in counts)
    if is_apart or cached > prompt_tokens or total == prompt_tokens + completion_tokens + cached + written:
        prompt_tokens += cached + written
    return Usage(
        prompt_tokens or estimate.prompt,
        completion_tokens or estimate.completion,
        cached,
        reported=bool(prompt_tokens) and (bool(completion_tokens) or estimate.completion == 0),
        reasoning=counts.get("reasoning_tokens", counts.get("thinking_tokens", 0)),
        cache_written=written,
    )


def read_count(value: object) -> int | None:
    """Return a number of tokens that a server names, None when it cannot be one."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MOST_TOKENS:
        return None
    return int(value) if value == int(value) else None
