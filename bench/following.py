"""Part of `scripts/bench ingest`: how soon a committed change can be found, and what memory the indexer needs for it.

Production's own relay and indexer, eight cells, 200 changes a second. A change counts as searchable when the progress
that covers it has been saved, which the indexer does after it made the index searchable: so it can be found a little
earlier.
"""

import os
import random
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

from sqlalchemy import select

from bench.faults.processes import Daemon, daemon
from bench.faults.world import Servers, World, new_world
from bench.measure import Figure, at_most, figure
from cells.clock import system_clock
from cells.tables import changes
from indexer.backends import open_writer
from indexer.backends.base import IndexWriter
from indexer.errors import IndexUnavailableError
from tests.support.waiting import wait_until

_RATE = 200.0
_PER_CELL = 50
_POLL_S = 0.01
_MICROSECONDS = 1e6


def run(directory: Path, quick: bool) -> Iterator[Figure]:
    """quick: seconds instead of minutes. Nothing without the URLs of both servers."""
    amqp_url = os.environ.get("FLEETLIGHT_TEST_AMQP_URL")
    elasticsearch_url = os.environ.get("FLEETLIGHT_TEST_ELASTICSEARCH_URL")
    if not amqp_url or not elasticsearch_url:
        return
    with ExitStack() as stack:
        world = stack.enter_context(new_world(directory, Servers(elasticsearch_url, amqp_url)))
        stack.enter_context(daemon(world, "relay", directory))
        indexer = stack.enter_context(daemon(world, "indexer", directory))
        settings = world.settings.index.model_copy(update={"urls": (elasticsearch_url,)})
        writer = stack.enter_context(closing(open_writer(settings)))
        load = _Load(world)
        _wait_until_current(world, writer)
        yield from _latencies(world, writer, load, 10 if quick else 120, settings.refresh_interval_s)
        before_mib = _memory_mib(indexer)
        load.run(5 if quick else 300)
        _wait_until_current(world, writer)
        yield _growth("ingest.memory.messages", before_mib, _memory_mib(indexer), f"after {load.count} changes")
        before_mib = _memory_mib(indexer)
        world.proxies["elasticsearch"].cut()
        away_s = 10 if quick else 600
        load.run(away_s)
        after_mib = _memory_mib(indexer)
        world.proxies["elasticsearch"].restore()
        _wait_until_current(world, writer)
        yield _growth("ingest.memory.index_away", before_mib, after_mib, f"with the index away for {away_s} s")


class _Load:
    """Changes at a steady rate, whatever becomes of them. count: how many there were."""

    def __init__(self, world: World) -> None:
        self._random = random.Random(1)
        self._cells = world.operations(system_clock)
        self._instances = [
            (cell, changed.uuid)
            for cell in self._cells
            for changed in cell.create_many([{"display_name": f"instance {number}"} for number in range(_PER_CELL)])
        ]
        self.count = 0

    def run(self, seconds: float) -> None:
        pause = threading.Event()
        due = begun = time.monotonic()
        while due < begun + seconds:
            pause.wait(max(0.0, due - time.monotonic()))
            cell, uuid = self._random.choice(self._instances)
            cell.update(uuid, {"display_name": f"renamed {self.count}"})
            self.count += 1
            due += 1 / _RATE


def _latencies(
    world: World, writer: IndexWriter, load: _Load, seconds: float, refresh_interval_s: float
) -> Iterator[Figure]:
    seen = _Watch(world, writer)
    first = {cell.uuid: watermark for cell, watermark in zip(world.cells, _published(world), strict=True)}
    begun = time.monotonic()
    load.run(seconds)
    rate = load.count / (time.monotonic() - begun)
    _wait_until_current(world, writer)
    seen.stop()
    waits = sorted(seen.waits_s(first))
    for name, share in (("p50", 0.5), ("p99", 0.99), ("p99_9", 0.999)):
        wait_s = waits[min(len(waits) - 1, int(len(waits) * share))]
        yield figure(
            f"ingest.latency.{name}",
            wait_s / refresh_interval_s,
            "refresh intervals",
            f"{wait_s * 1000:,.0f} ms from commit to searchable, {len(waits)} changes at {rate:,.0f}/s in 8 cells, "
            f"made searchable every {refresh_interval_s:g} s",
            runs=1,
            goal=at_most(1.2) if name == "p50" else None,
        )


class _Watch:
    """Notes when the index gets how far in each cell."""

    def __init__(self, world: World, writer: IndexWriter) -> None:
        self._world = world
        self._writer = writer
        self._moments: dict[str, list[tuple[int, int]]] = {cell.uuid: [] for cell in world.cells}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def waits_s(self, first: dict[str, int]) -> Iterator[float]:
        """Of each change after the sequences in `first`: seconds from its commit until it was seen."""
        columns = changes.c
        for cell in self._world.cells:
            moments = iter(self._moments[cell.uuid])
            reached, at = next(moments)
            statement = select(columns.sequence, columns.committed_at).where(columns.sequence > first[cell.uuid])
            with self._world.engines[cell.name].connect() as connection:
                for sequence, committed_at in connection.execute(statement.order_by(columns.sequence)):
                    while reached < sequence:
                        reached, at = next(moments)
                    yield (at - committed_at) / _MICROSECONDS

    def _watch(self) -> None:
        while not self._stop.wait(_POLL_S):
            for uuid, progress in self._writer.load_progress().items():
                moments = self._moments.get(uuid)
                if moments is not None and (not moments or moments[-1][0] < progress.watermark):
                    moments.append((progress.watermark, system_clock()))


def _published(world: World) -> list[int]:
    published = []
    for cell in world.cells:
        with world.engines[cell.name].connect() as connection:
            last = select(changes.c.sequence).order_by(changes.c.sequence.desc()).limit(1)
            published.append(connection.execute(last.where(changes.c.sequence.is_not(None))).scalar() or 0)
    return published


def _wait_until_current(world: World, writer: IndexWriter) -> None:
    def is_current() -> bool:
        try:
            progress = writer.load_progress()
        except IndexUnavailableError:
            return False  # it is not prepared yet
        if world.unpublished():
            return False
        return all(
            cell.uuid in progress and progress[cell.uuid].watermark >= published
            for cell, published in zip(world.cells, _published(world), strict=True)
        )

    wait_until(is_current, timeout_s=600)


def _memory_mib(process: Daemon) -> float:
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


def _growth(name: str, before_mib: float, after_mib: float, what: str) -> Figure:
    text = f"resident memory of the indexer: {before_mib:,.0f} MiB, {after_mib:,.0f} MiB {what}"
    return figure(name, after_mib / before_mib, "ratio", text, runs=1, goal=at_most(1.2))
