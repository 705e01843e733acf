"""What goes over the wire, as a record without secrets: one line of JSON for each exchange.

`scripts/case` makes a test of an exchange, so that what a server sent once is played again.
"""

import json
import os
import re
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, cast

import httpx2

from massmem.config.home import RECORD_VARIABLE, open_private
from massmem.core.events import now
from massmem.core.redact import REDACTED, SECRET_KEYS, mask, mask_values, redact, redact_values
from massmem.providers.failures import SHORTEST_KEY

_OPEN_HEADERS = re.compile(
    r"accept(-encoding)?|anthropic-(beta|version)|connection|content-(length|type)|host|user-agent|x-stainless-.*"
)
"""What is shown of a request; any other header may hold a key."""
_SECRETS_OF_REPLIES = (*SECRET_KEYS, "cookie", "organization", "project")

Error = TypeVar("Error", bound=Exception)


@dataclass(slots=True)
class Exchange:
    """A request, and what came back."""

    request: httpx2.Request
    file: str
    """"" to record nothing."""
    began: float = field(default_factory=time.monotonic)
    reply: httpx2.Response | None = None
    chunks: list[tuple[float, str]] = field(default_factory=list[tuple[float, str]])
    """Seconds since the request, and bytes as text."""

    @classmethod
    def begin(cls, request: httpx2.Request) -> "Exchange":
        file = os.environ.get(RECORD_VARIABLE, "")
        if file:
            request.headers["accept-encoding"] = "identity"  # what is compressed cannot be redacted
        return cls(request, file)

    def wrap(self, reply: httpx2.Response) -> httpx2.Response:
        """Return the reply, which is written once it has been read."""
        if self.file:
            self.reply = reply
            reply.stream = _RecordedStream(cast("Any", reply.stream), self)
        return reply

    def fail(self, error: Error) -> Error:
        """Write that there was no reply, or only a part of one; return the error."""
        self.write(f"{type(error).__name__}: {error}")
        return error

    def add(self, block: bytes) -> None:
        # Undecodable bytes, such as half a letter, become surrogates, and these the same bytes again.
        self.chunks.append((round(time.monotonic() - self.began, 3), block.decode("utf-8", "surrogateescape")))

    def write(self, error: str = "") -> None:
        file, self.file = self.file, ""
        if not file:
            return
        row: dict[str, Any] = {"time": now().isoformat(), "request": self._describe_request()}
        if self.reply is not None:
            headers = redact_values(dict(self.reply.headers), _SECRETS_OF_REPLIES)
            row["reply"] = {"status": self.reply.status_code, "headers": headers, "chunks": self._redact_chunks()}
        if error:
            row["error"] = self._redact(error)
        with open_private(Path(file), "ab") as out:
            out.write(json.dumps(row).encode() + b"\n")

    def _describe_request(self) -> dict[str, Any]:
        request = self.request
        headers = dict.fromkeys(request.headers, REDACTED)
        headers |= {name: value for name, value in request.headers.items() if _OPEN_HEADERS.fullmatch(name)}
        try:
            body = mask_values(redact_values(json.loads(request.content)), self._secrets)
        except (ValueError, RecursionError, httpx2.RequestNotRead):
            body = None  # it has none, or one that is no JSON
        return {"method": request.method, "url": self._redact(str(request.url)), "headers": headers, "body": body}

    def _redact_chunks(self) -> list[tuple[float, str]]:
        chunks = [(seconds, self._redact(text)) for seconds, text in self.chunks]
        whole = self._redact("".join(text for _, text in self.chunks))
        # A key that is cut in two is found in the whole only.
        return chunks if whole == "".join(text for _, text in chunks) else [(self.chunks[-1][0], whole)]

    def _redact(self, text: str) -> str:
        return redact(mask(text, self._secrets))

    @property
    def _secrets(self) -> dict[str, str]:
        """What the headers of the request may hold: a server may repeat it."""
        hidden = {name: value for name, value in self.request.headers.items() if not _OPEN_HEADERS.fullmatch(name)}
        words = {name: value.rpartition(" ")[2] for name, value in hidden.items()}
        return {name: word for name, word in words.items() if len(word) >= SHORTEST_KEY}


class _RecordedStream(httpx2.AsyncByteStream, httpx2.SyncByteStream):
    def __init__(self, stream: Any, exchange: Exchange) -> None:
        self._stream = stream
        self._exchange = exchange

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for block in self._stream:
                self._exchange.add(block)
                yield block
        except httpx2.TransportError as e:
            self._exchange.fail(e)
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
