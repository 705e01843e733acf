"""Both tiers of memory. The searchable one is put together here, from its index and its embedder."""

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from massmem.config.models import EmbeddingConfig, MemoryConfig, QdrantConfig
from massmem.errors import InputError
from massmem.redact import redact

if TYPE_CHECKING:
    from massmem.memory.embedders.embedder import Embedder
    from massmem.memory.indexed import IndexedMemory
    from massmem.memory.places import Index

log = logging.getLogger(__name__)

_REBUILD = "run `massmem memory rebuild` to find what was said before"


async def open_memory(config: MemoryConfig, home: Path, environ: Mapping[str, str]) -> "IndexedMemory":
    """The memory that is configured. home: the folder of massmem's own files. Its libraries load in a thread.

    Raises:
        MemoryUnavailable: the index is in use by another process, damaged, or its server does not answer.
        InputError: no such embedder, or no key for it.
    """
    return await asyncio.to_thread(_open, config, home, environ)


def _open(config: MemoryConfig, home: Path, environ: Mapping[str, str]) -> "IndexedMemory":
    from massmem.memory.indexed import IndexedMemory
    from massmem.memory.tokens import count_tokens

    settings = config.persistent_memory
    embedder = _embedder(settings.embedding, environ, home)
    if settings.qdrant.mode == "server":
        index, location = _server(settings.qdrant, embedder)
        return IndexedMemory(index, embedder, count_tokens, location)
    scratch = None if settings.on_disk else TemporaryDirectory(prefix="massmem-memory-")
    folder = Path(settings.qdrant.path).expanduser() if settings.qdrant.path else home / "memory"
    index, note = _embedded(Path(scratch.name) if scratch else folder, embedder)
    return IndexedMemory(index, embedder, count_tokens, scratch.name if scratch else str(folder), note, scratch)


def _embedder(config: EmbeddingConfig, environ: Mapping[str, str], home: Path) -> "Embedder | None":
    from massmem.memory.embedders.embedder import open_embedder

    try:
        return open_embedder(config, environ, home)
    except InputError as e:
        if config != EmbeddingConfig():
            raise
        log.info("memories are found by words alone: %s", e.message)  # nobody asked for an embedder
        return None


def _embedded(folder: Path, embedder: "Embedder | None") -> "tuple[Index, str]":
    """The index, and what is to be known about it."""
    from massmem.memory.index.embedded import EmbeddedIndex, folder_name

    name, dims = (embedder.name, embedder.dims) if embedder else ("", 0)
    mine = folder / folder_name(name, dims)
    others = [] if mine.exists() else [other for other in folder.glob("*/shard") if other.parent != mine]
    note = f"the embedder has changed, and its index is empty: {_REBUILD}" if others else ""
    return EmbeddedIndex(mine, dims), note


def _server(config: QdrantConfig, embedder: "Embedder | None") -> "tuple[Index, str]":
    """The index, and where it is."""
    try:
        from massmem.memory.index.server import ServerIndex
    except ImportError as e:
        raise InputError(f"qdrant.mode server needs the package {e.name}", "pip install 'massmem[memory]'") from e
    from massmem.memory.index.embedded import folder_name

    url = config.url or f"http://{config.host}:{config.port}"
    key = config.api_key.get_secret_value() if config.api_key else None
    name, dims = (embedder.name, embedder.dims) if embedder else ("", 0)
    return ServerIndex(url, key, f"massmem_{folder_name(name, dims)}", dims), redact(url)
