"""A model server on loopback: chat completions with a fixed latency, and a count of what it was sent.

A process of its own, so that its work is not counted as massmem's. `python -m scripts.benches.stub SECONDS` prints its
port and serves until it is ended. It answers in text, or with a call of the tool `vote` when it is given tools; below
/down it answers every request with status 500.
"""

import asyncio
import contextlib
import http.client
import json
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from scripts.benches.hostile import BEGIN, END
from scripts.benches.process import PYTHON
from scripts.benches.rows import ROOT

ANSWER = ("Keep both clocks on the same source, measure how far they drift apart, and correct the drift slowly. " * 4)[
    :400
]
"""400 characters, about 100 tokens: an answer of a few sentences."""
_OWN_ANSWER_IS_A = b"Answer A is yours: vote"
_USAGE = {"prompt_tokens": 100, "completion_tokens": 100, "total_tokens": 200}
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
    command = [PYTHON, "-m", "scripts.benches.stub", str(latency)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield Stub(int(process.stdout.readline()))
        finally:
            process.terminate()


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
    votes: list[bytes] = field(default_factory=lambda: [_stream(_vote_pieces(label), "tool_calls") for label in "AB"])

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, kept open for any number of requests."""
        self.connections += 1
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                body = await reader.readexactly(_length(head))
                writer.write(await self._answer(head, body))
                await writer.drain()
        writer.close()

    async def _answer(self, head: str, body: bytes) -> bytes:
        """What is no chat is a question about the server (how large is the window?), which this one does not answer."""
        if head.startswith("GET /seen"):
            return self._seen()
        if head.startswith("POST ") and head.split(" ", 2)[1].endswith("/chat/completions"):
            if head.startswith("POST /down/"):
                return b"HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\n\r\n"
            begin = time.monotonic()
            reply = await self._reply(body)
            self.times.append((begin, time.monotonic()))
            return reply
        return b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n"

    async def _reply(self, body: bytes) -> bytes:
        self.bodies.append(body)
        number = len(self.bodies) % _DISTINCT  # agents that answer the same are not asked to vote
        await asyncio.sleep(self.latency)
        if (asked := find_asked_reply(body)) is not None:
            return _stream([{"content": asked}], "stop")
        if b'"agent_id"' in body:  # MassGen, which offers both tools in every step
            return _stream(_act(body, number), "tool_calls")
        if b'"stream":true' not in body.replace(b" ", b""):
            message = {"role": "assistant", "content": number_answer(number)}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            whole = _chunk({}) | {"object": "chat.completion", "choices": [choice], "usage": _USAGE}
            return _response("application/json", json.dumps(whole).encode())
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
        return _response("application/json", json.dumps(asdict(seen)).encode())


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


def _vote_pieces(label: str) -> list[dict[str, Any]]:
    return _call_pieces("vote", {"reason": "It is right and complete.", "choice": label})


def _act(body: bytes, number: int) -> list[dict[str, Any]]:
    """Answer while there is no answer, then vote, as MassGen names both."""
    if b"<agent1" in body:
        return _call_pieces("vote", {"reason": "It is right and complete.", "agent_id": "agent1"})
    return _call_pieces("new_answer", {"content": number_answer(number)})


def _call_pieces(name: str, arguments: Mapping[str, str]) -> list[dict[str, Any]]:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return [{"tool_calls": [{"index": 0, "id": "call_1", "type": "function", "function": function}]}]


def _stream(pieces: list[dict[str, Any]], finish: str) -> bytes:
    """A whole streamed reply, as models send it."""
    events = [_chunk(delta) for delta in ({"role": "assistant", "content": ""}, *pieces)]
    events += [_chunk({}, finish), {**_chunk({}), "choices": [], "usage": _USAGE}]
    lines = "".join(f"data: {json.dumps(event)}\n\n" for event in events)
    return _response("text/event-stream", f"{lines}data: [DONE]\n\n".encode())


def _chunk(delta: Mapping[str, Any], finish: str | None = None) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"id": "reply", "object": "chat.completion.chunk", "created": 1, "model": "stub", "choices": [choice]}


def _length(head: str) -> int:
    fields = (line.partition(":") for line in head.split("\r\n"))
    return next((int(value) for name, _, value in fields if name.lower() == "content-length"), 0)


def _response(content_type: str, body: bytes) -> bytes:
    head = f"HTTP/1.1 200 OK\r\ncontent-type: {content_type}\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


async def _main(latency: float) -> None:
    server = await asyncio.start_server(_Server(latency).serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    await stopped.wait()
    server.close()


if __name__ == "__main__":
    asyncio.run(_main(float(sys.argv[1])))
