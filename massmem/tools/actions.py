"""The actions of a reply, `vote`, `new_answer` and `ask_user`: as tools, as a JSON Schema, and how a reply is read.

Models write JSON as text, too: it is found in a reply, and so are tool calls of models that have no tool calls.
"""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, cast

from massmem.config.models import PARAM_NAME
from massmem.core.calls import find_tool_name, parse_object
from massmem.core.messages import WRAPPER, ChatMessage, Reply, ToolCall, ToolSpec, clean_text
from massmem.core.params import ParamSpec, Value, describe_form
from massmem.core.text import one_line

ANSWER = "answer_now"
"""The action of a reply that calls no tool."""

_SIMPLE_KEYS = ("type", "enum", "const", "description", "minimum", "maximum", "maxLength")
_MAX_DEPTH = 6
_MAX_DESCRIPTION = 300
"""Characters of a tool's description in a list of tools."""

_DECODER = json.JSONDecoder()
_MAX_STARTS = 50
"""Brackets in a text at which an object is looked for."""
_MAX_WORDS = 4
"""Before the arguments of a written call, one of them the name; with more of them it is prose."""
_NAME_KEYS = ("action", "name", "tool")
_MARKED_VALUE = re.compile(
    r"""<(?:parameter=|parameter name="|arg_key>)(?P<name>[\w-]+)"?(?:>|</arg_key>\s*<arg_value>)"""
    r"(?P<value>(?:[^<]|<(?!/?parameter|/arg_value|arg_key))*+)</(?:parameter|arg_value)>",
    re.DOTALL,
)
"""An argument as Qwen, MiniMax and GLM write it."""


def find_object(text: str, max_beside: int | None = None) -> Mapping[str, Any] | None:
    """Return the JSON object in `text`, the last of several, None when there is none.

    Prose or a code fence around it is skipped. max_beside: characters of the text that may stand beside the object.
    """
    written = text[text.find("{") : text.rfind("}") + 1]
    data = parse_object(written)
    if data is None and written.startswith("{{") and written.endswith("}}"):  # as in the template that the model read
        data = parse_object(written[1:-1])
    if data is None:
        written = next((value for value in list_values(text) if value.startswith("{")), "")
        data = parse_object(written)
    if data is None or (max_beside is not None and len(text) - len(written) > max_beside):
        return None
    inner = data.get(WRAPPER) if len(data) == 1 else None
    return cast("Mapping[str, Any]", inner) if isinstance(inner, dict) else data


def list_values(text: str) -> list[str]:
    """Return the JSON objects and lists in a text, beside prose, thoughts and code fences, the last one first."""
    values: list[str] = []
    end = 0
    for bracket in islice(re.finditer(r"[{\[]", text), _MAX_STARTS):
        with suppress(ValueError, RecursionError):
            if bracket.start() >= end:
                end = _DECODER.raw_decode(text, bracket.start())[1]
                values.append(text[bracket.start() : end])
    return values[::-1]


def build_object_schema(**properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON Schema of an object that has exactly these properties, in this order."""
    required = list(properties)
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def build_decision_schema(tools: Sequence[ToolSpec]) -> dict[str, Any]:
    """Return the schema of a reply that calls one tool, or says that it needs none."""
    return {"anyOf": [*build_call_schemas(tools), build_object_schema(action=_name(ANSWER))]}


def _name(name: str) -> dict[str, Any]:
    return {"type": "string", "const": name}  # strict servers refuse a value without a type


def build_call_schemas(tools: Sequence[ToolSpec]) -> list[dict[str, Any]]:
    """Return the schema of a call for each tool. Arguments come after the name, which decides what they are."""
    return [build_object_schema(action=_name(tool.name), arguments=simplify_schema(tool.parameters)) for tool in tools]


def describe_tools(tools: Sequence[ToolSpec]) -> str:
    """Return one line for each tool: its name, its arguments and what it does."""
    lines: list[str] = []
    for tool in tools:
        required = tool.parameters.get("required") or ()
        properties = cast("Mapping[str, Any]", tool.parameters.get("properties") or {})
        names = [name if name in required else f"{name}?" for name in properties]
        lines.append(f"{tool.name}({', '.join(names)}): {one_line(tool.description, _MAX_DESCRIPTION)}")
    return "\n".join(lines)


def format_call(call: ToolCall) -> str:
    """Return a call as a model without tool calls writes it."""
    return f'{{"action": {json.dumps(call.name)}, "arguments": {call.arguments or "{}"}}}'


def write_calls(messages: Sequence[ChatMessage]) -> tuple[ChatMessage, ...]:
    """Return messages with their tool calls and results as text, for a model that is not sent tools."""
    written: list[ChatMessage] = []
    results = {call: message.content for message in messages for call in message.calls}
    for message in messages:
        if message.same_as in results:  # a text that holds several results can point to none
            message = replace(message, content=results[message.same_as], same_as="")
        if message.role == "tool" and written and written[-1].role == "user":
            tools = ", ".join(dict.fromkeys(filter(None, (*written[-1].tool.split(", "), message.tool))))
            content, calls = f"{written[-1].content}\n{message.content}", (*written[-1].calls, *message.calls)
            written[-1] = replace(written[-1], content=content, tool=tools, calls=calls)
        elif message.role == "tool":
            written.append(ChatMessage("user", message.content, tool=message.tool, calls=message.calls))
        else:
            text = "\n".join(filter(None, (message.content, *map(format_call, message.tool_calls))))
            written.append(ChatMessage(message.role, text, tool=message.tool))
    return tuple(written)


def read_call(text: str, names: Collection[str]) -> ToolCall | None:
    """Return the call of one of the named tools that a reply consists of, None for any other reply."""
    name, fields, _ = _read_written(text, names) or ("", {}, False)
    return ToolCall("", name, json.dumps(fields, ensure_ascii=False)) if name in names else None


def _read_written(
    text: str, names: Collection[str], max_beside: int | None = None
) -> tuple[str, Mapping[str, Any], bool] | None:
    """Return the name and the arguments of the call that a text consists of, and whether it has the form of a call.

    Models that are trained on tool calls write those in ways of their own when their server does not read them: an
    object with name and arguments, one of arguments behind the name, or each argument between marks. Where nothing
    holds a model to the form, it leaves the name out, or the frame.
    """
    marked = {name: value.strip() for name, value in _MARKED_VALUE.findall(text)} if text.lstrip()[:1] == "<" else {}
    data: Mapping[str, Any] | None = marked or find_object(text, max_beside)
    if data is None:
        return None
    data = cast("Mapping[str, Any]", data["function"]) if isinstance(data.get("function"), dict) else data
    inner = next((data[key] for key in ("arguments", "parameters", "input") if key in data), None)
    inner = parse_object(inner) if isinstance(inner, str) else inner
    words = re.findall(
        r"\w[\w.:-]*", text[: text.find("<arg_" if "<arg_" in text else "<param") if marked else text.find("{")]
    )
    beside = "" if len(words) > _MAX_WORDS else next((w for w in words if find_tool_name(w, names) in names), "")
    named = next((data[key] for key in _NAME_KEYS if isinstance(data.get(key), str)), "")
    fields = {key: value for key, value in data.items() if key not in _NAME_KEYS or not named}
    name = find_tool_name(named or beside, names)
    return (
        name,
        cast("Mapping[str, Any]", inner) if isinstance(inner, dict) else fields,
        isinstance(inner, dict) or (bool(beside) and not named),
    )


def simplify_schema(schema: Mapping[str, Any], depth: int = 0) -> dict[str, Any]:
    """Return the schema without what grammars cannot express: references, patterns, formats, combinations."""
    if depth > _MAX_DEPTH:
        return {}
    simple = {key: schema[key] for key in _SIMPLE_KEYS if key in schema}
    if isinstance(simple.get("type"), list):
        del simple["type"]
    if "properties" in schema:
        properties: Mapping[str, Any] = schema["properties"]
        simple["properties"] = {name: simplify_schema(value, depth + 1) for name, value in properties.items()}
        simple["required"] = [name for name in schema.get("required", ()) if name in properties]
        simple["additionalProperties"] = False
    if "items" in schema:
        simple["items"] = simplify_schema(schema["items"], depth + 1)
    return simple


ASK_USER = "ask_user"

_MAX_PROMPT = 500
"""Characters of a question to the user."""

_PROMPT = {"type": "string", "description": "your question to the user, one sentence", "maxLength": 300}

_MAX_BESIDE = 600
"""Characters around the JSON object of a model without tools; with more of them it was writing an answer."""

_DESCRIPTION = (
    "Ask the user for a value that only the user knows and without which you cannot answer. Never for an opinion, a "
    "permission, or what you can find out or assume."
)


@dataclass(frozen=True, slots=True)
class AskUser:
    """An agent's request for a value that the user knows."""

    param: str
    prompt: str


class ActionError(ValueError):
    """The reply holds no usable action; the text says what is wrong, for the agent's one repair."""


@dataclass(frozen=True, slots=True)
class AskContext:
    """Values that an agent may ask the user for, and those that the user has given already."""

    params: Mapping[str, ParamSpec] = field(default_factory=dict[str, ParamSpec])
    """Those of the configuration."""
    free: bool = False
    """The agent may ask for anything else as well."""
    known: Mapping[str, Value] = field(default_factory=dict[str, Value], repr=False)
    given_up: frozenset[str] = frozenset()
    """Names for which the user was asked in vain in this turn."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the configuration that may be asked for now."""
        return tuple(name for name in self.params if name not in self.known and name not in self.given_up)

    @property
    def may_ask(self) -> bool:
        return self.free or bool(self.names)

    @property
    def descriptions(self) -> Mapping[str, str]:
        """Of each value that may be asked for now, by name, with the allowed ones."""
        forms = {name: f", {describe_form(spec)}" if spec.values else "" for name, spec in self.params.items()}
        texts = {name: self.params[name].description.strip() or name.replace("_", " ") for name in self.names}
        return {name: text + forms[name] for name, text in texts.items()}


def build_ask_tool(context: AskContext) -> ToolSpec:
    return ToolSpec(ASK_USER, _DESCRIPTION, build_object_schema(param=_build_param_schema(context), prompt=_PROMPT))


def build_ask_schema(context: AskContext) -> dict[str, Any]:
    """Return the action for models without tool calls. The prompt comes first: what is needed decides its name."""
    return build_object_schema(action=_name(ASK_USER), prompt=_PROMPT, param=_build_param_schema(context))


def find_ask_request(reply: Reply, context: AskContext) -> AskUser | None:
    """Return the request in a reply, from a call of the tool or from the JSON object that the text consists of.

    Raises ActionError: it is one, but its param or its prompt cannot be used.
    """
    for call in reply.tool_calls:
        if call.name == ASK_USER:
            return read_ask_request(parse_object(call.arguments) or {}, context)
    name, fields, _ = _read_written(reply.text, ACTIONS, _MAX_BESIDE) or ("", {}, False)
    return read_ask_request(fields, context) if name == ASK_USER else None


def read_ask_request(data: Mapping[str, Any], context: AskContext) -> AskUser:
    """Return the request that these arguments stand for. Raises ActionError."""
    param = data.get("param")
    name = _find_name(param, context) if isinstance(param, str) else None
    if name is None:
        allowed = ", ".join(context.names) or "a short name of your own, of letters, digits and _"
        raise ActionError(f"`param` must be one of: {allowed}" if context.names else f"`param` must be {allowed}")
    if name in context.given_up:
        raise ActionError(f"the user was asked for {name} and did not give it; go on without it")
    prompt = data.get("prompt")
    text = " ".join(clean_text(prompt).split()) if isinstance(prompt, str) else ""
    if not text:
        raise ActionError("`prompt` must be your question to the user")
    return AskUser(name, text[:_MAX_PROMPT])


def _find_name(word: str, context: AskContext) -> str | None:
    """Return the param that a word means: by its name, or by a word that the configuration maps to it."""
    folded = word.strip().casefold()
    for name, spec in context.params.items():
        synonyms = (name, name.replace("_", " "), *spec.mapping)
        if folded in {synonym.strip().casefold() for synonym in synonyms}:
            return name
    for name in (*context.known, *context.given_up):
        if folded == name.casefold():
            return name
    plain = folded.replace(" ", "_").replace("-", "_")
    return plain if context.free and PARAM_NAME.fullmatch(plain) else None


def _build_param_schema(context: AskContext) -> dict[str, Any]:
    listed = "; ".join(f"{name}: {what}" for name, what in context.descriptions.items())
    if context.free:
        other = "a short name of your own for anything else"
        return {"type": "string", "maxLength": 64, "description": f"{listed}; {other}" if listed else other}
    return {"type": "string", "enum": list(context.names), "description": listed}


# A reason comes before the choice in every form: models that must reason first vote better.
# Bounded, because a small model writes until it is stopped, and a vote takes as long as its reason.
_REASON = {"type": "string", "description": "the worst error of each answer, without its letter", "maxLength": 1_500}
_BRIEF_REASON = {**_REASON, "maxLength": 400}
"""Of models without tool calls: many are small."""
_LABEL = re.compile(
    r"[\W_]*(?:(?:i|my|the|best|vote|votes|choose|choice|pick|is|for|answer|option|candidate|response|label)\b[\W_]*)*"
    r"([A-Z]{1,2})[\W_]*",
    re.IGNORECASE,
)
"""What a field, or the last line of a reply, says that names an answer and nothing else."""


@dataclass(frozen=True, slots=True)
class Vote:
    choice: str
    """The label of an answer."""
    reason: str


@dataclass(frozen=True, slots=True)
class NewAnswer:
    content: str
    reason: str = ""


Action = Vote | NewAnswer | AskUser
NEW_ANSWER = "new_answer"
ACTIONS = ("vote", NEW_ANSWER, ASK_USER)
"""Names of the tools that end a step."""

_MAX_BESIDE_CALL = 40
"""Characters beside a tool call that a model writes as text: tags or a code fence."""


def build_vote_tools(
    labels: Sequence[str], *, final: bool, ask_context: AskContext | None = None
) -> tuple[ToolSpec, ...]:
    """Return the tools of a voting round; in the final round only `vote`. ask_context None: the user is not asked.

    labels: of the answers; none: the tools are the same in all rounds.
    """
    vote = ToolSpec(
        "vote", "Vote for the best answer.", build_object_schema(reason=_REASON, choice=_build_choice(labels))
    )
    if final:
        return (vote,)
    parameters = build_object_schema(reason=_REASON, content={"type": "string"})
    new_answer = ToolSpec(NEW_ANSWER, "Submit a better answer.", parameters)
    return (vote, new_answer) if ask_context is None else (vote, new_answer, build_ask_tool(ask_context))


def build_vote_schema(
    labels: Sequence[str],
    *,
    final: bool,
    ask_context: AskContext | None = None,
    calls: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """Return the same actions as one JSON Schema, for models without tool calls.

    calls: schemas of tools that may be called before.
    """
    vote = build_object_schema(reason=_BRIEF_REASON, action=_name("vote"), choice=_build_choice(labels))
    options: list[Mapping[str, Any]] = [vote]
    if not final:
        options.append(build_object_schema(reason=_BRIEF_REASON, action=_name(NEW_ANSWER), content={"type": "string"}))
        options += [] if ask_context is None else [build_ask_schema(ask_context)]
    options += calls
    return dict(options[0]) if len(options) == 1 else {"anyOf": options}


def read_action(
    reply: Reply, labels: Sequence[str], *, final: bool, ask_context: AskContext | None = None, native: bool = False
) -> Action:
    """Return the action in a reply, from its first tool call, from the JSON object in its text, or its last line.

    Any single field that names one answer is a vote, and any single text of a new answer is that.

    native: tool calls were asked for. Raises ActionError: there is none, or it does not have the required form.
    """
    text = reply.text
    if reply.tool_calls:
        named = [(find_tool_name(call.name, ACTIONS), call) for call in reply.tool_calls]
        name, call = next((pair for pair in named if pair[0] in ACTIONS), named[0])
        data, text = find_object(call.arguments), call.arguments
    else:
        name, data, _ = _read_written(text, ACTIONS) or ("", None, False)
    if data is None:
        before, _, last = text.strip().rpartition("\n")
        if vote := _find_labels({"choice": last}, labels):
            return Vote(vote["choice"], before.strip())
        if "{" in text and "}" in text:
            raise ActionError("the JSON object cannot be parsed")
        raise ActionError(f"there is no {'call of a tool' if native else 'JSON object'} in the reply")
    if name not in ACTIONS and (_find_labels(data, labels) or not name):
        name = "vote" if _find_labels(data, labels) or "choice" in data else NEW_ANSWER if read_content(data) else name
    if name == ASK_USER and ask_context is not None and not final:
        return read_ask_request(data, ask_context)
    if name == "vote":
        return _to_vote(data, labels)
    if name != NEW_ANSWER or final:
        raise ActionError(f"the action is {name[:40]!r}, allowed: {'vote' if final else 'vote or new_answer'}")
    if not (content := read_content(data)):
        raise ActionError("new_answer needs `content`, the complete answer")
    return NewAnswer(content, str(data.get("reason", "")).strip())


def read_content(data: Mapping[str, Any]) -> str:
    """Return the answer in the arguments of `new_answer`: its content, else its only text beside a reason; or ""."""
    texts = {key: value for key, value in data.items() if isinstance(value, str) and value.strip() and key != "reason"}
    return texts.get("content") or (next(iter(texts.values())) if len(texts) == 1 else "")


def find_written_call(text: str) -> ToolCall | None:
    """Return the action that a reply consists of, written as a tool call in its text; None for any other reply."""
    name, fields, is_call = _read_written(text, ACTIONS, _MAX_BESIDE_CALL) or ("", {}, False)
    return ToolCall("", name, json.dumps(fields)) if name in ACTIONS and is_call else None


def _to_vote(data: Mapping[str, Any], labels: Sequence[str]) -> Vote:
    fields = _find_labels(data, labels)
    if len(set(fields.values())) != 1:
        raise ActionError(f"`choice` must be one of {', '.join(labels)}")
    parts = [str(data.get("reason") or "").strip()]
    for key, value in data.items():
        if key not in (*fields, "reason") and value:
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False).strip("[]")
            parts.append(f"{key.replace('_', ' ')}: {text}")
    return Vote(next(iter(fields.values())), "\n".join(filter(None, parts)))


def _find_labels(data: Mapping[str, Any], labels: Sequence[str]) -> dict[str, str]:
    """Return the label that `choice` names, else those that any fields name, by field."""
    texts = {key: value for key, value in data.items() if isinstance(value, str) and data.get("choice", value) == value}
    named = {key: match[1].upper() for key, text in texts.items() if (match := _LABEL.fullmatch(text.strip()[:100]))}
    return {key: label for key, label in named.items() if label in labels}


def _build_choice(labels: Sequence[str]) -> dict[str, Any]:
    return {"type": "string", "enum": list(labels)} if labels else {"type": "string", "description": "its letter"}
