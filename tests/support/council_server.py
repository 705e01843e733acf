"""A model server on loopback for a whole council: answers by what it is asked, and counts what it was asked.

Speaks the streaming part of the OpenAI protocol. The agent is known by its system message.
"""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Asked:
    agent: str
    step: str
    messages: list[dict[str, Any]]


@dataclass
class CouncilServer:
    """asked: every request so far, in order. delay: seconds before a reply."""

    url: str = ""
    delay: float = 0.05
    asked: list[Asked] = field(default_factory=list)

    def config(self, agents: tuple[str, ...]) -> str:
        """A configuration file for a team on this server."""
        lines = [
            f"  - {{id: {a}, system_message: {a}, backend: {{type: openai, model: stub, base_url: '{self.url}'}}}}"
            for a in agents
        ]
        return "agents:\n" + "\n".join(lines) + "\n"


@contextmanager
def council_server() -> Iterator[CouncilServer]:
    council = CouncilServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            asked = _read(body)
            council.asked.append(asked)
            time.sleep(council.delay)
            data = b"".join(f"data: {json.dumps(chunk)}\n\n".encode() for chunk in _reply(asked)) + b"data: [DONE]\n\n"
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            try:
                self.wfile.write(data)
            except ConnectionError:
                self.close_connection = True

        def log_message(self, format: str, *args: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: object, client_address: object) -> None:
            """A client that was killed in mid-request is what these tests are about."""

    server = Server(("127.0.0.1", 0), Handler)
    council.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield council
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _read(body: dict[str, Any]) -> Asked:
    messages = body["messages"]
    final = "was chosen" in messages[-1]["content"]
    step = "vote" if body.get("tools") else "present" if final else "answer"
    return Asked(messages[0]["content"].split("\n")[0], step, messages)


def _reply(asked: Asked) -> list[dict[str, Any]]:
    if asked.step == "vote":
        call = {"name": "vote", "arguments": json.dumps({"reason": "because", "choice": "A"})}
        delta: dict[str, Any] = {"tool_calls": [{"index": 0, "id": "c1", "type": "function", "function": call}]}
    else:
        delta = {"content": f"{asked.step} of {asked.agent}"}
    prompt = 10 + sum(len(message["content"]) for message in asked.messages) // 3
    base = {"id": "x", "object": "chat.completion.chunk", "created": 0, "model": "stub"}
    return [
        base | {"choices": [{"index": 0, "delta": {"role": "assistant", **delta}, "finish_reason": None}]},
        base | {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
        base | {"choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": 5, "total_tokens": prompt + 5}},
    ]
