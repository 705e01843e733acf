"""Embedded indexes on disk: one folder per embedder, and how all of them are erased.

Vectors of different embedders are not comparable, so each embedder that was ever used has a folder of its own.
"""

import asyncio
import json
import re
import shutil
from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from massmem.config.models import MemoryConfig
from massmem.memory.index import ALL_POINTS
from massmem.memory.persistent import Memory, Selection

if TYPE_CHECKING:
    from massmem.memory.index_edge import EdgeIndex


def index_root(config: MemoryConfig, home: Path) -> Path:
    """Return the folder that holds the folders of all embedded indexes."""
    path = config.persistent_memory.qdrant.path
    return Path(path).expanduser() if path else home / "memory"


def folder_name(embedder: str, dims: int) -> str:
    """Return a name that differs for any two embedders. dims: size of the vectors, 0 without an embedder."""
    if not dims:
        return "words"
    plain = re.sub(r"[^A-Za-z0-9.]+", "-", embedder).strip("-.")[:60]
    mark = "" if plain == embedder else f"-{sha256(embedder.encode()).hexdigest()[:8]}"
    return f"{plain}{mark}-{dims}"


def count_points(folder: Path) -> int:
    """Return how many points the index in this folder had when it was closed."""
    with suppress(OSError, ValueError):
        return json.loads((folder / "shard.json").read_bytes())["points"]
    return 0


async def remove_damaged_copies(config: MemoryConfig, home: Path) -> list[Path]:
    """Delete the damaged indexes that were set aside, of every embedder; return their paths.

    Raises:
        MemoryUnavailable: one cannot be deleted.
    """
    from massmem.memory.edge_shard import remove_set_aside

    folders = sorted(index_root(config, home).glob("*"))
    return [copy for folder in folders for copy in await asyncio.to_thread(remove_set_aside, folder)]


async def erase_in_other_indexes(
    root: Path, current: Path | None, selection: Selection, memories: Sequence[Memory]
) -> None:
    """Erase what was just deleted from the current index also from the other indexes below `root`.

    current: folder of the open index, None when it is on a server. memories: those that the selection names by their
    ids; other indexes may have given them other ids.

    Raises:
        MemoryUnavailable: an index is in use by another process, or damaged: it may still hold them.
    """
    if current is None:
        return
    indexes = IndexFolders()
    try:
        await asyncio.to_thread(indexes.open, root, current)
        if selection.ids:
            await asyncio.to_thread(indexes.erase_copies, memories)
        else:
            await asyncio.to_thread(indexes.erase, selection)
    finally:
        await asyncio.to_thread(indexes.close)


class IndexFolders:
    """All embedded indexes below a folder, opened to erase from them. Blocking: call its methods in a thread."""

    def __init__(self) -> None:
        self._indexes: list[EdgeIndex] = []
        self._damaged: list[Path] = []

    def open(self, root: Path, skip: Path | None = None) -> None:
        """Open every index but the one in the folder `skip`, which is open already.

        Raises:
            MemoryUnavailable: another process has one open, or one is damaged.
        """
        from massmem.memory.index_edge import EdgeIndex

        self._damaged = sorted(root.glob("*/shard.damaged-*"))
        for shard in sorted(root.glob("*/shard")):
            folder = shard.parent
            if folder != skip:
                dims = folder.name.rpartition("-")[2]  # see folder_name
                self._indexes.append(EdgeIndex(folder, int(dims) if dims.isdecimal() else 0))

    def erase(self, selection: Selection) -> int:
        """Erase what is selected; return how many points that were."""
        self._remove_damaged()
        return sum(index.delete(selection) for index in self._indexes)

    def erase_sessions(self, session_ids: Sequence[str]) -> int:
        """Erase these sessions; return how many points that were."""
        return self.erase(Selection(session_ids=tuple(session_ids))) if session_ids else 0

    def erase_copies(self, memories: Sequence[Memory]) -> None:
        """Erase what has the same text and comes from the same messages as one of the memories."""
        self._remove_damaged()
        for index in self._indexes:
            ids = [str(point_id) for memory in memories for point_id in _find_copies(index, memory)]
            if ids:
                index.delete(Selection(ids=tuple(ids)))

    def _remove_damaged(self) -> None:
        for copy in self._damaged:  # nobody can tell what is in it, and the log can rebuild it
            shutil.rmtree(copy, ignore_errors=True)

    def close(self) -> None:
        for index in self._indexes:
            index.close()


def _find_copies(index: "EdgeIndex", memory: Memory) -> list[int]:
    of_agent = Selection(memory.session_id, memory.agent_id, kind=memory.kind)
    return [
        point_id
        for point_id, payload in index.page(of_agent, ALL_POINTS)
        if payload["data"] == memory.text and not set(memory.message_ids).isdisjoint(payload["message_ids"])
    ]
