"""The actions of a voting round, `vote` and `new_answer`, as tools and as a JSON Schema, and how they are read.

Where agents may ask the user, `ask_user` is a third one, see massmem.tools.ask_user.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from massmem.core.messages import (
    Reply,
    ToolSpec,
)
from massmem.tools.ask_user import NAME as ASK_USER
from massmem.tools.ask_user import AskError, Asking, AskUser, ask_schema, ask_tool, request_of

# A reason comes before the choice in every form: models that must reason first vote better.
# Bounded, because a small model writes until it is stopped, and a vote takes as long as its reason.
_REASON = {"type": "string", "description": "one sentence", "maxLength": 200}


@dataclass(frozen=True, slots=True)
class Vote:
    """choice: the label of an answer."""

    choice: str
    reason: str


@dataclass(frozen=True, slots=True)
class NewAnswer:
    content: str


Action = Vote | NewAnswer | AskUser
ACTIONS = ("vote", "new_answer", ASK_USER)
"""Names of the tools that end a step."""


class ActionError(ValueError):
    """The reply holds no usable action; the text says what is wrong, for the agent's one repair."""


def workflow_tools(labels: Sequence[str], *, final: bool, asking: Asking | None = None) -> tuple[ToolSpec, ...]:
    """The tools of a voting round; in the final round only `vote`. asking None: the user is not asked."""
    vote = ToolSpec("vote", "Vote for the best answer.", _object(reason=_REASON, choice=_choice(labels)))
    if final:
        return (vote,)
    new_answer = ToolSpec("new_answer", "Submit a better answer.", _object(content={"type": "string"}))
    return (vote, new_answer) if asking is None else (vote, new_answer, ask_tool(asking))


def workflow_schema(
    labels: Sequence[str], *, final: bool, asking: Asking | None = None, calls: Sequence[Mapping[str, Any]] = ()
) -> dict[str, Any]:
    """The same actions as one JSON Schema, for models without tool calls. calls: schemas of tools to use before."""
    options: list[Mapping[str, Any]] = [_object(reason=_REASON, action={"const": "vote"}, choice=_choice(labels))]
    if not final:
        options.append(_object(reason=_REASON, action={"const": "new_answer"}, content={"type": "string"}))
        options += [] if asking is None else [ask_schema(asking)]
    options += calls
    return dict(options[0]) if len(options) == 1 else {"anyOf": options}


def read_action(reply: Reply, labels: Sequence[str], *, final: bool, asking: Asking | None = None) -> Action:
    """The action in a reply, from its first tool call or from the JSON object in its text.

    Raises:
        ActionError: there is none, or it does not have the required form.
    """
    if reply.tool_calls:
        call = next((call for call in reply.tool_calls if call.name in ACTIONS), reply.tool_calls[0])
        name, data = call.name, _json_object(call.arguments)
    else:
        data = _json_object(reply.text)
        name = str(data.get("action", ""))
    if name == ASK_USER and asking is not None and not final:
        try:
            return request_of(data, asking)
        except AskError as e:
            raise ActionError(str(e)) from e
    return _action(name, data, labels, final)


def _action(name: str, data: Mapping[str, Any], labels: Sequence[str], final: bool) -> Action:
    match name:
        case "vote":
            return _vote(data, labels)
        case "new_answer" if not final:
            content = data.get("content")
            if not isinstance(content, str) or not content.strip():
                raise ActionError("new_answer needs `content`, the complete answer")
            return NewAnswer(content)
        case _:
            allowed = "vote" if final else "vote or new_answer"
            raise ActionError(f"the action is {name[:40]!r}, allowed: {allowed}")


def _vote(data: Mapping[str, Any], labels: Sequence[str]) -> Vote:
    choice = str(data.get("choice", "")).strip().removeprefix("Answer ").strip("\"'. ").upper()
    if choice not in labels:
        raise ActionError(f"`choice` must be one of {', '.join(labels)}")
    return Vote(choice, str(data.get("reason", "")).strip())


def _json_object(text: str) -> Mapping[str, Any]:
    """The JSON object in `text`; prose or a code fence around it is passed over."""
    start, end = text.find("{"), text.rfind("}")
    if start < 0 or end < start:
        raise ActionError("there is no JSON object in the reply")
    try:
        data = json.loads(text[start : end + 1])
    except (ValueError, RecursionError) as e:
        raise ActionError("the JSON object cannot be parsed") from e
    if not isinstance(data, dict):
        raise ActionError("the JSON is not an object")
    return cast("Mapping[str, Any]", data)


def _choice(labels: Sequence[str]) -> dict[str, Any]:
    return {"type": "string", "enum": list(labels)}


def _object(**properties: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
