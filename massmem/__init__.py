"""massmem: a council of agents answers a question together, and remembers.

    import asyncio
    from massmem import Session, load_config

    async def main() -> None:
        config, _ = load_config("@examples/scripted")       # or the path of your own file
        async with await Session.open(config) as session:   # session_id="...": go on with that one
            async for event in session.ask("How does massmem find an answer?"):
                if event.type == "turn_completed":
                    print(event.answer)

    asyncio.run(main())

Every event (`massmem.core.events`) is on disk before it is yielded. What goes wrong raises a `MassmemError`, with a
message and a hint. `ConversationMemory` and `PersistentMemory` read and change what a program said and remembers:

    store = await open_store("sqlite:///talk.db", massmem_home())
    talk = ConversationMemory(store).for_session("support-4711")
    await talk.append(Message("user", "Where is my order?"))
    print([message.text for message in await talk.history()])
    await store.close()

    notes = PersistentMemory("writer", "support-4711")                        # of one agent: record, retrieve
    print(await notes.retrieve("the order"))
    memory = await open_memory(config.memory, massmem_home(), os.environ)     # of all agents of all sessions
    memories = await memory.list(Selection(session_id="support-4711"))
    await memory.close()
    await notes.close()
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from massmem.config.home import massmem_home
    from massmem.config.load import load_config
    from massmem.core.errors import MassmemError
    from massmem.memory import PersistentMemory, open_memory
    from massmem.memory.persistent import Selection
    from massmem.session.handle import ConversationMemory, InMemoryConversationMemory, Message, SessionHandle
    from massmem.session.session import Session
    from massmem.store import open_store

__version__ = "0.1.0"

__all__ = [
    "ConversationMemory",
    "InMemoryConversationMemory",
    "MassmemError",
    "Message",
    "PersistentMemory",
    "Selection",
    "Session",
    "SessionHandle",
    "__version__",
    "load_config",
    "massmem_home",
    "open_memory",
    "open_store",
]

# Loaded on first use: the command line imports this package and needs none of them to show its help.
_MODULES = {
    "ConversationMemory": "massmem.session.handle",
    "InMemoryConversationMemory": "massmem.session.handle",
    "MassmemError": "massmem.core.errors",
    "Message": "massmem.session.handle",
    "PersistentMemory": "massmem.memory",
    "Selection": "massmem.memory.persistent",
    "Session": "massmem.session.session",
    "SessionHandle": "massmem.session.handle",
    "load_config": "massmem.config.load",
    "massmem_home": "massmem.config.home",
    "open_memory": "massmem.memory",
    "open_store": "massmem.store",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
