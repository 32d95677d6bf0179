"""What the monitoring of an API asks: its threads put their questions to the event loop of the application."""

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.registry import Collector

from api.health import Health
from cli.monitoring import monitored
from cli.settings import MonitoringSettings
from indexer.stream.liveness import Probe

T = TypeVar("T")
_PATIENCE_S = 30.0


@contextmanager
def monitored_api(settings: MonitoringSettings, health: Health) -> Iterator[None]:
    """Serve the metrics and probes of the application whose event loop this is called in.

    Raises CommandError when the address cannot be had.
    """
    loop = asyncio.get_running_loop()
    registry = CollectorRegistry()
    registry.register(_Measured(health, loop))
    with monitored(settings, registry, _ApiProbes(health, loop)):
        yield


class _ApiProbes:
    """The probes of an application; one whose event loop does not get round to answering does not live."""

    def __init__(self, health: Health, loop: asyncio.AbstractEventLoop) -> None:
        self._health = health
        self._loop = loop

    def healthz(self) -> Probe:
        return self._answered(self._health.healthz())

    def readyz(self) -> Probe:
        return self._answered(self._health.readyz())

    def _answered(self, question: Coroutine[Any, Any, Probe]) -> Probe:
        try:
            return _asked(self._loop, question)
        except TimeoutError:
            return Probe(False, {"status": "stuck"})


class _Measured(Collector):
    """The metrics of an application, brought up to date when they are asked for."""

    def __init__(self, health: Health, loop: asyncio.AbstractEventLoop) -> None:
        self._health = health
        self._loop = loop

    def collect(self) -> Iterator[Metric]:
        _asked(self._loop, self._health.measure())
        for registry in self._health.metrics.registries:
            yield from registry.collect()


def _asked(loop: asyncio.AbstractEventLoop, question: Coroutine[Any, Any, T]) -> T:
    """Raises TimeoutError."""
    answer = asyncio.run_coroutine_threadsafe(question, loop)
    try:
        return answer.result(_PATIENCE_S)
    finally:
        answer.cancel()
