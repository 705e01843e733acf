"""Conversations and tools as servers take them: calls, what goes back with them, schemas, and limits of tools."""

import json
import logging
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any, cast

from massmem.core.calls import parse_object
from massmem.core.messages import ChatMessage, ToolCall, ToolSpec, clean_text
from massmem.core.redact import redact
from massmem.core.text import one_line

log = logging.getLogger(__name__)

Json = Mapping[str, Any]

MAX_STATE = 1_000_000
"""Characters of what a provider gives with a call to get it back; what is longer is not stored."""

TOOL_MARK = "mcp__"
"""How the names of those tools begin that a request can do without; the others are actions of the agent."""

_MAX_NAME = 64
"""Characters of a tool's name that servers take."""

_MAX_UNUSABLE = 500
"""Characters of unusable arguments that the model is shown again."""

_ACCEPTED_ID = re.compile(r"[A-Za-z0-9]{9}")
"""Mistral takes no other ids; Anthropic no other signs than `_` and `-` beside these; OpenAI at most 40 of them."""

GIVEN_WITH_CALLS = (
    # DeepSeek, Kimi, Qwen and GLM; OpenRouter, Groq and vLLM; OpenRouter and MiniMax; LiteLLM; Gemini; GitHub
    *("reasoning_content", "reasoning", "reasoning_details", "thinking_blocks", "extra_content"),
    *("reasoning_opaque", "reasoning_text", "thought_signature", "thought_signatures"),
)
"""Fields of a message of chat completions that servers want back when it calls tools."""

_WHOLE_FROM = 8
"""MiniMax sends all that there is so far, others the next piece: a text of so many characters hardly repeats itself."""

_IN_PIECES = ("text", "summary", "thinking")
"""Fields of a part of such a field that a stream brings in pieces."""


# Conversations


def find_state(call: Json) -> dict[str, Any]:
    """Return the fields of a call of chat completions, or of its function, that the protocol does not know."""
    known = ("id", "index", "type", "function", "name", "arguments")
    return {name: value for name, value in call.items() if name not in known and value}


def join_state(state: dict[str, Any], piece: Json) -> None:
    """Add what one chunk of a stream has of a message's fields to what there is."""
    for name, value in piece.items():
        old: Any = state.get(name)
        if isinstance(value, str) and isinstance(old, str):
            state[name] = old + value
        elif isinstance(value, list):
            parts: list[Any] = state.setdefault(name, [])
            for part in cast("list[Any]", value):
                _join_part(parts, part)
        elif value:
            state[name] = value


def _join_part(parts: list[Any], part: Any) -> None:
    """Add a part to the last one when it goes on with it, as far as their type and index say."""
    last = parts[-1] if parts else None
    if not (isinstance(part, dict) and isinstance(last, dict)):
        parts.append(part)
        return
    old, new = cast("dict[str, Any]", last), cast("dict[str, Any]", part)
    is_same = all(old.get(name) == new.get(name) for name in ("type", "index"))
    if not is_same or "data" in new or (old.get("signature") and any(new.get(name) for name in _IN_PIECES)):
        parts.append(dict(new))
        return
    for name, value in new.items():
        if name in _IN_PIECES and isinstance(value, str) and isinstance(old.get(name), str):
            whole = value.startswith(old[name]) and len(old[name]) >= _WHOLE_FROM
            old[name] = value if whole else old[name] + value
        elif value is not None:
            old[name] = value


def write_state(state: Json) -> str:
    """Return what a provider gave with a call as text for the log; "" for nothing, and for more than is stored."""
    filled = {place: value for place, value in state.items() if value}
    whole = json.loads(json.dumps(filled))  # halves of a character that two pieces had are one now
    text = clean_text(json.dumps(whole, ensure_ascii=False, separators=(",", ":"))) if filled else ""
    if len(text) > MAX_STATE:
        log.warning("what the provider gave with a call is not kept: %d characters, more than %d", len(text), MAX_STATE)
    return text if len(text) <= MAX_STATE else ""


def read_state(call: ToolCall) -> Mapping[str, Any]:
    """Return what `write_state` wrote; {} when there is nothing that goes back with the call."""
    return parse_object(call.state) or {}


def sign_call(call: ToolCall, owner: str) -> ToolCall:
    """Return a call of a reply with its state marked as that of `owner`: an endpoint with a model."""
    return replace(call, state=f"{owner}\n{call.state}") if call.state else call


def make_calls_portable(messages: Sequence[ChatMessage], owner: str) -> list[ChatMessage]:
    """Return the messages with their calls in a form that every server takes.

    A server refuses a whole conversation over one odd call in it: ids have to differ and to be of one form, names of
    another, arguments have to be one JSON object, and each call has exactly one result, right after it.

    owner: whose states the calls keep; they lose those of others.
    """
    sent_on: list[ChatMessage] = []
    used, waiting = Counter[str](), list[tuple[str, str]]()
    """Times that an id was used; ids of calls without a result, the calls' own and as they are sent."""
    for message in (*messages, None):
        id_ = message and message.tool_call_id
        if message and id_ is not None and (ids := next((ids for ids in waiting if ids[0] == id_), None)):
            waiting.remove(ids)
            sent_on.append(replace(message, tool_call_id=ids[1]))
            continue
        sent_on += (ChatMessage("tool", "(no result)", tool_call_id=sent) for _, sent in waiting)
        waiting.clear()
        if message is None:
            break
        if id_ is not None:
            message = ChatMessage("user", message.content, tool=message.tool, calls=message.calls)
        calls: list[ToolCall] = []
        for call in message.tool_calls:
            used[call.id] += 1
            sent = sha256(f"{used[call.id]} {call.id}".encode()).hexdigest()[:9]
            sent = call.id if used[call.id] == 1 and _ACCEPTED_ID.fullmatch(call.id) else sent
            waiting.append((call.id, sent))
            name = re.sub(r"[^A-Za-z0-9_-]", "_", call.name)[:_MAX_NAME] or "unknown"
            own, _, state = call.state.partition("\n")
            calls.append(ToolCall(sent, name, _to_object(call.arguments), state if own == owner else ""))
        sent_on.append(replace(message, tool_calls=tuple(calls)))
    return sent_on


def _to_object(arguments: str) -> str:
    """Return arguments as one JSON object, also when the model wrote something else."""
    text = clean_text(arguments or "{}")
    try:
        value = json.loads(text)
        written = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (ValueError, RecursionError):
        value, written = None, ""
    if not isinstance(value, dict):
        return json.dumps({"unusable": text[:_MAX_UNUSABLE]})
    return clean_text(written) if "\\u" in text else text


# Tools

_MAX_DEPTH, _MAX_NODES = 16, 2_000
"""Levels, and parts, of a schema that is sent; what is below is left open."""

_TYPES: Mapping[str, str] = {
    **{name: name for name in ("object", "array", "string", "integer", "number", "boolean", "null")},
    **{"str": "string", "int": "integer", "float": "number", "bool": "boolean", "dict": "object", "list": "array"},
}
"""JSON Schema's types, also by the names that some tool servers use instead."""

_TYPES_OF_VALUES: Mapping[type, str] = {str: "string", bool: "boolean", int: "integer", float: "number"}
_KEYS_OF_TYPES = {"object": "properties", "array": "items"}
_NULLS = ({"type": "null"}, {"const": None}, {"enum": [None]})

_NUMBERS = ("minimum", "maximum", "minItems", "maxItems")
_MORE_NUMBERS = ("exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength")
_MORE_TEXTS = ("title", "format", "pattern", "x-mcp-header")
"""Fields beside the structure of a schema; the first are known to every server. All others are left out: a schema that
says less is better than a tool that is refused."""


class UnusableSchema(ValueError):
    """Why no call can be described by a schema."""


def tidy_schema(schema: object, *, narrow: bool = False) -> dict[str, Any]:
    """Return the schema of a tool's arguments as servers read it: an object with properties, without references.

    What is malformed is left out, or left open. narrow: in the words that Gemini, and servers that know little, take.
    Raises UnusableSchema when the arguments are no object.
    """
    tidy = _Tidier(schema, narrow=narrow).tidy(schema, is_root=True)
    if "object" not in tidy.get("type", "object"):
        raise UnusableSchema(f"its arguments are no object but of type {tidy['type']}")
    known = {name: value for name, value in tidy.items() if name not in ("enum", "default", "nullable", "anyOf")}
    return {"properties": {}, **known, "type": "object"}


@dataclass(slots=True)
class _Tidier:
    """One schema on its way to a server."""

    root: object
    narrow: bool
    nodes: int = 0

    def tidy(
        self, schema: object, depth: int = 0, references: tuple[str, ...] = (), *, is_root: bool = False
    ) -> dict[str, Any]:
        """references: those that this part stands below. A schema that holds itself is open at that place."""
        fields, references = self._resolve(schema, references, depth, join_all=is_root)
        named = [name for name in _list(fields.get("type")) or [fields.get("type")] if isinstance(name, str)]
        types = list(dict.fromkeys(_TYPES[name] for name in named if name in _TYPES))
        values = _list(fields.get("enum")) or ([fields["const"]] if "const" in fields else [])
        if not types:
            of_values = [_TYPES_OF_VALUES[type(value)] for value in values if type(value) in _TYPES_OF_VALUES]
            types = [*(name for name, key in _KEYS_OF_TYPES.items() if key in fields), *of_values][:1]
        is_nullable = "null" in types or fields.get("nullable") is True
        types = [name for name in types if name != "null"] or (["string"] if self.narrow and not is_root else [])
        options = _list(fields.get("anyOf")) + _list(fields.get("oneOf"))
        if not options and self.narrow and len(types) > 1:
            options = [{**fields, "type": name} for name in types]
        is_nullable |= any(part in _NULLS for part in options)
        some: list[dict[str, Any]] = []
        for option in options:
            part = {} if option is False or option in _NULLS else self.tidy(option, depth + 1, references)
            some += [part] if part and part not in some else []
        about = {"description": text} if isinstance(text := fields.get("description"), str) and text else {}
        if len(some) > 1:
            tidy: dict[str, Any] = {"anyOf": some} if self.narrow else {"anyOf": some, **about}
        elif some:
            tidy = {**some[0], **about}
        else:
            tidy = about | self._write_values(fields, types, values)
            tidy |= self._write_inner(fields, tidy.get("type", ""), depth, references)
        return self._add_null(tidy) if is_nullable else tidy

    def _resolve(
        self, schema: object, references: tuple[str, ...], depth: int, *, join_all: bool = False
    ) -> tuple[dict[str, Any], tuple[str, ...]]:
        """Return a part without references and allOf, and the references on the way.

        join_all: also without anyOf and oneOf, as for all that has properties: what all of them require is required.
        """
        self.nodes += 1
        if not isinstance(schema, Mapping) or depth > _MAX_DEPTH or self.nodes > _MAX_NODES:
            return {}, references
        fields = dict(cast("Json", schema))
        while isinstance(reference := fields.pop("$ref", None), str):
            target = self._find(reference)
            fields = ({"type": target.get("type")} if reference in references else dict(target)) | fields
            references = (*references, reference)
        properties = _map(fields.get("properties"))
        required = set(map(str, _list(fields.get("required"))))
        common: list[set[str]] = []
        for name in ("allOf", "anyOf", "oneOf") if join_all or properties else ("allOf",):
            for option in _list(fields.pop(name, None)):
                part, _ = self._resolve(option, references, depth + 1, join_all=name == "allOf")
                if name != "allOf" and "properties" not in part:
                    continue
                for key, value in _map(part.get("properties")).items():
                    known = properties.setdefault(key, value)
                    properties[key] = known if value == known else {"anyOf": [known, value]}
                names = set(_list(part.get("required")))
                required |= names if name == "allOf" else set()
                common += [names] if name != "allOf" else []
                fields = part | fields
        if properties:
            required |= set[str].intersection(*common) if common else set()
            fields |= {"properties": properties, "required": [key for key in properties if key in required]}
        return fields, references

    def _find(self, reference: str) -> Json:
        """Return what a reference within the schema points to, {} when there is no such place."""
        place: object = self.root
        for step in reference.split("/")[1:] if reference.startswith("#") else ("",):
            place = _map(place).get(step.replace("~1", "/").replace("~0", "~"))
        return _map(place)

    def _write_values(self, fields: Json, types: Sequence[str], values: Sequence[Any]) -> dict[str, Any]:
        """Return what a part says of values that are no lists and objects."""
        numbers, texts = (_NUMBERS, ()) if self.narrow else (_NUMBERS + _MORE_NUMBERS, _MORE_TEXTS)
        written = {name: fields[name] for name in texts if isinstance(fields.get(name), str)}
        written |= {name: value for name in numbers if type(value := fields.get(name)) in (int, float)}
        if written.get("multipleOf", 1) <= 0:
            del written["multipleOf"]
        if types:
            written["type"] = types[0] if len(types) == 1 else list(types)
        if not self.narrow:
            written |= {"enum": values} if values else {}
            written |= {"default": fields["default"]} if "default" in fields else {}
        elif values and all(isinstance(value, str) and value for value in values):
            written["enum"] = values
        elif values:
            shown = ", ".join(json.dumps(value, ensure_ascii=False) for value in values)
            written["description"] = f"{fields.get('description') or ''} One of: {shown}".strip()
        return written

    def _write_inner(
        self, fields: Json, types: str | Sequence[str], depth: int, references: tuple[str, ...]
    ) -> dict[str, Any]:
        """Return what a part says of the properties and items of its value."""
        inner: dict[str, Any] = {}
        is_object, more = "object" in types, fields.get("additionalProperties")
        if is_object and "properties" in fields:
            properties = {name: value for name, value in _map(fields["properties"]).items() if value is not False}
            inner["properties"] = {name: self.tidy(v, depth + 1, references) for name, v in properties.items()}
            if required := [name for name in _list(fields.get("required")) if name in properties]:
                inner["required"] = required
        if is_object and more is not None and not self.narrow:
            inner["additionalProperties"] = more if isinstance(more, bool) else self.tidy(more, depth + 1, references)
        if "array" in types:
            inner["items"] = self.tidy(fields.get("items"), depth + 1, references)
        return inner

    def _add_null(self, tidy: dict[str, Any]) -> dict[str, Any]:
        if self.narrow:
            return {**tidy, "nullable": True}
        if "anyOf" in tidy:
            return {**tidy, "anyOf": [*tidy["anyOf"], {"type": "null"}]}
        named = tidy.get("type", [])
        return {**tidy, "type": [*([named] if isinstance(named, str) else named), "null"]} if named else tidy


def _list(value: object) -> list[Any]:
    return [*cast("list[Any]", value)] if isinstance(value, list) else []


def _map(value: object) -> dict[str, Any]:
    return dict(cast("Json", value)) if isinstance(value, Mapping) else {}


_NAMES_LIMIT = re.compile(
    r"too many (?:tools|functions)"
    r"|(?:tools|functions|function_?declarations)\b.{0,60}(?:too long|at most|max|exceed|limit|up to|more than|fewer)"
    r"|(?:at most|max|exceed|limit|up to|more than|fewer).{0,40}(?:tools|functions|function_?declarations)\b",
    re.IGNORECASE | re.DOTALL,
)
_NAMES_SCHEMA = re.compile(
    r"(?:tool|function).{0,40}(?:schema|parameter|declaration|definition)|(?:schema|parameter).{0,40}(?:tool|function)"
    r"|function_?declarations|input_?schema|json[ _]schema",
    re.IGNORECASE | re.DOTALL,
)
_INDEXES = tuple(
    re.compile(rf"\b{name}(?:\[|\.|/| ?-> ?|['\"]? ?, ?| #?)(\d+)(?![\d%])", re.IGNORECASE)
    for name in ("function_?declarations", "tools", "tool", "functions?")
)
"""How a server names one of the tools by its number, from 0."""

_SHOWN = 5
"""Tools that a notice names."""


@dataclass(slots=True)
class ToolDialect:
    """Which tools of a request a server takes, and in which words; what it refuses is learnt one by one."""

    model: str
    is_narrow: bool = False
    """It takes few words of JSON Schema."""
    limit: int | None = None
    """Most tools of a request; None: nobody knows."""
    _narrowed: set[str] = field(default_factory=set[str])
    """Names of tools that it refused in more words."""
    _refused: set[str] = field(default_factory=set[str])
    _notices: dict[str, None] = field(default_factory=dict[str, None])
    """For the user; the first `_told` of them have been shown."""
    _told: int = 0

    def write(self, tools: Sequence[ToolSpec]) -> tuple[ToolSpec, ...]:
        """Return the tools as they are sent: the actions of the agent, and as many others as there may be."""
        taken = [tool for tool in tools if tool.name not in self._refused]
        if self.limit is not None and len(taken) > self.limit:
            first = sorted(taken, key=_is_tool)
            self.say(f"{self.model} takes {self.limit} tools at most", [tool.name for tool in first[self.limit :]])
            names = {tool.name for tool in first[: self.limit]}
            taken = [tool for tool in taken if tool.name in names]
        return tuple(map(self._narrow, taken))

    def learn(self, text: str, tools: Sequence[ToolSpec], *, named: bool) -> str:
        """Learn from a refusal of a request with these tools. Return why another request may be taken, "" if none may.

        named: only from one that names a tool, or a number of them.
        """
        if (tool := _find_tool(text, tools)) is not None:
            return self._give_up([tool], text)
        if _NAMES_LIMIT.search(text):
            limits = [int(number) for number in re.findall(r"\d+", text) if 0 < int(number) < len(tools)]
            limit = max(limits, default=len(tools) // 2)
            if limit > sum(not _is_tool(tool) for tool in tools):
                self.limit = limit
                return f"{self.model} takes {limit} tools at most"
        is_about_tools = not named and _NAMES_SCHEMA.search(text)
        return self._give_up([tool for tool in tools if _is_tool(tool)], text) if is_about_tools else ""

    def take_notices(self) -> list[str]:
        new = [*self._notices][self._told :]
        self._told = len(self._notices)
        return new

    def _give_up(self, tools: Sequence[ToolSpec], text: str) -> str:
        """Write these tools in fewer words from now on; leave out those that have none."""
        names = [tool.name for tool in tools]
        if wordy := [tool.name for tool in tools if self._narrow(tool, always=True) != tool]:
            self._narrowed.update(wordy)
            return f"{self.model} does not take the schema of {_list_names(wordy)}"
        if names:
            self._refused.update(names)
            self.say(f"{self.model} does not take these tools ({one_line(redact(text), 120)})", names)
        return f"{self.model} does not take {_list_names(names)}" if names else ""

    def _narrow(self, tool: ToolSpec, *, always: bool = False) -> ToolSpec:
        is_narrow = always or self.is_narrow or tool.name in self._narrowed
        return replace(tool, parameters=tidy_schema(tool.parameters, narrow=True)) if is_narrow else tool

    def say(self, why: str, names: Sequence[str]) -> None:
        """Note for the user, once, without which tools the requests go on."""
        self._notices.setdefault(f"{why}: it goes on without {_list_names(names)}")


def _is_tool(tool: ToolSpec) -> bool:
    """Whether a request can do without: it is no action of the agent."""
    return tool.name.startswith(TOOL_MARK)


def _find_tool(text: str, tools: Sequence[ToolSpec]) -> ToolSpec | None:
    """Return the tool that a refusal is about, by its name or its number."""
    named = [tool for tool in tools if _is_tool(tool) and re.search(rf"(?<![\w-]){tool.name}(?![\w-])", text)]
    if named:
        return named[0]
    numbers = (int(match[1]) for pattern in _INDEXES if (match := pattern.search(text)))
    tool = next((tools[number] for number in numbers if number < len(tools)), None)
    return tool if tool is not None and _is_tool(tool) else None


def _list_names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
