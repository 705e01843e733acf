"""`/v1/models`, `/v1/chat/completions`, `/v1/responses`: the council for clients of OpenAI's API."""

import asyncio
import re
from collections.abc import Callable, Coroutine, Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, TypeVar
from uuid import uuid4

from fastapi import APIRouter, Depends, Header, Path, Request, Response
from fastapi.responses import JSONResponse
from sse_starlette import EventSourceResponse

from massmem.config.models import AgentConfig
from massmem.core.errors import ContextOverflow, UnknownSessionError
from massmem.core.messages import ChatMessage, ChatRequest, FinishChunk, ReasoningChunk, RetryChunk, TextChunk
from massmem.core.prompts import build_form_prompt, build_system_prompt
from massmem.providers.base import ChatProvider
from massmem.server.dependencies import MAX_KEY_LENGTH, Authorized, Caller, CheckedRoute
from massmem.server.errors import OPENAI_PROBLEMS, InvalidField
from massmem.server.openai_api import replies
from massmem.server.openai_api.replies import Finish, Pieces, Progress, Words, limit_words, read_turn
from massmem.server.openai_api.requests import (
    MAX_MODEL_LENGTH,
    AnswerForm,
    ChatCompletionRequest,
    Conversation,
    Exchanged,
    ResponseRequest,
    find_session,
    hash_history,
    is_side_task,
    read_chat,
    read_response_request,
)
from massmem.server.responses import Stream, stream_response
from massmem.server.schemas import is_session_id
from massmem.server.turns import Question
from massmem.session.owners import public_session_id
from massmem.session.team import DEFAULT_TEAM, Team
from massmem.tools.answer_schema import native_schema
from massmem.turn.budget import Budget

T = TypeVar("T")

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
    """As `Question.team`."""
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
    conversation, form = read_chat(body)
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
    conversation, form = read_response_request(body)
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
) -> tuple[replies.Answer, Pieces]:
    """Return an empty answer and its pieces, which begin with the first one that is asked for. prefix: of its id."""
    model, metadata = _find_model(caller.service.teams.named, target.model), target.metadata
    if model.agent_id is not None or target.naming.solo not in (None, "", "0") or is_side_task(conversation, metadata):
        pieces = limit_words(_ask_alone(caller, model, conversation, form), form.stops, None)
        return replies.Answer(f"{prefix}{uuid4().hex}", target.model), pieces
    service, named = caller.service, _read_session_id(target)
    # Other names are those of chats that the client does not keep: "local:...".
    chat = target.naming.chat if is_session_id(target.naming.chat or "") else None
    target_session = await find_session(service.team.store, caller.owner, conversation.history, named=named, chat=chat)
    public_id = public_session_id(target_session.id)
    question = replace(
        await caller.make_question(conversation.content, public_id, model.team_name, None),
        instructions=conversation.instructions,
        history=conversation.history,
        answer_schema=form.schema,
    )
    pieces = limit_words(_ask_council(caller, model, question, target), form.stops, form.max_tokens)
    if target_session.is_resent:
        pieces = _store_history(caller, question, conversation, pieces)
    answer_id = f"{prefix}{uuid4().hex}" if prefix != _RESPONSE_PREFIX else await _make_response_id(caller, question)
    return replies.Answer(answer_id, target.model, public_id), pieces


async def _ask_council(caller: Caller, model: _CouncilModel, question: Question, target: _Target) -> Pieces:
    """Yield the answer of the team. When nobody takes it to its end, the turn is stopped for good."""
    agents = model.team.agents
    # Before a tool call, or a question to the user, a model may write words that are not its answer.
    alone = len(agents) == 1 and not agents[0].mcp_servers and not model.team.config.param_specs
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
    provider = Budget(team.config.coordination).limit(agent, team.chat[agent.id])
    with service.limits.hold_turn(caller.sub):
        question = await caller.make_question(conversation.content, None, None, None)
        request = _make_solo_request(agent, provider, conversation, form, question)
        try:
            async with aclosing(_read_reply(provider, request)) as pieces:
                async for piece in pieces:
                    if isinstance(piece, Finish):
                        service.metrics.count_usage(piece.usage)
                    yield piece
        except ContextOverflow as e:
            raise InvalidField(
                "the conversation is longer than the model's context window", "messages", code="context_length_exceeded"
            ) from e


def _make_solo_request(
    agent: AgentConfig, provider: ChatProvider, conversation: Conversation, form: AnswerForm, question: Question
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
    sent = False
    async with aclosing(provider.stream(request)) as chunks:
        async for chunk in chunks:
            match chunk:
                case TextChunk(text=words):
                    sent = True
                    yield Words(words)
                case ReasoningChunk(text=thought) if not sent:
                    yield Progress(thought)
                case RetryChunk() if sent:  # what was sent cannot be taken back
                    yield Words("\n\n")
                case FinishChunk(reason=reason, usage=usage):
                    yield Finish("length" if reason == "length" else "stop", usage)
                case _:
                    pass


async def _store_history(caller: Caller, question: Question, conversation: Conversation, pieces: Pieces) -> Pieces:
    """Yield the pieces; before the end is told, store by what the client's next request finds the session."""
    words: list[str] = []
    async with aclosing(pieces):
        async for piece in pieces:
            if isinstance(piece, Words):
                words.append(piece.text)
            if isinstance(piece, Finish):
                answer: Exchanged = ("agent", "".join(words))
                exchanged = [*conversation.history, conversation.question, answer]
                await caller.service.team.store.set_history_hash(question.session_id, hash_history(exchanged))
            yield piece


async def _stream(
    caller: Caller, answer: replies.Answer, pieces: Pieces, encode: Callable[[replies.Answer, Pieces], Stream]
) -> EventSourceResponse:
    response = await stream_response(caller, pieces, partial(encode, answer))
    _name_session(response, answer)
    return response


async def _send_whole(
    request: Request,
    answer: replies.Answer,
    pieces: Pieces,
    encode: Callable[[replies.Answer], replies.ChatCompletion | replies.Response],
) -> Response:
    if await _run_while_connected(request, replies.collect(answer, pieces)) is None:
        return _NOBODY_READS
    response = JSONResponse(encode(answer).model_dump())
    _name_session(response, answer)
    return response


def _name_session(response: Response, answer: replies.Answer) -> None:
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
        session = await caller.service.conversations.find(caller.owner, match[2] if match else "")
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


async def _make_response_id(caller: Caller, question: Question) -> str:
    last = await caller.service.team.store.get_last_turn(question.session_id)
    turn = 1 if last is None else last.turn if last.is_unfinished else last.turn + 1
    return f"resp_{turn}.{public_session_id(question.session_id)}"
