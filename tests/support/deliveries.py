"""A receiver of webhooks, and deliverers, in threads of the test's own process."""

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event, Thread
from typing import Any

from aiohttp import web
from cloudevents.core.base import BaseCloudEvent
from cloudevents.core.bindings.http import HTTPMessage, from_http
from cloudevents.core.formats.json import JSONFormat
from prometheus_client import CollectorRegistry

from fleetlight.cells.database.engines import create_database_engine
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cli.processes.delivering import run_deliverer
from fleetlight.cli.settings import Settings
from fleetlight.delivery.metrics import DelivererMetrics
from fleetlight.delivery.pace import Waits
from tests.support.waiting import wait_until

QUICK = Waits(first_s=0.01, most_s=0.05)


@dataclass(frozen=True)
class Received:
    """A request as it came, and the event in it, read by the library of CloudEvents."""

    path: str
    headers: Mapping[str, str]
    body: bytes
    event: BaseCloudEvent

    @property
    def type(self) -> str:
        return self.event.get_type()

    @property
    def id(self) -> str:
        return self.event.get_id()

    @property
    def data(self) -> Any:
        return self.event.get_data()


Answer = Callable[[Received], web.StreamResponse | int | None]


class Receiver:
    """url: where it listens. answer: the status, or the answer, for a request; None lets it wait for `release`."""

    def __init__(self) -> None:
        self.received: list[Received] = []
        self.answer: Answer = lambda _: 204
        self.url = ""
        self._loop = asyncio.new_event_loop()
        self._released = asyncio.Event()
        self._ready = Event()
        self._thread = Thread(target=self._serve, daemon=True)
        self._thread.start()
        self._ready.wait()

    def events(self, path: str) -> Sequence[Received]:
        return [each for each in list(self.received) if each.path == path]

    def changes(self, path: str) -> Sequence[Received]:
        return [each for each in self.events(path) if ".instance." in each.type]

    def wait_for(self, path: str, count: int) -> Sequence[Received]:
        """The changes at a path, once there are so many."""
        return wait_until(lambda: found if len(found := self.changes(path)) >= count else [])

    def wait_for_type(self, path: str, name: str) -> Received:
        wanted = f"fleetlight.{name}"
        return wait_until(lambda: [each for each in self.events(path) if each.type == wanted])[0]

    def release(self) -> None:
        """Let requests that hang be answered."""
        self._loop.call_soon_threadsafe(self._released.set)

    def close(self) -> None:
        self.release()
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def _serve(self) -> None:
        self._loop.run_until_complete(self._run())
        self._loop.close()

    async def _run(self) -> None:
        self._stop = asyncio.Event()
        application = web.Application()
        application.router.add_post("/{name:.*}", self._handle)
        runner = web.AppRunner(application, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        self.url = f"http://127.0.0.1:{port}"
        self._ready.set()
        await self._stop.wait()
        await runner.cleanup()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        headers = {name.lower(): value for name, value in request.headers.items()}
        event = from_http(HTTPMessage(headers, body), JSONFormat())
        received = Received(request.path, headers, body, event)
        self.received.append(received)
        answer = self.answer(received)
        if answer is None:
            await self._released.wait()
            answer = 204
        return web.Response(status=answer) if isinstance(answer, int) else answer


@contextmanager
def receiving() -> Iterator[Receiver]:
    receiver = Receiver()
    try:
        yield receiver
    finally:
        receiver.close()


class RunningDeliverer:
    """fleet: as the deliverer has it, which a test may let fail. registry: of its metrics."""

    def __init__(self, url: str, **sections: Any) -> None:
        delivery = {"allowed_networks": ["127.0.0.0/8"], "allow_unencrypted": True, "max_attempts": 3}
        sections = {"delivery": delivery, **sections}
        settings = Settings(fleet={"database_url": url}, **sections)
        self.fleet = Fleet(create_database_engine(url))
        self.registry = CollectorRegistry()
        self._stop = threading.Event()
        self._failure: BaseException | None = None
        metrics = DelivererMetrics(self.registry)

        def run() -> None:
            try:
                run_deliverer(settings, self.fleet, metrics, self._stop, waits=QUICK)
            except BaseException as error:  # noqa: BLE001  # it is raised in the test
                self._failure = error

        self._thread = Thread(target=run, daemon=True)
        self._thread.start()

    def metric(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(name, labels)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(30)
        assert not self._thread.is_alive()
        self.fleet.close()
        if self._failure is not None:
            raise self._failure


@contextmanager
def delivering(url: str, **sections: Any) -> Iterator[RunningDeliverer]:
    """A deliverer of the fleet in the database at `url`. sections: of its settings."""
    running = RunningDeliverer(url, **sections)
    try:
        yield running
    finally:
        running.stop()
