"""Turns as they are seen from outside: counted."""

import time
from collections.abc import Generator
from contextlib import contextmanager

from massmem.events import (
    AgentFailed,
    ContextCompressed,
    Event,
    TurnAbandoned,
    TurnCompleted,
    TurnFailed,
    TurnInterrupted,
    TurnWaiting,
)
from massmem.server.metrics import Metrics


class Observer:
    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    @contextmanager
    def turn(self) -> "Generator[Seen]":
        """A turn is under way in the block."""
        with self._metrics.running.track_inprogress():
            yield Seen(self._metrics)


class Seen:
    """One turn; feed it every event."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._begun = time.monotonic()

    def feed(self, event: Event) -> None:
        match event:
            case TurnCompleted(usage=usage):
                self._metrics.turn_seconds.observe(time.monotonic() - self._begun)
                self._metrics.used(usage)
                self._metrics.turns.labels("completed").inc()
            case TurnFailed(usage=usage) | TurnWaiting(usage=usage) | TurnAbandoned(usage=usage):
                self._metrics.used(usage)
                self._metrics.turns.labels(event.type.removeprefix("turn_")).inc()
            case TurnInterrupted():
                self._metrics.turns.labels("interrupted").inc()
            case AgentFailed(error=error):
                self._metrics.agent_failures.labels(error).inc()
            case ContextCompressed(why=why, by=by, before=before, after=after):
                self._metrics.compressions.labels(why, by).inc()
                self._metrics.compressed.inc(max(0, before - after))
            case _:
                pass
