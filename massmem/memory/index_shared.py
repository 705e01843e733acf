"""The embedded index for all processes of a user: the one that has its folder open serves the others.

Whoever comes first locks the folder, opens the index, and listens at `socket` in there, where only the folder's owner
gets to. The others send each call as JSON. When the first one ends, or is killed, whoever calls next opens the index;
what was under way then is called again, which does no harm: no call changes more when it is made twice.
"""

import json
import logging
import os
import socket
import struct
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import fields
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock, Thread
from typing import Any

from filelock import FileLock, Timeout

from massmem.core.errors import IndexDamaged, MemoryUnavailable
from massmem.memory.index import All, Ids, Index, OneOf, Point, Span
from massmem.memory.index_edge import EdgeIndex, FolderInUse, holder_of
from massmem.memory.persistent import Selection

log = logging.getLogger(__name__)

_PATIENCE = 5
"""Seconds in which the process that has the index says that it is there, whatever it does."""
_WRITING = 20.0
"""Seconds to wait for another process that writes."""
_MOST_ATTEMPTS = 20
"""Processes that may end one after the other while they serve a call."""
_LARGEST = 64 * 2**20
"""Bytes of a message."""
_LONGEST_ADDRESS = 100
"""Bytes of a socket's address, on all systems."""
_NOBODY = (FileNotFoundError, ConnectionError, EOFError)
"""Errors that say that no process serves the index."""


def _forward(name: str) -> Callable[..., Any]:
    def call(self: "SharedIndex", *args: object, **options: object) -> Any:
        return self.call(name, *args, **options)

    return call


class SharedIndex(Index):
    """See Index. Any number of processes may have a folder open: each finds what another has stored.

    Raises (all methods): MemoryUnavailable: as EdgeIndex; or the process that serves it does not answer.
    """

    upsert = _forward("upsert")
    set_payload = _forward("set_payload")
    search_words = _forward("search_words")
    search_meaning = _forward("search_meaning")
    list_seconds = _forward("list_seconds")
    read_payloads = _forward("read_payloads")
    read_page = _forward("read_page")
    count = _forward("count")
    delete_matching = _forward("delete_matching")
    sync = _forward("sync")

    def __init__(self, folder: Path, dims: int, wait: float = 2.0) -> None:
        """dims: size of the vectors; 0: words only. wait: seconds for a process that opens or closes the index."""
        self.folder, self._folder = folder, folder.absolute()
        self._dims, self._wait = dims, wait
        self._lock = Lock()
        self._server: _Server | None = None
        self._idle: list[Connection] = []
        self._is_closed = False
        self._find_holder()
        self._wait = max(wait, _PATIENCE)  # whoever takes it over may have much to bring to the disk

    def count_values(self, key: str) -> dict[str, int]:
        return {str(value): number for value, number in self.call("count_values", key).items()}

    @contextmanager
    def writing(self) -> Generator[None]:
        lock = FileLock(self._folder / "writing.lock", timeout=_WRITING, mode=0o600, thread_local=False)
        try:
            lock.acquire(poll_interval=0.01)
        except (OSError, Timeout) as e:
            raise MemoryUnavailable(f"the memory index in {self._folder} is being written: {e}", "try again") from e
        try:
            yield
        finally:
            lock.release()

    def close(self) -> None:
        """Let the next process that calls open the index. Closing twice does no harm."""
        with self._lock:
            self._is_closed = True
            server, self._server = self._server, None
        self._idle.clear()
        if server is not None:
            server.close()

    def call(self, name: str, *args: object, **options: object) -> Any:
        for _ in range(_MOST_ATTEMPTS):
            holder = self._find_holder()
            if isinstance(holder, EdgeIndex):
                return getattr(holder, name)(*args, **options)
            with suppress(*_NOBODY):
                result = self._ask(holder, name, *args, **options)
                self._idle.append(holder)
                return result
            self._idle.clear()
        raise MemoryUnavailable(f"all processes that had the memory index in {self._folder} have ended", "try again")

    def _find_holder(self) -> EdgeIndex | Connection:
        """Return the index when this process has the folder, else a connection to the one that does."""
        end = time.monotonic() + self._wait
        with self._lock:
            while not self._is_closed:
                if self._server is not None:
                    return self._server.index
                with suppress(*_NOBODY, AttributeError):  # Windows has no such sockets
                    return self._idle.pop() if self._idle else self._connect()
                try:
                    self._server = _Server(EdgeIndex(self._folder, self._dims, 0), self._folder)
                except FolderInUse:  # by a process that opens or closes it, or clears it
                    if time.monotonic() > end:
                        raise
                    time.sleep(0.02)
        raise MemoryUnavailable(f"the memory index in {self._folder} is closed")

    def _connect(self) -> Connection:
        with _find_address(self._folder) as address, socket.socket(socket.AF_UNIX) as sock:
            for option in (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO):
                sock.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", _PATIENCE, 0))
            with self._explain_silence():
                sock.connect(address)
            connection = Connection(sock.detach())
        self._ask(connection, "")
        return connection

    def _ask(self, connection: Connection, name: str, *args: object, **options: object) -> Any:
        """Return what the index returns. name: "": ask only whether somebody is there."""
        with self._explain_silence():
            connection.send_bytes(_write([name, args, options]))
            while not connection.poll(_PATIENCE):  # it takes its time, unless it answers nobody
                if not name:
                    raise TimeoutError("timed out")
                self._connect()
            kind, *values = _read(connection.recv_bytes(_LARGEST))
        if kind == "result":
            return values[0]
        raise (IndexDamaged if kind == "IndexDamaged" else MemoryUnavailable)(*values)

    @contextmanager
    def _explain_silence(self) -> Generator[None]:
        try:
            yield
        except _NOBODY:
            raise
        except OSError as e:
            holder = f"{self._folder} is in use by another process{holder_of(self._folder)}"
            raise MemoryUnavailable(
                f"the memory index in {holder}, which does not answer: {e.strerror or e}",
                "end that one; what was said until then is remembered later",
            ) from e


class _Server:
    """Serves the index of this process to others until it is closed."""

    def __init__(self, index: EdgeIndex, folder: Path) -> None:
        self.index, self._folder = index, folder
        self._is_closing = False
        try:
            (folder / "socket").unlink(missing_ok=True)  # of a process that was killed
            listening = socket.socket(socket.AF_UNIX)
            with _find_address(folder) as address:
                listening.bind(address)
            (folder / "socket").chmod(0o600)
            listening.listen(128)
        except (OSError, AttributeError) as e:
            log.info("other processes cannot use the memory index in %s meanwhile: %s", folder, e)
        else:
            Thread(target=self._accept, args=(listening,), daemon=True).start()

    def close(self) -> None:
        self._is_closing = True
        wakes_accept = suppress(OSError, AttributeError)
        with wakes_accept, _find_address(self._folder) as address, socket.socket(socket.AF_UNIX) as sock:
            sock.connect(address)
        (self._folder / "socket").unlink(missing_ok=True)
        self.index.close()

    def _accept(self, listening: socket.socket) -> None:
        with listening:
            while not self._is_closing:
                connection = Connection(listening.accept()[0].detach())
                Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: Connection) -> None:
        with suppress(EOFError, OSError, ValueError), connection:  # the other one has ended, or sends no calls
            while True:
                name, args, options = _read(connection.recv_bytes(_LARGEST))
                reply = self._carry_out(name, args, options)
                if self._is_closing:
                    return  # the next one to open the index does it
                connection.send_bytes(_write(reply))

    def _carry_out(self, name: str, args: Sequence[Any], options: Mapping[str, Any]) -> Sequence[object]:
        try:
            if name.startswith("_") or name in ("close", "flush"):
                raise AttributeError(name)
            return "result", name and getattr(self.index, name)(*args, **options)
        except MemoryUnavailable as e:
            return type(e).__name__, e.message, e.hint
        except (OSError, AttributeError, TypeError) as e:  # one of another version, for example
            return "MemoryUnavailable", f"the process that has the memory index cannot do this: {e}"


@contextmanager
def _find_address(folder: Path) -> Generator[str]:
    """Yield the address of the folder's socket: by a link when its path is too long for one."""
    path = folder / "socket"
    if len(os.fsencode(path)) <= _LONGEST_ADDRESS:
        yield str(path)
        return
    with TemporaryDirectory(prefix="massmem-", dir="/tmp") as short:
        (link := Path(short, "index")).symlink_to(folder)
        yield str(link / "socket")


_TYPES = {kind.__name__: kind for kind in (All, Ids, OneOf, Point, Selection, Span)}


def _write(message: object) -> bytes:
    return json.dumps(message, default=_to_json).encode()


def _to_json(value: Any) -> object:
    if (name := type(value).__name__) in _TYPES:
        return {"type": name, "values": [getattr(value, field.name) for field in fields(value)]}
    return value.tolist() if hasattr(value, "tolist") else [*value]  # of numpy, or a set


def _read(message: bytes) -> Any:
    return json.loads(message, object_hook=_from_json)


def _from_json(value: dict[str, Any]) -> object:
    """Undo `_to_json`. JSON has texts as keys: numbers become numbers again."""
    if value.keys() == {"type", "values"}:
        return _TYPES[value["type"]](*value["values"])
    return {int(key): part for key, part in value.items()} if all(map(str.isdecimal, value)) else value
