"""The small server of each process for metrics and probes."""

import asyncio
import socket
from collections.abc import Callable
from multiprocessing import Pipe
from pathlib import Path
from types import SimpleNamespace
from typing import TypeVar, cast

import httpx
import pytest
from prometheus_client import CollectorRegistry, Gauge

from fleetlight.api.health import Health
from fleetlight.cli.errors import CommandError
from fleetlight.cli.monitoring import monitored
from fleetlight.cli.processes import api_monitoring
from fleetlight.cli.processes.cell_heartbeats import CellHeartbeats
from fleetlight.cli.processes.command_probes import CommandProbes
from fleetlight.cli.processes.sibling_processes import SiblingProcess, States, listen_for_requests
from fleetlight.cli.processes.supervising import ChildContext
from fleetlight.cli.settings import MonitoringSettings
from fleetlight.indexer.stream.liveness import ALIVE, Probe
from fleetlight.listing.safe_connect import SafeConnect
from tests.integration.test_up import free_port
from tests.support.loopback import get
from tests.support.servers.live_api import live_api

T = TypeVar("T")


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


def test_monitoring_is_not_for_pages_whose_name_was_bound_to_its_address() -> None:
    port = free_port()
    with monitored(MonitoringSettings(port=port), CollectorRegistry(), CellHeartbeats()):
        for path in ("/metrics", "/healthz", "/readyz", "/"):
            refused = get(f"http://127.0.0.1:{port}{path}", headers={"Host": "evil.example"})
            assert (refused.status_code, "monitoring.hosts" in refused.text) == (421, True)


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
        assert get(f"http://[::1]:{port}/healthz").json() == {"status": "ok"}


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
        for url in (api.url, f"http://127.0.0.1:{port}"):
            assert get(f"{url}/readyz", headers={"Host": "evil.example"}).status_code == 421


class Ready:
    """The health of an application that is ready."""

    metrics = SimpleNamespace(registries=())

    async def readyz(self) -> Probe:
        return Probe(True, {"status": "ready"})

    async def measure(self) -> None: ...


class Unasked:
    def reset(self) -> None:
        raise AssertionError


def asked_while_the_loop_is_busy(folder: Path, *questions: Callable[[SiblingProcess], T]) -> list[T]:
    """The answers to questions that come while the event loop does something else, after it was asked once."""
    states = States(1)
    states.set_ready(0)
    listener = listen_for_requests(folder / "api")
    sibling = SiblingProcess("api", folder / "api", 0, states)
    reports, _ = Pipe()
    context = ChildContext(reports, listener, {}, CommandProbes([], []))

    async def ask() -> list[T]:
        with api_monitoring.answering_of_api(context, cast("Health", Ready()), cast("SafeConnect", Unasked())):
            await asyncio.to_thread(sibling.readyz)
            # Waiting for them here keeps the loop.
            return [question(sibling) for question in questions]

    return asyncio.run(ask())


def test_probes_and_metrics_are_answered_while_the_application_is_busy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(api_monitoring, "_TIMEOUT_S", 0.2)
    alive, ready = asked_while_the_loop_is_busy(tmp_path, SiblingProcess.healthz, SiblingProcess.readyz)
    assert alive == ALIVE
    assert (ready.is_well, ready.body["status"], set(ready.body)) == (True, "ready", {"status", "busy_s"})


def test_metrics_are_told_while_the_application_is_busy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(api_monitoring, "_TIMEOUT_S", 0.2)
    (measured,) = asked_while_the_loop_is_busy(tmp_path, SiblingProcess.measured)
    assert measured is not None


def test_application_that_does_not_come_round_for_long_is_stuck(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(api_monitoring, "_LIVES_WITHIN_S", 0.1)
    monkeypatch.setattr(api_monitoring, "_PULSE_INTERVAL_S", 0.01)
    answers = asked_while_the_loop_is_busy(tmp_path, SiblingProcess.readyz, SiblingProcess.healthz)
    assert answers == [Probe(False, {"status": "stuck"})] * 2
