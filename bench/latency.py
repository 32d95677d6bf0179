"""`scripts/bench latency`: how soon a committed change can be found.

Production's own relay and indexer with the settings that they have unless told otherwise, eight cells, 200 changes a
second, made by a process of their own. A change counts as searchable when the progress that covers it has been saved,
which the indexer does after it made the index searchable: so it can be found a little earlier.
"""

import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

from sqlalchemy import select

from bench.faults.world import Servers
from bench.followed_world import FollowedWorld, followed_world
from bench.measure import Figure, at_most, figure
from bench.steady_load import change_steadily
from fleetlight.cells.tables import changes
from fleetlight.resources.clock import system_clock

_RATE = 200.0
# With less the figure says nothing of the rate that it is meant for.
_LEAST_RATE = 0.95 * _RATE
_POLL_S = 0.02
_MICROSECONDS = 1e6


def run(directory: Path, quick: bool) -> Iterator[Figure]:
    """quick: 10 seconds instead of two minutes. Nothing without the URLs of both servers."""
    servers = Servers.of_environment()
    if servers is None:
        return
    with followed_world(directory, servers, {}) as followed:
        change_steadily(followed.world.config, rate=_RATE, seconds=2)
        followed.wait_until_current()
        first = followed.published()
        seen = _Watch(followed)
        try:
            load = change_steadily(followed.world.config, rate=_RATE, seconds=10 if quick else 120)
            followed.wait_until_current()
        finally:
            seen.stop()
        waits_s = sorted(seen.waits_s(first))
    is_as_asked = load.per_second >= _LEAST_RATE
    for name, share in (("p50", 0.5), ("p99", 0.99), ("p99_9", 0.999)):
        wait_s = waits_s[min(len(waits_s) - 1, int(len(waits_s) * share))]
        yield figure(
            f"latency.{name}",
            wait_s / followed.refresh_interval_s,
            "refresh intervals",
            f"{wait_s * 1000:,.0f} ms from commit to searchable, {len(waits_s)} changes at {load.per_second:,.0f}/s in "
            f"{len(first)} cells, made searchable every {followed.refresh_interval_s:g} s"
            + ("" if is_as_asked else f"; NOT VALID: this machine did not get as far as {_RATE:.0f} changes a second"),
            runs=1,
            goal=at_most(1.2) if name == "p50" else None,
            is_valid=is_as_asked,
        )


class _Watch:
    """Notes when the index gets how far in each cell."""

    def __init__(self, followed: FollowedWorld) -> None:
        self._followed = followed
        self._moments: dict[str, list[tuple[int, int]]] = {cell.uuid: [] for cell in followed.world.cells}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def stop(self) -> None:
        """Look once more, and then no more."""
        self._stop.set()
        self._thread.join()

    def waits_s(self, first: Mapping[str, int]) -> Iterator[float]:
        """Of each change after the sequences in `first`: seconds from its commit until it was seen."""
        columns = changes.c
        for cell in self._followed.world.cells:
            moments = iter(self._moments[cell.uuid])
            reached, at = next(moments)
            statement = select(columns.sequence, columns.committed_at).where(columns.sequence > first[cell.uuid])
            with self._followed.world.engines[cell.name].connect() as connection:
                for sequence, committed_at in connection.execute(statement.order_by(columns.sequence)):
                    while reached < sequence:
                        reached, at = next(moments)
                    yield (at - committed_at) / _MICROSECONDS

    def _watch(self) -> None:
        while True:
            is_last = self._stop.wait(_POLL_S)
            for uuid, progress in self._followed.writer.load_progress().items():
                moments = self._moments[uuid]
                if not moments or moments[-1][0] < progress.watermark:
                    moments.append((progress.watermark, system_clock()))
            if is_last:
                return
