"""Turns without an end, and which of them go on by themselves."""

from collections.abc import Sequence

from massmem.events import ContextCompressed, Event, ToolReturned, TurnFailed, TurnInterrupted
from massmem.records import TurnRecord

_UNFINISHED = {"running", "interrupted", "failed", "waiting"}
_AFTERWARDS = (ContextCompressed, ToolReturned)
"""May also come after the end of a turn."""


def unfinished(turn: TurnRecord | None) -> TurnRecord | None:
    """The turn, when it has no final answer and was not given up."""
    return turn if turn is not None and turn.status in _UNFINISHED else None


def was_cut_off(past: Sequence[Event]) -> bool:
    """The turn ended by a kill, so its user still waits for it; not by the user's hand or a failure they saw."""
    ends = [event for event in past if not isinstance(event, _AFTERWARDS)]
    match ends[-1:]:
        case [TurnInterrupted(by="user")] | [TurnFailed()]:
            return False
        case _:
            return True
