"""What is asked of an API beside requests: threads put their questions to the event loop of the application."""

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import AbstractContextManager
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.registry import Collector

from api.health import Health
from cli.processes.neighbours import PATIENCE_S
from cli.processes.supervising import Inside
from cli.processes.together import RESET_SAFE_CONNECT
from indexer.stream.liveness import Probe
from listing.safe_connect import SafeConnect

T = TypeVar("T")


def answering_of_api(inside: Inside, health: Health, safe_connect: SafeConnect) -> AbstractContextManager[None]:
    """Answer the questions of the other processes about the application whose event loop this is called in."""
    loop = asyncio.get_running_loop()
    registry = CollectorRegistry()
    registry.register(_Measured(health, loop))

    def reset_safe_connect() -> None:
        loop.call_soon_threadsafe(safe_connect.reset)

    return inside.answering(registry, _ApiProbes(health, loop), {RESET_SAFE_CONNECT: reset_safe_connect})


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
        return answer.result(PATIENCE_S)
    finally:
        answer.cancel()
