"""Erases memories also where they are no longer used: in the indexes of earlier embedders, and in damaged copies."""

import asyncio
import shutil
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from massmem.config.models import MemoryConfig
from massmem.memory import index_folder, open_memory
from massmem.memory.memories import Memory, Selection
from massmem.memory.persistent import PersistentMemory

if TYPE_CHECKING:
    from massmem.memory.index.embedded import EmbeddedIndex

_ALL = 1_000_000_000

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
        await asyncio.to_thread(indexes.open, index_folder(config, home))
        yield partial(asyncio.to_thread, indexes.erase_sessions)
    finally:
        await asyncio.to_thread(indexes.close)


async def _forget(memory: PersistentMemory, session_ids: Sequence[str]) -> int:
    return await memory.forget(Selection(session_ids=tuple(session_ids))) if session_ids else 0


async def erase_elsewhere(folder: Path, own: Path | None, selection: Selection, named: Sequence[Memory]) -> None:
    """Erase what was just forgotten in the open index, `own`, wherever else below `folder` it is.

    named: the memories of the selection's ids, which may have other ids elsewhere.

    Raises:
        MemoryUnavailable: an index is in use by another process, or damaged: it may still hold them.
    """
    if own is None or not _more_than_one(folder):
        return
    indexes = _Indexes()
    try:
        await asyncio.to_thread(indexes.open, folder, own)
        if selection.ids:
            await asyncio.to_thread(indexes.erase_like, named)
        else:
            await asyncio.to_thread(indexes.erase, selection)
    finally:
        await asyncio.to_thread(indexes.close)


def _more_than_one(folder: Path) -> bool:
    """There are other indexes below the folder, or copies of damaged ones."""
    return len([*folder.glob("*/shard*/")]) > 1


class _Indexes:
    """Every embedded index below a folder."""

    def __init__(self) -> None:
        from massmem.memory.index.embedded import EmbeddedIndex

        self._index = EmbeddedIndex
        self._open: list[EmbeddedIndex] = []
        self._damaged: list[Path] = []

    def open(self, folder: Path, own: Path | None = None) -> None:
        """own: is open already, and left out."""
        self._damaged = sorted(folder.glob("*/shard.damaged-*"))
        for shard in sorted(folder.glob("*/shard")):
            if shard.parent == own:
                continue
            # The folder's name ends with the size of its vectors (see folder_name).
            size = shard.parent.name.rpartition("-")[2]
            self._open.append(self._index(shard.parent, int(size) if size.isdecimal() else 0))

    def erase_sessions(self, session_ids: Sequence[str]) -> int:
        return self.erase(Selection(session_ids=tuple(session_ids))) if session_ids else 0

    def erase(self, selection: Selection) -> int:
        self._remove_damaged()
        return sum(index.delete(selection) for index in self._open)

    def erase_like(self, memories: Sequence[Memory]) -> None:
        """What says the same of the same messages."""
        self._remove_damaged()
        for index in self._open:
            ids = [str(point_id) for memory in memories for point_id in _like(index, memory)]
            if ids:
                index.delete(Selection(ids=tuple(ids)))

    def _remove_damaged(self) -> None:
        for copy in self._damaged:  # nobody can tell what is in it, and it can be made again from the log
            shutil.rmtree(copy, ignore_errors=True)

    def close(self) -> None:
        for index in self._open:
            index.close()


def _like(index: "EmbeddedIndex", memory: Memory) -> list[int]:
    of_agent = Selection(memory.session_id, memory.agent_id, kind=memory.kind)
    return [
        point_id
        for point_id, payload in index.page(of_agent, _ALL)
        if payload["data"] == memory.text and not set(memory.message_ids).isdisjoint(payload["message_ids"])
    ]
