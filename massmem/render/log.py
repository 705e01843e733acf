"""What the log file says about context windows: numbers only, never what was said."""

import logging
from typing import TYPE_CHECKING

from massmem.events import ContextCompressed, ContextMeasured, Event
from massmem.render.board import Board
from massmem.render.context import log_lines, near_limit

if TYPE_CHECKING:
    from massmem.render.base import Renderer

_log = logging.getLogger(__name__)


class LogRenderer:
    """board: must have been fed each event before this is."""

    def __init__(self, board: Board) -> None:
        self._board = board

    def feed(self, event: Event) -> None:
        if not isinstance(event, ContextMeasured | ContextCompressed):
            return
        usual = isinstance(event, ContextMeasured) and not near_limit(event)
        for line in log_lines(event, self._board.turn):
            _log.log(logging.INFO if usual else logging.WARNING, "%s: %s", event.agent_id, line)

    def close(self) -> None:
        pass


if TYPE_CHECKING:
    _: type[Renderer] = LogRenderer
