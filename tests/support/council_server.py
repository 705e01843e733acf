"""Offers `council_server`: a model server on loopback for a whole council, which records what it is asked.

It speaks the streaming part of the OpenAI protocol, and knows the agent by its system message.
"""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from massmem.core.prompts import parse_votable
from tests.support.json_server import serve_posts


@dataclass
class CouncilRequest:
    """What an agent asked the server."""

    agent: str
    step: str
    """answer, vote or present."""
    messages: list[dict[str, Any]]


@dataclass
class CouncilServer:
    """A running server."""

    url: str = ""
    delay: float = 0.05
    """Seconds before a reply."""
    requests: list[CouncilRequest] = field(default_factory=list)
    """All so far, in order."""
    final: str = ""
    """The text of every presentation; "": one that names the agent."""
    gate: threading.Event = field(default_factory=threading.Event)
    """While it is not set, no request is answered."""

    def __post_init__(self) -> None:
        self.gate.set()

    def config(self, agents: tuple[str, ...]) -> str:
        """Return a configuration file for a team on this server."""
        lines = [
            f"  - {{id: {a}, system_message: {a}, backend: {{type: openai, model: stub, base_url: '{self.url}'}}}}"
            for a in agents
        ]
        return "agents:\n" + "\n".join(lines) + "\n"

    def respond(self, body: bytes) -> tuple[int, str, bytes]:
        request = _parse(json.loads(body))
        self.requests.append(request)
        time.sleep(self.delay)
        assert self.gate.wait(120), "the gate stays closed"
        chunks = [f"data: {json.dumps(chunk)}\n\n" for chunk in _reply(request, self.final)]
        return 200, "text/event-stream", "".join([*chunks, "data: [DONE]\n\n"]).encode()


@contextmanager
def council_server() -> Iterator[CouncilServer]:
    council = CouncilServer()
    with serve_posts(council.respond) as council.url:
        yield council


def _parse(body: dict[str, Any]) -> CouncilRequest:
    messages = body["messages"]
    is_final = "was chosen" in messages[-1]["content"]
    step = "vote" if body.get("tools") else "present" if is_final else "answer"
    return CouncilRequest(messages[0]["content"].split("\n")[0], step, messages)


def _reply(request: CouncilRequest, final: str) -> list[dict[str, Any]]:
    if request.step == "vote":
        call = {"name": "vote", "arguments": json.dumps({"reason": "because", "choice": _choose(request)})}
        delta: dict[str, Any] = {"tool_calls": [{"index": 0, "id": "c1", "type": "function", "function": call}]}
    else:
        is_given = final and request.step == "present"
        delta = {"content": final if is_given else f"{request.step} of {request.agent}"}
    prompt = 10 + sum(len(message["content"]) for message in request.messages) // 3
    base = {"id": "x", "object": "chat.completion.chunk", "created": 0, "model": "stub"}
    return [
        base | {"choices": [{"index": 0, "delta": {"role": "assistant", **delta}, "finish_reason": None}]},
        base | {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
        base | {"choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": 5, "total_tokens": prompt + 5}},
    ]


def _choose(request: CouncilRequest) -> str:
    """Return the label of the answer of the agent whose name comes first: labels are random."""
    candidates = next(filter(None, (parse_votable(m["content"]) for m in reversed(request.messages))))
    return min(candidates, key=lambda label: candidates[label])
