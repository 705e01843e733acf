"""For operators: metrics for Prometheus, and a log of one JSON object per line on stderr.

Metrics are requests, turns, tokens, latency, queued recordings and compression. Neither names a user, nor has texts or
secrets.
"""

import logging
import os
import re
import sys
import time
import traceback
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from massmem.core import events as ev
from massmem.core.events import now
from massmem.core.messages import Usage
from massmem.core.records import RecordingCounts
from massmem.core.redact import redact
from massmem.core.text import dump_json
from massmem.telemetry import hash_name

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

SHARED_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
"""The environment variable that names the folder in which several processes keep their metrics together."""

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)


class Metrics:
    """The metrics of this process; `export` covers all processes that share a folder."""

    def __init__(self) -> None:
        own = CollectorRegistry()
        self._registry = own
        if folder := os.environ.get(SHARED_FOLDER):
            Path(folder).mkdir(mode=0o700, parents=True, exist_ok=True)
            self._registry = CollectorRegistry()
            MultiProcessCollector(self._registry)
        self._requests = Counter("massmem_requests", "Requests.", ["method", "route", "status"], registry=own)
        self._latency = Histogram(
            "massmem_request_seconds", "Time to the end of a request.", ["route"], registry=own, buckets=_SECONDS
        )
        self._turns = Counter("massmem_turns", "Turns by how they ended.", ["outcome"], registry=own)
        self._turn_seconds = Histogram(
            "massmem_turn_seconds", "Time from a question to its answer.", registry=own, buckets=_SECONDS
        )
        self.running = Gauge("massmem_turns_running", "Turns under way.", registry=own, multiprocess_mode="livesum")
        self.streams = Gauge("massmem_streams", "Open event streams.", registry=own, multiprocess_mode="livesum")
        self._tokens = Counter("massmem_tokens", "Tokens of models.", ["direction"], registry=own)
        self._model_requests = Counter("massmem_model_requests", "Requests to models.", registry=own)
        self._agent_failures = Counter("massmem_agent_failures", "Agents that could not act.", ["error"], registry=own)
        self._compressions = Counter("massmem_compressions", "Contexts compressed.", ["why", "by"], registry=own)
        self._compressed = Counter("massmem_compressed_tokens", "Tokens that compression saved.", registry=own)
        self._recordings = Gauge(
            "massmem_recordings",
            "Recordings in the queue: pending, retrying (of the pending ones), failed (given up).",
            ["status"],
            registry=own,
            multiprocess_mode="mostrecent",
        )
        self._oldest = Gauge(
            "massmem_recordings_oldest_seconds",
            "Age of the oldest pending recording.",
            registry=own,
            multiprocess_mode="mostrecent",
        )

    def count_request(self, method: str, route: str, status: int, seconds: float) -> None:
        self._requests.labels(method, route, status).inc()
        self._latency.labels(route).observe(seconds)

    def count_event(self, event: ev.Event, seconds: float) -> None:
        """Count an event of a turn that has run for `seconds`."""
        match event:
            case ev.TurnCompleted():
                self._turn_seconds.observe(seconds)
                self._turns.labels("completed").inc()
            case ev.TurnFailed() | ev.TurnWaiting() | ev.TurnAbandoned() | ev.TurnInterrupted():
                self._turns.labels(event.type.removeprefix("turn_")).inc()
            case ev.AgentFailed(error=error):
                self._agent_failures.labels(error).inc()
            case ev.ContextCompressed(why=why, by=by, before=before, after=after):
                self._compressions.labels(why, by).inc()
                self._compressed.inc(max(0, before - after))
            case _:
                pass

    def set_recordings(self, counts: RecordingCounts) -> None:
        for status in ("pending", "retrying", "failed"):
            self._recordings.labels(status).set(getattr(counts, status))
        self._oldest.set(0.0 if counts.oldest is None else max(0.0, (now() - counts.oldest).total_seconds()))

    def export(self) -> bytes:
        return generate_latest(self._registry)

    def count_usage(self, usage: Usage) -> None:
        self._tokens.labels("in").inc(usage.prompt)
        self._tokens.labels("out").inc(usage.completion)
        self._model_requests.inc(usage.requests)


log = logging.getLogger("massmem.server.requests")

_METHODS = {"GET", "POST", "DELETE", "HEAD", "OPTIONS", "PUT", "PATCH"}
_MAX_FRAMES = 8

_STORED_ID = re.compile(r"\b[0-9a-f]{24}\.([^\s,;:()]+)")
"""A session as the store knows it: its owner's hash, and the id that the user gave it."""


class JsonFormatter(logging.Formatter):
    """Writes records without what may quote a user: messages of errors, and of libraries."""

    def format(self, record: logging.LogRecord) -> str:
        if isinstance(record.args, tuple):
            record.args = tuple(type(arg).__name__ if isinstance(arg, Exception) else arg for arg in record.args)
        is_ours = record.name.partition(".")[0] == "massmem"
        line: dict[str, object] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _STORED_ID.sub(lambda match: hash_name(match[1]), redact(record.getMessage()))
            if is_ours
            else f"see {record.pathname}:{record.lineno}",
            "pid": os.getpid(),
        }
        line |= getattr(record, "fields", {})
        if record.exc_info:
            kind, _, trace = record.exc_info
            line["error"] = "" if kind is None else kind.__name__
            frames = traceback.extract_tb(trace, -_MAX_FRAMES)
            line["where"] = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]
        return dump_json(line)


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
