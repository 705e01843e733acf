"""How full a context window is, and what compressing it did, in the words of the log and the shorter ones of a view."""

from typing import assert_never

from massmem.events import ContextCompressed, ContextMeasured
from massmem.render.board import ContextEvent
from massmem.render.figures import plural, printable_id

_APPROACHING = " - Approaching limit!"


def share(event: ContextMeasured) -> str:
    """`35%` of the window."""
    return _percent(event.tokens, event.window)


def near_limit(event: ContextMeasured) -> bool:
    """The window is as full as the configuration lets it become."""
    return event.threshold is not None and event.tokens >= event.threshold * event.window


def log_lines(event: ContextEvent, turn: int) -> list[str]:
    """The whole report, without the agent's name."""
    match event:
        case ContextMeasured():
            return [_measured(event, turn)]
        case ContextCompressed():
            return [
                *_before(event, turn),
                f"Attempting compression ({event.before:,} → {event.after:,} tokens)",
                f"Context compressed: Removed {plural(event.removed, 'message')} ({_freed(event):,} tokens).",
                f"Kept {plural(event.kept, 'recent message')} ({event.after:,} tokens).",
            ]
        case _:
            assert_never(event)


def short_line(event: ContextEvent, turn: int) -> str | None:
    """What a user should notice, in one line; None for a window that has room."""
    agent = printable_id(event.agent_id)
    match event:
        case ContextMeasured():
            return f"{agent}: {_measured(event, turn)}" if near_limit(event) else None
        case ContextCompressed():
            removed = f"{plural(event.removed, 'message')} ({_freed(event):,} tokens)"
            kept = f"kept {event.kept:,} recent ({event.after:,} tokens)"
            return f"{agent}: context compressed: removed {removed}, {kept}"
        case _:
            assert_never(event)


def _measured(event: ContextMeasured, turn: int) -> str:
    name, source = ("Window", "API actual") if event.source == "api" else ("Buffer", "buffer")
    warning = _APPROACHING if near_limit(event) else ""
    return f"Context {name} (Turn {turn}): {_filled(event.tokens, event.window)} [{source}]{warning}"


def _before(event: ContextCompressed, turn: int) -> list[str]:
    """Why it was compressed: a prompt that is never sent, or was refused, is in no other event."""
    if event.window is None:
        return []
    warning = " - Refused by the provider!" if event.why == "overflow" else _APPROACHING
    return [f"Context Buffer (Turn {turn}): {_filled(event.before, event.window)} [buffer]{warning}"]


def _filled(tokens: int, window: int) -> str:
    return f"{tokens:,} / {window:,} tokens ({_percent(tokens, window)})"


def _percent(tokens: int, window: int) -> str:
    return f"{tokens / window:.0%}" if window > 0 else "?"


def _freed(event: ContextCompressed) -> int:
    return max(event.before - event.after, 0)
