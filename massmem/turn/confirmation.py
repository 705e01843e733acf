"""Which tool calls the user has to allow: those with an argument whose words are from results of tools alone.

The question to the user is that of a param, whose name stands for this very call; the answer holds until the turn ends.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, cast

from massmem.core.messages import ToolCall
from massmem.core.params import CONFIRMATION, Value
from massmem.core.text import one_line
from massmem.memory.origins import ToolText, ToolWords, label_tool
from massmem.memory.quoting import list_tool_lines
from massmem.tools.ask_user import AskUser
from massmem.tools.json_calls import parse_object
from massmem.turn.prompt_builder import Prompt

_MAX_ARGUMENTS = 300
"""Characters of the arguments in the question to the user."""
_DEEPEST = 20


@dataclass(slots=True)
class Confirmations:
    """What the user has allowed and refused in a turn. All agents of the turn share it."""

    known: Mapping[str, Value] = field(default_factory=dict[str, Value])
    """Values that the user has given, by name."""
    given_up: frozenset[str] = frozenset()
    """Names for which the user was asked in vain."""
    results: list[ToolText] = field(default_factory=list[ToolText])
    """What tools have given back, in this turn and in those of the history."""

    def request_permission(self, calls: Sequence[ToolCall], prompt: Prompt) -> AskUser | None:
        """Return the question to the user about the first call that needs one and that was not decided yet."""
        for call in calls:
            name = name_confirmation(call)
            if name not in self.known and name not in self.given_up and (tool := self._find_tool(call, prompt)):
                return AskUser(name, _write_question(call, tool))
        return None

    def explain_refusal(self, call: ToolCall, prompt: Prompt) -> str:
        """Return why a call may not run, for its agent; "": it may."""
        name = name_confirmation(call)
        if self.known.get(name) is True:
            return ""
        tool = self._find_tool(call, prompt)
        if not tool:
            return ""
        why = "has refused it" if name in self.known else "has not allowed it"
        return (
            f"not called: an argument is from the tool {tool} alone, so the user has to allow this call, and {why}. "
            "Go on without it, and say so in your answer."
        )

    def _find_tool(self, call: ToolCall, prompt: Prompt) -> str:
        """Return the tool that an argument has its words from; "": from none."""
        results = [
            *self.results,
            *(ToolText(tool, text) for tool, text in list_tool_lines(prompt.memories)),
        ]
        user_texts = [prompt.question, *(m.message.content for m in prompt.history if m.message.role == "user")]
        user_texts += [str(value) for value in self.known.values()]
        words = ToolWords(results, user_texts)
        tools = (words.find_tool(text) for text in _list_texts(parse_object(call.arguments or "{}") or {}))
        return next(filter(None, tools), "")


def name_confirmation(call: ToolCall) -> str:
    """Return the name of the param that stands for the user's permission of this call."""
    arguments = json.dumps(parse_object(call.arguments or "{}"), sort_keys=True)
    mark = sha256(f"{call.name}\0{arguments}".encode()).hexdigest()[:8]
    tool = re.sub(r"\W", "_", label_tool(call.name).removeprefix("tool "), flags=re.ASCII)
    return f"{CONFIRMATION}{tool}_{mark}"


def _write_question(call: ToolCall, tool: str) -> str:
    arguments = one_line(call.arguments, _MAX_ARGUMENTS)
    return f"May {call.name} be called with {arguments}? Part of that is from the tool {tool} alone. (yes or no)"


def _list_texts(value: object, depth: int = 0) -> Iterator[str]:
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        yield str(value)
    elif isinstance(value, Mapping) and depth < _DEEPEST:
        for inner in cast("Mapping[str, Any]", value).values():
            yield from _list_texts(inner, depth + 1)
    elif isinstance(value, list) and depth < _DEEPEST:
        for inner in cast("list[Any]", value):
            yield from _list_texts(inner, depth + 1)
