"""Spans of a turn, with tokens and errors, and stages as lines of JSON: nothing that was said stands in either."""

import json
import stat
from pathlib import Path

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
    TurnInterrupted,
    TurnStarted,
)
from massmem.core.messages import Usage
from massmem.telemetry import Stages, Tracer, make_memory_payload, make_respond_payload

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


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_stage_is_a_line_with_names_and_numbers(tmp_path: Path):
    path = tmp_path / "new" / "stages.jsonl"
    stages = Stages(str(path), ("api_key",))
    stages.write("received", "session_x", 3, {"memory": make_memory_payload(4, {"zip", "order_id"}, "zip")})
    stages.write("respond", "session_x", 3, {"memory": make_memory_payload(6, (), None)})
    first, second = lines(path)
    assert first["payload"] == {
        "memory": {"history_count": 4, "params_keys": ["order_id", "zip"], "waiting_for_param": "zip"}
    }
    assert (first["stage"], first["turn"], second["stage"]) == ("received", 3, "respond")
    assert "session_x" not in path.read_text()
    assert first["session"] == second["session"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_configured_keys_are_left_out_and_so_is_what_looks_like_a_secret(tmp_path: Path):
    path = tmp_path / "stages.jsonl"
    payload = {"deep": [{"PIN": "1234", "note": "sk-abcdefghijklmnop1234"}], "pin": 5}
    Stages(str(path), ("pin",)).write("received", "s", 1, payload)
    (line,) = lines(path)
    assert line["payload"] == {"deep": [{"PIN": "[redacted]", "note": "[redacted]"}], "pin": "[redacted]"}


def test_nothing_is_written_unless_it_is_wanted(tmp_path: Path):
    before = set(tmp_path.rglob("*"))
    stages = Stages(None, ())
    stages.write("received", "s", 1, {})
    assert not stages.is_enabled
    assert set(tmp_path.rglob("*")) == before


def test_file_that_cannot_be_written_is_given_up(tmp_path: Path):
    stages = Stages(str(tmp_path), ())  # a folder
    stages.write("received", "s", 1, {})
    assert not stages.is_enabled


def test_how_a_turn_ended():
    usage = Usage(10, 2, cost=0.5)
    counted = {"prompt": 10, "completion": 2, "reported": True, "cost": 0.5}
    done = TurnCompleted(winner="ann", answer="secret words", presented=False, usage=usage, limit="cost")
    assert make_respond_payload(done) == {
        "status": "completed", "winner": "ann", "limit": "cost", "confidence": None, "verdict": "answered",
        "usage": counted,
    }  # fmt: skip
    failed = TurnFailed(message="secret words", exit_code=3, usage=usage)
    assert make_respond_payload(failed) == {"status": "failed", "exit_code": 3, "usage": counted}
    assert make_respond_payload(TurnInterrupted(by="user")) == {"status": "interrupted"}
    assert make_respond_payload(AgentStarted(agent_id="a", round=1, step="vote")) == {"status": "running"}
