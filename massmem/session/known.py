"""What this process knows of a session between two turns, so that it need not be read again for each."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from massmem.events import (
    Event,
    TurnAbandoned,
    TurnCompleted,
    TurnFailed,
    TurnInterrupted,
    TurnResumed,
    TurnStarted,
    TurnUndone,
    TurnWaiting,
)
from massmem.records import SessionState, TurnRecord
from massmem.store.base import Mark, SessionStore
from massmem.store.projection import numbers_taken


@dataclass(slots=True)
class Known:
    """Right as long as the session has this mark in the store; mark None: not known to be right.

    last: its newest turn. state: what its agents know of the user's wishes.
    """

    mark: Mark | None = None
    last: TurnRecord | None = None
    state: SessionState = field(default_factory=SessionState)

    @property
    def settled(self) -> bool:
        """The next turn can be begun by it: the last one was answered."""
        return self.mark is not None and (self.last is None or self.last.status == "completed")

    async def read(self, store: SessionStore, session_id: str) -> None:
        """Read all of it anew. Raises StoreError."""
        # First of all: what is written meanwhile has another mark.
        self.mark = await store.mark(session_id)
        self.last, self.state = await asyncio.gather(store.last_turn(session_id), store.state(session_id))

    def follow(self, turn: int, numbers: Sequence[int], events: Sequence[Event], state: SessionState | None) -> None:
        """This process has stored these events under these numbers. state: as it was stored with them."""
        if state is not None:
            self.state = state
            self.mark = None  # when it was stored is not known
        if self.mark is None:
            return
        if numbers[0] - numbers_taken(events[0]) != self.mark.seq:
            self.mark = None  # somebody else has written before
            return
        self.mark = self.mark._replace(seq=numbers[-1])
        for event in events:
            match event:
                case TurnStarted():
                    self.last = _begun(turn, event)
                case TurnCompleted() if self.last is not None:
                    ended = {
                        "status": "completed",
                        "winner": event.winner,
                        "answer": event.answer,
                        "ended_at": event.at,
                    }
                    self.last = self.last.model_copy(update=ended)
                case TurnResumed() | TurnFailed() | TurnInterrupted() | TurnWaiting() | TurnAbandoned() | TurnUndone():
                    self.mark = None
                    return
                case _:
                    pass


def _begun(turn: int, event: TurnStarted) -> TurnRecord:
    return TurnRecord(
        session_id=event.session_id,
        turn=turn,
        question=event.question,
        status="running",
        seed=event.seed,
        started_at=event.at,
    )
