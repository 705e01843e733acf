"""The view of a conversation for a model, and PersistentMemory: searchable facts and messages of all sessions."""

from importlib import import_module
from typing import TYPE_CHECKING

from massmem.memory.opening import open_memory

if TYPE_CHECKING:
    from massmem.memory.agent_memory import AgentMemory as PersistentMemory
    from massmem.memory.unstored import InMemoryConversationMemory as ConversationMemory

__all__ = ["ConversationMemory", "PersistentMemory", "open_memory"]

# Loaded on first use: the command line imports this package, and needs neither.
_CLASSES = {
    "ConversationMemory": ("massmem.memory.unstored", "InMemoryConversationMemory"),
    "PersistentMemory": ("massmem.memory.agent_memory", "AgentMemory"),
}


def __getattr__(name: str) -> object:
    if name not in _CLASSES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, name = _CLASSES[name]
    return getattr(import_module(module), name)
