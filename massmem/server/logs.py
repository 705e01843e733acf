"""The service's log: one JSON object a line on stderr, without anything that was said, and without secrets."""

import json
import logging
import os
import sys
from datetime import UTC, datetime

from massmem.redact import redact

_encoded = json.JSONEncoder(ensure_ascii=False).encode


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
            # Where it happened and what kind it was; the message of an error may quote what was said.
            line["error"] = "" if record.exc_info[0] is None else record.exc_info[0].__name__
            line["where"] = _where(record)
        return _encoded(line)


def log_to_stderr() -> None:
    """Send what the service logs, and any library's warnings, to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonFormatter())
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("massmem").setLevel(logging.INFO)
    # It writes whole tracebacks; what fails is logged by app.py, and what keeps the service from starting is raised.
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
    logging.raiseExceptions = False
    # Nothing of these is in a line, and each is looked up for every line (logging's how-to, "Optimization").
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False


def _where(record: logging.LogRecord) -> list[str]:
    """The places of a traceback, the innermost last."""
    places: list[str] = []
    frame = record.exc_info[2] if record.exc_info else None
    while frame is not None:
        code = frame.tb_frame.f_code
        places.append(f"{code.co_filename}:{frame.tb_lineno} {code.co_name}")
        frame = frame.tb_next
    return places[-8:]
