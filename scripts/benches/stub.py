"""A model server on loopback: chat completions with a fixed latency, and a count of what it was sent.

A process of its own, so that its work is not counted as massmem's. `python -m scripts.benches.stub SECONDS` prints its
port and serves until it is ended. It answers in text, or with a call of the tool `vote` when it is given tools; below
/down it answers every request with status 500.
"""

import asyncio
import contextlib
import http.client
import json
import sys
import time
from collections.abc import Generator, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from scripts.benches.hostile import BEGIN, END
from scripts.benches.model_server import NOT_FOUND, is_chat, make_call, make_response, make_stream, serve, start_model

ANSWER = ("Keep both clocks on the same source, measure how far they drift apart, and correct the drift slowly. " * 4)[
    :400
]
"""400 characters, about 100 tokens: an answer of a few sentences."""
_OWN_ANSWER_IS_A = b"Answer A is yours: vote"
_PROMPT_TOKENS = 1_000_000
"""Stands in replies, which are made once, for the tokens of the prompt: a server that counts too few is asked why."""
_USAGE = {"prompt_tokens": _PROMPT_TOKENS, "completion_tokens": 100, "total_tokens": _PROMPT_TOKENS}
_BYTES_PER_TOKEN = 5
"""Of a request's JSON in English."""
_DISTINCT = 64
"""Answers that differ."""


@dataclass(slots=True)
class Seen:
    """connections: opened so far. characters: of the contents of all messages and of the JSON of all tools, as sent.

    seconds: from the first request to the end of the last reply. waves: the most requests that came one after another,
    each when the one before was answered.
    """

    connections: int = 0
    requests: int = 0
    characters: int = 0
    body_bytes: int = 0
    seconds: float = 0.0
    waves: int = 0


@dataclass(frozen=True, slots=True)
class Stub:
    """A running server."""

    port: int

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def seen(self) -> Seen:
        """What came in since the last call."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        with contextlib.closing(connection):
            connection.request("GET", "/seen")
            return Seen(**json.loads(connection.getresponse().read()))


@contextlib.contextmanager
def stub(latency: float) -> Generator[Stub]:
    """Start a server that waits `latency` seconds before it answers; end it afterwards."""
    with start_model("stub", latency) as port:
        yield Stub(port)


@dataclass(slots=True)
class _Server:
    """Replies are made once and bodies are read later: what the server takes itself would be counted as latency."""

    latency: float
    connections: int = 0
    bodies: list[bytes] = field(default_factory=list[bytes])
    times: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])
    """When requests came and their replies were sent."""
    answers: list[bytes] = field(
        default_factory=lambda: [_stream(_answer_pieces(number), "stop") for number in range(_DISTINCT)]
    )
    votes: list[bytes] = field(
        default_factory=lambda: [_stream([_vote("choice", label)], "tool_calls") for label in "AB"]
    )

    def count_connection(self) -> None:
        self.connections += 1

    async def respond(self, head: str, body: bytes) -> bytes:
        if head.startswith("GET /seen"):
            return self._seen()
        if not is_chat(head):
            return NOT_FOUND
        if head.startswith("POST /down/"):
            return make_response(status="500 Internal Server Error")
        begin = time.monotonic()
        tokens = b"%7d" % (len(body) // _BYTES_PER_TOKEN)  # as long as what it replaces
        reply = (await self._reply(body)).replace(b"%d" % _PROMPT_TOKENS, tokens)
        self.times.append((begin, time.monotonic()))
        return reply

    async def _reply(self, body: bytes) -> bytes:
        self.bodies.append(body)
        number = len(self.bodies) % _DISTINCT  # agents that answer the same are not asked to vote
        await asyncio.sleep(self.latency)
        if (asked := find_asked_reply(body)) is not None:
            return _stream([{"content": asked}], "stop")
        if b'"agent_id"' in body:  # MassGen, which offers both tools in every step
            answer = make_call("new_answer", {"content": number_answer(number)})
            return _stream([_vote("agent_id", "agent1") if b"<agent1" in body else answer], "tool_calls")
        if b'"stream":true' not in body.replace(b" ", b""):
            message = {"role": "assistant", "content": number_answer(number)}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            whole = {"id": "reply", "object": "chat.completion", "created": 1, "model": "stub", "usage": _USAGE}
            return make_response(json.dumps({**whole, "choices": [choice]}).encode())
        if b'"tools":' not in body:
            return self.answers[number]
        return self.votes[_OWN_ANSWER_IS_A in body]

    def _seen(self) -> bytes:
        """What came in since the last time, as a response; the connection that asks for it does not count."""
        characters = sum(map(characters_sent, self.bodies))
        seen = Seen(self.connections - 1, len(self.bodies), characters, sum(map(len, self.bodies)))
        if self.times:
            seen.seconds = max(end for _, end in self.times) - min(begin for begin, _ in self.times)
        last = 0.0
        for begin, end in sorted(self.times, key=lambda one: one[1]):
            if begin >= last:
                seen.waves, last = seen.waves + 1, end
        self.connections, self.bodies, self.times = 0, [], []
        return make_response(json.dumps(asdict(seen)).encode())


def find_asked_reply(body: bytes) -> str | None:
    """Return the reply that a hostile question asks for word for word."""
    begin, end = BEGIN.encode(), END.encode()
    start, stop = body.rfind(begin), body.rfind(end)
    return json.loads(b'"%b"' % body[start + len(begin) : stop]) if 0 <= start < stop else None


def characters_sent(body: bytes) -> int:
    """Characters of a request that become prompt tokens: contents of the messages, JSON of tools or schema."""
    data = json.loads(body)
    extras = (data[name] for name in ("tools", "response_format") if name in data)
    compact = sum(len(json.dumps(extra, ensure_ascii=False, separators=(",", ":"))) for extra in extras)
    return compact + sum(len(message["content"] or "") for message in data.get("messages", ()))


def number_answer(number: int) -> str:
    """Return the answer with a number of two digits at its end: no two agents give the same."""
    return f"{ANSWER[:-2]}{number:02}"


def _answer_pieces(number: int) -> list[dict[str, Any]]:
    text = number_answer(number)
    return [{"content": text[i : i + 40]} for i in range(0, len(text), 40)]


def _vote(field_name: str, choice: str) -> dict[str, Any]:
    return make_call("vote", {"reason": "It is right and complete.", field_name: choice})


def _stream(pieces: Iterable[Mapping[str, Any]], finish: str) -> bytes:
    return make_stream(pieces, finish, _USAGE)


async def _main(latency: float) -> None:
    server = _Server(latency)
    await serve(server.respond, server.count_connection)


if __name__ == "__main__":
    asyncio.run(_main(float(sys.argv[1])))
