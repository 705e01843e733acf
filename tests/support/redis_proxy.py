"""A link to a Redis server that breaks when it is told to."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Link:
    """port: where to connect to instead. lose: how many replies to programs are lost, with their connection."""

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self.port = 0
        self.lose = 0
        self.lost = 0
        self.connections: set[asyncio.Task[None] | None] = set()
        self._programs = False

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections.add(asyncio.current_task())
        theirs, ours = await asyncio.open_connection("127.0.0.1", self._server_port)
        tasks = [asyncio.create_task(self._forward(reader, ours)), asyncio.create_task(self._back(theirs, writer))]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for end in (writer, ours):
            end.close()
            with contextlib.suppress(OSError):
                await end.wait_closed()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(2**16):
            if b"EVALSHA" in data:
                self._programs = True
            writer.write(data)
            await writer.drain()

    async def _back(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(2**16):
            if self._programs and self.lose > 0 and not data.startswith(b"-NOSCRIPT"):
                self.lose -= 1
                self.lost += 1
                return
            self._programs = False
            writer.write(data)
            await writer.drain()


@asynccontextmanager
async def broken_link(server_port: int) -> AsyncIterator[Link]:
    link = Link(server_port)
    server = await asyncio.start_server(link.serve, "127.0.0.1", 0)
    link.port = server.sockets[0].getsockname()[1]
    try:
        yield link
    finally:
        server.close()
        for connection in link.connections:
            assert connection is not None
            await asyncio.wait_for(connection, 5)
