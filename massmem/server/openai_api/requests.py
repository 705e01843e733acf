"""Requests in the form of OpenAI's API: what the council makes of them, and which session each belongs to.

Unknown fields are ignored. Clients that name no session resend what was said so far. After each turn the session stores
a hash of the conversation as its client has it. The next request of this client begins with the same messages, and so
their hash finds the session, at any process. Another history is another session, which begins with these messages.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Annotated, Any, Literal
from uuid import uuid4

from pydantic import Field, ValidationError

from massmem.core.errors import InputError
from massmem.core.records import Owner, SessionFilter
from massmem.server.errors import InvalidField
from massmem.server.schemas import (
    MAX_MESSAGE_LENGTH,
    Body,
    ContentPart,
    FileData,
    FilePart,
    ImagePart,
    ImageUrl,
    TextPart,
)
from massmem.session.owners import to_stored_id
from massmem.store.ports import SessionStore
from massmem.tools.answer_schema import check_schema

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
"""What prompts of Open WebUI for titles, tags, follow-ups, search queries and completions have, and its others lack."""

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
    """`session_id`: the conversation to go on with."""


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


def read_chat(body: ChatCompletionRequest) -> tuple[Conversation, AnswerForm]:
    """Return the conversation of a request, and the form of the answer. Raise InvalidField."""
    if body.n not in (None, 1):
        raise InvalidField("a council gives one answer: n can only be 1", "n")
    _check_tool_choice(body.tool_choice)
    stops = (body.stop,) if isinstance(body.stop, str) else tuple(body.stop or ())
    limits = [limit for limit in (body.max_tokens, body.max_completion_tokens) if limit is not None]
    schema = _read_format(body.response_format, "response_format", nested=True)
    form = AnswerForm(schema, body.temperature, min(limits, default=None), stops)
    return _read_messages([(m.role, m.content or "") for m in body.messages], "messages"), form


def read_response_request(body: ResponseRequest) -> tuple[Conversation, AnswerForm]:
    """Return the conversation of a request, and the form of the answer. Raise InvalidField."""
    _check_tool_choice(body.tool_choice)
    items = [InputItem(content=body.input)] if isinstance(body.input, str) else body.input
    messages = [(item.role or ("user" if item.type in (None, "message") else ""), item.content or "") for item in items]
    messages.insert(0, ("system", body.instructions or ""))
    schema = _read_format(None if body.text is None else body.text.format, "text.format", nested=False)
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


def _read_format(form: Mapping[str, Any] | None, param: str, *, nested: bool) -> Mapping[str, Any] | None:
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
        return check_schema(schema)
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


async def find_session(
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
        by_id = await store.find_sessions(SessionFilter(owner=owner, prefix=chat_id))
        lengths = {listed.session.session_id: listed.conversation_length for listed in by_id}
        if lengths.get(chat_id, len(history)) == len(history):
            return FoundSession(chat_id, is_resent=True)
    return FoundSession(to_stored_id(owner, f"session_{uuid4().hex}"), is_resent=True)
