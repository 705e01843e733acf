"""Every event as one line of JSON, for programs."""

from typing import TYPE_CHECKING, TextIO

from massmem.events import EVENT, Event, shown

if TYPE_CHECKING:
    from massmem.render.base import Renderer


class JsonlRenderer:
    """stream: where the lines go; each is flushed, so that a reader sees it at once."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def feed(self, event: Event) -> None:
        self._stream.write(EVENT.dump_json(shown(event)).decode() + "\n")
        self._stream.flush()

    def close(self) -> None:
        pass


if TYPE_CHECKING:
    _: type[Renderer] = JsonlRenderer
