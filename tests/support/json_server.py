"""Offers HTTP servers in a thread, for programs that have an event loop of their own: `serve_posts`, `json_server`."""

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Respond = Callable[[bytes], tuple[int, str, bytes]]
"""Takes the body of a POST; returns status, content type and body. Several threads call it at once."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: tests kill clients in the middle of a request."""


@contextmanager
def serve_posts(respond: Respond, models: Sequence[str] = ()) -> Iterator[str]:
    """Give the base URL of a server that answers every POST as `respond` says, and lists these models."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            status, kind, body = respond(self.rfile.read(int(self.headers["content-length"])))
            self._reply(status, kind, body)

        def do_GET(self) -> None:
            body = json.dumps({"data": [{"id": model} for model in models]}).encode()
            self._reply(200 if models else 404, "application/json", body)

        def _reply(self, status: int, kind: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = _Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def json_server(answer: Callable[[], tuple[int, object]]) -> Iterator[str]:
    """Give the base URL of a server that answers every POST with the status and the JSON that `answer` returns."""

    def respond(_: bytes) -> tuple[int, str, bytes]:
        status, content = answer()
        return status, "application/json", json.dumps(content).encode()

    with serve_posts(respond) as url:
        yield url
