"""The view of a conversation for a model, and PersistentMemory: searchable facts and messages of all sessions."""

from massmem.memory.opening import open_memory

__all__ = ["open_memory"]
