"""Spans of turns and of what their agents do, made from the events: OpenTelemetry, conventions for generative AI.

One span per turn (`invoke_workflow`), and below it one per step of an agent (`chat MODEL`), with the attributes of
https://opentelemetry.io/docs/specs/semconv/gen-ai/. They hold no text of a conversation; session ids are hashed.
"""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING

from massmem.config.models import AgentConfig
from massmem.core.errors import InputError
from massmem.core.events import (
    AgentFailed,
    AgentStarted,
    AnswerSubmitted,
    BallotCast,
    Event,
    ParamRequested,
    TurnCompleted,
    TurnFailed,
)
from massmem.core.messages import Usage

if TYPE_CHECKING:
    from opentelemetry.trace import Span
    from opentelemetry.trace import Tracer as OtelTracer

_STEPS = AnswerSubmitted | BallotCast | ParamRequested | AgentFailed
_PROVIDERS = {"gemini": "gcp.gemini", "grok": "x_ai", "mistral": "mistral_ai", "azure_openai": "azure.ai.openai"}
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

    def feed(self, event: Event) -> None:
        if self.otel is None or self.span is None:
            return
        match event:
            case AgentStarted(agent_id=agent_id):
                self._open[agent_id] = self._begin(self.otel, event)
            case AnswerSubmitted() | BallotCast() | ParamRequested() | AgentFailed():
                self._end(event)
            case TurnCompleted(winner=winner, usage=usage):
                if (presenting := self._open.pop(winner, None)) is not None:
                    presenting.end()
                _set_usage(self.span, usage)
            case TurnFailed(usage=usage):
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

    def _begin(self, otel: "OtelTracer", event: AgentStarted) -> "Span":
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
        if isinstance(event, AgentFailed):
            span.set_attribute("error.type", event.error)
        _set_usage(span, event.usage)
        span.end()


@contextmanager
def open_tracer(agents: Mapping[str, AgentConfig], *, enabled: bool) -> Generator[Tracer]:
    """Open the tracer. It sends spans in the background to where OTEL_EXPORTER_OTLP_* say, the last ones on exit.

    Raises:
        InputError: the extra `otel` is not installed.
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
