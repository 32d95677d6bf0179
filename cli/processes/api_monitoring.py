"""Probes and metrics of an API process, answered by threads even while the application's event loop is busy.

A thread waits a moment for the loop's answer, then gives the last known state. An application counts as dead only if
its loop has not run for long.
"""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.registry import Collector

from fleetlight.api.health import Health
from fleetlight.cli.processes.command_probes import RESET_SAFE_CONNECT
from fleetlight.cli.processes.supervising import ChildContext
from fleetlight.indexer.stream.liveness import ALIVE, Probe
from fleetlight.listing.safe_connect import SafeConnect

_PULSE_INTERVAL_S = 0.5
# Less than other processes wait for an answer (fleetlight.cli.processes.sibling_processes).
_LIVES_WITHIN_S = 25.0
_TIMEOUT_S = 1.0
_SLICE_S = 0.1


@contextmanager
def answering_of_api(context: ChildContext, health: Health, safe_connect: SafeConnect) -> Iterator[None]:
    """Answer other processes' requests about the application that runs in this event loop."""
    loop = asyncio.get_running_loop()
    registry = CollectorRegistry()
    registry.register(_Measured(health, loop))

    def reset_safe_connect() -> None:
        loop.call_soon_threadsafe(safe_connect.reset)

    pulse = Pulse(loop)
    try:
        with context.answering(registry, ApiProbes(health, loop, pulse), {RESET_SAFE_CONNECT: reset_safe_connect}):
            yield
    finally:
        pulse.end()


class Pulse:
    """Records when an event loop last ran. It is created and ended in the loop; any thread may read it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._come_round()

    @property
    def silent_s(self) -> float:
        return time.monotonic() - self._came_round_at

    def end(self) -> None:
        self._next.cancel()

    def _come_round(self) -> None:
        self._came_round_at = time.monotonic()
        self._next = self._loop.call_later(_PULSE_INTERVAL_S, self._come_round)


class ApiProbes:
    """The probes of an application, for use by threads outside its event loop."""

    def __init__(self, health: Health, loop: asyncio.AbstractEventLoop, pulse: Pulse) -> None:
        self._health = health
        self._loop = loop
        self._pulse = pulse
        self._seen: Probe | None = None

    def healthz(self) -> Probe:
        """Whether this process lives; the command's health combines that of all its processes."""
        return ALIVE if self._lives() else Probe(False, {"status": "stuck"})

    def readyz(self) -> Probe:
        """The current state or, if the loop is busy, the last known one, with how long it has not run (`busy_s`)."""
        began = time.monotonic()
        looking = asyncio.run_coroutine_threadsafe(self._look(), self._loop)
        while self._lives() and time.monotonic() - began < _LIVES_WITHIN_S:
            with suppress(TimeoutError):
                return looking.result(_SLICE_S)
            if self._seen is not None and time.monotonic() - began > _TIMEOUT_S:
                return Probe(self._seen.is_well, {**self._seen.body, "busy_s": round(self._pulse.silent_s, 1)})
        looking.cancel()
        return Probe(False, {"status": "stuck"})

    async def _look(self) -> Probe:
        self._seen = await self._health.readyz()
        return self._seen

    def _lives(self) -> bool:
        return self._pulse.silent_s < _LIVES_WITHIN_S


class _Measured(Collector):
    """The metrics of an application, updated at each request unless its loop is busy."""

    def __init__(self, health: Health, loop: asyncio.AbstractEventLoop) -> None:
        self._health = health
        self._loop = loop

    def collect(self) -> Iterator[Metric]:
        measuring = asyncio.run_coroutine_threadsafe(self._health.measure(), self._loop)
        try:
            measuring.result(_TIMEOUT_S)
        except TimeoutError:
            measuring.cancel()
        for registry in self._health.metrics.registries:
            yield from registry.collect()
