"""Metrics for Prometheus: requests, turns, tokens, latency, queued recordings, compression. They name no user."""

import os
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from massmem.core.events import (
    AgentFailed,
    ContextCompressed,
    Event,
    TurnAbandoned,
    TurnCompleted,
    TurnFailed,
    TurnInterrupted,
    TurnWaiting,
    now,
)
from massmem.core.messages import Usage
from massmem.core.records import RecordingCounts

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

SHARED_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
"""The environment variable that names the folder in which several processes keep their metrics together."""

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)


class Metrics:
    """The metrics of this process; `export` covers all processes that share a folder."""

    def __init__(self) -> None:
        own = CollectorRegistry()
        self._registry = own
        if folder := os.environ.get(SHARED_FOLDER):
            Path(folder).mkdir(mode=0o700, parents=True, exist_ok=True)
            self._registry = CollectorRegistry()
            MultiProcessCollector(self._registry)
        self._requests = Counter("massmem_requests", "Requests.", ["method", "route", "status"], registry=own)
        self._latency = Histogram(
            "massmem_request_seconds", "Time to the end of a request.", ["route"], registry=own, buckets=_SECONDS
        )
        self._turns = Counter("massmem_turns", "Turns by how they ended.", ["outcome"], registry=own)
        self._turn_seconds = Histogram(
            "massmem_turn_seconds", "Time from a question to its answer.", registry=own, buckets=_SECONDS
        )
        self.running = Gauge("massmem_turns_running", "Turns under way.", registry=own, multiprocess_mode="livesum")
        self.streams = Gauge("massmem_streams", "Open event streams.", registry=own, multiprocess_mode="livesum")
        self._tokens = Counter("massmem_tokens", "Tokens of models.", ["direction"], registry=own)
        self._model_requests = Counter("massmem_model_requests", "Requests to models.", registry=own)
        self._agent_failures = Counter("massmem_agent_failures", "Agents that could not act.", ["error"], registry=own)
        self._compressions = Counter("massmem_compressions", "Contexts compressed.", ["why", "by"], registry=own)
        self._compressed = Counter("massmem_compressed_tokens", "Tokens that compression saved.", registry=own)
        self._recordings = Gauge(
            "massmem_recordings",
            "Recordings in the queue: pending, retrying (of the pending ones), failed (given up).",
            ["status"],
            registry=own,
            multiprocess_mode="mostrecent",
        )
        self._oldest = Gauge(
            "massmem_recordings_oldest_seconds",
            "Age of the oldest pending recording.",
            registry=own,
            multiprocess_mode="mostrecent",
        )

    def count_request(self, method: str, route: str, status: int, seconds: float) -> None:
        self._requests.labels(method, route, status).inc()
        self._latency.labels(route).observe(seconds)

    def count_event(self, event: Event, seconds: float) -> None:
        """Count an event of a turn that has run for `seconds`."""
        match event:
            case TurnCompleted(usage=usage):
                self._turn_seconds.observe(seconds)
                self.count_usage(usage)
                self._turns.labels("completed").inc()
            case TurnFailed(usage=usage) | TurnWaiting(usage=usage) | TurnAbandoned(usage=usage):
                self.count_usage(usage)
                self._turns.labels(event.type.removeprefix("turn_")).inc()
            case TurnInterrupted():
                self._turns.labels("interrupted").inc()
            case AgentFailed(error=error):
                self._agent_failures.labels(error).inc()
            case ContextCompressed(why=why, by=by, before=before, after=after):
                self._compressions.labels(why, by).inc()
                self._compressed.inc(max(0, before - after))
            case _:
                pass

    def set_recordings(self, counts: RecordingCounts) -> None:
        for status in ("pending", "retrying", "failed"):
            self._recordings.labels(status).set(getattr(counts, status))
        self._oldest.set(0.0 if counts.oldest is None else max(0.0, (now() - counts.oldest).total_seconds()))

    def export(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self._registry)

    def count_usage(self, usage: Usage) -> None:
        """Count what requests to models have used."""
        self._tokens.labels("in").inc(usage.prompt)
        self._tokens.labels("out").inc(usage.completion)
        self._model_requests.inc(usage.requests)
