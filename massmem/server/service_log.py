"""The service's log: one JSON object per line on stderr, without texts of users and without secrets."""

import json
import logging
import os
import re
import sys
import time
import traceback
from datetime import UTC, datetime
from typing import Any

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from massmem.core.redact import redact
from massmem.telemetry import hash_name

log = logging.getLogger("massmem.server.requests")

_METHODS = {"GET", "POST", "DELETE", "HEAD", "OPTIONS", "PUT", "PATCH"}
_MAX_FRAMES = 8

_STORED_ID = re.compile(r"\b[0-9a-f]{24}\.([^\s,;:()]+)")
"""A session as the store knows it: its owner's hash, and the id that the user gave it."""


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _STORED_ID.sub(lambda match: hash_name(match[1]), redact(record.getMessage())),
            "pid": os.getpid(),
        }
        line |= getattr(record, "fields", {})
        if record.exc_info:
            kind, _, trace = record.exc_info
            # Without the error's message, which may quote a user.
            line["error"] = "" if kind is None else kind.__name__
            frames = traceback.extract_tb(trace, -_MAX_FRAMES)
            line["where"] = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]
        return json.dumps(line, ensure_ascii=False)


def log_to_stderr() -> None:
    """Send what the service logs, and the warnings of libraries, to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("massmem").setLevel(logging.INFO)
    # uvicorn logs whole tracebacks; errors.py logs errors of requests, and errors of the start are raised.
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
    logging.raiseExceptions = False  # a log that cannot be written stops no request


class AccessLog:
    """Adds security headers, counts each request and logs one line for it, with user and session as hashes.

    Plain ASGI, so that streams are not buffered.
    """

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
        fields["user"] = hash_name(user)
    if session_id := scope.get("path_params", {}).get("session_id"):
        fields["session"] = hash_name(session_id)
    log.info("request", extra={"fields": fields})
