"""Forgetting for good: memories are deleted wherever they are, and never recorded again from the log."""

import asyncio
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence, Set
from contextlib import asynccontextmanager
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from massmem.config.models import MemoryConfig
from massmem.core.errors import IndexDamaged, InputError, UnknownMemoryError
from massmem.memory import open_memory
from massmem.memory.extraction.facts import STEM, find_telling_words
from massmem.memory.opening import IndexFolders, erase_in_other_indexes, index_root
from massmem.memory.persistent import Memory, PersistentMemory, Selection, find_ids, is_short_id, shorten_id
from massmem.store.ports import SessionStore

if TYPE_CHECKING:
    from massmem.memory.indexed import IndexedMemory

T = TypeVar("T")

DamageHandler = Callable[[MemoryConfig, Path, Mapping[str, str]], Awaitable[None]]
"""(configuration, home, environment): gets a damaged index out of the way."""

EraseSessions = Callable[[Sequence[str]], Awaitable[int]]
"""Deletes the memories of the sessions with these ids; returns how many there were."""

SAME_WORDS = 0.7
"""Two statements are the same when they share this part of the words of the longer one."""


@asynccontextmanager
async def open_durable_memory(
    config: MemoryConfig, home: Path, on_damage: DamageHandler | None = None
) -> AsyncGenerator["IndexedMemory"]:
    """Open the memory that is kept between runs, even if the configuration now keeps none (`on_disk: false`).

    on_damage: called when the index is damaged, before it is opened again.

    Raises:
        MemoryUnavailable: another process has it, its server is away, or it is damaged and `on_damage` is None.
    """
    persistent = config.persistent_memory.model_copy(update={"on_disk": True})
    config = config.model_copy(update={"persistent_memory": persistent})
    try:
        memory = await open_memory(config, home, os.environ)
    except IndexDamaged:
        if on_damage is None:
            raise
        await on_damage(config, home, os.environ)
        memory = await open_memory(config, home, os.environ)
    try:
        yield memory
    finally:
        await memory.close()


@asynccontextmanager
async def open_session_eraser(
    config: MemoryConfig, home: Path, environ: Mapping[str, str]
) -> AsyncGenerator[EraseSessions]:
    """Open all memory there is, so that no other process writes to it, and yield a function that erases sessions.

    Embedded: the indexes of all embedders that were ever used, and copies of damaged ones. Server: the collection of
    the configured embedder, which other processes may write to.

    Raises:
        MemoryUnavailable: an index is in use by another process, damaged, or its server does not answer.
    """
    settings = config.persistent_memory
    if settings.qdrant.mode == "server" and config.enabled and settings.enabled:
        memory = await open_memory(config, home, environ)
        try:
            yield partial(_forget_sessions, memory)
        finally:
            await memory.close()
        return
    indexes = IndexFolders()
    try:
        await asyncio.to_thread(indexes.open, index_root(config, home))
        yield partial(asyncio.to_thread, indexes.erase_sessions)
    finally:
        await asyncio.to_thread(indexes.close)


async def forget_memories(
    store: SessionStore, memory: "IndexedMemory", selection: Selection, config: MemoryConfig, home: Path
) -> int:
    """Delete what is selected from every index, and never record it again; return how many memories that were.

    Raises:
        InputError: one of the ids names no memory.
        MemoryUnavailable: an index cannot be used; it may still hold them.
    """
    memories = await memory.list(selection, len(selection.ids)) if selection.ids else ()
    # The queue first: whoever records beside this finds nothing to record any more.
    await _forget_jobs(store, selection, memories)
    count = await memory.forget(selection)
    await erase_in_other_indexes(index_root(config, home), memory.folder, selection, memories)
    return count


def unknown_memory(memory_id: str) -> UnknownMemoryError:
    return UnknownMemoryError(f"there is no memory {memory_id[:60]!r}", "see them with: massmem memory list")


async def resolve_ids(memory: "IndexedMemory", names: Iterable[str], among: Selection) -> tuple[str, ...]:
    """Return the ids of memories that are named by their ids or by the beginnings of their short forms.

    Raises:
        InputError: a short form fits no memory, or several.
        MemoryUnavailable
    """
    names, numbers = tuple(names), list[int]()
    if any(map(is_short_id, names)):
        numbers = [*await memory.list_ids(among)]
    return tuple(_choose_id(name, numbers) if is_short_id(name) else name for name in names)


def _choose_id(name: str, numbers: Sequence[int]) -> str:
    match find_ids(name, numbers):
        case [memory_id]:
            return memory_id
        case []:
            raise unknown_memory(name)
        case several:
            forms = ", ".join(shorten_id(memory_id) for memory_id in several[:5])
            raise InputError(f"{len(several)} memories begin with {name}: {forms}", "write more of the id")


def fingerprint_fact(text: str) -> tuple[int, ...]:
    """Return numbers that recognise a forgotten fact when the same messages are read again, and do not reveal it.

    They stand for the text's words. A model words the same fact differently each time: see `is_forgotten`.
    """
    stems = list_stems(text)
    return tuple(sorted(int.from_bytes(blake2b(stem.encode(), digest_size=4).digest()) for stem in stems))


def is_forgotten(text: str, forgotten: Iterable[Sequence[int]]) -> bool:
    """Return whether the text says what one of the forgotten facts said. forgotten: their fingerprints."""
    words = set(fingerprint_fact(text))
    return any(is_same(words, set(other)) for other in forgotten)


def list_stems(text: str) -> frozenset[str]:
    """Return the words that tell what a text says, cut so that their forms are the same."""
    return frozenset(word.removesuffix("'s")[:STEM] for word in find_telling_words(text))


def is_same(words: Set[T], others: Set[T]) -> bool:
    """Return whether two statements with these words say the same."""
    return len(words & others) >= SAME_WORDS * max(len(words), len(others), 1)


async def _forget_sessions(memory: PersistentMemory, session_ids: Sequence[str]) -> int:
    return await memory.forget(Selection(session_ids=tuple(session_ids))) if session_ids else 0


async def _forget_jobs(store: SessionStore, selection: Selection, memories: Sequence[Memory]) -> None:
    if not selection.ids:
        await store.forget_recordings(selection)
        return
    for missing in set(selection.ids) - {memory.id for memory in memories}:
        raise unknown_memory(missing)
    for memory in memories:
        if forgotten := (*memory.changes, *(memory.message_ids if memory.kind == "episode" else ())):
            await store.forget_recordings(Selection(), forgotten)
        if memory.kind == "fact":
            words = fingerprint_fact(memory.text)
            await store.forget_fact(memory.session_id, memory.agent_id, memory.message_ids, words)
