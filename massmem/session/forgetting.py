"""Memories that are forgotten for good: deleted where they are, and never recorded again from the log."""

import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from massmem.config.models import MemoryConfig
from massmem.errors import IndexDamaged, InputError
from massmem.memory import index_folder, open_memory
from massmem.memory.erasing import erase_elsewhere
from massmem.memory.memories import Memory, Selection
from massmem.memory.recording.forgotten import word_numbers
from massmem.store.base import SessionStore

if TYPE_CHECKING:
    from massmem.memory.indexed import IndexedMemory

MakeRoom = Callable[[MemoryConfig, Path, Mapping[str, str]], Awaitable[None]]
"""(configuration, home, environment): see to it that a damaged index is out of the way."""

_ALL = 1_000_000


@asynccontextmanager
async def kept_memory(
    config: MemoryConfig, home: Path, damaged: MakeRoom | None = None
) -> AsyncGenerator["IndexedMemory"]:  # fmt: skip
    """What is kept between runs, also when the configuration keeps nothing from now on. damaged: what to do then.

    Raises:
        MemoryUnavailable: another process has it, or its server is away.
    """
    persistent = config.persistent_memory.model_copy(update={"on_disk": True})
    kept = config.model_copy(update={"persistent_memory": persistent})
    try:
        memory = await open_memory(kept, home, os.environ)
    except IndexDamaged:
        if damaged is None:
            raise
        await damaged(kept, home, os.environ)
        memory = await open_memory(kept, home, os.environ)
    try:
        yield memory
    finally:
        await memory.close()


async def forget(store: SessionStore, memory: "IndexedMemory", selection: Selection) -> tuple[int, Sequence[Memory]]:
    """Delete what is selected, and see to it that it is never recorded again.

    Returns how many memories that were, and which those were that the selection names by their ids.

    Raises:
        InputError: one of the ids is none.
    """
    named = await memory.list(selection, _ALL) if selection.ids else ()
    # The queue first: whoever records beside this finds nothing to record any more.
    if selection.ids:
        for missing in set(selection.ids) - {each.id for each in named}:
            raise no_such_memory(missing)
        for each in named:
            await _never_again(store, each)
    else:
        await store.forget_recordings(selection)
    return await memory.forget(selection), named


async def forget_everywhere(
    store: SessionStore, memory: "IndexedMemory", selection: Selection, config: MemoryConfig, home: Path
) -> int:
    """As `forget`, and also in the indexes of earlier embedders and in copies of damaged ones."""
    forgotten, named = await forget(store, memory, selection)
    await erase_elsewhere(index_folder(config, home), memory.folder, selection, named)
    return forgotten


def no_such_memory(memory_id: str) -> InputError:
    return InputError(f"there is no memory {memory_id[:60]!r}", "see them with: massmem memory list")


async def _never_again(store: SessionStore, memory: Memory) -> None:
    if memory.kind == "episode":
        await store.forget_recordings(Selection(), memory.message_ids)
    else:
        words = word_numbers(memory.text)
        await store.forget_fact(memory.session_id, memory.agent_id, memory.message_ids, words)
