"""A model server on loopback: chat completions with a fixed latency, and a count of what it was sent.

A process of its own, so that its work is not counted as massmem's. `python -m scripts.benches.stub SECONDS` prints its
port and serves until it is ended. It answers in text, or with a call of the tool `vote` when it is given tools.
"""

import asyncio
import contextlib
import http.client
import json
import signal
import subprocess
import sys
from collections.abc import Generator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from scripts.benches.process import PYTHON
from scripts.benches.rows import ROOT

ANSWER = ("Keep both clocks on the same source, measure how far they drift apart, and correct the drift slowly. " * 4)[
    :400
]
"""400 characters, about 100 tokens: an answer of a few sentences."""


@dataclass(slots=True)
class Seen:
    """connections: opened so far. characters: of the contents of all messages and of the JSON of all tools, as sent."""

    connections: int = 0
    requests: int = 0
    characters: int = 0
    body_bytes: int = 0

    def add(self, body: bytes) -> Mapping[str, Any]:
        data = json.loads(body)
        self.requests += 1
        self.body_bytes += len(body)
        self.characters += sum(len(message["content"] or "") for message in data["messages"])
        for extra in ("tools", "response_format"):
            if extra in data:
                self.characters += len(json.dumps(data[extra], ensure_ascii=False, separators=(",", ":")))
        return data


@dataclass(frozen=True, slots=True)
class Stub:
    """A running server."""

    port: int

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def seen(self) -> Seen:
        """What came in since the last call."""
        # A request of ours is no request of massmem's: /seen is not counted, and its connection is taken off again.
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
    latency: float
    seen: Seen = field(default_factory=Seen)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, kept open for any number of requests."""
        self.seen.connections += 1
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                body = await reader.readexactly(_length(head))
                writer.write(self._told() if head.startswith("GET ") else await self._reply(body))
                await writer.drain()
        writer.close()

    def _told(self) -> bytes:
        self.seen.connections -= 1
        told, self.seen = self.seen, Seen()
        return _response("application/json", json.dumps(asdict(told)).encode())

    async def _reply(self, body: bytes) -> bytes:
        request = self.seen.add(body)
        await asyncio.sleep(self.latency)
        events = [_chunk(delta) for delta in _deltas(request)]
        finish = "tool_calls" if "tools" in request else "stop"
        usage = {"prompt_tokens": len(body) // 4, "completion_tokens": 100, "total_tokens": len(body) // 4 + 100}
        events += [_chunk({}, finish), {**_chunk({}), "choices": [], "usage": usage}]
        lines = "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"
        return _response("text/event-stream", lines.encode())


def _deltas(request: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A reply in pieces, as models stream it."""
    role = {"role": "assistant", "content": ""}
    if "tools" not in request:
        return [role, *({"content": ANSWER[i : i + 40]} for i in range(0, len(ANSWER), 40))]
    arguments = json.dumps({"reason": "It is right and complete.", "choice": "A"})
    function = {"name": "vote", "arguments": arguments}
    return [role, {"tool_calls": [{"index": 0, "id": "call_1", "type": "function", "function": function}]}]


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
