"""Opens the persistent memory that is configured, and the indexes of other embedders, to erase from them too.

An index is on a server, or in a folder of this machine. Vectors of different embedders are not comparable, so each
embedder that was ever used has a folder of its own.
"""

import asyncio
import json
import logging
import re
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from massmem.config.home import expand_home
from massmem.config.models import EmbeddingConfig, MemoryConfig, QdrantConfig
from massmem.core.errors import InputError
from massmem.core.redact import redact
from massmem.memory.index import ALL_POINTS
from massmem.memory.mem0 import is_on_this_machine
from massmem.memory.persistent import Memory, Selection, explain_missing_library

if TYPE_CHECKING:
    from massmem.memory.embedders import Embedder
    from massmem.memory.index import Index
    from massmem.memory.indexed import IndexedMemory
    from massmem.memory.points import StatementQuery

log = logging.getLogger(__name__)

_EMBEDDER_CHANGED = (
    "the embedder has changed, and most of what was said before is not in its index: "
    "run `massmem memory rebuild` to find it again"
)
_LOCK_TIMEOUT = 1.0
"""Seconds to wait for another process that has an index open which is to be moved away."""


async def open_memory(config: MemoryConfig, home: Path, environ: Mapping[str, str]) -> "IndexedMemory":
    """Open the configured memory. home: folder of massmem's own files. Heavy libraries load in a thread.

    Raises:
        MemoryUnavailable: the index is in use by another process, damaged, its server does not answer, or a library
            cannot be loaded.
        InputError: no such embedder, or no key for it.
    """
    try:
        return await asyncio.to_thread(_open_memory, config, home, environ)
    except (ImportError, MemoryError) as e:
        raise explain_missing_library(e) from e


async def set_index_aside(config: MemoryConfig, home: Path, environ: Mapping[str, str]) -> None:
    """Move the configured embedder's damaged index away, so that `open_memory` starts a new one.

    Raises MemoryUnavailable: it is in use by another process, or cannot be moved.
    """
    from massmem.memory.index_edge import set_aside

    embedder = await asyncio.to_thread(_open_embedder, config.persistent_memory.embedding, environ)
    await asyncio.to_thread(set_aside, index_root(config, home) / _folder_name(embedder), _LOCK_TIMEOUT)


def _open_memory(config: MemoryConfig, home: Path, environ: Mapping[str, str]) -> "IndexedMemory":
    from massmem.memory.indexed import IndexedMemory
    from massmem.memory.tokens import count_tokens

    settings = config.persistent_memory
    embedder = _open_embedder(settings.embedding, environ)
    if settings.qdrant.mode == "server":
        index, location = _open_server(settings.qdrant, embedder)
        memory = IndexedMemory(index, embedder, count_tokens, location)
    else:
        scratch = None if settings.on_disk else TemporaryDirectory(prefix="massmem-memory-")
        root = Path(scratch.name) if scratch else index_root(config, home)
        index, note = _open_embedded(root, embedder)
        memory = IndexedMemory(index, embedder, count_tokens, str(root), note, scratch)
    memory.mark_file = index_root(config, home) / _folder_name(embedder) / "store.json"
    if settings.llm is not None and not is_on_this_machine(settings.llm.provider):
        memory.leave_claims_to_model()
    return memory


def _open_embedder(config: EmbeddingConfig, environ: Mapping[str, str]) -> "Embedder | None":
    """Return None, so that only words are searched, when the default embedder is not installed."""
    from massmem.memory.embedders import open_embedder

    try:
        return open_embedder(config, environ)
    except InputError as e:
        if config != EmbeddingConfig():
            raise
        log.info("memories are found by words alone: %s", e.message)
        return None


def _open_embedded(root: Path, embedder: "Embedder | None") -> "tuple[Index, str]":
    """Return the index, and a note for the user when another embedder's index holds much more."""
    from massmem.memory.index_shared import SharedIndex

    folder = root / _folder_name(embedder)
    largest = max((_count_points(other) for other in root.glob("*") if other != folder), default=0)
    # Counts differ a little without a change of embedder: another model extracts a few facts less from the same log.
    note = _EMBEDDER_CHANGED if largest > 2 * _count_points(folder) else ""
    return SharedIndex(folder, embedder.dims if embedder else 0), note


def _folder_name(embedder: "Embedder | None") -> str:
    return folder_name(embedder.name, embedder.dims) if embedder else folder_name("", 0)


def _open_server(config: QdrantConfig, embedder: "Embedder | None") -> "tuple[Index, str]":
    try:
        from massmem.memory.index_qdrant import QdrantIndex
    except ImportError as e:
        raise InputError(f"qdrant.mode server needs the package {e.name}", "pip install 'massmem[mem0]'") from e

    url = config.url or f"http://{config.host}:{config.port}"
    key = config.api_key.get_secret_value() if config.api_key else None
    dims = embedder.dims if embedder else 0
    name = f"massmem_{_folder_name(embedder)}"
    return QdrantIndex(url, key, name, dims, shards=config.shards, replicas=config.replicas), redact(url)


def index_root(config: MemoryConfig, home: Path) -> Path:
    """Return the folder that holds the folders of all embedded indexes."""
    path = config.persistent_memory.qdrant.path
    return expand_home(path) if path else home / "memory"


def folder_name(embedder: str, dims: int) -> str:
    """Return a name that differs for any two embedders. dims: size of the vectors, 0 without an embedder."""
    if not dims:
        return "words"
    plain = re.sub(r"[^A-Za-z0-9.]+", "-", embedder).strip("-.")[:60]
    mark = "" if plain == embedder else f"-{sha256(embedder.encode()).hexdigest()[:8]}"
    return f"{plain}{mark}-{dims}"


def _count_points(folder: Path) -> int:
    """Return how many points the index in this folder had when it was closed."""
    with suppress(OSError, ValueError):
        return json.loads((folder / "shard.json").read_bytes())["points"]
    return 0


async def remove_damaged_copies(config: MemoryConfig, home: Path) -> list[Path]:
    """Delete the damaged indexes that were set aside, of every embedder; return their paths.

    Raises MemoryUnavailable: one cannot be deleted.
    """
    from massmem.memory.index_edge import remove_set_aside

    folders = sorted(index_root(config, home).glob("*"))
    return [copy for folder in folders for copy in await asyncio.to_thread(remove_set_aside, folder)]


async def erase_in_other_indexes(
    root: Path, current: Path | None, selection: Selection, memories: Sequence[Memory]
) -> None:
    """Erase what was just deleted from the current index also from the other indexes below `root`.

    current: folder of the open index, None when it is on a server. memories: those that the selection names by their
    ids; other indexes may have given them other ids.

    Raises MemoryUnavailable: an index is in use by another process, or damaged: it may still hold them.
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
        self._indexes: list[Index] = []
        self._damaged: list[Path] = []

    def open(self, root: Path, skip: Path | None = None) -> None:
        """Open every index but the one in the folder `skip`, which is open already.

        Raises MemoryUnavailable: another process has one open, or one is damaged.
        """
        from massmem.memory.index_shared import SharedIndex

        self._damaged = sorted(root.glob("*/shard.damaged-*"))
        for shard in sorted(root.glob("*/shard")):
            folder = shard.parent
            if folder != skip:
                dims = folder.name.rpartition("-")[2]  # see folder_name
                self._indexes.append(SharedIndex(folder, int(dims) if dims.isdecimal() else 0))

    def erase(self, selection: Selection) -> int:
        """Erase what is selected; return how many points that were."""
        self._delete_damaged_copies()
        return sum(index.delete(selection) for index in self._indexes)

    def erase_sessions(self, session_ids: Sequence[str]) -> int:
        """Erase these sessions; return how many points that were."""
        return self.erase(Selection(session_ids=tuple(session_ids))) if session_ids else 0

    def erase_copies(self, memories: Sequence[Memory]) -> None:
        """Erase what has the same text and comes from the same messages as one of the memories."""
        self._delete_damaged_copies()
        for index in self._indexes:
            ids = [str(point_id) for memory in memories for point_id in _find_copies(index, memory)]
            if ids:
                index.delete(Selection(ids=tuple(ids)))

    def erase_statements(self, query: "StatementQuery") -> int:
        """Erase the memories that say a statement; return how many points and damaged copies that were."""
        from massmem.memory.points import find_statements

        count = len(self._damaged)
        self._delete_damaged_copies()
        for index in self._indexes:
            if ids := tuple(memory.id for memory in find_statements(index, query)):
                count += index.delete(Selection(ids=ids))
        return count

    def erase_deleted(self) -> None:
        """Leave nothing on the disk of what was erased before, when that was cut off."""
        for index in self._indexes:
            index.erase_deleted()

    def _delete_damaged_copies(self) -> None:
        for copy in self._damaged:  # nobody can tell what is in it, and the log can rebuild it
            shutil.rmtree(copy, ignore_errors=True)

    def close(self) -> None:
        for index in self._indexes:
            index.close()


def _find_copies(index: "Index", memory: Memory) -> list[int]:
    of_agent = Selection(memory.session_id, memory.agent_id, kind=memory.kind)
    return [
        point_id
        for point_id, payload in index.page(of_agent, ALL_POINTS)
        if payload["data"] == memory.text and not set(memory.message_ids).isdisjoint(payload["message_ids"])
    ]
