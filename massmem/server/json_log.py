"""The service's log: one JSON object per line on stderr, without texts of users and without secrets."""

import json
import logging
import os
import sys
import traceback
from datetime import UTC, datetime

from massmem.core.redact import redact

_MAX_FRAMES = 8


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": redact(record.getMessage()),
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
    handler.setFormatter(_JsonFormatter())
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("massmem").setLevel(logging.INFO)
    # uvicorn logs whole tracebacks; errors.py logs errors of requests, and errors of the start are raised.
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
    logging.raiseExceptions = False  # a log that cannot be written stops no request
