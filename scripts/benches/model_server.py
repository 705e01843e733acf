"""What servers of models on loopback share: connections, replies in the shape of OpenAI's API, and starting one."""

import asyncio
import contextlib
import json
import signal
import subprocess
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping
from typing import Any

from scripts.benches.process import PYTHON
from scripts.benches.rows import ROOT


@contextlib.contextmanager
def start_model(name: str, *arguments: object) -> Generator[int]:
    """Run a module of this folder that calls `serve`, a process of its own; give its port, and end it afterwards."""
    command = [PYTHON, "-m", f"scripts.benches.{name}", *map(str, arguments)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.terminate()


async def serve(respond: Callable[[str, bytes], Awaitable[bytes]], on_connection: Callable[[], None]) -> None:
    """Print the port, and answer until SIGTERM. respond: takes head and body of a request, returns a whole response."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        on_connection()
        # Who asked may have been killed meanwhile.
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                body = await reader.readexactly(_read_length(head))
                writer.write(await respond(head, body))
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    await stopped.wait()
    server.close()


def is_chat(head: str) -> bool:
    """What is no chat is a question about the server (how large is the window?), which none here answers."""
    return head.startswith("POST ") and head.split(" ", 2)[1].endswith("/chat/completions")


def make_response(body: bytes = b"", content_type: str = "application/json", status: str = "200 OK") -> bytes:
    head = f"HTTP/1.1 {status}\r\ncontent-type: {content_type}\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


NOT_FOUND = make_response(status="404 Not Found")


def make_stream(deltas: Iterable[Mapping[str, Any]], finish: str, usage: Mapping[str, int]) -> bytes:
    """Return a whole streamed reply, as models send it."""
    parts: list[tuple[Mapping[str, Any], str | None]] = [({"role": "assistant", "content": ""}, None)]
    parts += [*((delta, None) for delta in deltas), ({}, finish)]
    events: list[dict[str, Any]] = [
        {"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]} for delta, reason in parts
    ]
    events.append({"choices": [], "usage": usage})
    head = {"id": "reply", "object": "chat.completion.chunk", "created": 1, "model": "stub"}
    lines = "".join(f"data: {json.dumps(head | event)}\n\n" for event in events)
    return make_response(f"{lines}data: [DONE]\n\n".encode(), "text/event-stream")


def make_call(name: str, arguments: Mapping[str, Any], index: int = 0, call_id: str = "call_1") -> dict[str, Any]:
    """Return the delta of a call of a tool."""
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"tool_calls": [{"index": index, "id": call_id, "type": "function", "function": function}]}


def _read_length(head: str) -> int:
    fields = (line.partition(":") for line in head.split("\r\n"))
    return next((int(value) for name, _, value in fields if name.lower() == "content-length"), 0)
