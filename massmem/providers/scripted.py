"""A model that replies as its script says: for trying massmem without a key, for tests and for benchmarks."""

import asyncio
import json
import os
import re
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any, Literal, cast, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from massmem.config.models import BackendConfig
from massmem.core.errors import (
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
from massmem.core.messages import (
    ChatRequest,
    Chunk,
    Citation,
    CitationChunk,
    FinishChunk,
    Purpose,
    ReasoningChunk,
    SearchChunk,
    TextChunk,
    ToolCall,
    ToolCallChunk,
    Usage,
)
from massmem.core.prompts import parse_candidates, parse_param_values, parse_tool_results, parse_votable
from massmem.providers.base import Abilities, AlwaysReady, ProviderFactory
from massmem.providers.pricing import price_of
from massmem.providers.retry import Retrier, RetryBudget, RetryPolicy

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

_WORKFLOW_TOOLS = ("vote", "new_answer", "ask_user")
_OWN_ANSWER = re.compile(r"Answer ([A-Z]+) is yours")
_ANY_PARAM_MAY_BE_ASKED = ("something that only this user knows", "if something is missing")
"""In prompts for models without tools."""

_BYTES_PER_TOKEN = 4
_Piece = TextChunk | ReasoningChunk | ToolCallChunk | SearchChunk | CitationChunk


class ScriptedCall(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    tool: str
    """Its name, with or without the server's."""
    arguments: dict[str, Any] = Field(default_factory=dict[str, Any])


class ScriptedCitation(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    url: str
    title: str = ""
    quote: str = ""
    """Text of the page."""


class ScriptedReply(BaseModel):
    """One reply. In a list of replies a bare string is the text, under `vote` the label."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    text: str | None = None
    """The text of the reply."""
    needs: str = ""
    """Only when the prompt holds this text; else the next reply of the list is the one."""
    reasoning: str = ""
    """Reasoning that is streamed before the text."""
    vote: str | None = None
    """The label to vote for: A, B, ..., or first, or last. When it is the agent's own answer, which it may not choose
    among three or more, the first other one is meant; to break that rule, use `raw`."""
    vote_for: str | None = None
    """Vote for the candidate whose answer contains this text; of the agent's own answer, as `vote`."""
    reason: str = "scripted"
    """The reason of the vote or of the new answer."""
    new_answer: str | None = None
    """A better answer instead of a vote."""
    searches: tuple[str, ...] = ()
    """Searches of the web before the text; the usage has their number."""
    citations: tuple[ScriptedCitation, ...] = ()
    """Sources of the text, in which [1] names the first."""
    ask: str | None = None
    """Ask the user for this param while that is allowed, then reply with `text`; {NAME} in it stands for the value."""
    call: tuple[ScriptedCall, ...] = ()
    """Call tools, all at once, while any are offered; the next reply of the list follows. In `text` of a reply {result}
    stands for the last results, {seen} for the pictures of the whole prompt: name, type, size, and hash."""
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
    def _to_calls(cls, value: object) -> object:
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
    """Replies to a question; by default `Answer of <agent>.`"""
    vote: tuple[ScriptedReply, ...] = ()
    """Replies in voting rounds; by default a vote for the first candidate."""
    present: tuple[ScriptedReply, ...] = ()
    """Final answers; by default the winning answer again."""
    report: tuple[ScriptedReply, ...] = ()
    """Reports with final answers, as JSON; by default what each answer says by itself."""
    summary: tuple[ScriptedReply, ...] = ()
    """Summaries of old messages; by default their number."""
    extract: tuple[ScriptedReply, ...] = ()
    """Extracted facts; by default none."""
    describe: tuple[ScriptedReply, ...] = ()
    """Descriptions of pictures; by default what is seen."""
    compare: tuple[ScriptedReply, ...] = ()
    """What two answers have in common, as JSON; by default they differ."""
    items: tuple[ScriptedReply, ...] = ()
    """Items of a union, or criticism of a draft, as JSON; by default one."""
    check: tuple[ScriptedReply, ...] = ()
    """What it says of the items of others, or did with criticism, as JSON; by default it confirms all."""

    @field_validator(*(name for name in get_args(Purpose) if name != "carry_out"), mode="before")
    @classmethod
    def _to_replies(cls, value: object, info: Any) -> object:
        string_field = "vote" if info.field_name == "vote" else "text"
        replies = cast("Sequence[object]", value) if isinstance(value, list | tuple) else [value]
        return tuple({string_field: reply} if isinstance(reply, str) else reply for reply in replies)


def parse_script(script: Mapping[str, Any]) -> ScriptConfig:
    """Check a script. Raises ConfigError with one line for each mistake."""
    try:
        return ScriptConfig.model_validate(dict(script))
    except ValidationError as e:
        problems = [f"backend.script.{'.'.join(map(str, err['loc']))}: {err['msg']}" for err in e.errors()]
        raise ConfigError(problems) from e


class ScriptedFactory(ProviderFactory):
    """Opens scripted providers; each goes through its own script."""

    def __init__(self) -> None:
        self._budget = RetryBudget()

    def open(self, backend: BackendConfig) -> "ScriptedProvider":
        """Return a provider. Raises ConfigError when the script has a mistake."""
        return ScriptedProvider(backend, parse_script(backend.script or {}), self._budget)

    async def close(self) -> None:
        """Do nothing: there are no connections."""


class ScriptedProvider(AlwaysReady):
    """Replies in the order of the script, with one position per purpose; a retried request gets the next reply."""

    def __init__(self, backend: BackendConfig, script: ScriptConfig, budget: RetryBudget) -> None:
        self.abilities = Abilities(tools=backend.tools is not False, vision=backend.vision is not False)
        self.price = price_of(backend, os.environ)
        self._script = script
        self._retrier = Retrier(RetryPolicy.of(backend), budget, self.price)
        self._positions: dict[Purpose, int] = {}

    def stream(self, request: ChatRequest) -> AsyncGenerator[Chunk, None]:
        return self._retrier.stream(lambda: self._attempt(request), request.deadline)

    async def count_prompt(self, request: ChatRequest) -> int | None:
        return _count_prompt(request)

    async def _attempt(self, request: ChatRequest) -> AsyncGenerator[Chunk, None]:
        started = time.monotonic()
        reply = self._take_reply(request)
        prompt_tokens = _count_prompt(request)
        chunks = list(self._chunks(reply, request))
        # The latency includes the work above, so that a benchmark measures massmem and not the script.
        await asyncio.sleep(max(0.0, self._script.latency + reply.delay - (time.monotonic() - started)))
        self._check_window(prompt_tokens)
        for number, chunk in enumerate(chunks):
            if number and self._script.chunk_delay:
                await asyncio.sleep(self._script.chunk_delay)
            yield chunk
        if reply.error:
            raise _make_error(reply)
        yield _finish(reply, chunks, prompt_tokens)

    def _take_reply(self, request: ChatRequest) -> ScriptedReply:
        replies: tuple[ScriptedReply, ...] = getattr(self._script, request.purpose)
        if not replies:
            return _DEFAULT_REPLIES[request.purpose](request)
        position = self._positions.get(request.purpose, 0)
        position = min(position, len(replies) - 1)
        prompt = "\n".join(message.content for message in request.messages)
        while replies[position].needs not in prompt and position < len(replies) - 1:
            position += 1
        reply = replies[position]
        # A model without tool calls is asked whether it needs one before it answers.
        if request.purpose != "vote" and "'answer_now'" in str(request.schema) and not reply.call:
            return ScriptedReply(raw='{"action": "answer_now"}')
        self._positions[request.purpose] = position + 1
        return reply

    def _check_window(self, prompt_tokens: int) -> None:
        window = self._script.context_window
        if window and prompt_tokens > window:
            message = f"scripted: prompt is too long: {prompt_tokens} tokens > {window} maximum"
            raise ContextOverflow(message, prompt_tokens=prompt_tokens, window=window)

    def _chunks(self, reply: ScriptedReply, request: ChatRequest) -> Iterator[_Piece]:
        yield from map(SearchChunk, reply.searches)
        if reply.reasoning:
            yield from map(ReasoningChunk, self._split(reply.reasoning))
        text, calls = _render(reply, request)
        yield from map(TextChunk, self._split(text))
        yield from map(ToolCallChunk, calls)
        yield from (CitationChunk(Citation(c.url, c.title, c.quote)) for c in reply.citations)

    def _split(self, text: str) -> Iterator[str]:
        size = self._script.chunk_size or max(len(text), 1)
        return (text[i : i + size] for i in range(0, len(text), size))


def _finish(reply: ScriptedReply, chunks: Sequence[_Piece], prompt_tokens: int) -> FinishChunk:
    if reply.finish == "none":
        raise StreamInterrupted("scripted: the stream ended without a finish reason")
    calls = any(isinstance(chunk, ToolCallChunk) for chunk in chunks)
    reason = "tool_calls" if calls and reply.finish == "stop" else reply.finish
    texts = [chunk.call.arguments for chunk in chunks if isinstance(chunk, ToolCallChunk)]
    texts += [chunk.text for chunk in chunks if isinstance(chunk, TextChunk | ReasoningChunk)]
    return FinishChunk(reason, Usage(prompt_tokens, _count_tokens("".join(texts)), searches=len(reply.searches)))


def _make_error(reply: ScriptedReply) -> ProviderError:
    kind = _ERRORS[cast("ErrorName", reply.error)]
    message = f"scripted: {reply.error}"
    return kind(message) if issubclass(kind, ContextOverflow) else kind(message, retry_after=reply.retry_after)


def _render(reply: ScriptedReply, request: ChatRequest) -> tuple[str, list[ToolCall]]:
    """Return the text and the tool calls of a reply, in the form that the request asks for."""
    if reply.call and (offered := _list_offered_tools(request)):
        return _render_calls(reply, offered, native=bool(request.tools))
    action = _action_of(reply, request)
    if action is None:
        return reply.raw if reply.raw is not None else _fill_in(reply.text or "", request), []
    name, arguments = action
    if request.tools:
        raw = reply.raw if reply.raw is not None else _to_json(arguments)
        return reply.text or "", [ToolCall("call_scripted", name, raw)]
    content = {"reason": reply.reason, "action": name, **arguments}
    return reply.raw if reply.raw is not None else _to_json(content), []


def _render_calls(reply: ScriptedReply, offered: Sequence[str], *, native: bool) -> tuple[str, list[ToolCall]]:
    calls: list[ToolCall] = []
    for number, call in enumerate(reply.call):
        full_name = next((name for name in offered if name == call.tool or name.endswith(f"__{call.tool}")), call.tool)
        arguments = reply.raw if reply.raw is not None else _to_json(call.arguments)
        calls.append(ToolCall(f"call_{number}", full_name, arguments))
    if native:
        return reply.text or "", calls
    return f'{{"action": "{calls[0].name}", "arguments": {calls[0].arguments}}}', []


def _action_of(reply: ScriptedReply, request: ChatRequest) -> tuple[str, dict[str, str]] | None:
    """Return the workflow action of a reply with its arguments, None when the reply is text."""
    if reply.ask is not None and _may_ask(reply.ask, request):
        return "ask_user", {"param": reply.ask, "prompt": reply.ask_prompt}
    if not request.tools and request.schema is None:
        return None
    if reply.new_answer is not None:
        return "new_answer", {"content": reply.new_answer}
    if reply.vote is not None or reply.vote_for is not None:
        return "vote", {"reason": reply.reason, "choice": _choose(reply, request)}
    return None


def _choose(reply: ScriptedReply, request: ChatRequest) -> str:
    """Return the label to vote for; in place of the agent's own, which it may not vote for, the first other one."""
    candidates, votable = _read_candidates(request)
    match reply:
        case ScriptedReply(vote_for=str(wanted)):
            matching = (label for label, text in candidates.items() if wanted in text)
            label = next(matching, f"no candidate contains {wanted!r}")
        case ScriptedReply(vote="first") if votable:
            label = votable[0]
        case ScriptedReply(vote="last") if votable:
            label = votable[-1]
        case _:
            label = reply.vote or ""
    return votable[0] if label in candidates and label not in votable else label


def _fill_in(text: str, request: ChatRequest) -> str:
    """Replace {NAME} by the values of params and {result} by the results since the model's last message."""
    for name, value in parse_param_values(request.messages[-1].content if request.messages else "").items():
        text = text.replace(f"{{{name}}}", value)
    text = text.replace("{seen}", _list_seen(request)) if "{seen}" in text else text
    if "{result}" not in text:
        return text
    newest_first = list(takewhile(lambda message: message.role != "assistant", reversed(request.messages)))
    results = [result for message in reversed(newest_first) for result in parse_tool_results(message.content)]
    return text.replace("{result}", "\n".join(results))


def _list_seen(request: ChatRequest) -> str:
    files = [attachment.file for message in request.messages for attachment in message.attachments]
    return ", ".join(f"{file.name} ({file.media_type}, {file.size} bytes, {file.hash[:8]})" for file in files) or "none"


def _list_offered_tools(request: ChatRequest) -> list[str]:
    """Return the names of the tools that may be called, without those of the workflow."""
    if request.tool_choice == "none":
        return []
    options = request.schema.get("anyOf", ()) if request.schema else ()
    in_schema = [option["properties"]["action"]["const"] for option in options if "arguments" in option["properties"]]
    return [tool.name for tool in request.tools if tool.name not in _WORKFLOW_TOOLS] + in_schema


def _may_ask(param: str, request: ChatRequest) -> bool:
    """Whether the request allows to ask the user for the param: by a tool, or in its text."""
    if request.tools:
        tool = next((tool for tool in request.tools if tool.name == "ask_user"), None)
        return tool is not None and param in tool.parameters["properties"]["param"].get("enum", (param,))
    prompt = next((m.content for m in reversed(request.messages) if '"ask_user"' in m.content), "")
    return f"{param} (" in prompt or any(words in prompt for words in _ANY_PARAM_MAY_BE_ASKED)


def _read_candidates(request: ChatRequest) -> tuple[dict[str, str], list[str]]:
    """Return the answers by label, and the labels that may be voted for, from the newest message with answers."""
    newest_first = (m.content for m in reversed(request.messages) if m.role == "user")
    text = next(filter(parse_candidates, newest_first), "")
    return parse_candidates(text), list(parse_votable(text))


def _default_presentation(request: ChatRequest) -> ScriptedReply:
    candidates, _ = _read_candidates(request)
    label = next((m[1] for message in reversed(request.messages) if (m := _OWN_ANSWER.search(message.content))), "")
    return ScriptedReply(
        text=candidates.get(label) or next(iter(candidates.values()), f"Answer of {request.agent_id}.")
    )


def _default_report(request: ChatRequest) -> ScriptedReply:
    candidates, _ = _read_candidates(request)
    single = [{"text": text[:200], "answers": [label]} for label, text in candidates.items()]
    answer = next(iter(candidates.values()), "")
    report = {"agreed": [], "disputed": [], "single": single, "missing": [], "answer": answer}
    return ScriptedReply(raw=json.dumps(report))


def _default_check(request: ChatRequest) -> ScriptedReply:
    numbers = re.findall(r"^- \*\*(\d+)\. ", request.messages[-1].content, re.MULTILINE)
    return ScriptedReply(raw=json.dumps({"checks": [{"item": int(n), "stand": "confirm"} for n in numbers]}))


_DEFAULT_REPLIES: Mapping[Purpose, Callable[[ChatRequest], ScriptedReply]] = {
    "answer": lambda request: ScriptedReply(text=f"Answer of {request.agent_id}."),
    "vote": lambda _: ScriptedReply(vote="first"),
    "present": _default_presentation,
    "report": _default_report,
    "summary": lambda request: ScriptedReply(text=f"Summary of {len(request.messages)} messages."),
    "extract": lambda _: ScriptedReply(text="[]"),
    "describe": lambda _: ScriptedReply(text="I see: {seen}."),
    "compare": lambda _: ScriptedReply(raw='{"difference": "their words", "same": false}'),
    "items": lambda request: ScriptedReply(raw=json.dumps({"items": [{"title": f"Finding of {request.agent_id}."}]})),
    "check": _default_check,
}


def _count_prompt(request: ChatRequest) -> int:
    messages = [m.content + "".join(c.arguments for c in m.tool_calls) for m in request.messages]
    tools = [t.name + t.description + _to_json(t.parameters) for t in request.tools]
    schema = _to_json(request.schema) if request.schema else ""
    return _count_tokens("".join((*messages, *tools, schema))) + request.picture_tokens


def _count_tokens(text: str) -> int:
    return -(-len(text.encode("utf-8", "surrogatepass")) // _BYTES_PER_TOKEN)


def _to_json(value: Mapping[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False)
