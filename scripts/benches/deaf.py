"""Whether one user can keep the service from answering others: hostile inputs, sent to a real `massmem serve`.

Each case of `scripts.benches.hostile` gets a service of its own with two workers, and a model that answers after a
moment. It is sent several times at once while somebody else asks and a balancer looks at /readyz; then once more, and
the service is told to end.
"""

import asyncio
import contextlib
import json
import re
import sys
import time
from collections import Counter
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import psutil

from massmem.config.models import JwtConfig
from massmem.server.auth import Tokens
from scripts.benches.hostile import Case, make_cases
from scripts.benches.process import BenchError, Server, find_free_port, start_server, workspace
from scripts.benches.rows import Row, at_most, exactly, reported
from scripts.benches.server import SECRET
from scripts.benches.stub import Stub, stub

WORKERS = 2
GRACE = 5.0
"""`server.grace` of the services, in seconds."""
MAX_READY = 1.0
"""Seconds that /readyz may take."""
MAX_DELAY = 3.0
"""Seconds that another user's question may take over what it takes alone."""
MAX_END = GRACE + 10
"""Seconds from SIGTERM to the end."""

_LATENCY = 0.3
_GAP = 0.2
"""Seconds between two requests of a case."""
_LONGEST = 60.0
"""Seconds after which a case is over, and a request without an answer is given up."""
_SETTLE = 2.0
"""Seconds that somebody else still asks after a case."""
MAX_WORK = 10.0
"""Seconds after that in which all workers come to rest: what was said is recorded behind the answers."""
_UNANSWERED = 0


def run(only: str = "") -> list[Row]:
    """only: a part of the names of the cases to run; empty: all of them."""
    cases = [case for case in make_cases() if only.lower() in case.name.lower()]
    if not cases:
        raise BenchError(f"no case has {only!r} in its name")
    rows: list[Row] = []
    harmless = 0
    for case in cases:
        print(f"{case.name} ...", file=sys.stderr)
        of_case = asyncio.run(_run_case(case))
        rows += of_case
        for row in of_case:
            if row.ok is False:
                print(f"  {row.what.rpartition(': ')[2]}: {row.value:.3g} {row.unit} {row.note}", file=sys.stderr)
        harmless += all(row.ok for row in of_case if row.ok is not None)
    return [*rows, exactly("hostile inputs that leave everybody else alone", harmless, "", len(cases))]


@dataclass(slots=True)
class _Reply:
    """What one request got. status 0: no answer."""

    status: int
    seconds: float
    words: str = ""


@dataclass(slots=True)
class _Measured:
    alone: list[float] = field(default_factory=list[float])
    ready: list[_Reply] = field(default_factory=list[_Reply])
    others: list[_Reply] = field(default_factory=list[_Reply])
    own: list[_Reply] = field(default_factory=list[_Reply])
    work: float = 0.0
    """Seconds in which workers went on when nobody asked any more."""
    stuck: int = 0
    replaced: int = 0
    end: float = 0.0


async def _run_case(case: Case) -> list[Row]:
    with workspace() as home, stub(_LATENCY) as model:
        body = case.make_body()
        measured = _Measured()
        with _start(home, model) as service:
            await _wait_until_ready(service)
            for _ in range(3):
                measured.alone.append((await _ask(service)).seconds)
            await _send_all(service, case, body, measured)
            measured.work = await _wait_for_rest(service)
            measured.stuck = await _count_stuck(service) if measured.work >= MAX_WORK else 0
            measured.replaced = service.log.read_text(errors="replace").count("was replaced")
            last = asyncio.create_task(_send(service.port, *_make_request(case, body), _LONGEST))
            await asyncio.sleep(2 * _GAP)
            measured.end = await _end(service)
            last.cancel()
            await asyncio.wait({last})
    return _make_rows(case, measured)


async def _send_all(service: Server, case: Case, body: bytes, measured: _Measured) -> None:
    """Send the case, while somebody else asks and a balancer looks at /readyz."""
    over = asyncio.Event()
    beside = [asyncio.create_task(watch(service, over, measured)) for watch in (_look, _ask_on)]

    async def send(number: int) -> _Reply:
        await asyncio.sleep(number * _GAP)
        return await _send(service.port, *_make_request(case, body), _LONGEST)

    measured.own = await asyncio.gather(*(send(number) for number in range(case.times)))
    while any(reply.status == 202 for reply in measured.own) and await _count_stuck(service, share=0.2):
        pass  # a job goes on, with pauses
    await asyncio.sleep(_SETTLE)  # what goes on when the sender has an answer
    over.set()
    await asyncio.gather(*beside)


async def _look(service: Server, over: asyncio.Event, measured: _Measured) -> None:
    while not over.is_set():
        measured.ready.append(await _send(service.port, _head("GET", "/readyz"), b"", _LONGEST))
        await asyncio.sleep(0.05)


async def _ask_on(service: Server, over: asyncio.Event, measured: _Measured) -> None:
    while not over.is_set():
        measured.others.append(await _ask(service))


async def _ask(service: Server) -> _Reply:
    """Ask an ordinary question as another user."""
    body = b'{"message": "How do two clocks stay in step?"}'
    return await _send(service.port, _head("POST", "/api/v1/chat", _make_token("other"), len(body)), body, _LONGEST)


def _list_workers(service: Server) -> list[psutil.Process]:
    """Return uvicorn's workers, and neither their own helpers nor the process that keeps track of shared memory."""
    children = psutil.Process(service.process.pid).children()
    return [child for child in children if "spawn_main" in " ".join(child.cmdline())]


async def _wait_for_rest(service: Server) -> float:
    """Return the seconds until no worker computes, or until it is given up."""
    started = time.monotonic()
    while await _count_stuck(service) and time.monotonic() - started < MAX_WORK:
        pass
    return time.monotonic() - started


async def _count_stuck(service: Server, share: float = 0.8) -> int:
    """Return how many workers still compute although nobody waits for anything: for this share of the time."""
    workers = _list_workers(service)
    before = [_cpu(worker) for worker in workers]
    await asyncio.sleep(1)
    return sum(_cpu(worker) - start > share for worker, start in zip(workers, before, strict=True))


def _cpu(process: psutil.Process) -> float:
    try:
        return sum(process.cpu_times()[:2])
    except psutil.NoSuchProcess:
        return 0.0


async def _end(service: Server) -> float:
    """Tell the service to end; return the seconds until all its processes are gone, or until it is given up."""
    family = [psutil.Process(service.process.pid), *psutil.Process(service.process.pid).children(recursive=True)]
    started = time.monotonic()
    service.process.terminate()
    while time.monotonic() - started < MAX_END + 15:
        if not any(_is_alive(process) for process in family):
            break
        await asyncio.sleep(0.05)
    return time.monotonic() - started


def _is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _make_rows(case: Case, measured: _Measured) -> list[Row]:
    alone = median(measured.alone)
    statuses = Counter(reply.status for reply in measured.own)
    words = next((reply.words for reply in measured.own if reply.words), "")
    note = ", ".join(f"{count} x {status or 'no answer'}" for status, count in sorted(statuses.items()))
    slowest = max(reply.seconds for reply in measured.own)
    wrong = sum(not _is_right(case, reply) for reply in measured.own)
    failed = sum(reply.status != 200 for reply in (*measured.ready, *measured.others))
    delay = max(reply.seconds for reply in measured.others) - alone
    return [
        at_most(f"{case.name}: /readyz", max(reply.seconds for reply in measured.ready), "s", MAX_READY),
        at_most(f"{case.name}: another user's question", delay, "s", MAX_DELAY, f"over {alone:.2g} s alone"),
        exactly(f"{case.name}: failures of others", failed, "", 0),
        exactly(f"{case.name}: workers stuck or lost", measured.stuck + measured.replaced, "", 0),
        exactly(f"{case.name}: wrong statuses", wrong, "", 0, f"{note}; {words}" if words else note),
        reported(f"{case.name}: the sender waits", slowest, "s"),
        reported(f"{case.name}: work behind the answers", measured.work, "s"),
        at_most(f"{case.name}: the end after SIGTERM", measured.end, "s", MAX_END),
    ]


def _is_right(case: Case, reply: _Reply) -> bool:
    """A form that the answer does not have is refused with 502, and with words that say so."""
    is_refused = 400 <= reply.status < 500 or (reply.status == 502 and "not in the form of the schema" in reply.words)
    return is_refused if case.right == "refused" else is_refused or 200 <= reply.status < 300


# Requests


def _make_request(case: Case, body: bytes) -> tuple[bytes, bytes]:
    token = _make_token("hostile") if case.with_key else ""
    return _head(case.method, case.path, token, len(body), case.headers), body


def _head(method: str, path: str, token: str = "", length: int = 0, headers: Mapping[str, str] | None = None) -> bytes:
    fields = {"host": "127.0.0.1", "connection": "close", **(headers or {})}
    if token:
        fields["authorization"] = f"Bearer {token}"
    if method == "POST":
        fields |= {"content-type": "application/json", "content-length": str(length)}
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
    return "\r\n".join([*lines, "", ""]).encode()


def _make_token(user: str) -> str:
    return Tokens(JwtConfig.model_validate({"secret": SECRET})).create(user, 3600)


async def _send(port: int, head: bytes, body: bytes, limit: float) -> _Reply:
    """Send a request on a connection of its own. An answer may come before all of the body is sent."""
    started = time.monotonic()
    data = b""
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(limit):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                writing = asyncio.create_task(_write(writer, head + body))
                while piece := await reader.read(65_536):
                    data += piece
                await writing
            finally:
                writer.close()
    seconds = time.monotonic() - started
    if not data.startswith(b"HTTP/1.1 "):
        return _Reply(_UNANSWERED, seconds)
    status = int(data[9:12])
    return _Reply(status, seconds, _find_words(data) if status >= 400 else "")


async def _write(writer: asyncio.StreamWriter, data: bytes) -> None:
    with contextlib.suppress(OSError):
        writer.write(data)
        await writer.drain()


def _find_words(data: bytes) -> str:
    """Return what a refusal says, on one line."""
    text = data.partition(b"\r\n\r\n")[2].decode(errors="replace")
    try:
        error: Any = json.loads(text)["error"]
    except (ValueError, KeyError, TypeError):
        error = text
    message = str(error["message"] if isinstance(error, dict) and "message" in error else error)  # pyright: ignore[reportUnknownArgumentType]
    return re.sub(r"\s+", " ", message)[:100]


# The service


@contextlib.contextmanager
def _start(home: Path, model: Stub) -> Generator[Server]:
    port = find_free_port()
    backend = {"type": "openai", "model": "stub", "base_url": model.base_url, "api_key": "none"}
    server = {"port": port, "workers": WORKERS, "grace": GRACE, "jwt": {"secret": SECRET}}
    team = home / "team.yaml"
    team.write_text(json.dumps({"agents": [{"id": "ann", "backend": backend}], "server": server}))
    with start_server(home, port, "massmem", "serve", "--config", team) as service:
        yield service


async def _wait_until_ready(service: Server) -> None:
    """Wait until all workers are: connections go to whichever is free."""
    in_a_row = 0
    for _ in range(1_200):
        reply = await _send(service.port, _head("GET", "/readyz"), b"", 10)
        in_a_row = in_a_row + 1 if reply.status == 200 else 0
        if in_a_row >= 5 and await _count_stuck(service) == 0:
            return
        await asyncio.sleep(0.1)
    raise service.fail()
