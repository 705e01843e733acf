"""How much of what agents send repeats the beginning of an earlier request, which providers read from their caches.

Three agents and three rounds in a turn, as many turns as in a long conversation, over each protocol. A request counts
in the order in which providers read it: tools, system prompt, messages.
"""

import asyncio
import json
import threading
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast

from massmem.config.models import TeamConfig
from massmem.core.events import TurnCompleted
from massmem.core.prompts import parse_votable
from massmem.session.session import Session
from scripts.benches.process import BenchError, workspace
from scripts.benches.rows import Row, at_least, reported

Json = Mapping[str, Any]

TURNS, LEAST = 20, 0.8
AGENTS = ("ann", "ben", "cyd")
PROTOCOLS: Mapping[str, Mapping[str, Any]] = {
    "chat completions": {"type": "openai"},
    "OpenAI": {"type": "azure_openai"},
    "Anthropic": {"type": "anthropic"},
}
_CRITERIA = "Compare the answers"
_TOPICS = ("clocks", "valves", "ledgers", "bridges", "kilns")


@dataclass
class _Agent:
    """The requests of one agent, as texts."""

    texts: list[str] = field(default_factory=list[str])
    votes: int = 0
    """In this turn."""

    def add(self, text: str) -> None:
        self.texts.append(text)

    @property
    def share(self) -> tuple[int, int]:
        """Characters that repeat the beginning of an earlier request, and all characters."""
        repeated = 0
        for number, text in enumerate(self.texts):
            repeated += max((_count_common(text, other) for other in self.texts[:number]), default=0)
        return repeated, sum(map(len, self.texts))


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        self.agents = {agent: _Agent() for agent in AGENTS}
        super().__init__(("127.0.0.1", 0), _Handler)

    def begin_turn(self) -> None:
        for agent in self.agents.values():
            agent.votes = 0

    def choose(self, body: Mapping[str, Any]) -> tuple[str, dict[str, str] | None]:
        """Return the text of a reply, or its ballot: in the second round one agent improves its answer."""
        messages = body.get("input") or body["messages"]
        last, system = _text_of(messages[-1]), _text_of(body.get("system") or messages[0])
        name = next(agent for agent in AGENTS if f"You are {agent}." in system)
        agent = self.agents[name]
        agent.add(json.dumps(body.get("tools", [])) + json.dumps(body.get("system", "")) + _join(messages))
        if _CRITERIA not in last:
            return f"{name} says in turn {len(agent.texts)}: {_TOPICS[len(agent.texts) % 5]} need care. " * 30, None
        agent.votes += 1
        if name == "ben" and agent.votes == 1:
            return "", {"content": f"Better than all before, in {len(agent.texts)} words. " * 30}
        label = min(parse_votable(last).items(), key=lambda candidate: candidate[1])[0]
        return "", {"reason": "It is complete and right.", "choice": label}


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_error(404)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if not body.get("stream"):
            self.send_error(404)
            return
        assert isinstance(self.server, _Server)
        text, call = self.server.choose(body)
        reply = _reply_of(body)(text, call)
        sent = "".join(f"event: {event.get('type', 'chunk')}\ndata: {json.dumps(event)}\n\n" for event in reply)
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("content-length", str(len(sent.encode())))
        self.end_headers()
        self.wfile.write(sent.encode())

    def log_message(self, format: str, *args: object) -> None:
        pass


def run() -> list[Row]:
    rows: list[Row] = []
    for name, backend in PROTOCOLS.items():
        with workspace() as home:
            share = asyncio.run(_measure(backend, home))
        what = f"prompt that repeats an earlier one, {TURNS} turns, {name}"
        # Compatible servers are sent tools in votes alone: not all of them heed a choice of none.
        rows.append(reported(what, share, "") if backend["type"] == "openai" else at_least(what, share, "", LEAST))
    return rows


async def _measure(backend: Mapping[str, Any], home: Path) -> float:
    """Return the share of all characters of prompts that repeat the beginning of an earlier one of the same agent."""
    server = _Server()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_address[1]}"
    fields = {"model": "stub", "api_key": "sk-none", "max_retries": 0, **backend}
    fields["base_url"] = f"{url}/v1" if backend["type"] == "openai" else url
    agents = [{"id": agent, "system_message": f"You are {agent}.", "backend": fields} for agent in AGENTS]
    team = {"agents": agents, "store": {"url": f"sqlite:///{home}/log.db"}}
    session = await Session.open(TeamConfig.model_validate(team), home=home)
    try:
        for turn in range(TURNS):
            server.begin_turn()
            question = f"Question {turn}: what else do {_TOPICS[turn % 5]} need, and why? " * 3
            async with aclosing(session.ask(question)) as events:
                last = [event async for event in events][-1]
            if not isinstance(last, TurnCompleted):
                raise BenchError(f"turn {turn} did not end: {last}")
    finally:
        await session.close()
        server.shutdown()
        server.server_close()
    shares = [agent.share for agent in server.agents.values()]
    return sum(repeated for repeated, _ in shares) / sum(size for _, size in shares)


def _count_common(text: str, other: str) -> int:
    """Return the characters with which both begin."""
    low, high = 0, min(len(text), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if text[:middle] == other[:middle] else (low, middle - 1)
    return low


def _text_of(message: Any) -> str:
    """Return the text of a message or of its content, whatever the protocol."""
    content: Any = cast("Json", message)["content"] if isinstance(message, dict) else message
    if isinstance(content, str):
        return content
    return "\n\n".join(str(block.get("text", "")) for block in cast("Sequence[Json]", content))


def _join(messages: Sequence[Any]) -> str:
    return "".join(f"\n[{message['role']}] {_text_of(message)}" for message in messages if "role" in message)


def _reply_of(body: Mapping[str, Any]) -> Any:
    if "input" in body:
        return _responses
    return _chat if "stream_options" in body else _anthropic


def _name_of(call: Mapping[str, str]) -> str:
    return "vote" if "choice" in call else "new_answer"


def _chat(text: str, call: Mapping[str, str] | None) -> list[dict[str, Any]]:
    delta: dict[str, Any] = {"content": text}
    if call:
        function = {"name": _name_of(call), "arguments": json.dumps(call)}
        delta = {"tool_calls": [{"index": 0, "id": "c1", "type": "function", "function": function}]}
    return [{"choices": [{"index": 0, "delta": delta, "finish_reason": "tool_calls" if call else "stop"}]}]


def _responses(text: str, call: Mapping[str, str] | None) -> list[dict[str, Any]]:
    first: dict[str, Any] = {"type": "response.output_text.delta", "delta": text}
    if call:
        item = {"type": "function_call", "call_id": "c1", "name": _name_of(call), "arguments": json.dumps(call)}
        first = {"type": "response.output_item.done", "item": item}
    return [first, {"type": "response.completed", "response": {"status": "completed"}}]


def _anthropic(text: str, call: Mapping[str, str] | None) -> list[dict[str, Any]]:
    block: dict[str, Any] = {"type": "text", "text": text}
    if call:
        block = {"type": "tool_use", "id": "c1", "name": _name_of(call), "input": call}
    return [
        {"type": "message_start", "message": {"id": "m", "type": "message", "role": "assistant", "content": []}},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use" if call else "end_turn"}, "usage": {}},
        {"type": "message_stop"},
    ]
