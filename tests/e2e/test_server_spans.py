"""Spans of turns reach a collector (OTLP over HTTP) and name no text and no user."""

from pathlib import Path

import pytest

from tests.support.cli import massmem, script, write_team
from tests.support.collector import Collector
from tests.support.service import StartService, make_agent, make_config

pytestmark = pytest.mark.slow


def test_spans_of_a_service(collector: Collector, start_service: StartService, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{collector.server_port}")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "none")
    monkeypatch.setenv("FASTAPI_OTEL_AUTO_CONFIGURE", "true")  # whose spans name the path, and so the session
    agents = make_agent("ann", "hidden answer"), make_agent("bob", "another")
    service = start_service(make_config(*agents, telemetry={"otel": True}))
    client = service.client("hidden-user")
    assert client.chat("hidden question", "hidden-session").status_code == 200
    assert len(client.read_history("hidden-session")) == 2
    assert service.stop() == 0  # the last spans are sent before it ends
    spans = collector.spans()
    assert {span.name.split()[0] for span in spans} == {"invoke_workflow", "chat"}
    keys = {attribute.key for span in spans for attribute in span.attributes}
    assert {"gen_ai.operation.name", "gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens"} <= keys, keys
    assert len({span.trace_id for span in spans}) == 1
    for body in collector.bodies:
        assert b"hidden" not in body


def test_spans_of_the_command_line(collector: Collector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{collector.server_port}")
    traced = write_team(tmp_path, script("hidden answer"), telemetry={"otel": True})
    run = massmem("--config", traced, "hidden question")
    assert run.returncode == 0, run.stderr
    assert sorted(span.name.split()[0] for span in collector.spans()) == ["chat", "invoke_workflow"]
    assert not any(b"hidden" in body for body in collector.bodies)
    assert massmem("--config", write_team(tmp_path, script("hidden answer")), "again").returncode == 0
    assert len(collector.spans()) == 2  # nothing is sent unless the configuration says so
