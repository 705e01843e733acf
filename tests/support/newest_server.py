"""Offers `NewestServer`: a whole council's models behind an API that refuses what the newest APIs refuse.

It speaks the protocols of massmem's adapters, votes for the same answer in whatever form it is asked, and records what
it is sent.
"""

import json
import re
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.support.json_server import serve_posts
from tests.support.provider_stub import AnthropicWire, Http, OpenAIWire, ResponsesWire, Say, Wire

TOOLS_ON_CHAT = (
    "Function tools with reasoning_effort are not supported for gpt-6-astra in /v1/chat/completions. To use function "
    "tools, use /v1/responses or set reasoning_effort to 'none'."
)
TOOLS = "registry.ollama.ai/library/gemma3:4b does not support tools"
FORCED_TOOLS = 'tool_choice: type "tool" and "any" are not supported for this model.'
TOOLS_LAST = "Tool use is not enabled for the last request of a turn."
SCHEMA = "This response_format type is unavailable now"

_OWN = re.compile(r"Answer ([A-Z]) is yours: vote")
_CANDIDATE = re.compile(r'label=\\"([A-Z])\\">\\n(.*?)\\n</answer>')


@dataclass
class NewestServer:
    refuses: tuple[str, ...] = ()
    """Messages of refusals, of those above."""
    writes_prose: bool = False
    """The model does not call tools that it need not call."""
    early: tuple[tuple[str, str], ...] = ()
    """Tool calls (name, arguments) with which the model answers at first, instead of with text."""
    writes_calls: bool = False
    """These calls come as text, as from a server that does not read them."""
    url: str = ""
    """With /v1."""
    accepted: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """Bodies that were answered, in order."""
    refused: list[str] = field(default_factory=list[str])
    """The refusals that were sent, in order."""

    def config(self, type_: str = "openai", agents: str = "abc", **backend: Any) -> str:
        """Return a configuration file for a team on this server."""
        url = self.url.removesuffix("/v1") if type_ == "anthropic" else self.url
        fields = {"type": type_, "model": "newest", "base_url": url, "api_key": "none", "max_retries": 0, **backend}
        memory = {"persistent_memory": {"enabled": False}}
        team = [{"id": agent, "system_message": f"You are {agent}.", "backend": fields} for agent in agents]
        return json.dumps({"agents": team, "memory": memory})

    def respond(self, sent: bytes) -> tuple[int, str, bytes]:
        body = json.loads(sent)
        wire = _wire_of(body)
        refusal = next((text for text in self.refuses if _holds(body, text)), None)
        if refusal is not None:
            self.refused.append(refusal)
            return 400, "application/json", _bytes_of(wire.error(400, refusal))
        self.accepted.append(body)
        return 200, "text/event-stream", _bytes_of(wire.stream(self._say(body)))

    def _say(self, body: dict[str, Any]) -> Say:
        if _tools(body) and _asks_for_vote(body):
            prose = self.writes_prose and not _is_forced(body)
            ballot = {"reason": "it is right", "choice": _choose(body)}
            return Say(["I like the first answer best."]) if prose else Say(calls=[("vote", json.dumps(ballot))])
        if '\\"action\\": \\"vote\\"' in json.dumps(body):
            ballot = {"reason": "it is right", "action": "vote", "choice": _choose(body)}
            return Say([f"Here is my vote:\n{json.dumps(ballot)}"])
        if self.early and _tools(body):
            call, self.early = self.early[0], self.early[1:]
            written = f'{{"name": "{call[0]}", "arguments": {call[1]}}}'
            return Say([written]) if self.writes_calls else Say(calls=[call])
        return Say([f"answer {len(self.accepted)}"])


@contextmanager
def newest_server(*refuses: str, writes_prose: bool = False) -> Generator[NewestServer]:
    server = NewestServer(refuses, writes_prose)
    with serve_posts(server.respond, ["newest"]) as server.url:
        yield server


def _wire_of(body: dict[str, Any]) -> Wire:
    if "input" in body:
        return ResponsesWire()
    return OpenAIWire() if "stream_options" in body else AnthropicWire()


def _holds(body: dict[str, Any], refusal: str) -> bool:
    """Whether a server that says this would refuse the body."""
    tools, chats = bool(_tools(body)), "messages" in body
    holds = {
        TOOLS_ON_CHAT: tools and chats,
        TOOLS: tools,
        TOOLS_LAST: tools and "was chosen" in json.dumps(body),
        FORCED_TOOLS: _is_forced(body),
        SCHEMA: bool({"response_format", "output_config", "text"} & body.keys()),
    }
    return holds[refusal]


def _choose(body: dict[str, Any]) -> str:
    """Return the label of the answer that comes first in the alphabet, so that agents agree as far as they may."""
    text = json.dumps(body)
    own = _OWN.findall(text)[-1:]
    return min((c for c in _CANDIDATE.findall(text) if c[0] not in own), key=lambda candidate: candidate[1])[0]


def _asks_for_vote(body: dict[str, Any]) -> bool:
    """Whether it is a vote. The tools do not say: some APIs are sent the same ones in all steps."""
    return "Compare the answers" in json.dumps(body)


def _tools(body: dict[str, Any]) -> list[dict[str, Any]]:
    return body.get("tools", [])


def _is_forced(body: dict[str, Any]) -> bool:
    return body.get("tool_choice") in ("required", {"type": "any"})


def _bytes_of(reply: Http) -> bytes:
    return b"".join(part for part in reply.parts if isinstance(part, bytes))
