"""The port to whoever shows a turn."""

from typing import Protocol

from massmem.events import Event


class Renderer(Protocol):
    """Shows the events of a turn as they come."""

    def feed(self, event: Event) -> None: ...

    def close(self) -> None:
        """No more events come. Leaves the terminal as it was found; may be called more than once."""
        ...
