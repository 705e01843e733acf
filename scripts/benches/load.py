"""Requests over HTTP/1.1 on connections that stay open: how many in a second, and how long the slowest take."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

Make = Callable[[int, int], bytes]
"""(number of the connection, number of the request on it): the bytes of the request."""


@dataclass(slots=True)
class Load:
    """seconds: of each request. sample: the last body that was received."""

    lasted: float = 0.0
    seconds: list[float] = field(default_factory=list[float])
    statuses: Counter[int] = field(default_factory=Counter[int])
    sample: bytes = b""

    @property
    def rate(self) -> float:
        return len(self.seconds) / self.lasted

    def percentile(self, share: float) -> float:
        return sorted(self.seconds)[int(share * (len(self.seconds) - 1))]


def request(method: str, path: str, token: str, body: bytes = b"") -> bytes:
    head = f"{method} {path} HTTP/1.1\r\nhost: bench\r\nauthorization: Bearer {token}\r\n"
    sized = f"content-type: application/json\r\ncontent-length: {len(body)}\r\n" if body else ""
    return f"{head}{sized}\r\n".encode() + body


async def loaded(port: int, make: Make, *, connections: int, seconds: float) -> Load:
    """Send requests on so many connections, each as soon as the one before is answered."""
    found = Load()
    begun = time.perf_counter()
    await asyncio.gather(*(_one(port, make, number, begun + seconds, found) for number in range(connections)))
    found.lasted = time.perf_counter() - begun
    return found


async def _one(port: int, make: Make, connection: int, until: float, found: Load) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    number = 0
    while time.perf_counter() < until:
        begun = time.perf_counter()
        writer.write(make(connection, number))
        status, found.sample = await _answer(reader)
        found.seconds.append(time.perf_counter() - begun)
        found.statuses[status] += 1
        number += 1
    writer.close()


async def _answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    length = next(int(line[15:]) for line in lines if line.lower().startswith(b"content-length:"))
    return int(lines[0].split()[1]), await reader.readexactly(length)


async def streamed(port: int, sent: bytes) -> tuple[int, bytes]:
    """The whole of one streamed answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(sent.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n", 1))
    data = await reader.read()
    writer.close()
    return int(data.split(b" ", 2)[1]), data
