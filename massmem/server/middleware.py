"""What surrounds every request: limits on its body, security headers, metrics and the access log.

Plain ASGI, so that streams are not buffered.
"""

import asyncio
import logging
import time
from typing import Any

from fastapi import HTTPException
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from massmem.config.models import LimitsConfig
from massmem.telemetry.spans import hashed

log = logging.getLogger("massmem.server.requests")

_METHODS = {"GET", "POST", "DELETE", "HEAD", "OPTIONS", "PUT", "PATCH"}


class BodyLimit:
    """Refuses bodies that are too large (413) or arrive too slowly (408).

    FastAPI's own `max_body_size` has no time limit, and answers in plain text instead of as a `Problem`.
    """

    def __init__(self, app: ASGIApp, limits: LimitsConfig) -> None:
        self._app = app
        self._limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        declared_size = Headers(scope=scope).get("content-length", "0")
        deadline = asyncio.get_running_loop().time() + self._limits.body_timeout
        size, complete = 0, False

        async def receive_body() -> Message:
            nonlocal size, complete
            if complete:  # only a disconnect of the client can follow
                return await receive()
            if declared_size.isdigit() and int(declared_size[:20]) > self._limits.body:
                raise HTTPException(413, "the body is too large")
            try:
                async with asyncio.timeout_at(deadline):
                    message = await receive()
            except TimeoutError as e:
                raise HTTPException(408, "the body did not arrive in time") from e
            size += len(message.get("body", b""))
            if size > self._limits.body:
                raise HTTPException(413, "the body is too large")
            complete = not message.get("more_body", False)
            return message

        await self._app(scope, receive_body, send)


class AccessLog:
    """Adds security headers, counts each request and logs one line for it, with user and session as hashes."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, status = time.perf_counter(), 500

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers.setdefault("cache-control", "no-store")
                headers.setdefault("x-content-type-options", "nosniff")
            await send(message)

        scope.setdefault("state", {})
        try:
            await self._app(scope, receive, send_with_headers)
        finally:
            _record_request(scope, status, time.perf_counter() - started)


def _record_request(scope: Scope, status: int, seconds: float) -> None:
    app: Any = scope["app"]
    route = getattr(scope.get("route"), "path", "none")
    method = scope["method"] if scope["method"] in _METHODS else "OTHER"
    service = getattr(app.state, "service", None)
    if service is not None:
        service.metrics.count_request(method, route, status, seconds)
    fields: dict[str, object] = {"method": method, "route": route, "status": status, "ms": round(seconds * 1000, 1)}
    if user := scope["state"].get("user"):
        fields["user"] = hashed(user)
    if session_id := scope.get("path_params", {}).get("session_id"):
        fields["session"] = hashed(session_id)
    log.info("request", extra={"fields": fields})
