"""HTTP connections: the header of a request must arrive in time and be small; errors are JSON, as all others."""

import asyncio
from http import HTTPStatus
from typing import Any

from starlette.responses import JSONResponse
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from massmem.config.models import LimitsConfig
from massmem.server.errors import RETRY_LATER
from massmem.server.schemas import Problem

MAX_CONNECTIONS = 4_000
"""Of one process; requests on more of them are answered with 503."""

_PER_FIELD = 4
"""Bytes of a field besides name and value: a colon, a blank and the end of the line."""

_BODY_SLACK = 5.0
"""Seconds that a body has beyond its limit: `BodyLimit` refuses it first, with a response."""


class LimitedConfig(Config):
    """The settings of uvicorn, with those of its connections. Workers get it by pickle."""

    limits: LimitsConfig


class LimitedConnection(HttpToolsProtocol):
    """A connection of uvicorn's that refuses headers which are too large (431) or too slow (408).

    uvicorn limits neither with this parser. Its own errors are plain text.
    """

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        assert isinstance(config, LimitedConfig)
        self._limits = config.limits
        self._timer: asyncio.TimerHandle | None = None
        self._in_header = True
        self._received = 0
        """Bytes since the header began."""
        self._size = 0
        """Bytes of the header's fields that are complete."""
        self._refusal = (400, "the request cannot be read")

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._start_timer(self._limits.header_timeout)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self._in_header:
            self._received += len(data)
            if self._timer is None:
                self._start_timer(self._limits.header_timeout)
        super().data_received(data)
        if self._in_header and self._received > self._limits.header and not self.transport.is_closing():
            self._refuse(431, "the header of the request is too large")

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        self._check_size(len(self.url))

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        self._size += len(name) + len(value) + _PER_FIELD
        self._check_size(len(self.url) + self._size)

    def on_headers_complete(self) -> None:
        self._in_header = False
        self._start_timer(self._limits.body_timeout + _BODY_SLACK)
        if len(self.connections) > MAX_CONNECTIONS:
            headers = {"Retry-After": str(RETRY_LATER), "Connection": "close"}
            self.app = JSONResponse(Problem(error="the service is busy").model_dump(), 503, headers)  # type: ignore[assignment]
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._stop_timer()
        self._in_header, self._received, self._size = True, 0, 0
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Called for what the parser refuses, and for what `_check_size` refuses."""
        self._refuse(*self._refusal)

    def _check_size(self, size: int) -> None:
        """Raise ValueError, which ends the parser, when the header is too large."""
        if size > self._limits.header or len(self.headers) > self._limits.header_fields:
            self._refusal = (431, "the header of the request is too large")
            raise ValueError

    def _refuse(self, status: int, message: str) -> None:
        body = Problem(error=message).model_dump_json().encode()
        head = (
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\ncache-control: no-store\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()

    def _start_timer(self, seconds: float) -> None:
        self._stop_timer()
        self._timer = self.loop.call_later(seconds, self._end_wait)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _end_wait(self) -> None:
        """End a connection that has sent no whole header, or no whole body, in time."""
        self._timer = None
        if self._in_header:
            self._refuse(408, "the header of the request did not arrive in time")
        elif not self.pipeline:  # a request that waits for another one on its connection is not read meanwhile
            self.transport.close()
