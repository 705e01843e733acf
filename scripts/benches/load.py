"""Sends HTTP/1.1 requests on connections that stay open, and measures how many a second and how long they take."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

MakeRequest = Callable[[int, int], bytes]
"""(number of the connection, number of the request on it): the bytes of the request."""


@dataclass(slots=True)
class Load:
    """What was measured."""

    duration: float = 0.0
    seconds: list[float] = field(default_factory=list[float])
    """Of each request."""
    statuses: Counter[int] = field(default_factory=Counter[int])
    sample: bytes = b""
    """The last body that was received."""

    @property
    def rate(self) -> float:
        """Requests a second."""
        return len(self.seconds) / self.duration

    def percentile(self, share: float) -> float:
        return sorted(self.seconds)[int(share * (len(self.seconds) - 1))]


def make_request(method: str, path: str, token: str, body: bytes = b"") -> bytes:
    head = f"{method} {path} HTTP/1.1\r\nhost: bench\r\nauthorization: Bearer {token}\r\n"
    body_headers = f"content-type: application/json\r\ncontent-length: {len(body)}\r\n" if body else ""
    return f"{head}{body_headers}\r\n".encode() + body


async def run_load(port: int, make: MakeRequest, *, connections: int, seconds: float) -> Load:
    """Send requests on so many connections, each as soon as the one before is answered."""
    load = Load()
    started = time.perf_counter()
    await asyncio.gather(*(_run_connection(port, make, n, started + seconds, load) for n in range(connections)))
    load.duration = time.perf_counter() - started
    return load


async def read_stream(port: int, request: bytes) -> tuple[int, bytes]:
    """Return the status of a streamed response and all that was received."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n", 1))
    data = await reader.read()
    writer.close()
    return int(data.split(b" ", 2)[1]), data


async def _run_connection(port: int, make: MakeRequest, connection: int, deadline: float, load: Load) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    number = 0
    while time.perf_counter() < deadline:
        started = time.perf_counter()
        writer.write(make(connection, number))
        status, load.sample = await _read_response(reader)
        load.seconds.append(time.perf_counter() - started)
        load.statuses[status] += 1
        number += 1
    writer.close()


async def _read_response(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    length = next(int(line[15:]) for line in lines if line.lower().startswith(b"content-length:"))
    return int(lines[0].split()[1]), await reader.readexactly(length)
