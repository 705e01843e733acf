"""The tracer of the process, when spans are wanted."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager

from massmem.config.models import AgentConfig
from massmem.errors import InputError
from massmem.telemetry.spans import Tracer


@contextmanager
def opened_tracer(agents: Mapping[str, AgentConfig], *, enabled: bool) -> Generator[Tracer]:
    """Spans are sent in the background, where the usual OTEL_EXPORTER_OTLP_* variables say; the last ones at the end.

    Raises InputError when the extra `otel` is not installed.
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
