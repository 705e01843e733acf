"""The action `ask_user`: as a tool, as a JSON Schema, and how a reply with it is read."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from massmem.config.models import PARAM_NAME
from massmem.core.messages import Reply, ToolSpec, clean_text
from massmem.core.params import ParamSpec, Value
from massmem.tools.json_calls import build_object_schema, find_object, parse_object

NAME = "ask_user"

_MAX_PROMPT = 500
"""Characters of a question to the user."""

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
    """The question to the user."""


class AskError(ValueError):
    """The reply asks the user, but not in the right way; the text says what is wrong, for the agent's one repair."""


@dataclass(frozen=True, slots=True)
class AskContext:
    """What an agent may ask the user for, and what the user has told it already."""

    params: Mapping[str, ParamSpec] = field(default_factory=dict[str, ParamSpec])
    """What the configuration names."""
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
        """What may be asked for now, by name, with what it is."""
        return {name: self.params[name].description.strip() or name.replace("_", " ") for name in self.names}


def build_ask_tool(context: AskContext) -> ToolSpec:
    """Return the action as a tool."""
    properties = {"param": _build_param_schema(context), "prompt": _build_prompt_schema()}
    return ToolSpec(NAME, _DESCRIPTION, build_object_schema(properties))


def build_ask_schema(context: AskContext) -> dict[str, Any]:
    """Return the action for models without tool calls. The prompt comes first: what is needed decides its name."""
    return build_object_schema(
        {"action": {"const": NAME}, "prompt": _build_prompt_schema(), "param": _build_param_schema(context)}
    )


def find_ask_request(reply: Reply, context: AskContext) -> AskUser | None:
    """Return the request in a reply, from a call of the tool or from the JSON object that the text consists of.

    Raises:
        AskError: it is one, but its param or its prompt cannot be used.
    """
    for call in reply.tool_calls:
        if call.name == NAME:
            return read_ask_request(_lift_arguments(parse_object(call.arguments) or {}), context)
    data = _lift_arguments(find_object(reply.text, _MAX_BESIDE) or {})
    return read_ask_request(data, context) if data.get("action", data.get("name")) == NAME else None


def read_ask_request(data: Mapping[str, Any], context: AskContext) -> AskUser:
    """Return the request that these arguments stand for. Raises AskError."""
    param = data.get("param")
    name = _find_name(param, context) if isinstance(param, str) else None
    if name is None:
        allowed = ", ".join(context.names) or "a short name of your own, of letters, digits and _"
        raise AskError(f"`param` must be one of: {allowed}" if context.names else f"`param` must be {allowed}")
    if name in context.given_up:
        raise AskError(f"the user was asked for {name} and did not give it; go on without it")
    prompt = data.get("prompt")
    text = " ".join(clean_text(prompt).split()) if isinstance(prompt, str) else ""
    if not text:
        raise AskError("`prompt` must be your question to the user")
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


def _lift_arguments(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """Some models without tools write the JSON of a whole tool call, with the arguments inside."""
    inner = data.get("arguments", data.get("parameters"))
    return {**data, **cast("Mapping[str, Any]", inner)} if isinstance(inner, dict) else data


def _build_param_schema(context: AskContext) -> dict[str, Any]:
    listed = "; ".join(f"{name}: {what}" for name, what in context.descriptions.items())
    if context.free:
        other = "a short name of your own for anything else"
        return {"type": "string", "maxLength": 64, "description": f"{listed}; {other}" if listed else other}
    return {"type": "string", "enum": list(context.names), "description": listed}


def _build_prompt_schema() -> dict[str, Any]:
    return {"type": "string", "description": "your question to the user, one sentence", "maxLength": 300}
