"""Shows a turn: live on a terminal, as lines of text, or as JSON."""

from typing import Protocol

from massmem.core.events import Event


class Renderer(Protocol):
    """Shows the events of a turn as they arrive."""

    def feed(self, event: Event) -> None: ...

    def close(self) -> None:
        """Restore the terminal, if the renderer has changed it. No events follow. May be called more than once."""
