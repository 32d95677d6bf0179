"""Traces whose spans stay in memory."""

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ParentBasedTraceIdRatio

from fleetlight.bus.traces import GivenIds, Traces


class RecordedTraces:
    """traces: what makes spans, of such a part of all requests. spans: those that were made, in that order."""

    def __init__(self, ratio: float = 1.0) -> None:
        self._kept = InMemorySpanExporter()
        ids = GivenIds()
        provider = TracerProvider(ParentBasedTraceIdRatio(ratio), id_generator=ids, shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self._kept))
        self.traces = Traces(provider, ids)

    @property
    def spans(self) -> list[ReadableSpan]:
        return list(self._kept.get_finished_spans())


def times(span: ReadableSpan) -> tuple[int, int]:
    """When it began and ended, in microseconds."""
    assert span.start_time is not None
    assert span.end_time is not None
    return span.start_time // 1000, span.end_time // 1000
