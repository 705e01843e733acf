"""Numbers for Prometheus: requests, turns, tokens, latency, the queue of recordings, compression. Nobody's words."""

import os
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from massmem.messages import Usage
from massmem.records import RecordingCounts

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

SHARED = "PROMETHEUS_MULTIPROC_DIR"
"""The variable that names the folder in which several processes keep their numbers together."""

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)


class Metrics:
    def __init__(self) -> None:
        own = CollectorRegistry()
        self._registry = own
        if folder := os.environ.get(SHARED):
            Path(folder).mkdir(mode=0o700, parents=True, exist_ok=True)
            self._registry = CollectorRegistry()
            MultiProcessCollector(self._registry)
        self.requests = Counter("massmem_requests", "Requests.", ["method", "route", "status"], registry=own)
        self.latency = Histogram(
            "massmem_request_seconds", "Time to the end of a request.", ["route"], registry=own, buckets=_SECONDS
        )
        self.turns = Counter("massmem_turns", "Turns by how they ended.", ["outcome"], registry=own)
        self.turn_seconds = Histogram(
            "massmem_turn_seconds", "Time from a question to its answer.", registry=own, buckets=_SECONDS
        )
        self.running = Gauge("massmem_turns_running", "Turns under way.", registry=own, multiprocess_mode="livesum")
        self.streams = Gauge("massmem_streams", "Open event streams.", registry=own, multiprocess_mode="livesum")
        self._tokens = Counter("massmem_tokens", "Tokens of models.", ["direction"], registry=own)
        self._model_requests = Counter("massmem_model_requests", "Requests to models.", registry=own)
        self.agent_failures = Counter("massmem_agent_failures", "Agents that could not act.", ["error"], registry=own)
        self.compressions = Counter("massmem_compressions", "Contexts compressed.", ["why", "by"], registry=own)
        self.compressed = Counter("massmem_compressed_tokens", "Tokens that compression saved.", registry=own)
        self._queue = Gauge(
            "massmem_recordings", "Recordings in the queue.", ["status"], registry=own, multiprocess_mode="mostrecent"
        )

    def used(self, usage: Usage) -> None:
        self._tokens.labels("in").inc(usage.prompt)
        self._tokens.labels("out").inc(usage.completion)
        self._model_requests.inc(usage.requests)

    def queue(self, counts: RecordingCounts) -> None:
        for status, count in (("pending", counts.pending), ("failed", counts.failed)):
            self._queue.labels(status).set(count)

    def text(self) -> bytes:
        """All of them, in Prometheus' text format."""
        return generate_latest(self._registry)
