"""Sends the traces of a process by OTLP if `traces.enabled` is set; OpenTelemetry is imported only then."""

from collections.abc import Iterator
from concurrent.futures import wait
from contextlib import contextmanager
from typing import TYPE_CHECKING

from fleetlight.cells.daemon_threads import in_background
from fleetlight.cli.errors import ConfigurationError
from fleetlight.cli.settings import TracesSettings

if TYPE_CHECKING:
    from fleetlight.bus.traces import Traces

# Time for spans that were not sent yet: a collector that is down does not hold up the end of a process.
_FLUSH_S = 2.0


@contextmanager
def opened_traces(settings: TracesSettings) -> Iterator["Traces | None"]:
    """Open what makes the process's spans, for the block; None if traces are off.

    Spans wait in a bounded queue for a thread that sends them; what does not fit is dropped. Raises ConfigurationError
    if a variable of OpenTelemetry has an invalid value.
    """
    if not settings.enabled:
        yield None
        return
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415 -- an extra
    from opentelemetry.sdk.resources import SERVICE_NAME, OTELResourceDetector, Resource  # noqa: PLC0415 -- an extra
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415 -- an extra
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415 -- an extra

    from fleetlight.bus.traces import GivenIds, Traces  # noqa: PLC0415 -- imports an extra

    ids = GivenIds()
    resource = Resource({SERVICE_NAME: "fleetlight"}).merge(OTELResourceDetector().detect())
    try:
        provider = TracerProvider(resource=resource, id_generator=ids, shutdown_on_exit=False)
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    except ValueError as error:
        raise ConfigurationError(f"traces: a variable of OpenTelemetry (OTEL_…) has a wrong value: {error}") from error
    try:
        yield Traces(provider, ids)
    finally:
        wait([in_background(provider.shutdown, "traces-flush")], _FLUSH_S)
