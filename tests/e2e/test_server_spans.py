"""Spans of turns reach a collector (OTLP over HTTP), and carry nothing that was said, nor whose it was."""

from pathlib import Path

import pytest

from tests.support.cli import massmem, script, write_team
from tests.support.collector import Collector, collector  # noqa: F401  a fixture
from tests.support.service import Service, agent, team

pytestmark = pytest.mark.slow


def test_spans(collector: Collector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{collector.server_port}")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "none")
    monkeypatch.setenv("FASTAPI_OTEL_AUTO_CONFIGURE", "true")  # whose spans name the path, and so the session
    config = team(agent("ann", "hidden answer"), agent("bob", "another"), telemetry={"otel": True})
    service = Service(tmp_path, config).start()
    try:
        assert service.as_("hidden-user").chat("hidden question", "hidden-session").status_code == 200
        assert len(service.as_("hidden-user").history("hidden-session")) == 2
    finally:
        assert service.stop() == 0  # the last spans are sent before it ends
    spans = collector.spans()
    names = {span.name for span in spans}
    assert {name.split()[0] for name in names} == {"invoke_workflow", "chat"}
    keys = {attribute.key for span in spans for attribute in span.attributes}
    assert {"gen_ai.operation.name", "gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens"} <= keys, keys
    assert len({span.trace_id for span in spans}) == 1
    for body in collector.bodies:
        assert b"hidden" not in body


def test_spans_of_the_command_line(collector: Collector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{collector.server_port}")
    ran = massmem(
        "--config", write_team(tmp_path, script("hidden answer"), telemetry={"otel": True}), "hidden question"
    )
    assert ran.returncode == 0, ran.stderr
    assert sorted(span.name.split()[0] for span in collector.spans()) == ["chat", "invoke_workflow"]
    assert not any(b"hidden" in body for body in collector.bodies)
    assert massmem("--config", write_team(tmp_path, script("hidden answer")), "again").returncode == 0
    assert len(collector.spans()) == 2  # nothing is sent unless it is wanted
