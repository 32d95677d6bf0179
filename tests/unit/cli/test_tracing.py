"""The traces of a process: what a collector that does not answer, or a wrong variable, does to it."""

import socket
import threading
from uuid import uuid4

import pytest

from fleetlight.cli.errors import ConfigurationError
from fleetlight.cli.processes import tracing
from fleetlight.cli.processes.tracing import opened_traces
from fleetlight.cli.settings import TracesSettings
from tests.support.waiting import wait_until

ON = TracesSettings(enabled=True)


def senders() -> list[str]:
    """The threads that have spans to send."""
    names = [thread.name for thread in threading.enumerate()]
    return [name for name in names if name.startswith(("traces-flush", "OtelBatch"))]


def test_collector_that_never_answers_holds_up_neither_the_work_nor_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "_FLUSH_S", 0.1)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "1000")
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "1000")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        with opened_traces(ON) as traces:
            assert traces is not None
            for number in range(1000):
                traces.job_ended(f"req-{uuid4()}", "job", number, number, {}, has_failed=False)
            asked, _ = silent.accept()
            # More than the queue takes, while the collector has a request to answer.
            for number in range(2000):
                traces.job_ended(f"req-{uuid4()}", "job", number, number, {}, has_failed=False)
        assert senders(), "what could not be sent is given up"
        asked.close()
    wait_until(lambda: not senders(), timeout_s=30)


def test_variable_of_opentelemetry_that_cannot_be_used_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "-1")
    with (
        pytest.raises(ConfigurationError, match=r"\(OTEL_…\) has a wrong value: schedule_delay_millis"),
        opened_traces(ON),
    ):
        pass


def test_opentelemetry_can_be_disabled_by_its_own_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    with opened_traces(ON) as traces:
        assert traces is not None
        traces.job_ended(f"req-{uuid4()}", "job", 1, 1, {}, has_failed=False)
