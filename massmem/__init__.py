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

Every event (`massmem.events`) is on disk before it is yielded. What goes wrong is a `MassmemError`, with a message and
a hint. What was said, and what is known of a session: `massmem.memory`.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from massmem.config.load import load_config
    from massmem.errors import MassmemError
    from massmem.session.session import Session

__version__ = "0.1.0"

__all__ = ["MassmemError", "Session", "__version__", "load_config"]

# Loaded when they are first asked for: the command line imports this package and needs none of them to show its help.
_PLACES = {"MassmemError": "massmem.errors", "Session": "massmem.session.session", "load_config": "massmem.config.load"}


def __getattr__(name: str) -> object:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_PLACES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
