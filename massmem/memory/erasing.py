"""Erases what the searchable memory holds of a session, also where it is no longer used."""

import asyncio
import shutil
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from massmem.config.models import MemoryConfig
from massmem.memory import open_memory
from massmem.memory.memories import Selection
from massmem.memory.persistent import PersistentMemory

if TYPE_CHECKING:
    from massmem.memory.index.embedded import EmbeddedIndex

Erase = Callable[[Sequence[str]], Awaitable[int]]
"""Deletes the memories of these sessions, and returns how many they were."""


@asynccontextmanager
async def opened_for_erasing(config: MemoryConfig, home: Path, environ: Mapping[str, str]) -> AsyncGenerator[Erase]:
    """Take hold of all memory that there is, so that nobody else writes to it meanwhile.

    Embedded: the indexes of all embedders that were ever used, and copies of damaged ones. Server: the collection of
    the configured embedder, which others may write to.

    Raises:
        MemoryUnavailable: an index is in use by another process, damaged, or its server does not answer.
    """
    settings = config.persistent_memory
    if settings.qdrant.mode == "server" and config.enabled and settings.enabled:
        memory = await open_memory(config, home, environ)
        try:
            yield partial(_forget, memory)
        finally:
            await memory.close()
        return
    indexes = _Indexes()
    try:
        await asyncio.to_thread(indexes.open, settings.qdrant.path, home)
        yield partial(asyncio.to_thread, indexes.erase)
    finally:
        await asyncio.to_thread(indexes.close)


async def _forget(memory: PersistentMemory, session_ids: Sequence[str]) -> int:
    return sum([await memory.forget(Selection(session_id=each)) for each in session_ids])


class _Indexes:
    """Every embedded index below a folder."""

    def __init__(self) -> None:
        from massmem.memory.index.embedded import EmbeddedIndex

        self._index = EmbeddedIndex
        self._open: list[EmbeddedIndex] = []
        self._damaged: list[Path] = []

    def open(self, path: str | None, home: Path) -> None:
        folder = Path(path).expanduser() if path else home / "memory"
        self._damaged = sorted(folder.glob("*/shard.damaged-*"))
        for shard in sorted(folder.glob("*/shard")):
            # The folder's name ends with the size of its vectors (see folder_name).
            size = shard.parent.name.rpartition("-")[2]
            self._open.append(self._index(shard.parent, int(size) if size.isdecimal() else 0))

    def erase(self, session_ids: Sequence[str]) -> int:
        for copy in self._damaged:  # nobody can tell what is in it, and it can be made again from the log
            shutil.rmtree(copy, ignore_errors=True)
        return sum(_erase(index, [Selection(session_id=each) for each in session_ids]) for index in self._open)

    def close(self) -> None:
        for index in self._open:
            index.close()


def _erase(index: "EmbeddedIndex", selections: Sequence[Selection]) -> int:
    there = [selection for selection in selections if index.count(selection)]
    # The index is written anew once, after the last.
    return sum(index.delete(selection, erase=selection is there[-1]) for selection in there)
