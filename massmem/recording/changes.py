"""Carries out what the user changed of memories: each change is a message of the log, with a row in the queue."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from massmem.core.records import MessageRecord, MessageToRecord
from massmem.memory.persistent import Fact, Memory, MemoryChange, PersistentMemory, Selection
from massmem.recording.forgetting import fingerprint_fact, is_same
from massmem.recording.rules import mask_params

if TYPE_CHECKING:
    from massmem.store.ports import SessionStore

_MOST_OF_A_MESSAGE = 10_000
"""Memories that came from the same messages."""


def is_change(message: MessageRecord) -> bool:
    """Return whether the message says that the user changed a memory."""
    return "memory_change" in message.metadata


def read_change(message: MessageRecord) -> MemoryChange:
    """Return what the user changed."""
    change = message.metadata["memory_change"]
    return MemoryChange(
        id=message.id,
        session_id=message.session_id,
        text=message.content,
        created_at=message.created_at,
        **change | {"message_ids": tuple(change["message_ids"])},
    )


async def carry_out(store: "SessionStore", memory: PersistentMemory, row: MessageToRecord) -> None:
    """Carry out a change, once however often this is called.

    A fact that a model did not find again is stored as it was. What is left of a memory whose messages are gone, too,
    is nothing.

    Raises:
        LookupError: the memory is not there yet.
        MemoryUnavailable, StoreError
    """
    message = mask_params([row])[0]
    change = read_change(message)
    memories = await _list_of_messages(memory, change)
    target = _choose(memories, change)
    if target is None:
        sources = await store.get_messages_to_record(change.message_ids)
        if not sources:
            return
        if change.kind == "episode":
            raise LookupError("the memory that was changed is not recorded yet")
        await memory.add_facts([_make_fact(sources, change)])
        target = _choose(await _list_of_messages(memory, change), change)
    if change.kind == "fact" and change.action == "edit":
        words = fingerprint_fact(change.old)
        await store.forget_fact(change.session_id, change.agent_id, change.message_ids, words)
    if target is not None:
        await memory.change(target.id, change)


async def _list_of_messages(memory: PersistentMemory, change: MemoryChange) -> Sequence[Memory]:
    selection = Selection(change.session_id, kind=change.kind, message_ids=change.message_ids)
    return await memory.list(selection, _MOST_OF_A_MESSAGE)


def _choose(memories: Sequence[Memory], change: MemoryChange) -> Memory | None:
    """Return the memory that was changed: it has the text of then, or, of a fact, says the same."""
    noted = [memory for memory in memories if change.id in memory.changes]
    exact = [memory for memory in memories if memory.text == change.old]
    alike: list[Memory] = []
    if change.kind == "fact":
        words = set(fingerprint_fact(change.old))
        own = [memory for memory in memories if memory.agent_id == change.agent_id]
        alike = [memory for memory in own if is_same(words, set(fingerprint_fact(memory.text)))]
    return next(iter([*noted, *exact, *alike]), None)


def _make_fact(sources: Sequence[MessageToRecord], change: MemoryChange) -> Fact:
    """Return the fact as it was before the change. sources: its messages, as far as they exist."""
    last = sources[-1]
    return Fact(
        session_id=change.session_id,
        turn=change.turn,
        agent_id=change.agent_id,
        text=change.old,
        message_ids=change.message_ids,
        created_at=last.message.created_at,
        won=last.winner == change.agent_id,
        group=last.group,
    )
