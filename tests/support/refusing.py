"""A model server on loopback that refuses prompts above a limit, as real ones do, and keeps every prompt it was sent.

It has no model: it answers with the texts that it was given, and a request for a summary with the first words of each
line that it is shown, which loses much on purpose.
"""

import json
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from massmem.memory.tokens import count_tokens

_SUMMARY = "Summarise a conversation"
_KEPT_WORDS = 8
_PER_MESSAGE = 4


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Who asked may have been killed meanwhile."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One request. text: contents of all its messages."""

    tokens: int
    refused: bool
    summary: bool
    text: str


@dataclass
class Refusing:
    """limit: tokens of a prompt that it takes. replies: what it says next; "Noted." when there is nothing.

    delay: seconds that every reply takes.
    """

    limit: int
    replies: list[str] = field(default_factory=list[str])
    seen: list[Seen] = field(default_factory=list[Seen])
    delay: float = 0.0

    def __enter__(self) -> "Refusing":
        self._server = _Server(("127.0.0.1", 0), _handler(self))
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def reply(self, body: Mapping[str, Any]) -> tuple[int, bytes, str]:
        """Status, body and content type of the response to a request."""
        texts = [message["content"] or "" for message in body["messages"]]
        tokens = sum(count_tokens(text) + _PER_MESSAGE for text in texts)
        summary, refused = texts[0].startswith(_SUMMARY), tokens > self.limit
        self.seen.append(Seen(tokens, refused, summary, "\n".join(texts)))
        if refused:
            text = (
                f"This model's maximum context length is {self.limit} tokens. "
                f"However, your messages resulted in {tokens} tokens."
            )
            error = {"message": text, "type": "invalid_request_error", "code": "context_length_exceeded"}
            return 400, json.dumps({"error": error}).encode(), "application/json"
        reply = _summary(texts[1:]) if summary else self.replies.pop(0) if self.replies else "Noted."
        return 200, _stream(reply, tokens), "text/event-stream"


def _summary(texts: list[str]) -> str:
    lines = [line.split()[:_KEPT_WORDS] for text in texts for line in text.splitlines()]
    return "\n".join(" ".join(words) for words in lines if words)


def _stream(text: str, prompt: int) -> bytes:
    usage = {"prompt_tokens": prompt, "completion_tokens": count_tokens(text)}
    events: list[dict[str, Any]] = [
        {"choices": [{"index": 0, "delta": {"role": "assistant", "content": text}, "finish_reason": None}]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
        {"choices": [], "usage": usage},
    ]
    return "".join(f"data: {json.dumps(event)}\n\n" for event in events).encode() + b"data: [DONE]\n\n"


def _handler(server: Refusing) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:
            """Nothing."""

        def do_GET(self) -> None:
            self._send(404, b"{}", "application/json")

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if not self.path.endswith("/chat/completions"):
                self._send(404, b"{}", "application/json")
                return
            status, answer, content_type = server.reply(json.loads(body))
            time.sleep(server.delay)
            self._send(status, answer, content_type)

        def _send(self, status: int, body: bytes, content_type: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    return Handler
