"""Opens the persistent memory that is configured: its embedder, and its index in this process or on a server."""

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from massmem.config.models import EmbeddingConfig, MemoryConfig, QdrantConfig
from massmem.core.errors import InputError, MemoryUnavailable
from massmem.core.redact import redact
from massmem.memory.index_folders import count_points, folder_name, index_root

if TYPE_CHECKING:
    from massmem.memory.embedders import Embedder
    from massmem.memory.index import Index
    from massmem.memory.indexed import IndexedMemory

log = logging.getLogger(__name__)

_EMBEDDER_CHANGED = (
    "the embedder has changed, and most of what was said before is not in its index: "
    "run `massmem memory rebuild` to find it again"
)
_LOCK_TIMEOUT = 1.0
"""Seconds to wait for another process that has the index open."""


async def open_memory(config: MemoryConfig, home: Path, environ: Mapping[str, str]) -> "IndexedMemory":
    """Open the configured memory. home: folder of massmem's own files. Heavy libraries load in a thread.

    Raises:
        MemoryUnavailable: the index is in use by another process, damaged, its server does not answer, or a library
            cannot be loaded.
        InputError: no such embedder, or no key for it.
    """
    try:
        return await asyncio.to_thread(_open_memory, config, home, environ)
    except (ImportError, MemoryError) as e:  # such as a limit of memory that has no room for numpy
        reason = e.__cause__ or e
        raise MemoryUnavailable(
            f"a library that memory needs cannot be loaded: {reason or 'there is not enough memory'}",
            "check it with: massmem doctor",
        ) from e


async def set_index_aside(config: MemoryConfig, home: Path, environ: Mapping[str, str]) -> None:
    """Move the configured embedder's damaged index away, so that `open_memory` starts a new one.

    Raises:
        MemoryUnavailable: it is in use by another process, or cannot be moved.
    """
    await asyncio.to_thread(_set_index_aside, config, home, environ)


def _set_index_aside(config: MemoryConfig, home: Path, environ: Mapping[str, str]) -> None:
    from massmem.memory.edge_shard import set_aside

    embedder = _open_embedder(config.persistent_memory.embedding, environ, home)
    set_aside(_index_folder(index_root(config, home), embedder), _LOCK_TIMEOUT)


def _open_memory(config: MemoryConfig, home: Path, environ: Mapping[str, str]) -> "IndexedMemory":
    from massmem.memory.indexed import IndexedMemory
    from massmem.memory.tokens import count_tokens

    settings = config.persistent_memory
    embedder = _open_embedder(settings.embedding, environ, home)
    if settings.qdrant.mode == "server":
        index, location = _open_server(settings.qdrant, embedder)
        return IndexedMemory(index, embedder, count_tokens, location)
    scratch = None if settings.on_disk else TemporaryDirectory(prefix="massmem-memory-")
    root = Path(scratch.name) if scratch else index_root(config, home)
    index, note = _open_embedded(root, embedder)
    return IndexedMemory(index, embedder, count_tokens, str(root), note, scratch)


def _open_embedder(config: EmbeddingConfig, environ: Mapping[str, str], home: Path) -> "Embedder | None":
    """Return None, so that only words are searched, when the default embedder is not installed."""
    from massmem.memory.embedders import open_embedder

    try:
        return open_embedder(config, environ, home)
    except InputError as e:
        if config != EmbeddingConfig():
            raise
        log.info("memories are found by words alone: %s", e.message)
        return None


def _open_embedded(root: Path, embedder: "Embedder | None") -> "tuple[Index, str]":
    """Return the index, and a note for the user when another embedder's index holds much more."""
    from massmem.memory.index_edge import EdgeIndex

    folder = _index_folder(root, embedder)
    largest = max((count_points(other) for other in root.glob("*") if other != folder), default=0)
    # Counts differ a little without a change of embedder: another model extracts a few facts less from the same log.
    note = _EMBEDDER_CHANGED if largest > 2 * count_points(folder) else ""
    return EdgeIndex(folder, embedder.dims if embedder else 0, _LOCK_TIMEOUT), note


def _index_folder(root: Path, embedder: "Embedder | None") -> Path:
    return root / _folder_name(embedder)


def _folder_name(embedder: "Embedder | None") -> str:
    return folder_name(embedder.name, embedder.dims) if embedder else folder_name("", 0)


def _open_server(config: QdrantConfig, embedder: "Embedder | None") -> "tuple[Index, str]":
    """Return the index, and where it is."""
    try:
        from massmem.memory.index_qdrant import QdrantIndex
    except ImportError as e:
        raise InputError(f"qdrant.mode server needs the package {e.name}", "pip install 'massmem[memory]'") from e

    url = config.url or f"http://{config.host}:{config.port}"
    key = config.api_key.get_secret_value() if config.api_key else None
    dims = embedder.dims if embedder else 0
    return QdrantIndex(url, key, f"massmem_{_folder_name(embedder)}", dims), redact(url)
