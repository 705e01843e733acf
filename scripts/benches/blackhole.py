"""A proxy that accepts every connection and never answers: outbound HTTPS on a network that swallows it."""

import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass(slots=True)
class Blackhole:
    """port: where it listens. held: the connections that came in, open and unanswered."""

    port: int
    held: list[socket.socket] = field(default_factory=list[socket.socket])

    @property
    def seen(self) -> int:
        return len(self.held)

    @property
    def environment(self) -> dict[str, str]:
        """What sends a program's requests there, except those to this machine."""
        url = f"http://127.0.0.1:{self.port}"
        names = ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY")
        proxies = dict.fromkeys([*names, *(name.lower() for name in names)], url)
        return proxies | dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1,localhost")


@contextmanager
def blackhole() -> Generator[Blackhole]:
    with socket.create_server(("127.0.0.1", 0), backlog=128) as server:
        hole = Blackhole(server.getsockname()[1])

        def accept() -> None:
            while True:
                try:
                    hole.held.append(server.accept()[0])
                except OSError:  # the listener was shut down: the bench is over
                    return

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        try:
            yield hole
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join(timeout=5)
            for connection in hole.held:
                connection.close()
