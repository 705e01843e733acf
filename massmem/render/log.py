"""What the log file records of a turn: names and numbers only, no text of users, models or tools."""

import logging

from massmem.core.events import AgentDelta, ContextCompressed, ContextMeasured, Event
from massmem.render import Renderer
from massmem.render.text import is_near_limit, report_context
from massmem.render.turn_view import TurnView

log = logging.getLogger(__name__)

_PRIVATE_FIELDS = {
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
_OMITTED_FIELDS = {"type", "at", "schema_version"}


class LogRenderer(Renderer):
    """Logs each event. `view` must have been fed the event first."""

    def __init__(self, view: TurnView) -> None:
        self._view = view

    def feed(self, event: Event) -> None:
        if not isinstance(event, ContextMeasured | ContextCompressed):
            if not isinstance(event, AgentDelta):
                log.debug("%s", outline_event(event))
            return
        has_room = isinstance(event, ContextMeasured) and not is_near_limit(event)
        for line in report_context(event, self._view.outcome.turn):
            log.log(logging.INFO if has_room else logging.WARNING, "%s: %s", event.agent_id, line)


def outline_event(event: Event) -> str:
    """Return the event in one line, with the length of each text in place of the text."""
    parts = [event.type]
    for name in type(event).model_fields:
        value = getattr(event, name)
        if name in _PRIVATE_FIELDS:
            parts.append(f"{name}={len(str(value))} characters")
        elif name not in _OMITTED_FIELDS:
            parts.append(f"{name}={value!r}")
    return " ".join(parts)
