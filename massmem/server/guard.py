"""Around every request: bodies that are too large or too slow are refused, what was done is counted and logged.

Plain ASGI: nothing is buffered, and a stream stays one.
"""

import asyncio
import logging
import time
from typing import Any

from fastapi import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from massmem.config.service import LimitsConfig
from massmem.telemetry.spans import hashed

log = logging.getLogger("massmem.server.requests")

_HEADERS = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))


class Guard:
    def __init__(self, app: ASGIApp, limits: LimitsConfig) -> None:
        self._app = app
        self._limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun, status = time.perf_counter(), 500

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                there = {name for name, _ in message["headers"]}
                message["headers"] = [*message["headers"], *(pair for pair in _HEADERS if pair[0] not in there)]
            await send(message)

        scope.setdefault("state", {})
        try:
            await self._app(scope, _Body(scope, receive, self._limits).receive, sending)
        finally:
            _tell(scope, status, time.perf_counter() - begun)


class _Body:
    """The body of one request, as far as it is read."""

    def __init__(self, scope: Scope, receive: Receive, limits: LimitsConfig) -> None:
        self._receive = receive
        self._limits = limits
        self._declared = _content_length(scope)
        self._left = limits.body
        self._until = asyncio.get_running_loop().time() + limits.body_timeout
        self._whole = False

    async def receive(self) -> Message:
        if self._whole:  # what may come now is that the client has gone
            return await self._receive()
        if self._declared > self._limits.body:
            raise HTTPException(413, "the body is too large")
        try:
            async with asyncio.timeout_at(self._until):
                message = await self._receive()
        except TimeoutError as e:
            raise HTTPException(408, "the body did not arrive in time") from e
        self._left -= len(message.get("body", b""))
        if self._left < 0:
            raise HTTPException(413, "the body is too large")
        self._whole = not message.get("more_body", False)
        return message


def _content_length(scope: Scope) -> int:
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit():
            return int(value[:20])
    return 0


def _tell(scope: Scope, status: int, seconds: float) -> None:
    """One line a request; whose it is and which session it is about stand there as hashes."""
    app: Any = scope.get("app")
    route = getattr(scope.get("route"), "path", "none")
    method = scope["method"] if scope["method"] in _METHODS else "OTHER"
    service = getattr(app.state, "service", None)
    if service is not None:
        service.metrics.requests.labels(method, route, status).inc()
        service.metrics.latency.labels(route).observe(seconds)
    if log.isEnabledFor(logging.INFO):
        user = scope["state"].get("user")
        session = scope.get("path_params", {}).get("session_id")
        fields: dict[str, object] = {"method": method, "route": route, "status": status, "ms": round(seconds * 1000, 1)}
        fields |= {"user": hashed(user)} if user else {}
        fields |= {"session": hashed(session)} if session else {}
        log.info("request", extra={"fields": fields})


_METHODS = {"GET", "POST", "DELETE", "HEAD", "OPTIONS", "PUT", "PATCH"}
