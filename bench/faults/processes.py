"""The followers of cells while something breaks: production's own processes, or its parts in threads of this one.

Only what is to be killed has to be a process; starting one costs seconds.
"""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Protocol

from prometheus_client import CollectorRegistry

from bench.faults.world import World
from fleetlight.bus.bus import Publisher
from fleetlight.cells.database.engines import create_database_engine
from fleetlight.cells.fleet.cell_keys import Keyring
from fleetlight.cells.kinds.native.relay import Publishes, Relay
from fleetlight.cells.model import Cell
from fleetlight.cli.errors import INTERRUPTED
from fleetlight.cli.fleet import open_fleet
from fleetlight.cli.processes.following import keep_indexing
from fleetlight.indexer.metrics import IndexerMetrics
from fleetlight.resources.clock import Clock, system_clock

_STOP_S = 300
"""With threads and connections for 1,000 cells."""


class Closes(Publishes, Protocol):
    """A publisher that can be closed."""

    def close(self) -> None: ...


class Daemon:
    """One process of `fleetlight`, which can be killed and started again."""

    def __init__(self, command: str, config: Path, log: Path, environment: Mapping[str, str] | None = None) -> None:
        self._command = [sys.executable, "-m", "fleetlight.cli", *command.split(), "--config", str(config)]
        self._log = log
        self._environment = {**os.environ, **(environment or {})}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log, env=self._environment)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        """SIGKILL; raises AssertionError if it has ended by itself."""
        assert self._process is not None
        assert self._process.poll() is None, f"it ended by itself: {self._log.read_text()[-3000:]}"
        self._process.kill()
        self._process.wait(timeout=60)

    def hang(self) -> None:
        """SIGSTOP: it does nothing any more, and its connections stay open."""
        os.kill(self.pid, signal.SIGSTOP)

    def wake(self) -> None:
        """SIGCONT, after `hang`."""
        os.kill(self.pid, signal.SIGCONT)

    def end(self) -> None:
        """SIGKILL, unless it has ended."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(timeout=60)

    def wait(self, timeout_s: float) -> int:
        """The exit code that it ends with by itself."""
        assert self._process is not None
        return self._process.wait(timeout=timeout_s)

    def terminate(self) -> None:
        """SIGTERM; returns at once."""
        assert self._process is not None
        self._process.terminate()

    def stop(self) -> None:
        """SIGTERM, after which it has to finish and to say that all is well; or that it had not begun yet."""
        assert self._process is not None
        self.terminate()
        status = self._process.wait(timeout=_STOP_S)
        said = self._log.read_text()
        assert status == 0 or (status == INTERRUPTED and "started" not in said), f"exit code {status}: {said[-3000:]}"


@contextmanager
def daemon(world: World, command: str, folder: Path, environment: Mapping[str, str] | None = None) -> Iterator[Daemon]:
    process = Daemon(command, world.config, folder / f"{command.partition(' ')[0]}.log", environment)
    process.start()
    try:
        yield process
    except BaseException:
        process.end()
        raise
    process.stop()


def _unchanged(_cell: Cell, publisher: Closes) -> Closes:
    return publisher


@contextmanager
def relays(
    world: World, *, change: Callable[[Cell, Closes], Closes] = _unchanged, clock: Clock = system_clock
) -> Iterator[None]:
    """A relay for each cell, in threads. change: what to put between a relay and its bus. clock: of the relays."""
    settings = world.settings
    keys = Keyring(world.fleet.cell_keys)
    with ExitStack() as stack:
        for cell in world.fleet.cells():
            engine = create_database_engine(cell.database_url)
            stack.callback(engine.dispose)
            publisher = change(cell, Publisher(cell.transport_url, cell.uuid, settings.bus))
            stack.callback(publisher.close)
            relay = Relay(engine, cell, publisher, settings.relay, clock, sign=partial(keys.sign, cell.uuid))
            stack.enter_context(in_thread(relay.run))
        yield


@contextmanager
def indexer(world: World) -> Iterator[None]:
    """An indexer of all cells, in threads."""
    settings = world.settings
    with open_fleet(settings.fleet) as fleet:

        def run(stop: threading.Event) -> None:
            keep_indexing(settings, fleet, IndexerMetrics(CollectorRegistry()), stop)

        with in_thread(run):
            yield


@contextmanager
def in_thread(run: Callable[[threading.Event], object]) -> Iterator[None]:
    """`run` beside what is done meanwhile. run: until the event is set."""
    stop = threading.Event()
    with ThreadPoolExecutor(1) as threads:
        done = threads.submit(run, stop)
        try:
            yield
        finally:
            stop.set()
        done.result(timeout=60)
