"""Asks one question as `massmem` does, and writes what each phase of it had cost by then as JSON to the file PHASES.

Usage: PHASES=FILE python phases.py ARGUMENT...; each phase has the CPU seconds and the resident megabytes at its end.
"""

import atexit
import gc
import json
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any

gc.disable()  # as massmem itself does, a little later

_PAGE = resource.getpagesize() / 2**20
_phases: dict[str, tuple[float, float]] = {}


def _mark(phase: str) -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    _phases[phase] = (time.process_time(), pages * _PAGE)


def _before(function: Any, phase: str) -> Any:
    async def call(*arguments: Any, **options: Any) -> Any:
        if phase not in _phases:
            _mark(phase)
        return await function(*arguments, **options)

    return call


def _after(function: Any, phase: str) -> Any:
    async def call(*arguments: Any, **options: Any) -> Any:
        try:
            return await function(*arguments, **options)
        finally:
            _mark(phase)

    return call


@atexit.register
def _write() -> None:
    _mark("end")
    Path(os.environ["PHASES"]).write_text(json.dumps(_phases), encoding="ascii")


def _main() -> int:
    from massmem.cli import run
    from massmem.cli.main import main
    from massmem.turn.request import RequestSender

    run._run = _before(run._run, "configured")  # pyright: ignore[reportPrivateUsage]
    run.Session.open = _after(run.Session.open, "opened")
    send = RequestSender.send
    RequestSender.send = _before(_after(send, "last reply"), "first request")
    return main()


if __name__ == "__main__":
    sys.exit(_main())
