"""Offers `proxy_redis`: a proxy before a Redis server that loses the replies to transactions when it is told to."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class RedisProxy:
    """Breaks a connection instead of passing on the reply to a transaction, `replies_to_lose` times."""

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self.port = 0
        self.replies_to_lose = 0
        self.replies_lost = 0
        self.connections: set[asyncio.Task[None] | None] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections.add(asyncio.current_task())
        server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self._server_port)
        lost = asyncio.Event()
        tasks = [
            asyncio.create_task(self._forward(reader, server_writer, lost)),
            asyncio.create_task(self._return(server_reader, writer, lost)),
        ]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for end in (writer, server_writer):
            end.close()
            with contextlib.suppress(OSError):
                await end.wait_closed()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, lost: asyncio.Event) -> None:
        while data := await reader.read(2**16):
            if b"\r\nEXEC\r\n" in data and (b"HSET" in data or b"UNLINK" in data) and self.replies_to_lose > 0:
                self.replies_to_lose -= 1
                self.replies_lost += 1
                lost.set()
            writer.write(data)
            await writer.drain()

    async def _return(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, lost: asyncio.Event) -> None:
        while (data := await reader.read(2**16)) and not lost.is_set():
            writer.write(data)
            await writer.drain()


@asynccontextmanager
async def proxy_redis(server_port: int) -> AsyncIterator[RedisProxy]:
    proxy = RedisProxy(server_port)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
        for connection in proxy.connections:
            assert connection is not None
            await asyncio.wait_for(connection, 5)
