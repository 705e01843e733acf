"""What an agent's context window holds: the messages, tools and schema of a request, and what is being streamed.

Pure. Counts are ours until the provider reports its own; from its first report on ours are corrected by it.
"""

import json
import math
from collections.abc import Collection, Mapping
from typing import Any, Literal, get_args

from massmem.core.messages import ChatMessage, ChatRequest
from massmem.memory.tokens import TokenCounter

EntryType = Literal["system", "user", "assistant", "tool_call", "tool_result", "reasoning", "injection", "pending"]
"""What tokens were spent on.

system holds the tools and the schema too; injection is text that neither the user nor this agent wrote (a summary,
answers of others); pending is text of the reply that is being streamed, reasoning its reasoning.
"""

PER_MESSAGE, PER_REPLY = 4, 3
"""Tokens around each message (its marks and its role), and of the start of the reply.

OpenAI Cookbook, "How to count tokens with tiktoken": 3 a message, 1 for the role, 3 for the reply. Templates of the
ChatML family, which most open models have, need 5 a message and 3: the calibration takes up the difference.
"""

_LOWEST, _HIGHEST = 0.5, 2.5
_ENOUGH = 100
_KEPT = 20_000


class Buffer:
    """Tokens in one agent's context, by type of entry.

    tokens: all of them, calibrated. entries: the same by type, those that are not empty; they add up to `tokens`.
    at_least: what the messages of the measured request need in any vocabulary, for `truncated`: without tools and
    schema, which not every server puts into the prompt, and never raised by what other prompts taught.
    """

    def __init__(self, count: TokenCounter) -> None:
        self._count = count
        self._factor = 1.0
        self._calibrated = False
        self._known: dict[ChatMessage, tuple[int, int]] = {}
        self._raw: dict[EntryType, int] = {}
        self._said = 0

    @property
    def calibrated(self) -> bool:
        """A provider's count has corrected ours."""
        return self._calibrated

    @property
    def at_least(self) -> int:
        return math.floor(self._said * min(1.0, self._factor))

    @property
    def entries(self) -> dict[str, int]:
        return {name: self._calibrate(self._raw[name]) for name in get_args(EntryType) if self._raw.get(name)}

    @property
    def tokens(self) -> int:
        return sum(self.entries.values())

    def measure(self, request: ChatRequest, injected: Collection[int] = ()) -> int:
        """Count a request, of which the messages at the indexes `injected` are injections. Nothing is pending then.

        A message is counted once however often it is sent.
        """
        self._raw, self._said = {}, 0
        self._add("system", PER_REPLY + self._count_specs(request))
        for index, message in enumerate(request.messages):
            said, called = self._of(message)
            self._add("injection" if index in injected else _TYPES[message.role], said)
            self._add("tool_call", called)
            self._said += said + called
        return self.tokens

    def stream(self, text: str, channel: Literal["text", "reasoning"] = "text") -> int:
        """Add a piece of the reply that arrives; returns all tokens."""
        self._add("pending" if channel == "text" else "reasoning", self._count(text))
        return self.tokens

    def cost(self, message: ChatMessage) -> int:
        """Calibrated tokens of one message with its tool calls and the marks around it."""
        return self._calibrate(sum(self._of(message)))

    def cost_of_text(self, text: str) -> int:
        """Calibrated tokens of a text alone."""
        return self._calibrate(self._count(text))

    def calibrate(self, estimated: int, actual: int) -> None:
        """Learn from the provider's count of a prompt that `measure` took for `estimated` tokens.

        The first count is believed, later ones move the factor half the way, so that one odd request does not swing
        it; a factor beyond 0.5 to 2.5 is no difference of vocabularies but a wrong count. Short prompts teach nothing.
        """
        if min(estimated, actual) < _ENOUGH:
            return
        learnt = min(_HIGHEST, max(_LOWEST, self._factor * actual / estimated))
        self._factor = (self._factor + learnt) / 2 if self._calibrated else learnt
        self._calibrated = True

    def _calibrate(self, tokens: int) -> int:
        return math.ceil(tokens * self._factor)

    def _add(self, entry: EntryType, tokens: int) -> None:
        self._raw[entry] = self._raw.get(entry, 0) + tokens

    def _of(self, message: ChatMessage) -> tuple[int, int]:
        """Tokens of what the message says, and of its tool calls."""
        known = self._known.get(message)
        if known is None:
            if len(self._known) >= _KEPT:
                self._known.clear()
            called = sum(self._count(call.name) + self._count(call.arguments) for call in message.tool_calls)
            known = self._known[message] = (self._count(message.content) + PER_MESSAGE, called)
        return known

    def _count_specs(self, request: ChatRequest) -> int:
        specs: list[Mapping[str, Any]] = [
            {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}
            for tool in request.tools
        ]
        if request.schema is not None:
            specs.append(request.schema)
        return self._count(json.dumps(specs, separators=(",", ":"))) if specs else 0


_TYPES: Mapping[str, EntryType] = {
    "system": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool_result",
}
