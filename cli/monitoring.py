"""Serves `/metrics`, `/healthz` and `/readyz` of a process at a separate address, since they show names of cells."""

import platform
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import msgspec
import structlog
from prometheus_client import CollectorRegistry, Info, ProcessCollector, make_wsgi_app

from fleetlight.api.http.host_names import ServedHosts
from fleetlight.cli.errors import CommandError
from fleetlight.cli.settings import MonitoringSettings
from fleetlight.cli.watchdog import watched
from fleetlight.indexer.stream.liveness import Probe, Probes

_log = structlog.get_logger(__name__)


@contextmanager
def monitored(settings: MonitoringSettings, registry: CollectorRegistry, probes: Probes) -> Iterator[None]:
    """Serve metrics of `registry` and of the process, and probes, from a thread; also report health to systemd.

    Raises CommandError if the address is not available.
    """
    with watched(probes):
        if settings.port is None:
            yield
            return
        add_process_metrics(registry)
        with served(settings, registry, probes):
            yield


@contextmanager
def served(settings: MonitoringSettings, registry: CollectorRegistry, probes: Probes) -> Iterator[None]:
    """Serve as `monitored` does, at a port that must be set, without metrics of the process. Raises CommandError."""
    if settings.port is None:
        raise ValueError("no port is set")
    is_ipv6 = ":" in settings.host
    kind = _Ipv6Server if is_ipv6 else _Server
    try:
        server = make_server(
            settings.host, settings.port, _application(settings.served_hosts, registry, probes), kind, _SilentHandler
        )
    except OSError as error:
        raise CommandError(
            f"cannot serve metrics on {settings.host}:{settings.port}: {(error.strerror or str(error)).lower()}; "
            "choose another monitoring.port (FLEETLIGHT_MONITORING_PORT)"
        ) from error
    with server:
        thread = threading.Thread(target=server.serve_forever, name="monitoring")
        thread.start()
        host = f"[{settings.host}]" if is_ipv6 else settings.host
        _log.info("monitoring.ready", address=f"http://{host}:{server.server_port}")
        try:
            yield
        finally:
            server.shutdown()
            thread.join()


def add_process_metrics(registry: CollectorRegistry) -> None:
    """Add the metrics that every process has."""
    ProcessCollector(registry=registry)
    build = Info("fleetlight_build", "1 for the version of the program, and that of its Python", registry=registry)
    build.info({"version": version("fleetlight"), "python": platform.python_version()})


def _application(hosts: ServedHosts, registry: CollectorRegistry, probes: Probes) -> Callable[..., Iterable[bytes]]:
    metrics: Callable[..., Iterable[bytes]] = make_wsgi_app(registry)

    def application(environment: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        # The server joins repeated headers by commas, which no host contains.
        asked = [environment["HTTP_HOST"]] if "HTTP_HOST" in environment else []
        if not hosts.serves(asked):
            start_response("421 Misdirected Request", [("Content-Type", "text/plain; charset=utf-8")])
            return [f"{hosts.refusal(asked, 'monitoring.hosts')}\n".encode()]
        match environment["PATH_INFO"]:
            case "/metrics":
                return metrics(environment, start_response)
            case "/healthz":
                return answer(probes.healthz(), start_response)
            case "/readyz":
                return answer(probes.readyz(), start_response)
            case _:
                start_response("404 Not Found", [("Content-Type", "text/plain")])
                return [b"/metrics, /healthz and /readyz are here\n"]

    def answer(probe: Probe, start_response: Callable[..., Any]) -> list[bytes]:
        status = "200 OK" if probe.is_well else "503 Service Unavailable"
        start_response(status, [("Content-Type", "application/json")])
        return [msgspec.json.encode(probe.body)]

    return application


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True  # so that a slow client does not hold up the end of the process


class _Ipv6Server(_Server):
    address_family = socket.AF_INET6


class _SilentHandler(WSGIRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: scrapes every few seconds are no events."""
