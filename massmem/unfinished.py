"""Turns without an end, and which of them go on by themselves."""

from collections.abc import Sequence

from massmem.events import Event, TurnFailed, TurnInterrupted
from massmem.records import TurnRecord

_UNFINISHED = {"running", "interrupted", "failed", "waiting"}


def unfinished(turn: TurnRecord | None) -> TurnRecord | None:
    """The turn, when it has no final answer and was not given up."""
    return turn if turn is not None and turn.status in _UNFINISHED else None


def was_cut_off(past: Sequence[Event]) -> bool:
    """The turn ended by a kill, so its user still waits for it; not by the user's hand or a failure they saw."""
    match past[-1:]:
        case [TurnInterrupted(by="user")] | [TurnFailed()]:
            return False
        case _:
            return True
