"""The actions of a voting round, `vote` and `new_answer`: as tools, as a JSON Schema, and how a reply is read.

Where agents may ask the user, `ask_user` is a third action, see massmem.tools.ask_user.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from massmem.core.messages import Reply, ToolCall, ToolSpec
from massmem.tools.ask_user import NAME as ASK_USER
from massmem.tools.ask_user import (
    AskContext,
    AskError,
    AskUser,
    build_ask_schema,
    build_ask_tool,
    read_ask_request,
)
from massmem.tools.json_calls import build_object_schema, find_object

# A reason comes before the choice in every form: models that must reason first vote better.
# Bounded, because a small model writes until it is stopped, and a vote takes as long as its reason.
_REASON = {"type": "string", "description": "one sentence", "maxLength": 200}


@dataclass(frozen=True, slots=True)
class Vote:
    choice: str
    """The label of an answer."""
    reason: str


@dataclass(frozen=True, slots=True)
class NewAnswer:
    content: str


Action = Vote | NewAnswer | AskUser
NEW_ANSWER = "new_answer"
ACTIONS = ("vote", NEW_ANSWER, ASK_USER)
"""Names of the tools that end a step."""

_MAX_BESIDE_CALL = 40
"""Characters beside a tool call that a model writes as text: tags or a code fence."""


class ActionError(ValueError):
    """The reply holds no usable action; the text says what is wrong, for the agent's one repair."""


def build_vote_tools(
    labels: Sequence[str], *, final: bool, ask_context: AskContext | None = None
) -> tuple[ToolSpec, ...]:
    """Return the tools of a voting round; in the final round only `vote`. ask_context None: the user is not asked.

    labels: of the answers; none: the tools are the same in all rounds.
    """
    vote = ToolSpec("vote", "Vote for the best answer.", _build_schema(reason=_REASON, choice=_build_choice(labels)))
    if final:
        return (vote,)
    new_answer = ToolSpec(NEW_ANSWER, "Submit a better answer.", _build_schema(content={"type": "string"}))
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
    vote = _build_schema(reason=_REASON, action={"const": "vote"}, choice=_build_choice(labels))
    options: list[Mapping[str, Any]] = [vote]
    if not final:
        options.append(_build_schema(reason=_REASON, action={"const": "new_answer"}, content={"type": "string"}))
        options += [] if ask_context is None else [build_ask_schema(ask_context)]
    options += calls
    return dict(options[0]) if len(options) == 1 else {"anyOf": options}


def read_action(reply: Reply, labels: Sequence[str], *, final: bool, ask_context: AskContext | None = None) -> Action:
    """Return the action in a reply, from its first tool call or from the JSON object in its text.

    Raises:
        ActionError: there is none, or it does not have the required form.
    """
    if reply.tool_calls:
        call = next((call for call in reply.tool_calls if call.name in ACTIONS), reply.tool_calls[0])
        name, data = call.name, _require_object(call.arguments)
    else:
        name, data = _read_written_action(_require_object(reply.text))
    if name == ASK_USER and ask_context is not None and not final:
        try:
            return read_ask_request(data, ask_context)
        except AskError as e:
            raise ActionError(str(e)) from e
    return _to_action(name, data, labels, final)


def find_written_call(text: str) -> ToolCall | None:
    """Return the action that a reply consists of, written as a tool call in its text; None for any other reply."""
    data = find_object(text, _MAX_BESIDE_CALL)
    if data is None:
        return None
    name, fields = _read_written_action(data)
    return ToolCall("", name, json.dumps(fields)) if name in ACTIONS and fields is not data else None


def _read_written_action(data: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """Return the name and the fields of an action in the required form, or of a tool call that a model wrote as text.

    Models that are trained on tool calls write those in one of three ways when their server does not read them.
    """
    inner = next((data[key] for key in ("arguments", "parameters", "input") if isinstance(data.get(key), dict)), data)
    fields = cast("Mapping[str, Any]", inner)
    # Where nothing holds it to the form, a small model leaves the name out.
    unnamed = "vote" if "choice" in fields else NEW_ANSWER if "content" in fields else ""
    return str(data.get("action") or data.get("name") or unnamed), fields


def _to_action(name: str, data: Mapping[str, Any], labels: Sequence[str], final: bool) -> Action:
    match name:
        case "vote":
            return _to_vote(data, labels)
        case "new_answer" if not final:
            content = data.get("content")
            if not isinstance(content, str) or not content.strip():
                raise ActionError("new_answer needs `content`, the complete answer")
            return NewAnswer(content)
        case _:
            allowed = "vote" if final else "vote or new_answer"
            raise ActionError(f"the action is {name[:40]!r}, allowed: {allowed}")


def _to_vote(data: Mapping[str, Any], labels: Sequence[str]) -> Vote:
    choice = str(data.get("choice", "")).strip().removeprefix("Answer ").strip("\"'. ").upper()
    if choice not in labels:
        raise ActionError(f"`choice` must be one of {', '.join(labels)}")
    return Vote(choice, str(data.get("reason", "")).strip())


def _require_object(text: str) -> Mapping[str, Any]:
    data = find_object(text)
    if data is None:
        raise ActionError(
            "the JSON object cannot be parsed"
            if "{" in text and "}" in text
            else "there is no JSON object in the reply"
        )
    return data


def _build_choice(labels: Sequence[str]) -> dict[str, Any]:
    return {"type": "string", "enum": list(labels)} if labels else {"type": "string", "description": "its letter"}


def _build_schema(**properties: Mapping[str, Any]) -> dict[str, Any]:
    return build_object_schema(properties)
