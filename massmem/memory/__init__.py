"""Both tiers of memory: ConversationMemory, word for word, and PersistentMemory, searchable.

    store = await open_store("sqlite:///talk.db", massmem_home())     # from massmem.store and massmem.home
    talk = ConversationMemory(store).for_session("support-4711")
    await talk.append(Message("user", "Where is my order?"))
    print([message.text for message in await talk.history()])
    await store.close()

    memory = await open_memory(config.memory, massmem_home(), os.environ)     # a PersistentMemory
    found = await memory.list(Selection(session_id="support-4711"))           # from massmem.memory.memories
    await memory.close()

The searchable one is put together here, from its index and its embedder.
"""

import asyncio
import json
import logging
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from massmem.config.models import EmbeddingConfig, MemoryConfig, QdrantConfig
from massmem.errors import InputError
from massmem.memory.persistent import PersistentMemory
from massmem.memory.session_handle import ConversationMemory, Message, SessionHandle
from massmem.redact import redact

if TYPE_CHECKING:
    from massmem.memory.embedders.embedder import Embedder
    from massmem.memory.indexed import IndexedMemory
    from massmem.memory.places import Index

__all__ = ["ConversationMemory", "Message", "PersistentMemory", "SessionHandle", "open_memory"]

log = logging.getLogger(__name__)

_CHANGED = (
    "the embedder has changed, and most of what was said before is not in its index: "
    "run `massmem memory rebuild` to find it again"
)
_OPEN_ELSEWHERE = 1.0
"""Seconds to wait for another process that has the index open."""


async def open_memory(config: MemoryConfig, home: Path, environ: Mapping[str, str]) -> "IndexedMemory":
    """The memory that is configured. home: the folder of massmem's own files. Its libraries load in a thread.

    Raises:
        MemoryUnavailable: the index is in use by another process, damaged, or its server does not answer.
        InputError: no such embedder, or no key for it.
    """
    return await asyncio.to_thread(_open, config, home, environ)


async def set_aside(config: MemoryConfig, home: Path, environ: Mapping[str, str]) -> None:
    """Move a damaged index away, so that `open_memory` begins a new one.

    Raises:
        MemoryUnavailable: it is in use by another process, or cannot be moved.
    """
    await asyncio.to_thread(_set_aside, config, home, environ)


async def remove_set_aside(config: MemoryConfig, home: Path) -> list[Path]:
    """Delete what `set_aside` has kept, of every embedder; returns what there was. Raises MemoryUnavailable."""
    from massmem.memory.index.shard import remove_set_aside

    folders = sorted(index_folder(config, home).glob("*"))
    return [copy for folder in folders for copy in await asyncio.to_thread(remove_set_aside, folder)]


def index_folder(config: MemoryConfig, home: Path) -> Path:
    """Where embedded indexes are kept, one folder for each embedder."""
    path = config.persistent_memory.qdrant.path
    return Path(path).expanduser() if path else home / "memory"


def _set_aside(config: MemoryConfig, home: Path, environ: Mapping[str, str]) -> None:
    from massmem.memory.index.shard import set_aside

    embedder = _embedder(config.persistent_memory.embedding, environ, home)
    set_aside(_folder_of(embedder, index_folder(config, home)), _OPEN_ELSEWHERE)


def _open(config: MemoryConfig, home: Path, environ: Mapping[str, str]) -> "IndexedMemory":
    from massmem.memory.indexed import IndexedMemory
    from massmem.memory.tokens import count_tokens

    settings = config.persistent_memory
    embedder = _embedder(settings.embedding, environ, home)
    if settings.qdrant.mode == "server":
        index, location = _server(settings.qdrant, embedder)
        return IndexedMemory(index, embedder, count_tokens, location)
    scratch = None if settings.on_disk else TemporaryDirectory(prefix="massmem-memory-")
    folder = index_folder(config, home)
    index, note = _embedded(Path(scratch.name) if scratch else folder, embedder)
    return IndexedMemory(index, embedder, count_tokens, scratch.name if scratch else str(folder), note, scratch)


def _embedder(config: EmbeddingConfig, environ: Mapping[str, str], home: Path) -> "Embedder | None":
    from massmem.memory.embedders import open_embedder

    try:
        return open_embedder(config, environ, home)
    except InputError as e:
        if config != EmbeddingConfig():
            raise
        log.info("memories are found by words alone: %s", e.message)  # nobody asked for an embedder
        return None


def _embedded(folder: Path, embedder: "Embedder | None") -> "tuple[Index, str]":
    """The index, and what is to be known about it."""
    from massmem.memory.index.embedded import EmbeddedIndex

    mine = _folder_of(embedder, folder)
    most = max((_points(other) for other in folder.glob("*") if other != mine), default=0)
    # Not to a memory more: of the same log another model may extract a few facts less.
    note = _CHANGED if most > 2 * _points(mine) else ""
    return EmbeddedIndex(mine, embedder.dims if embedder else 0), note


def _folder_of(embedder: "Embedder | None", folder: Path) -> Path:
    from massmem.memory.index.embedded import folder_name

    return folder / folder_name(*(embedder.name, embedder.dims) if embedder else ("", 0))


def _points(folder: Path) -> int:
    """How many there were when the index was closed."""
    with suppress(OSError, ValueError):
        return json.loads((folder / "shard.json").read_bytes())["points"]
    return 0


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
