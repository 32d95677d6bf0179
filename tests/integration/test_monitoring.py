"""The small server of each process for metrics and probes."""

import asyncio
import socket
from multiprocessing import Pipe
from pathlib import Path
from typing import cast

import httpx
import pytest
from prometheus_client import CollectorRegistry, Gauge

from api.health import Health
from cli.errors import CommandError
from cli.monitoring import monitored
from cli.processes import api_monitoring
from cli.processes.cell_heartbeats import CellHeartbeats
from cli.processes.neighbours import Neighbour, States, listen_for_questions
from cli.processes.supervising import Inside
from cli.processes.together import Together
from cli.settings import MonitoringSettings
from indexer.stream.liveness import Probe
from listing.safe_connect import SafeConnect
from tests.integration.test_up import free_port
from tests.support.live_api import live_api


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


def test_monitoring_can_be_at_an_ipv6_address() -> None:
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as taken:
        port = taken.getsockname()[1]
    with monitored(MonitoringSettings(host="::1", port=port), CollectorRegistry(), CellHeartbeats()):
        assert httpx.get(f"http://[::1]:{port}/healthz", timeout=60).json() == {"status": "ok"}


def test_nothing_is_served_unless_a_port_is_set() -> None:
    registry = CollectorRegistry()
    with monitored(MonitoringSettings(), registry, CellHeartbeats()):
        assert list(registry.collect()) == []


def test_api_tells_its_monitoring_the_names_that_it_tells_nobody_else(tmp_path: Path) -> None:
    port = free_port()
    with (
        live_api(tmp_path, "--cells", "2", FLEETLIGHT_MONITORING_PORT=str(port)) as api,
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as monitoring,
    ):
        assert set(monitoring.get("/readyz").json()["cells"]) == {"cell1", "cell2"}
        assert monitoring.get("/healthz").json() == {"status": "ok"}
        text = monitoring.get("/metrics").text
        assert 'name="cell2"} 1.0' in text
        assert "\nfleetlight_safe_connect_tripped 0.0\n" in text
        assert "\nprocess_open_fds " in text
        with httpx.Client(base_url=api.url, timeout=60) as public:
            assert public.get("/readyz").json().keys() == {"status"}
            assert "fleetlight_" not in public.get("/metrics").text


def test_application_that_does_not_get_round_to_answering_is_stuck(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(api_monitoring, "PATIENCE_S", 0.1)

    class Silent:
        async def healthz(self) -> Probe:
            await asyncio.Event().wait()
            raise AssertionError

    class Unasked:
        def reset(self) -> None:
            raise AssertionError

    states = States(1)
    states.set_ready(0)
    listener = listen_for_questions(tmp_path / "api")
    neighbour = Neighbour("api", tmp_path / "api", 0, states)
    reports, _ = Pipe()
    inside = Inside(reports, listener, {}, Together([], []))

    async def ask() -> Probe:
        with api_monitoring.answering_of_api(inside, cast("Health", Silent()), cast("SafeConnect", Unasked())):
            return await asyncio.to_thread(neighbour.healthz)

    assert asyncio.run(ask()) == Probe(False, {"status": "stuck"})
