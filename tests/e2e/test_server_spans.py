"""Spans of turns reach a collector (OTLP over HTTP), and carry nothing that was said, nor whose it was."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.support.service import Service, agent, team


class Collector(HTTPServer):
    """Takes what is exported, on a loopback port."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.bodies: list[bytes] = []


class _Handler(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/v1/traces":
            self.server.bodies.append(body)
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_arguments: object) -> None:
        pass


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_spans(collector: Collector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{collector.server_port}")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "none")
    config = team(agent("ann", "hidden answer"), agent("bob", "another"), telemetry={"otel": True})
    service = Service(tmp_path, config).start()
    try:
        assert service.as_("hidden-user").chat("hidden question", "hidden-session").status_code == 200
    finally:
        assert service.stop() == 0  # the last spans are sent before it ends
    spans = [
        span
        for body in collector.bodies
        for of_resource in ExportTraceServiceRequest.FromString(body).resource_spans
        for of_scope in of_resource.scope_spans
        for span in of_scope.spans
    ]
    names = {span.name for span in spans}
    assert {name.split()[0] for name in names} == {"invoke_workflow", "chat"}
    keys = {attribute.key for span in spans for attribute in span.attributes}
    assert {"gen_ai.operation.name", "gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens"} <= keys, keys
    assert len({span.trace_id for span in spans}) == 1
    for body in collector.bodies:
        assert b"hidden" not in body
