"""What goes over the wire, without secrets: a line of JSON for each exchange. `scripts/case` makes a test of one."""

import json
import os
import re
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx2

from massmem.config.home import RECORD_VARIABLE, open_private
from massmem.core.events import now
from massmem.core.redact import REDACTED, SECRET_KEYS, mask, mask_values, redact, redact_values
from massmem.providers.failures import SHORTEST_KEY

_OPEN_HEADERS = re.compile("accept.*|anthropic-.*|connection|content-.*|host|user-agent|x-stainless-.*")
"""What is shown of a request; any other header may hold a key."""


class Exchange:
    """A request and its reply, which is written when it has been read."""

    def __init__(self, request: httpx2.Request) -> None:
        self._request = request
        self._reply: httpx2.Response | None = None
        self._chunks: list[tuple[float, str]] = []
        self._began = time.monotonic()
        self._file = os.environ.get(RECORD_VARIABLE, "")
        if self._file:
            request.headers["accept-encoding"] = "identity"  # what is compressed cannot be redacted
        words = {name: value.rpartition(" ")[2] for name, value in request.headers.items()}
        self._secrets = {n: w for n, w in words.items() if len(w) >= SHORTEST_KEY and not _OPEN_HEADERS.fullmatch(n)}

    def wrap(self, reply: httpx2.Response) -> httpx2.Response:
        """Return the reply, whose bytes are noted while they are read."""
        if self._file:
            self._reply = reply
            reply.stream = _NotedStream(reply.stream, self)
        return reply

    def add(self, block: bytes) -> None:
        # Undecodable bytes, such as half a letter, become surrogates, and these the same bytes again.
        self._chunks.append((round(time.monotonic() - self._began, 3), block.decode("utf-8", "surrogateescape")))

    def write(self, error: Exception | None = None) -> None:
        """Write what was sent and what came, once. error: why there is no more."""
        file, self._file = self._file, ""
        if not file:
            return
        is_open, sent = _OPEN_HEADERS.fullmatch, self._request.headers.items()
        headers = {name: value if is_open(name) else REDACTED for name, value in sent}
        try:
            body = mask_values(redact_values(json.loads(self._request.content)), self._secrets)
        except (ValueError, RecursionError, httpx2.RequestNotRead):
            body = None  # there is none, or it is no JSON
        request = {"method": self._request.method, "url": self._redact(str(self._request.url)), "headers": headers}
        row: dict[str, Any] = {"time": now().isoformat(), "request": request | {"body": body}}
        if self._reply is not None:
            chunks = [(seconds, self._redact(text)) for seconds, text in self._chunks]
            whole = self._redact("".join(text for _, text in self._chunks))
            if whole != "".join(text for _, text in chunks):
                chunks = [(self._chunks[-1][0], whole)]  # a key that is cut in two is seen in the whole only
            shown = redact_values(dict(self._reply.headers), (*SECRET_KEYS, "cookie", "organization", "project"))
            row["reply"] = {"status": self._reply.status_code, "headers": shown, "chunks": chunks}
        if error is not None:
            row["error"] = self._redact(f"{type(error).__name__}: {error}")
        with open_private(Path(file), "ab") as out:
            out.write(json.dumps(row).encode() + b"\n")

    def _redact(self, text: str) -> str:
        return redact(mask(text, self._secrets))


class _NotedStream(httpx2.AsyncByteStream, httpx2.SyncByteStream):
    def __init__(self, stream: Any, exchange: Exchange) -> None:
        self._stream = stream
        self._exchange = exchange

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for block in self._stream:
                self._exchange.add(block)
                yield block
        except httpx2.TransportError as e:
            self._exchange.write(e)
            raise

    def __iter__(self) -> Iterator[bytes]:
        for block in self._stream:
            self._exchange.add(block)
            yield block

    async def aclose(self) -> None:
        self._exchange.write()
        await self._stream.aclose()

    def close(self) -> None:
        self._exchange.write()
        self._stream.close()
