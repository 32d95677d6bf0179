"""What cells cost in which nothing happens: in one `fleetlight up`, and in a relay, a worker and an indexer for all."""

import asyncio
import statistics
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path

import httpx

from bench.faults.processes import Daemon, daemon
from bench.faults.run import Supply
from bench.faults.world import Servers, World, new_world
from bench.measure import Figure, figure, seconds
from bench.process_tree import memory_mib, open_things, processor_shares
from fleetlight.indexer.backends.base import IndexWriter
from fleetlight.indexer.backends.opening import open_searcher, open_writer
from fleetlight.indexer.errors import IndexerError
from fleetlight.resources.clock import system_clock
from scripts.servers.process import free_port
from tests.support.waiting import wait_until

_START_S = 900.0
_ROUNDS = 15
# What two processors carry that have all servers, too.
_HEARTBEATS_PER_S = 200
UP_AT_MOST = 200
"""Cells of one `fleetlight up`."""


def in_one_command(directory: Path, count: int, window_s: float) -> Iterator[Figure]:
    """`fleetlight up`, with everything in SQLite. window_s: how long it rests, and then how long it is watched."""
    port, config = free_port(), directory / "fleetlight.toml"
    config.touch()
    command = f"up --cells {count} --port {port} --data-dir {directory / 'fleet'}"
    process = Daemon(command, config, directory / "up.log")
    begun_s = time.monotonic()
    process.start()
    try:
        wait_until(partial(_is_ready, f"http://127.0.0.1:{port}/readyz"), timeout_s=_START_S)
        yield _started(begun_s)
        yield from _idle({"up": process.pid}, window_s)
    finally:
        process.stop()


def in_processes(directory: Path, count: int, window_s: float) -> Iterator[Figure]:
    """A process of each kind; cells in SQLite, RabbitMQ and Elasticsearch. window_s: as above."""
    with ExitStack() as stack:
        supply = Supply(stack, {})
        servers = Servers.of_environment() or Servers(
            supply.url("elasticsearch", own=True), supply.url("rabbitmq", own=True)
        )
        relay = {"relay": {"heartbeat_interval_s": max(1.0, count / _HEARTBEATS_PER_S)}}
        world = stack.enter_context(new_world(directory, servers, relay, cell_count=count, is_proxied=False))
        writer = stack.enter_context(closing(open_writer(world.settings.index)))
        begun_s, since = time.monotonic(), system_clock()
        commands = ("relay", "worker", "indexer")
        processes = {command: stack.enter_context(daemon(world, command, directory)) for command in commands}
        wait_until(partial(_is_followed, world, writer, since), timeout_s=_START_S)
        yield _started(begun_s)
        yield from _idle({name: process.pid for name, process in processes.items()}, window_s)
        yield _progress_read(world)


def _progress_read(world: World) -> Figure:
    """What each API process asks the index for, at most each fifth of a second."""
    searcher = open_searcher(world.settings.index)
    with asyncio.Runner() as runner:
        taken_s = [seconds(lambda: runner.run(searcher.progress())) for _ in range(_ROUNDS)]
        runner.run(searcher.close())
    what = "how far the index is with each cell, read by an API process"
    return figure("progress", statistics.median(taken_s) * 1e3, "ms", what, runs=_ROUNDS)


def _is_ready(url: str) -> bool:
    try:
        return httpx.get(url).status_code == httpx.codes.OK
    except httpx.TransportError:
        return False


def _is_followed(world: World, writer: IndexWriter, since: int) -> bool:
    """Whether the index is known to have all of all cells up to a moment after `since`, from their relays."""
    try:
        known = writer.load_progress()
    except IndexerError:
        return False  # it is not prepared yet
    fresh = [each for each in known.values() if each.is_complete and each.fresh_as_of > since]
    return len(fresh) == len(world.cells)


def _started(begun_s: float) -> Figure:
    return figure("start", time.monotonic() - begun_s, "s", "until all of it works", runs=1)


def _idle(pids: Mapping[str, int], window_s: float) -> Iterator[Figure]:
    time.sleep(window_s)
    shares = processor_shares(pids, window_s)
    for name, pid in pids.items():
        opened = open_things(pid)
        yield figure(f"{name}.share", shares[name], "processors", f"{name}, idle", runs=1)
        yield figure(f"{name}.memory", memory_mib(pid), "MiB", f"resident memory of {name}", runs=1)
        yield figure(f"{name}.threads", opened.threads, "threads", name, runs=1)
        yield figure(f"{name}.files", opened.files, "files", f"open files of {name}, connections too", runs=1)
        yield figure(f"{name}.connections", opened.connections, "sockets", f"open sockets of {name}", runs=1)
