"""Spans of a turn: one for it, one for each step of an agent, with tokens and errors, and nothing that was said."""

import json

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from massmem.config.models import AgentConfig, BackendConfig, MemoryConfig
from massmem.core.events import (
    AgentFailed,
    AgentStarted,
    AnswerSubmitted,
    Event,
    TurnCompleted,
    TurnFailed,
    TurnStarted,
)
from massmem.core.messages import Usage
from massmem.telemetry.spans import Tracer

AGENTS = {
    name: AgentConfig(
        id=name, backend=BackendConfig(type="gemini", model="gemini-x"), system_message="secret words",
        memory=MemoryConfig(), mcp_servers=(),
    )
    for name in ("ann", "bob")
}  # fmt: skip
BEGUN = TurnStarted(session_id="private-session", turn=1, question="secret words", agents=("ann", "bob"), seed=1)


def spans(*events: Event) -> dict[str, ReadableSpan]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    with Tracer(AGENTS, provider.get_tracer("massmem")).turn("private-session") as trace:
        for event in events:
            trace.feed(event)
    found = exporter.get_finished_spans()
    provider.shutdown()
    text = json.dumps([json.loads(span.to_json()) for span in found])
    assert "secret" not in text
    assert "private" not in text
    return {str((span.attributes or {}).get("gen_ai.agent.name", "turn")): span for span in found}


def test_a_turn() -> None:
    found = spans(
        BEGUN,
        AgentStarted(agent_id="ann", round=1, step="answer"),
        AgentStarted(agent_id="bob", round=1, step="answer"),
        AnswerSubmitted(
            agent_id="ann", round=1, number=1, content="secret words", usage=Usage(prompt=10, completion=5)
        ),
        AgentFailed(
            agent_id="bob", round=1, step="answer", error="RateLimited", message="secret words", usage=Usage(prompt=1)
        ),
        TurnCompleted(
            winner="ann", answer="secret words", presented=False, usage=Usage(prompt=11, completion=5)
        ),
    )  # fmt: skip
    ann, bob, turn = (found[name].attributes or {} for name in ("ann", "bob", "turn"))
    assert ann["gen_ai.operation.name"] == "chat"
    assert (ann["gen_ai.provider.name"], ann["gen_ai.request.model"]) == ("gcp.gemini", "gemini-x")
    assert (ann["gen_ai.usage.input_tokens"], ann["gen_ai.usage.output_tokens"]) == (10, 5)
    assert bob["error.type"] == "RateLimited"
    assert (turn["gen_ai.operation.name"], turn["gen_ai.usage.input_tokens"]) == ("invoke_workflow", 11)
    parent, turn_context = found["ann"].parent, found["turn"].context
    assert parent is not None
    assert turn_context is not None
    assert parent.span_id == turn_context.span_id


def test_open_stream_is_closed() -> None:
    found = spans(
        BEGUN,
        AgentStarted(agent_id="ann", round=1, step="answer"),
        TurnFailed(message="x", exit_code=3, usage=Usage()),
    )
    assert set(found) == {"ann", "turn"}
    assert (found["turn"].attributes or {})["error.type"] == "TurnFailed"


def test_without_a_tracer_nothing_is_done() -> None:
    with Tracer(AGENTS).turn("s") as trace:
        trace.feed(BEGUN)
