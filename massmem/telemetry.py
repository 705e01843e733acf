"""Observation from outside: spans of turns, and lines of JSON of what came in and went out.

Spans are made from the events, by OpenTelemetry's conventions for generative AI: one per turn (`invoke_workflow`), and
below it one per step of an agent (`chat MODEL`), with the attributes of
https://opentelemetry.io/docs/specs/semconv/gen-ai/. Stages are lines for those who operate a service. Both hold names,
numbers and hashes; never the text of a message nor the value of a param.
"""

import json
import logging
from collections.abc import Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Literal

from massmem.config.home import expand_home, make_file, make_folder
from massmem.config.models import AgentConfig
from massmem.core import events as ev
from massmem.core.errors import InputError, MassmemError
from massmem.core.messages import Usage
from massmem.core.outcome import TurnEnd
from massmem.core.redact import redact_values

if TYPE_CHECKING:
    from opentelemetry.trace import Span
    from opentelemetry.trace import Tracer as OtelTracer

log = logging.getLogger(__name__)

SCHEMA_VERSION = 1
Stage = Literal["received", "respond"]

_STEPS = ev.AnswerSubmitted | ev.BallotCast | ev.ItemsGiven | ev.ItemsChecked | ev.ParamRequested | ev.AgentFailed
_PROVIDERS = {
    "gemini": "gcp.gemini", "grok": "x_ai", "mistral": "mistral_ai", "azure_openai": "azure.ai.openai",
    "bedrock": "aws.bedrock", "vertex": "gcp.vertex_ai",
}  # fmt: skip
"""Names that the conventions have for our backend types, where they are not the same."""


class Tracer:
    """Makes the spans of turns."""

    def __init__(self, agents: Mapping[str, AgentConfig], otel: "OtelTracer | None" = None) -> None:
        """otel: None when nothing is traced."""
        self._agents = agents
        self._otel = otel

    @contextmanager
    def turn(self, session_id: str) -> "Generator[TurnTrace]":
        """Trace a turn in the block; at its end, close the spans that are still open."""
        if self._otel is None:
            yield TurnTrace(self._agents)
            return
        names = {"gen_ai.operation.name": "invoke_workflow", "gen_ai.conversation.id": hash_name(session_id)}
        # Not the current span: what is current belongs to a task, and a turn's events may be read by several.
        trace = TurnTrace(self._agents, self._otel, self._otel.start_span("invoke_workflow massmem", attributes=names))
        try:
            yield trace
        finally:
            trace.close()


@dataclass(slots=True)
class TurnTrace:
    """The spans of one turn; feed it every event."""

    agents: Mapping[str, AgentConfig]
    otel: "OtelTracer | None" = None
    span: "Span | None" = None
    _open: "dict[str, Span]" = field(default_factory=lambda: {})

    def feed(self, event: ev.Event) -> None:
        if self.otel is None or self.span is None:
            return
        match event:
            case ev.AgentStarted(agent_id=agent_id):
                self._open[agent_id] = self._begin(self.otel, event)
            case _ if isinstance(event, _STEPS):
                self._end(event)
            case ev.TurnCompleted(winner=winner, usage=usage):
                if (presenting := self._open.pop(winner, None)) is not None:
                    presenting.end()
                _set_usage(self.span, usage)
            case ev.TurnFailed(usage=usage):
                self.span.set_attribute("error.type", "TurnFailed")
                _set_usage(self.span, usage)
            case _:
                pass

    def close(self) -> None:
        for span in self._open.values():
            span.end()
        self._open.clear()
        if self.span is not None:
            self.span.end()

    def _begin(self, otel: "OtelTracer", event: ev.AgentStarted) -> "Span":
        from opentelemetry.trace import set_span_in_context

        agent = self.agents.get(event.agent_id)
        model = "" if agent is None else agent.backend.model or agent.backend.type
        attributes: dict[str, str | int] = {
            "gen_ai.operation.name": "chat",
            "gen_ai.agent.name": event.agent_id,
            "gen_ai.request.model": model,
            "gen_ai.provider.name": "" if agent is None else _PROVIDERS.get(agent.backend.type, agent.backend.type),
            "massmem.step": event.step,
            "massmem.round": event.round,
        }
        parent = set_span_in_context(self.span) if self.span is not None else None
        return otel.start_span(f"chat {model}".rstrip(), context=parent, attributes=attributes)

    def _end(self, event: _STEPS) -> None:
        span = self._open.pop(event.agent_id, None)
        if span is None:
            return
        if isinstance(event, ev.AgentFailed):
            span.set_attribute("error.type", event.error)
        _set_usage(span, event.usage)
        span.end()


@contextmanager
def open_tracer(agents: Mapping[str, AgentConfig], *, enabled: bool) -> Generator[Tracer]:
    """Open the tracer. It sends spans in the background to where OTEL_EXPORTER_OTLP_* say, the last ones on exit.

    Raises InputError: the extra `otel` is not installed.
    """
    if not enabled:
        yield Tracer(agents)
        return
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as e:
        raise InputError(f"telemetry.otel needs the package {e.name}", "pip install 'massmem[otel]'") from e
    provider = TracerProvider(resource=Resource.create({"service.name": "massmem"}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    try:
        yield Tracer(agents, provider.get_tracer("massmem"))
    finally:
        provider.shutdown()


def hash_name(name: str) -> str:
    """Return 16 hex digits that stand for a name in logs and spans."""
    return sha256(name.encode()).hexdigest()[:16]


def _set_usage(span: "Span", usage: Usage) -> None:
    span.set_attribute("gen_ai.usage.input_tokens", usage.prompt)
    span.set_attribute("gen_ai.usage.output_tokens", usage.completion)


def make_memory_payload(history_count: int, params: Collection[str], waiting_for: str | None) -> dict[str, Any]:
    """Return what the session remembers at a stage: how many messages, and the names of its params."""
    return {"history_count": history_count, "params_keys": sorted(params), "waiting_for_param": waiting_for}


class Stages:
    """Appends to a file; any number of processes may write to the same one."""

    def __init__(self, path: str | None, keys: Sequence[str]) -> None:
        """path: None when nothing is written. keys: their values are redacted wherever they stand in a payload."""
        self._path = None if path is None else expand_home(path)
        self._keys = tuple(keys)

    @property
    def is_enabled(self) -> bool:
        return self._path is not None

    def write(self, stage: Stage, session_id: str, turn: int, payload: Mapping[str, Any]) -> None:
        """Append a line. Blocking. Never fails a turn: the first failure is logged and ends the writing."""
        if self._path is None:
            return
        record = {
            "schema_version": SCHEMA_VERSION,
            "at": ev.now().isoformat(),
            "stage": stage,
            "session": hash_name(session_id),
            "turn": turn,
            "payload": redact_values(dict(payload), self._keys),
        }
        try:
            make_folder(self._path.parent)
            make_file(self._path)
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")  # one write: lines of several processes do not mix
        except (OSError, MassmemError) as e:
            log.warning("telemetry.stages: %s", e)
            self._path = None


def make_respond_payload(end: ev.Event) -> dict[str, Any]:
    """Return how a turn ended, from its last event."""
    if not isinstance(end, TurnEnd):
        return {"status": "running"}
    names = ("winner", "limit", "confidence", "verdict", "exit_code")
    details = {name: getattr(end, name) for name in names if hasattr(end, name)}
    if not isinstance(end, ev.TurnInterrupted):
        details["usage"] = {name: getattr(end.usage, name) for name in ("prompt", "completion", "reported", "cost")}
    return {"status": end.type.removeprefix("turn_"), **details}
