"""What the log file says about a turn: names and numbers only, never what was said."""

import logging
from typing import TYPE_CHECKING

from massmem.events import AgentDelta, ContextCompressed, ContextMeasured, Event
from massmem.render.board import Board
from massmem.render.context import log_lines, near_limit

if TYPE_CHECKING:
    from massmem.render.base import Renderer

_log = logging.getLogger(__name__)

_SAID = {
    "question",
    "content",
    "text",
    "reasoning",
    "reason",
    "partial",
    "arguments",
    "answer",
    "prompt",
    "summary",
    "metadata",
}
_LEFT_OUT = {"type", "at", "schema_version"}


class LogRenderer:
    """board: must have been fed each event before this is."""

    def __init__(self, board: Board) -> None:
        self._board = board

    def feed(self, event: Event) -> None:
        if not isinstance(event, ContextMeasured | ContextCompressed):
            if not isinstance(event, AgentDelta):
                _log.debug("%s", outline(event))
            return
        usual = isinstance(event, ContextMeasured) and not near_limit(event)
        for line in log_lines(event, self._board.turn):
            _log.log(logging.INFO if usual else logging.WARNING, "%s: %s", event.agent_id, line)

    def close(self) -> None:
        pass


def outline(event: Event) -> str:
    """The event in one line; of what anybody said only its length, since it may hold what nobody else shall read."""
    parts = [event.type]
    for name in type(event).model_fields:
        value = getattr(event, name)
        if name in _SAID:
            parts.append(f"{name}={len(str(value))} characters")
        elif name not in _LEFT_OUT:
            parts.append(f"{name}={value!r}")
    return " ".join(parts)


if TYPE_CHECKING:
    _: type[Renderer] = LogRenderer
