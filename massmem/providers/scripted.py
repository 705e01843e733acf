"""A model that says what its script says: for trying massmem without a key, for tests and for benchmarks."""

import asyncio
import json
import re
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from massmem.config.models import BackendConfig
from massmem.errors import (
    AuthenticationError,
    ConfigError,
    ContentRefused,
    ContextOverflow,
    MalformedResponse,
    ModelNotFound,
    ProviderConnectionError,
    ProviderError,
    ProviderTimeout,
    ProviderUnavailable,
    RateLimited,
    StreamInterrupted,
)
from massmem.messages import ChatRequest, Purpose, ToolCall, Usage
from massmem.prompts import parse_candidates, parse_given, parse_results
from massmem.providers.retry import Retrier, RetryBudget, RetryPolicy
from massmem.replies import Chunk, FinishChunk, ReasoningChunk, TextChunk, ToolCallChunk

if TYPE_CHECKING:
    from massmem.providers.base import ChatProvider

ErrorName = Literal[
    "rate_limit", "unavailable", "timeout", "connection", "overflow", "auth", "model_not_found", "refused",
    "interrupted", "malformed",
]  # fmt: skip

_ERRORS: Mapping[ErrorName, type[ProviderError]] = {
    "rate_limit": RateLimited,
    "unavailable": ProviderUnavailable,
    "timeout": ProviderTimeout,
    "connection": ProviderConnectionError,
    "overflow": ContextOverflow,
    "auth": AuthenticationError,
    "model_not_found": ModelNotFound,
    "refused": ContentRefused,
    "interrupted": StreamInterrupted,
    "malformed": MalformedResponse,
}

_ACTIONS = ("vote", "new_answer", "ask_user")

_BYTES_PER_TOKEN = 4
_OWN_ANSWER = re.compile(r"Answer ([A-Z]+) is yours")


class ScriptedCall(BaseModel):
    """A call of a tool: its name, also without the server's, and its arguments."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    tool: str
    arguments: dict[str, Any] = Field(default_factory=dict[str, Any])


class ScriptedReply(BaseModel):
    """One reply. In a list of replies a bare string is the text, under `vote` the label."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    text: str | None = None
    """What is said."""
    reasoning: str = ""
    """What is thought before."""
    vote: str | None = None
    """The label to vote for: A, B, ..., or first, or last."""
    vote_for: str | None = None
    """Vote for the candidate whose answer contains this text."""
    reason: str = "scripted"
    """The reason of the vote or of the new answer."""
    new_answer: str | None = None
    """A better answer instead of a vote."""
    ask: str | None = None
    """Ask the user for this param while that is offered, then say `text`; {NAME} in it stands for what was given."""
    call: tuple[ScriptedCall, ...] = ()
    """Call tools, all at once, while any are offered; the next reply of the list follows. In `text` of a reply {result}
    stands for what the tools gave back last."""
    ask_prompt: str = "What is it?"
    """The question to the user."""
    raw: str | None = None
    """Sent unchanged as the text, or with `vote` or `new_answer` as that tool's arguments: for malformed replies."""
    error: ErrorName | None = None
    """The request fails like this, after `text` if there is any."""
    retry_after: float | None = Field(default=None, ge=0)
    """Seconds that the error asks to wait."""
    delay: float = Field(default=0, ge=0)
    """Seconds before the first chunk, on top of `latency`."""
    finish: Literal["stop", "length", "none"] = "stop"
    """How the reply ends; none: without a finish reason."""

    @field_validator("call", mode="before")
    @classmethod
    def _as_calls(cls, value: object) -> object:
        return [cast("object", value)] if isinstance(value, Mapping) else value


class ScriptConfig(BaseModel):
    """The `script` of a scripted backend: replies by purpose; the last one of a list repeats."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    latency: float = Field(default=0, ge=0)
    """Seconds before the first chunk of every reply."""
    chunk_delay: float = Field(default=0, ge=0)
    """Seconds between chunks."""
    chunk_size: int = Field(default=0, ge=0)
    """Characters per chunk; 0: the whole reply at once."""
    context_window: int = Field(default=0, ge=0)
    """Tokens (characters / 4) above which a prompt is refused; 0: never."""
    answer: tuple[ScriptedReply, ...] = ()
    """Replies to a question; left out: `Answer of <agent>.`"""
    vote: tuple[ScriptedReply, ...] = ()
    """Replies in voting rounds; left out: a vote for the first candidate."""
    present: tuple[ScriptedReply, ...] = ()
    """Final answers; left out: the winning answer again."""
    summary: tuple[ScriptedReply, ...] = ()
    """Summaries of old messages; left out: how many there were."""
    extract: tuple[ScriptedReply, ...] = ()
    """Extracted facts; left out: none."""

    @field_validator("answer", "vote", "present", "summary", "extract", mode="before")
    @classmethod
    def _as_replies(cls, value: object, info: Any) -> object:
        plain = "vote" if info.field_name == "vote" else "text"
        replies = cast("Sequence[object]", value) if isinstance(value, list | tuple) else [value]
        return tuple({plain: reply} if isinstance(reply, str) else reply for reply in replies)


class ScriptedClients:
    """Opens scripted providers; each goes through its own script."""

    def __init__(self) -> None:
        self._budget = RetryBudget()

    def open(self, backend: BackendConfig) -> "ScriptedProvider":
        """Raises ConfigError when the script has a mistake."""
        return ScriptedProvider(backend, read_script(backend.script or {}), self._budget)

    async def close(self) -> None:
        """Nothing is held open."""


def read_script(script: Mapping[str, Any]) -> ScriptConfig:
    """Check a script. Raises ConfigError with one line for each mistake."""
    try:
        return ScriptConfig.model_validate(dict(script))
    except ValidationError as e:
        problems = [f"backend.script.{'.'.join(map(str, err['loc']))}: {err['msg']}" for err in e.errors()]
        raise ConfigError(problems) from e


class ScriptedProvider:
    """Replies in the order of the script, one position for each purpose; a retried request gets the next reply."""

    def __init__(self, backend: BackendConfig, script: ScriptConfig, budget: RetryBudget) -> None:
        self._native_tools = backend.tools is not False
        self._script = script
        self._retrier = Retrier(RetryPolicy(backend.max_retries), budget)
        self._positions: dict[Purpose, int] = {}

    @property
    def native_tools(self) -> bool:
        return self._native_tools

    def stream(self, request: ChatRequest) -> AsyncGenerator[Chunk, None]:
        return self._retrier.stream(lambda: self._attempt(request))

    async def count_prompt(self, request: ChatRequest) -> int | None:
        return _tokens(_prompt(request))

    async def _attempt(self, request: ChatRequest) -> AsyncGenerator[Chunk, None]:
        started = time.monotonic()
        reply = self._next(request)
        prompt = _tokens(_prompt(request))
        chunks = list(self._chunks(reply, request))
        await asyncio.sleep(max(0.0, self._script.latency + reply.delay - (time.monotonic() - started)))
        self._check_window(prompt)
        for number, chunk in enumerate(chunks):
            if number and self._script.chunk_delay:
                await asyncio.sleep(self._script.chunk_delay)
            yield chunk
        if reply.error:
            raise _failure(reply)
        yield self._finish(reply, chunks, prompt)

    def _next(self, request: ChatRequest) -> ScriptedReply:
        replies: tuple[ScriptedReply, ...] = getattr(self._script, request.purpose)
        if not replies:
            return _DEFAULTS[request.purpose](request)
        position = self._positions.get(request.purpose, 0)
        if _decides(request) and not replies[min(position, len(replies) - 1)].call:
            return ScriptedReply(raw='{"action": "answer_now"}')
        self._positions[request.purpose] = position + 1
        return replies[min(position, len(replies) - 1)]

    def _check_window(self, prompt: int) -> None:
        window = self._script.context_window
        if window and prompt > window:
            message = f"scripted: prompt is too long: {prompt} tokens > {window} maximum"
            raise ContextOverflow(message, prompt_tokens=prompt, window=window)

    def _chunks(self, reply: ScriptedReply, request: ChatRequest) -> Iterator[Chunk]:
        if reply.reasoning:
            yield from map(ReasoningChunk, self._pieces(reply.reasoning))
        text, calls = _said(reply, request)
        yield from map(TextChunk, self._pieces(text))
        yield from map(ToolCallChunk, calls)

    def _pieces(self, text: str) -> Iterator[str]:
        size = self._script.chunk_size or max(len(text), 1)
        return (text[i : i + size] for i in range(0, len(text), size))

    def _finish(self, reply: ScriptedReply, chunks: Sequence[Chunk], prompt: int) -> FinishChunk:
        if reply.finish == "none":
            raise StreamInterrupted("scripted: the stream ended without a finish reason")
        calls = any(isinstance(chunk, ToolCallChunk) for chunk in chunks)
        reason = "tool_calls" if calls and reply.finish == "stop" else reply.finish
        return FinishChunk(reason, Usage(prompt, _tokens("".join(map(_content, chunks)))))


def _said(reply: ScriptedReply, request: ChatRequest) -> tuple[str, list[ToolCall]]:
    """The text and the tool calls of a reply, in the form that the request asks for."""
    if reply.call and (offered := _offered(request)):
        return _calling(reply, offered, native=bool(request.tools))
    action = _action(reply, request)
    if action is None:
        return reply.raw if reply.raw is not None else _filled(reply.text or "", request), []
    name, arguments = action
    if request.tools:
        raw = reply.raw if reply.raw is not None else _json(arguments)
        return reply.text or "", [ToolCall("call_scripted", name, raw)]
    content = {"reason": reply.reason, "action": name, **arguments}
    return reply.raw if reply.raw is not None else _json(content), []


def _calling(reply: ScriptedReply, offered: Sequence[str], *, native: bool) -> tuple[str, list[ToolCall]]:
    calls = [
        ToolCall(f"call_{i}", _named(call.tool, offered), reply.raw if reply.raw is not None else _json(call.arguments))
        for i, call in enumerate(reply.call)
    ]
    if native:
        return reply.text or "", calls
    return f'{{"action": "{calls[0].name}", "arguments": {calls[0].arguments}}}', []


def _named(tool: str, offered: Sequence[str]) -> str:
    return next((name for name in offered if name == tool or name.endswith(f"__{tool}")), tool)


def _offered(request: ChatRequest) -> list[str]:
    """Names of the tools that may be called, those of the workflow apart."""
    if request.closed:
        return []
    options = request.schema.get("anyOf", ()) if request.schema else ()
    written = [option["properties"]["action"]["const"] for option in options if "arguments" in option["properties"]]
    return [tool.name for tool in request.tools if tool.name not in _ACTIONS] + written


def _decides(request: ChatRequest) -> bool:
    """The request asks a model without tool calls whether it needs one before it answers."""
    return request.purpose == "answer" and request.schema is not None


def _action(reply: ScriptedReply, request: ChatRequest) -> tuple[str, dict[str, str]] | None:
    if reply.ask is not None and _may_ask(reply.ask, request):
        return "ask_user", {"param": reply.ask, "prompt": reply.ask_prompt}
    if not request.tools and request.schema is None:
        return None
    if reply.new_answer is not None:
        return "new_answer", {"content": reply.new_answer}
    if reply.vote is not None or reply.vote_for is not None:
        return "vote", {"reason": reply.reason, "choice": _choice(reply, request)}
    return None


def _may_ask(param: str, request: ChatRequest) -> bool:
    """The request offers to ask the user for it: by the tool, or in words."""
    if request.tools:
        offered = next(
            (tool.parameters["properties"]["param"] for tool in request.tools if tool.name == "ask_user"), None
        )
        return offered is not None and param in offered.get("enum", (param,))
    said = next((m.content for m in reversed(request.messages) if '"ask_user"' in m.content), "")
    free = ("something that only this user knows", "if something is missing")
    return f"{param} (" in said or any(words in said for words in free)


def _filled(text: str, request: ChatRequest) -> str:
    for name, value in parse_given(request.messages[-1].content if request.messages else "").items():
        text = text.replace(f"{{{name}}}", value)
    if "{result}" not in text:
        return text
    new = list(takewhile(lambda message: message.role != "assistant", reversed(request.messages)))
    return text.replace("{result}", "\n".join(r for message in reversed(new) for r in parse_results(message.content)))


def _choice(reply: ScriptedReply, request: ChatRequest) -> str:
    if reply.vote_for is not None:
        matching = (label for label, text in _candidates(request).items() if reply.vote_for in text)
        return next(matching, f"no candidate contains {reply.vote_for!r}")
    labels = _labels(request)
    match reply.vote:
        case "first" if labels:
            return labels[0]
        case "last" if labels:
            return labels[-1]
        case _:
            return reply.vote or ""


def _candidates(request: ChatRequest) -> dict[str, str]:
    """label -> answer, from the newest message that shows answers."""
    shown = (parse_candidates(m.content) for m in reversed(request.messages) if m.role == "user")
    return next((found for found in shown if found), dict[str, str]())


def _labels(request: ChatRequest) -> list[str]:
    """The labels that the vote tool, or the schema, allows."""
    schemas = [t.parameters for t in request.tools] + ([request.schema] if request.schema else [])
    options = [option for schema in schemas for option in (schema, *schema.get("anyOf", ()))]
    enums = (o.get("properties", {}).get("choice", {}).get("enum") for o in options)
    return next((list(enum) for enum in enums if enum), list[str]())


def _default_present(request: ChatRequest) -> ScriptedReply:
    candidates = _candidates(request)
    own = next((found[1] for m in reversed(request.messages) if (found := _OWN_ANSWER.search(m.content))), "")
    return ScriptedReply(text=candidates.get(own) or next(iter(candidates.values()), f"Answer of {request.agent_id}."))


_DEFAULTS: Mapping[Purpose, Callable[[ChatRequest], ScriptedReply]] = {
    "answer": lambda request: ScriptedReply(text=f"Answer of {request.agent_id}."),
    "vote": lambda _: ScriptedReply(vote="first"),
    "present": _default_present,
    "summary": lambda request: ScriptedReply(text=f"Summary of {len(request.messages)} messages."),
    "extract": lambda _: ScriptedReply(text="[]"),
}


def _failure(reply: ScriptedReply) -> ProviderError:
    kind = _ERRORS[cast("ErrorName", reply.error)]
    message = f"scripted: {reply.error}"
    if issubclass(kind, ContextOverflow):
        return kind(message)
    return kind(message, retry_after=reply.retry_after)


def _prompt(request: ChatRequest) -> str:
    said = [m.content + "".join(c.arguments for c in m.tool_calls) for m in request.messages]
    tools = [t.name + t.description + _json(t.parameters) for t in request.tools]
    return "".join((*said, *tools, _json(request.schema) if request.schema else ""))


def _content(chunk: Chunk) -> str:
    match chunk:
        case TextChunk(text) | ReasoningChunk(text):
            return text
        case ToolCallChunk(call):
            return call.arguments
        case _:
            return ""


def _tokens(text: str) -> int:
    return -(-len(text.encode("utf-8", "surrogatepass")) // _BYTES_PER_TOKEN)


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False)


if TYPE_CHECKING:
    _CONFORMS: type[ChatProvider] = ScriptedProvider
