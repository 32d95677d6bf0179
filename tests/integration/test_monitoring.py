"""The small server of processes that have no API."""

import socket

import httpx
import pytest
from prometheus_client import CollectorRegistry, Gauge

from cli.errors import CommandError
from cli.monitoring import monitored
from cli.processes.cell_heartbeats import CellHeartbeats
from cli.settings import MonitoringSettings
from indexer.stream.liveness import Probe
from tests.integration.test_up import free_port


def test_metrics_and_health_are_served_while_it_runs() -> None:
    registry = CollectorRegistry()
    Gauge("fleetlight_example", "An example", registry=registry).set(7)
    port = free_port()
    with (
        monitored(MonitoringSettings(port=port), registry, CellHeartbeats()),
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as http,
    ):
        assert "\nfleetlight_example 7.0\n" in http.get("/metrics").text
        assert http.get("/healthz").json() == {"status": "ok"}
        assert http.get("/readyz").json() == {"status": "ok"}
        assert http.get("/").status_code == 404
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))


def test_probes_that_fail_answer_503_and_say_why() -> None:
    class Probes:
        def healthz(self) -> Probe:
            return Probe(False, {"status": "stuck", "cells": ["one"]})

        def readyz(self) -> Probe:
            return Probe(True, {"status": "degraded"})

    port = free_port()
    with (
        monitored(MonitoringSettings(port=port), CollectorRegistry(), Probes()),
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as http,
    ):
        answer = http.get("/healthz")
        assert (answer.status_code, answer.json()) == (503, {"status": "stuck", "cells": ["one"]})
        assert http.get("/readyz").status_code == 200


def test_taken_port_is_a_clear_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with (
            pytest.raises(CommandError, match=rf"cannot serve metrics on 127.0.0.1:{port}: address already in use"),
            monitored(MonitoringSettings(port=port), CollectorRegistry(), CellHeartbeats()),
        ):
            pass


def test_nothing_is_served_unless_a_port_is_set() -> None:
    registry = CollectorRegistry()
    with monitored(MonitoringSettings(), registry, CellHeartbeats()):
        assert list(registry.collect()) == []
