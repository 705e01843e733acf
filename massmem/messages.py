"""Plain values that travel through every layer: what is said to a model. What it says back: massmem.replies.

Nothing here knows storage, providers or agents.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Role = Literal["system", "user", "assistant", "tool"]
Purpose = Literal["answer", "vote", "present", "summary", "extract"]

_UNSENDABLE = re.compile("[\x00\ud800-\udfff]")


def clean_text(text: str) -> str:
    """Replace what no provider and no database accepts (NUL, lone surrogates) by U+FFFD.

    Applied where text enters (questions, model output) and again where it is sent, so that one odd
    character never makes a session unusable.
    """
    return _UNSENDABLE.sub("�", text)


@dataclass(frozen=True, slots=True)
class ToolCall:
    """id: the provider's. arguments: the raw JSON text, not yet checked."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One message as a model sees it. tool_call_id is set on role "tool" only."""

    role: Role
    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None


@dataclass(frozen=True, slots=True)
class Candidate:
    """An answer as another agent sees it: no name, only a label (A, B, ...)."""

    label: str
    agent_id: str
    content: str


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A function that a model may call. parameters: a JSON Schema object."""

    name: str
    description: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one or several requests. cached: the part of prompt that the provider read from its cache.

    requests counts what was sent, retries included. reported is False when any part is our estimate. cost: in US
    dollars (massmem.providers.costs), None when it is not known of all of them.
    """

    prompt: int = 0
    completion: int = 0
    cached: int = 0
    requests: int = 0
    reported: bool = True
    cost: float | None = None

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            self.prompt + other.prompt,
            self.completion + other.completion,
            self.cached + other.cached,
            self.requests + other.requests,
            self.reported and other.reported,
            self._cost_with(other),
        )

    def _cost_with(self, other: "Usage") -> float | None:
        for one, rest in ((self, other), (other, self)):
            if not (one.prompt or one.completion):
                return rest.cost
        return None if self.cost is None or other.cost is None else round(self.cost + other.cost, 10)


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """One request to a model.

    tools and schema are alternatives: with tools the model must call one of them, or, when they are `optional`, may
    say something instead; when they are `closed` it must, and they stand there only because earlier messages call them.
    With schema (a JSON Schema) its text must be JSON of that form. purpose and agent_id say who
    asks and why: real providers ignore them, `scripted` and telemetry do not. temperature and max_tokens None: the
    backend's configuration decides.
    """

    messages: tuple[ChatMessage, ...]
    purpose: Purpose
    agent_id: str = ""
    tools: tuple[ToolSpec, ...] = ()
    schema: Mapping[str, Any] | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    optional: bool = False
    closed: bool = False
