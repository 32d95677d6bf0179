"""Traces as users switch them on: `fleetlight up` sends spans to a collector; read by OpenTelemetry's own types."""

import subprocess
import sys
from collections.abc import Iterator, Mapping
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.integration.test_up import Up, up
from tests.support.serving import QuietHandler, serving
from tests.support.waiting import wait_until

__all__ = ["up"]

pytestmark = pytest.mark.timeout(240)


class Collector:
    """Takes spans by OTLP over HTTP, as a collector does."""

    def __init__(self) -> None:
        self.requests: list[ExportTraceServiceRequest] = []
        requests = self.requests

        class Handler(QuietHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.path == "/v1/traces":
                    requests.append(ExportTraceServiceRequest.FromString(body))
                self.answer(200)

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    def trace(self, trace_id: str) -> list[Span]:
        """Its spans in the order in which they began."""
        spans = [
            span
            for request in list(self.requests)
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]
        return sorted(
            (span for span in spans if span.trace_id.hex() == trace_id), key=lambda span: span.start_time_unix_nano
        )


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    """A collector that processes started in the test send their spans to."""
    made = Collector()
    with serving(made.server) as address:
        monkeypatch.setenv("FLEETLIGHT_TRACES_ENABLED", "true")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://{address}")
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
        yield made


def attributes(span: Span) -> Mapping[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in span.attributes}


def test_an_operation_is_one_trace_from_its_answer_to_where_lists_find_it(up: Up, collector: Collector) -> None:
    up.start("--simulate", "--instances", "3", "--rate", "0")
    wait_until(lambda: any(row["status"] == "ACTIVE" for row in rows(up)), timeout_s=30)
    server = next(row["id"] for row in rows(up) if row["status"] == "ACTIVE")
    caller = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    stopped = up.http.post(f"/v2.1/servers/{server}/action", json={"os-stop": None}, headers={"traceparent": caller})
    assert stopped.status_code == 202
    request_id = stopped.headers["X-Openstack-Request-Id"]
    trace_id = request_id.removeprefix("req-").replace("-", "")
    wait_until(lambda: len([span for span in collector.trace(trace_id) if span.name == "index"]) == 3, timeout_s=20)

    spans = collector.trace(trace_id)
    [answer] = [span for span in spans if not span.parent_span_id]
    assert answer.name == "POST /v2.1/servers/{server_id}/action"
    assert [(link.trace_id.hex(), link.span_id.hex()) for link in answer.links] == [tuple(caller.split("-")[1:3])]
    assert attributes(answer)["fleetlight.request_id"] == request_id
    assert attributes(answer)["fleetlight.token"] == stopped.headers["Fleetlight-Token"]
    [job] = [span for span in spans if span.name == "job os-stop"]
    published = [span for span in spans if span.name == "publish"]
    indexed = [span for span in spans if span.name == "index"]
    assert len(spans) == 2 + len(published) + len(indexed)
    assert {span.parent_span_id for span in (job, *published)} == {answer.span_id}
    for sent, found in zip(published, indexed, strict=True):
        assert found.parent_span_id == sent.span_id
        assert attributes(found)["fleetlight.instance"] == attributes(sent)["fleetlight.instance"] == server
        assert attributes(found)["fleetlight.sequence"] == attributes(sent)["fleetlight.sequence"]
        [written] = found.events
        assert (
            attributes(sent)["fleetlight.outbox_wait_ms"] <= (sent.end_time_unix_nano - sent.start_time_unix_nano) / 1e6
        )
        assert answer.start_time_unix_nano <= sent.start_time_unix_nano <= found.start_time_unix_nano
        assert found.start_time_unix_nano <= written.time_unix_nano <= found.end_time_unix_nano

    listed = up.http.get(
        "/v2.1/servers", headers={"Fleetlight-Consistency": f"at-least {stopped.headers['Fleetlight-Token']}"}
    )
    list_trace = listed.headers["X-Openstack-Request-Id"].removeprefix("req-").replace("-", "")
    wait_until(lambda: collector.trace(list_trace), timeout_s=20)
    [of_list] = collector.trace(list_trace)
    assert attributes(of_list)["fleetlight.consistency"].endswith(stopped.headers["Fleetlight-Token"])
    assert attributes(of_list)["fleetlight.complete"] == "true"
    assert up.stop() == 0


def rows(up: Up) -> list[Any]:
    found: list[Any] = up.http.get("/v2.1/servers/detail", params={"all_tenants": 1}).json()["servers"]
    return found


def test_opentelemetry_is_not_imported_while_traces_are_off(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "from fleetlight.cli.processes import processes, serving, tracing\n"
        "from fleetlight.manager.commands import up, worker\n"
        "from fleetlight.cli.settings import TracesSettings\n"
        "with tracing.opened_traces(TracesSettings()) as traces: assert traces is None\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("[]\n", "")
