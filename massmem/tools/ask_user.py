"""The action `ask_user`, as a tool and as a JSON Schema, and how it is read."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from massmem.config.models import PARAM_NAME
from massmem.core.messages import (
    Reply,
    ToolSpec,
    clean_text,
)
from massmem.core.params import ParamSpec, Value

NAME = "ask_user"

_LONGEST_PROMPT = 500
_MOST_BESIDE = 600
"""Characters around the JSON object of a model without tools; with more it was writing an answer."""

_WHAT_FOR = (
    "Ask the user for a value that only the user knows and without which you cannot answer. Never for an opinion, a "
    "permission, or what you can find out or assume."
)


@dataclass(frozen=True, slots=True)
class AskUser:
    """prompt: the question to the user."""

    param: str
    prompt: str


class AskError(ValueError):
    """The reply asks the user, but not in the right way; the text says what is wrong, for the agent's one repair."""


@dataclass(frozen=True, slots=True)
class Asking:
    """What an agent may ask the user for, and what the user has said already.

    params: what is configured. free: also anything else. given_up: the user was asked for it in this turn, in vain.
    """

    params: Mapping[str, ParamSpec] = field(default_factory=dict[str, ParamSpec])
    free: bool = False
    known: Mapping[str, Value] = field(default_factory=dict[str, Value], repr=False)
    given_up: frozenset[str] = frozenset()

    @property
    def names(self) -> tuple[str, ...]:
        """What is configured and may be asked for now."""
        return tuple(name for name in self.params if name not in self.known and name not in self.given_up)

    @property
    def offered(self) -> bool:
        return self.free or bool(self.names)

    @property
    def described(self) -> Mapping[str, str]:
        """The same with what each is."""
        return {name: self.params[name].description.strip() or name.replace("_", " ") for name in self.names}


def ask_tool(asking: Asking) -> ToolSpec:
    return ToolSpec(NAME, _WHAT_FOR, _object({"param": _param(asking), "prompt": _prompt()}))


def ask_schema(asking: Asking) -> dict[str, Any]:
    """The same for models without tool calls. The prompt comes first: what is needed decides its name."""
    return _object({"action": {"const": NAME}, "prompt": _prompt(), "param": _param(asking)})


def read_request(reply: Reply, asking: Asking) -> AskUser | None:
    """The request in a reply, from a call of the tool or from the JSON object that the text consists of; else None.

    Raises:
        AskError: it is one, but its param or its prompt cannot be used.
    """
    for call in reply.tool_calls:
        if call.name == NAME:
            return request_of(_parsed(call.arguments) or {}, asking)
    data = _alone(reply.text)
    return None if data is None or data.get("action", data.get("name")) != NAME else request_of(data, asking)


def request_of(data: Mapping[str, Any], asking: Asking) -> AskUser:
    """The request that these arguments are. Raises AskError."""
    given = data.get("param")
    name = _name(given, asking) if isinstance(given, str) else None
    if name is None:
        allowed = ", ".join(asking.names) or "a short name of your own, of letters, digits and _"
        raise AskError(f"`param` must be one of: {allowed}" if asking.names else f"`param` must be {allowed}")
    if name in asking.given_up:
        raise AskError(f"the user was asked for {name} and did not give it; go on without it")
    prompt = data.get("prompt")
    text = " ".join(clean_text(prompt).split()) if isinstance(prompt, str) else ""
    if not text:
        raise AskError("`prompt` must be your question to the user")
    return AskUser(name, text[:_LONGEST_PROMPT])


def _name(given: str, asking: Asking) -> str | None:
    """The param that is meant: by its name, or by a word that the configuration maps to it."""
    said = given.strip().casefold()
    for name, spec in asking.params.items():
        called = (name, name.replace("_", " "), *spec.mapping)
        if said in {word.strip().casefold() for word in called}:
            return name
    for name in (*asking.known, *asking.given_up):
        if said == name.casefold():
            return name
    plain = said.replace(" ", "_").replace("-", "_")
    return plain if asking.free and PARAM_NAME.fullmatch(plain) else None


def _alone(text: str) -> Mapping[str, Any] | None:
    """The JSON object in a text that is little else: fences and a sentence around it are passed over."""
    start, end = text.find("{"), text.rfind("}")
    if start < 0 or end < start or len(text) - (end - start) > _MOST_BESIDE:
        return None
    return _parsed(text[start : end + 1])


def _parsed(text: str) -> Mapping[str, Any] | None:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(data, dict):
        return None
    found = cast("Mapping[str, Any]", data)
    inner = found.get("arguments", found.get("parameters"))
    # Some models without tools write a tool call the way they have seen it.
    return {**found, **cast("Mapping[str, Any]", inner)} if isinstance(inner, dict) else found


def _param(asking: Asking) -> dict[str, Any]:
    listed = "; ".join(f"{name}: {what}" for name, what in asking.described.items())
    if asking.free:
        other = "a short name of your own for anything else"
        return {"type": "string", "maxLength": 64, "description": f"{listed}; {other}" if listed else other}
    return {"type": "string", "enum": list(asking.names), "description": listed}


def _prompt() -> dict[str, Any]:
    return {"type": "string", "description": "your question to the user, one sentence", "maxLength": 300}


def _object(properties: Mapping[str, Any]) -> dict[str, Any]:
    required = list(properties)
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
