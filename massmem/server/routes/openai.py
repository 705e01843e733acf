"""`/v1/models`, `/v1/chat/completions`, `/v1/responses`: the council for clients of OpenAI's API.

Unknown fields are ignored. Clients that name no session resend what was said so far. After each turn the session stores
a hash of the conversation as its client has it. The next request of this client begins with the same messages, and so
their hash finds the session, at any process. Another history is another session, which begins with these messages.
"""

import asyncio
import json
import re
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from typing import Annotated, Any, Literal, TypeVar
from uuid import uuid4

from fastapi import APIRouter, Depends, Header, Path, Request, Response
from fastapi.responses import JSONResponse
from pydantic import Field, ValidationError
from sse_starlette import EventSourceResponse

from massmem.config.models import AgentConfig
from massmem.core.citations import clean_citations, merge_citations
from massmem.core.errors import ContextOverflow, InputError, UnknownSessionError
from massmem.core.messages import (
    ChatMessage,
    ChatRequest,
    FinishChunk,
    ReasoningChunk,
    Reply,
    RetryChunk,
    SearchChunk,
    TextChunk,
)
from massmem.core.prompts import build_form_prompt, build_system_prompt
from massmem.core.records import Owner, SessionFilter
from massmem.memory.budget import Budget
from massmem.providers.base import ChatProvider
from massmem.render.text import describe_search
from massmem.server import openai_replies as replies
from massmem.server.dependencies import MAX_KEY_LENGTH, Authorized, Caller, CheckedRoute
from massmem.server.errors import OPENAI_PROBLEMS, InvalidField
from massmem.server.openai_replies import Finish, Pieces, Progress, Words, limit_words, read_turn
from massmem.server.responses import Stream, stream_response
from massmem.server.schemas import (
    MAX_MESSAGE_LENGTH,
    Body,
    ContentPart,
    FileData,
    FilePart,
    ImagePart,
    ImageUrl,
    TextPart,
    is_session_id,
)
from massmem.server.turns import ClientQuestion
from massmem.session.owners import public_session_id, to_stored_id
from massmem.session.team import DEFAULT_TEAM, Team
from massmem.store.ports import SessionStore
from massmem.tools.answer_schema import check_schema, native_schema

# Requests, and which session each belongs to

_Sent = str | Sequence[Mapping[str, Any] | str]
"""The content of a message as a client sends it."""

Exchanged = tuple[Literal["user", "agent"], str]
"""Who spoke, and the text."""

MAX_MESSAGES = 10_000
MAX_MODEL_LENGTH = 300
MAX_STOPS = 16
MAX_STOP_LENGTH = 1_000

_TASK_STARTS = ("### Task:",)
_TASK_MARKS = ("<chat_history>", "### Chat History:")
"""In prompts of Open WebUI for titles, tags, follow-ups, search queries and completions, and in none of its others."""

_SILENT_PARTS = ("thinking", "redacted_thinking", "reasoning", "tool_", "function_call", "server_tool_")
"""How types of parts begin that nobody has read, or that are for tools of the client."""

_String = Annotated[str, Field(max_length=MAX_MESSAGE_LENGTH)]
_Stop = Annotated[str, Field(min_length=1, max_length=MAX_STOP_LENGTH)]
_Object = Annotated[dict[str, Any], Field(max_length=100)]
_Kind = Annotated[str, Field(max_length=100)]
_Content = _String | Annotated[list[_Object | _String], Field(max_length=MAX_MESSAGES, fail_fast=True)]
_Count = Annotated[int, Field(ge=1, le=2**31)]


class InputMessage(Body):
    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    """Who speaks. What tools returned is left out: the council cannot call the client's tools."""
    content: _Content | None = None
    """A text, or parts: texts, pictures and files. Thoughts are left out."""


class StreamOptions(Body):
    include_usage: bool = False


class _CouncilRequest(Body):
    model: Annotated[str, Field(max_length=MAX_MODEL_LENGTH, examples=["massmem"])]
    """`massmem/TEAM`, or `massmem/TEAM/AGENT` for one agent's model alone; see `/v1/models`."""
    stream: bool | None = None
    temperature: Annotated[float | None, Field(ge=0, le=2)] = None
    tool_choice: Any = None
    """The council calls no tools of the client: it cannot be forced to."""
    metadata: _Object | None = None
    """`session_id`: the conversation to go on with. `project`: of a new one."""


class ChatCompletionRequest(_CouncilRequest):
    messages: Annotated[list[InputMessage], Field(min_length=1, max_length=MAX_MESSAGES, fail_fast=True)]
    stream_options: StreamOptions | None = None
    max_tokens: _Count | None = None
    max_completion_tokens: _Count | None = None
    stop: _Stop | Annotated[list[_Stop], Field(max_length=MAX_STOPS, fail_fast=True)] | None = None
    n: int | None = None
    response_format: _Object | None = None
    """`json_schema` or `json_object`: the answer is a JSON value."""


class InputItem(Body):
    type: _Kind | None = None
    role: _Kind | None = None
    content: _Content | None = None


class TextSettings(Body):
    format: _Object | None = None
    """`json_schema` or `json_object`: the answer is a JSON value."""


class ResponseRequest(_CouncilRequest):
    input: _String | Annotated[list[InputItem], Field(min_length=1, max_length=MAX_MESSAGES, fail_fast=True)]
    instructions: _String | None = None
    """For all agents, in this turn."""
    previous_response_id: Annotated[str | None, Field(max_length=300)] = None
    max_output_tokens: _Count | None = None
    text: TextSettings | None = None


@dataclass(frozen=True, slots=True)
class Conversation:
    instructions: str
    history: tuple[Exchanged, ...]
    question: Exchanged
    """As text, as clients resend it later."""
    content: str | Sequence[ContentPart]


@dataclass(frozen=True, slots=True)
class AnswerForm:
    schema: Mapping[str, Any] | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    stops: tuple[str, ...] = ()


def read_chat(body: ChatCompletionRequest, caller: str) -> tuple[Conversation, AnswerForm]:
    """Return the conversation of a request, and the form of the answer. May take seconds. Raise InvalidField.

    caller: the name of its sender.
    """
    if body.n not in (None, 1):
        raise InvalidField("a council gives one answer: n can only be 1", "n")
    _check_tool_choice(body.tool_choice)
    stops = (body.stop,) if isinstance(body.stop, str) else tuple(body.stop or ())
    limits = [limit for limit in (body.max_tokens, body.max_completion_tokens) if limit is not None]
    schema = _read_format(body.response_format, "response_format", caller, nested=True)
    form = AnswerForm(schema, body.temperature, min(limits, default=None), stops)
    return _read_messages([(m.role, m.content or "") for m in body.messages], "messages"), form


def read_response_request(body: ResponseRequest, caller: str) -> tuple[Conversation, AnswerForm]:
    """Return the conversation of a request, and the form of the answer. May take seconds. Raise InvalidField.

    caller: the name of its sender.
    """
    _check_tool_choice(body.tool_choice)
    items = [InputItem(content=body.input)] if isinstance(body.input, str) else body.input
    messages = [(item.role or ("user" if item.type in (None, "message") else ""), item.content or "") for item in items]
    messages.insert(0, ("system", body.instructions or ""))
    schema = _read_format(None if body.text is None else body.text.format, "text.format", caller, nested=False)
    return _read_messages(messages, "input"), AnswerForm(schema, body.temperature, body.max_output_tokens)


def is_side_task(conversation: Conversation, metadata: _Object | None) -> bool:
    """Whether a chat client asks for itself, as for a title, and not for its user."""
    if metadata is not None and metadata.get("task"):
        return True
    text = conversation.question[1].lstrip()
    is_task = text.startswith(_TASK_STARTS) and any(mark in text for mark in _TASK_MARKS)
    return is_task and not conversation.history


def _read_messages(messages: Sequence[tuple[str, _Sent]], param: str) -> Conversation:
    instructions: list[str] = []
    exchanged: list[Exchanged] = []
    content: str | Sequence[ContentPart] = ""
    for number, (role, sent) in enumerate(messages):
        if role not in ("system", "developer", "user", "assistant"):
            continue
        parts = _read_parts(sent, param, is_question=number == len(messages) - 1)
        text = _to_text(parts)
        if role in ("system", "developer"):
            instructions.append(text)
        elif text.strip():
            exchanged.append(("user" if role == "user" else "agent", text))
            content = parts
    if not exchanged or exchanged[-1][0] != "user":
        raise InvalidField("the last message must be the user's, with a text", param)
    joined = "\n\n".join(text for text in instructions if text.strip())
    return Conversation(joined, tuple(exchanged[:-1]), exchanged[-1], content)


def _to_text(content: str | Sequence[ContentPart]) -> str:
    """Return a message as text, with a line for each picture and file."""
    if isinstance(content, str):
        return content
    lines: list[str] = []
    for part in content:
        match part:
            case TextPart(text=text):
                lines.append(text)
            case ImagePart():
                lines.append("[picture]")
            case FilePart(file=file):
                lines.append(f"[file: {file.filename}]")
    return "\n\n".join(lines)


def _read_parts(content: _Sent, param: str, *, is_question: bool) -> str | list[ContentPart]:
    """Return the parts of a message that the council reads.

    Thoughts, and calls of the client's tools, are left out. A line stands for an unknown part of an earlier message; in
    the question it raises InvalidField, since the answer would be to something else.
    """
    if isinstance(content, str):
        return content
    parts: list[ContentPart] = []
    for sent in content:
        part: Mapping[str, Any] = {"type": "text", "text": sent} if isinstance(sent, str) else sent
        kind = str(part.get("type"))
        if kind.startswith(_SILENT_PARTS):
            continue
        try:
            read = _read_part(part)
        except ValidationError as e:
            raise InvalidField(f"the part {kind}: {e.errors()[0]['msg']}", param) from e
        if read is None and is_question:
            raise InvalidField(f"the part {kind} is neither a text nor a picture or file with its data", param)
        parts.append(read or TextPart(type="text", text=f"[{kind[:100]}: not read]"))
    return parts


def _read_part(part: Mapping[str, Any]) -> ContentPart | None:
    match part:
        case {"text": str(text)} | {"refusal": str(text)}:
            return TextPart(type="text", text=text)
        case {"image_url": str(url) | {"url": str(url)}}:
            return ImagePart(type="image_url", image_url=ImageUrl(url=url))
        case {"file": {"file_data": str(data), **rest}} | {"file_data": str(data), **rest}:
            return FilePart(type="file", file=FileData(filename=str(rest.get("filename") or "file"), file_data=data))
        case _:
            return None


def _read_format(form: Mapping[str, Any] | None, param: str, caller: str, *, nested: bool) -> Mapping[str, Any] | None:
    """Return the schema of the answer. nested: it stands below `json_schema`."""
    match form:
        case None | {"type": "text"}:
            return None
        case {"type": "json_object"}:
            return {"type": "object"}
        case {"type": "json_schema", "json_schema": {"schema": schema}} if nested:
            pass
        case {"type": "json_schema", "schema": schema} if not nested:
            pass
        case _:
            raise InvalidField("the form is text, json_object, or json_schema with a schema", param)
    try:
        return check_schema(schema, caller)
    except InputError as e:
        raise InvalidField(e.message, param) from e


def _check_tool_choice(choice: Any) -> None:
    if choice not in (None, "auto", "none"):
        raise InvalidField("the council cannot call tools of the client; its agents have their own", "tool_choice")


@dataclass(frozen=True, slots=True)
class FoundSession:
    id: str
    """As the store knows it; it may be new."""
    is_resent: bool


def hash_history(messages: Sequence[Exchanged]) -> str:
    """Return the SHA-256 of a conversation. Blanks do not count: clients trim texts."""
    plain = [(role, " ".join(text.split())) for role, text in messages]
    return sha256(json.dumps(plain).encode()).hexdigest()


async def match_session(
    store: SessionStore, owner: Owner, history: Sequence[Exchanged], *, named: str | None, chat: str | None
) -> FoundSession:
    """Return the session that a request goes on with, or the id of a new one.

    named: a session that the client names: it is this one, whatever the client resends. chat: a chat of the client, in
    which the user may have changed what was said: it is this session only while nothing was changed.

    Raises StoreError.
    """
    if named is not None:
        is_new = await store.get_session(to_stored_id(owner, named)) is None
        return FoundSession(to_stored_id(owner, named), is_new)
    if history:
        by_hash = SessionFilter(owner=owner, history_hash=hash_history(history))
        for listed in await store.find_sessions(by_hash, 1):
            if listed.session.status != "deleting":
                return FoundSession(listed.session.session_id, is_resent=True)
    if chat is not None:
        chat_id = to_stored_id(owner, chat)
        by_id = await store.find_sessions(SessionFilter(owner=owner, session_id=chat_id))
        if all(listed.conversation_length == len(history) for listed in by_id):
            return FoundSession(chat_id, is_resent=True)
    return FoundSession(to_stored_id(owner, f"session_{uuid4().hex}"), is_resent=True)


T = TypeVar("T")

# Routes

router = APIRouter(route_class=CheckedRoute, prefix="/v1", tags=["openai"], responses=OPENAI_PROBLEMS)

_MODEL_PREFIX = "massmem"
"""Alone it is the team of `massmem serve`."""

_DEFAULT_MODEL = "default"
"""The team of `massmem serve` in names of models, unless one of server.teams has this name."""

_NOBODY_READS = Response(status_code=499)
"""The response to a client that has gone, as logs of nginx name it."""

_RESPONSE_PREFIX = "resp_"
_RESPONSE_ID = re.compile(r"resp_(\d{1,9})\.(.+)")

_ANSWER: dict[int | str, dict[str, Any]] = {
    200: {
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
        "description": "The answer",
        "links": {
            name: {"operationId": name, "parameters": {"session_id": "$response.header.X-Session-Id"}}
            for name in ("history", "follow", "conversation", "memory", "clear")
        },
    }
}


def _header(name: str, description: str) -> Any:
    return Header(alias=name, max_length=MAX_KEY_LENGTH, description=description)


_SOLO = _header("X-Massmem-Solo", "1: one agent's model answers alone, and nothing is remembered.")
_SESSION = _header("X-Session-Id", "The conversation to go on with; an unknown one is created.")
_CHAT = _header("X-OpenWebUI-Chat-Id", "The chat of Open WebUI: each is a conversation.")


@dataclass(frozen=True, slots=True)
class _CouncilModel:
    team_name: str
    """As `ClientQuestion.team`."""
    team: Team
    agent_id: str | None = None
    """None: the whole team."""


@dataclass(frozen=True, slots=True)
class _Naming:
    solo: Annotated[str | None, _SOLO] = None
    session_id: Annotated[str | None, _SESSION] = None
    chat: Annotated[str | None, _CHAT] = None


Naming = Annotated[_Naming, Depends()]


@dataclass(frozen=True, slots=True)
class _Target:
    model: str
    naming: _Naming
    metadata: dict[str, Any] | None
    is_live: bool
    """The answer is sent while it is written."""


@router.get("/models")
async def models(caller: Authorized) -> replies.ModelList:
    """The teams and their agents, as models."""
    return replies.ModelList(data=[replies.ModelEntry(id=name) for name in _list_models(caller.service.teams.named)])


@router.get("/models/{model:path}")
async def model(
    model: Annotated[str, Path(max_length=MAX_MODEL_LENGTH, examples=["massmem"], description="Its name.")],
    caller: Authorized,
) -> replies.ModelEntry:
    """One model."""
    _find_model(caller.service.teams.named, model)
    return replies.ModelEntry(id=model)


@router.post("/chat/completions", responses=_ANSWER, response_model=replies.ChatCompletion)
async def chat_completions(
    body: ChatCompletionRequest,
    request: Request,
    caller: Authorized,
    naming: Naming,
) -> Response:
    """Go on with a conversation. A client that closes the connection stops the council."""
    conversation, form = await asyncio.to_thread(read_chat, body, caller.name)
    target = _Target(body.model, naming, body.metadata, bool(body.stream))
    answer, pieces = await _begin(caller, target, conversation, form, "chatcmpl-")
    if body.stream:
        usage = body.stream_options is not None and body.stream_options.include_usage
        return await _stream(caller, answer, pieces, partial(replies.stream_completion, usage=usage))
    return await _send_whole(request, answer, pieces, replies.make_completion)


@router.post("/responses", responses=_ANSWER, response_model=replies.Response)
async def responses(
    body: ResponseRequest,
    request: Request,
    caller: Authorized,
    naming: Naming,
) -> Response:
    """Go on with a conversation. A client that closes the connection stops the council."""
    conversation, form = await asyncio.to_thread(read_response_request, body, caller.name)
    if body.previous_response_id is not None:
        naming = replace(naming, session_id=await _find_previous(caller, body.previous_response_id))
    target = _Target(body.model, naming, body.metadata, bool(body.stream))
    answer, pieces = await _begin(caller, target, conversation, form, _RESPONSE_PREFIX)
    answer.previous = body.previous_response_id
    if body.stream:
        return await _stream(caller, answer, pieces, replies.stream_response_events)
    return await _send_whole(request, answer, pieces, replies.make_response)


def _list_models(teams: Mapping[str, Team]) -> dict[str, _CouncilModel]:
    """Return the models by name. teams: by name, see `Teams`."""
    by_name = {_DEFAULT_MODEL: DEFAULT_TEAM, **{name: name for name in teams if name != DEFAULT_TEAM}}
    models = {_MODEL_PREFIX: _CouncilModel(DEFAULT_TEAM, teams[DEFAULT_TEAM])}
    for shown, name in by_name.items():
        team = teams[name]
        models[f"{_MODEL_PREFIX}/{shown}"] = _CouncilModel(name, team)
        for agent in team.agents:
            models[f"{_MODEL_PREFIX}/{shown}/{agent.id}"] = _CouncilModel(name, team, agent.id)
    return models


def _find_model(teams: Mapping[str, Team], name: str) -> _CouncilModel:
    """Return the model with this name. Raise InvalidField: 404, there is none."""
    model = _list_models(teams).get(name)
    if model is None:
        message = f"there is no model {name[:100]!r}; GET /v1/models lists those that there are"
        raise InvalidField(message, "model", status=404, code="model_not_found")
    return model


async def _begin(
    caller: Caller, target: _Target, conversation: Conversation, form: AnswerForm, prefix: str
) -> tuple[replies.OpenAIAnswer, Pieces]:
    """Return an empty answer and its pieces, which begin with the first one that is asked for. prefix: of its id."""
    model, metadata = _find_model(caller.service.teams.named, target.model), target.metadata
    if model.agent_id is not None or target.naming.solo not in (None, "", "0") or is_side_task(conversation, metadata):
        pieces = limit_words(_ask_alone(caller, model, conversation, form), form.stops, None)
        return replies.OpenAIAnswer(f"{prefix}{uuid4().hex}", target.model), pieces
    service, named = caller.service, _read_session_id(target)
    # Other names are those of chats that the client does not keep: "local:...".
    chat = target.naming.chat if is_session_id(target.naming.chat or "") else None
    target_session = await match_session(service.team.store, caller.owner, conversation.history, named=named, chat=chat)
    public_id, project = public_session_id(target_session.id), (metadata or {}).get("project")
    if not isinstance(project, str | None):
        raise InvalidField("the name of a project is a text", "metadata.project")
    question = replace(
        await caller.make_question(conversation.content, public_id, model.team_name, None, project),
        instructions=conversation.instructions,
        history=conversation.history,
        answer_schema=form.schema,
    )
    pieces = limit_words(_ask_council(caller, model, question, target), form.stops, form.max_tokens)
    if target_session.is_resent:
        pieces = _store_history(caller, question, conversation, pieces)
    answer_id = f"{prefix}{uuid4().hex}" if prefix != _RESPONSE_PREFIX else await _make_response_id(caller, question)
    return replies.OpenAIAnswer(answer_id, target.model, public_id), pieces


async def _ask_council(caller: Caller, model: _CouncilModel, question: ClientQuestion, target: _Target) -> Pieces:
    """Yield the answer of the team. When nobody takes it to its end, the turn is stopped for good."""
    agents = model.team.agents
    # Before a tool call, or a question to the user, a model may write words that are not its answer.
    alone = len(agents) == 1 and not agents[0].has_tools and not model.team.config.param_specs
    live = target.is_live and question.answer_schema is None
    events = caller.service.turns.ask(question)
    ended = False
    try:
        async with aclosing(read_turn(events, live=live, alone=alone)) as pieces:
            async for piece in pieces:
                ended = isinstance(piece, Finish)
                yield piece
    finally:
        if not ended:
            caller.service.turns.stop_question(question)


async def _ask_alone(caller: Caller, model: _CouncilModel, conversation: Conversation, form: AnswerForm) -> Pieces:
    """Yield the reply of one agent's model, to one request without tools and memories; nothing of it is stored.

    It is the agent that is named, or the first of the team.

    Raises:
        InvalidField: the conversation is too long, or the model does not see what it shows.
        ProviderError: there is no reply.
    """
    team, service = model.team, caller.service
    agent = next(agent for agent in team.agents if model.agent_id in (None, agent.id))
    budget = Budget(team.config.coordination, service.metrics.count_usage)
    provider = budget.limit(agent.id, agent.backend, team.chat[agent.id])
    with service.limits.hold_turn(caller.sub):
        question = await caller.make_question(conversation.content, None, None, None)
        request = _make_solo_request(agent, provider, conversation, form, question)
        try:
            async with aclosing(_read_reply(provider, request)) as pieces:
                async for piece in pieces:
                    yield piece
        except ContextOverflow as e:
            raise InvalidField(
                "the conversation is longer than the model's context window", "messages", code="context_length_exceeded"
            ) from e


def _make_solo_request(
    agent: AgentConfig, provider: ChatProvider, conversation: Conversation, form: AnswerForm, question: ClientQuestion
) -> ChatRequest:
    """question: has the texts of files, too."""
    vision = provider.abilities.vision
    attachments = tuple(attachment for attachment in question.attachments if vision or not attachment.optional)
    if attachments and vision is False:
        raise InvalidField(f"{agent.id} sees no pictures", "messages")
    system = "\n\n".join(filter(None, (build_system_prompt(agent.system_message), conversation.instructions)))
    text = question.text if form.schema is None else build_form_prompt(question.text, form.schema)
    history = (ChatMessage("user" if role == "user" else "assistant", text) for role, text in conversation.history)
    return ChatRequest(
        (ChatMessage("system", system), *history, ChatMessage("user", text, attachments=attachments)),
        "answer",
        agent.id,
        schema=None if form.schema is None else native_schema(form.schema),
        temperature=form.temperature,
        max_tokens=form.max_tokens,
    )


async def _read_reply(provider: ChatProvider, request: ChatRequest) -> Pieces:
    sent, reply = False, Reply()
    async with aclosing(provider.stream(request)) as chunks:
        async for chunk in chunks:
            reply.feed(chunk)
            match chunk:
                case TextChunk(text=words):
                    sent = True
                    yield Words(words)
                case ReasoningChunk(text=thought) if not sent:
                    yield Progress(thought)
                case SearchChunk(query=query) if not sent:
                    yield Progress(f"{describe_search(query)}\n")
                case RetryChunk() if sent:  # what was sent cannot be taken back
                    yield Words("\n\n")
                case FinishChunk(reason=reason, usage=usage):
                    sources = tuple(merge_citations(clean_citations(reply.citations)))
                    yield Finish("length" if reason == "length" else "stop", usage, sources)
                case _:
                    pass


async def _store_history(
    caller: Caller, question: ClientQuestion, conversation: Conversation, pieces: Pieces
) -> Pieces:
    """Yield the pieces; before the end is told, store by what the client's next request finds the session."""
    words: list[str] = []
    async with aclosing(pieces):
        async for piece in pieces:
            if isinstance(piece, Words):
                words.append(piece.text)
            if isinstance(piece, Finish):
                answer: Exchanged = ("agent", "".join(words))
                exchanged = [*conversation.history, conversation.question, answer]
                await caller.service.team.store.update_session(
                    question.session_id, history_hash=hash_history(exchanged)
                )
            yield piece


async def _stream(
    caller: Caller,
    answer: replies.OpenAIAnswer,
    pieces: Pieces,
    encode: Callable[[replies.OpenAIAnswer, Pieces], Stream],
) -> EventSourceResponse:
    response = await stream_response(caller, pieces, partial(encode, answer))
    _name_session(response, answer)
    return response


async def _send_whole(
    request: Request,
    answer: replies.OpenAIAnswer,
    pieces: Pieces,
    encode: Callable[[replies.OpenAIAnswer], replies.ChatCompletion | replies.Response],
) -> Response:
    if await _run_while_connected(request, replies.collect(answer, pieces)) is None:
        return _NOBODY_READS
    response = JSONResponse(encode(answer).model_dump())
    _name_session(response, answer)
    return response


def _name_session(response: Response, answer: replies.OpenAIAnswer) -> None:
    if answer.session_id:
        response.headers["X-Session-Id"] = answer.session_id


async def _run_while_connected(request: Request, work: Coroutine[None, None, T]) -> T | None:
    """Return the result of `work`; None: the client closed the connection, and it was cancelled. Raises as `work`."""

    async def wait_for_disconnect() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    task, watch = asyncio.create_task(work), asyncio.create_task(wait_for_disconnect())
    try:
        await asyncio.wait({task, watch}, return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None
    finally:
        for pending in (task, watch):
            pending.cancel()
        await asyncio.gather(task, watch, return_exceptions=True)


def _read_session_id(target: _Target) -> str | None:
    """Return the session that the client names. Raise InvalidField."""
    for param, name in (
        ("metadata.session_id", (target.metadata or {}).get("session_id")),
        ("X-Session-Id", target.naming.session_id),
    ):
        if name:
            if not isinstance(name, str) or not is_session_id(name):
                raise InvalidField("a session id has letters, digits, '_', '-' and single dots", param)
            return name
    return None


async def _find_previous(caller: Caller, response_id: str) -> str:
    """Return the session of a response. Raise InvalidField: there is none, or the conversation has gone on since."""
    match = _RESPONSE_ID.fullmatch(response_id)
    try:
        session = await caller.sessions.get(match[2] if match else "")
    except UnknownSessionError as e:
        raise InvalidField(
            "there is no such response", "previous_response_id", status=404, code="previous_response_not_found"
        ) from e
    assert match is not None  # else there is no such session
    turn = int(match[1])
    turns = await caller.service.team.store.list_turns(session.session_id, turn - 1)
    later = [record for record in turns if record.turn > turn]
    if later and (len(later) > 1 or turns[0].status != "abandoned"):
        raise InvalidField("the conversation has gone on since: send it as input instead", "previous_response_id")
    return match[2]


async def _make_response_id(caller: Caller, question: ClientQuestion) -> str:
    store = caller.service.team.store
    last, newest = [await store.get_last_turn(question.session_id, with_withdrawn=every) for every in (False, True)]
    turn = last.turn if last is not None and last.is_unfinished else 1 if newest is None else newest.turn + 1
    return f"resp_{turn}.{public_session_id(question.session_id)}"
