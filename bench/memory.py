"""`scripts/bench memory`: what memory the indexer needs for many changes, and while the index is away.

Production's own relay and indexer, eight cells. A million changes do not come from a million operations, which would
take an hour: each statement gives all instances of a cell one revision more, and announces them with the message that
announced them first.
"""

import time
from collections.abc import Iterator
from pathlib import Path

from sqlalchemy import Engine, insert, select, update

from bench.faults.world import Servers
from bench.followed_world import FollowedWorld, followed_world
from bench.measure import Figure, at_most, figure
from bench.process_tree import memory_mib
from bench.steady_load import change_steadily
from fleetlight.cells.database.engines import writing
from fleetlight.cells.tables import changes, instances
from fleetlight.resources.clock import system_clock
from tests.support.waiting import wait_until

_RATE = 200.0
_WARM_UP = 20_000
# Of each cell; so many messages that the queues are never empty, and not so many that they count.
_AT_ONCE = 20
_BACKLOG = 30_000
_TIMEOUT_S = 600
_MINUTE_H = 1 / 60


def run(directory: Path, quick: bool) -> Iterator[Figure]:
    """quick: 20,000 changes and ten seconds. Nothing without the URLs of both servers."""
    servers = Servers.of_environment()
    if servers is None:
        return
    # What a million changes say would take gigabytes of disk.
    with followed_world(directory, servers, {"relay": {"changelog_retention_h": _MINUTE_H}}) as followed:
        flood = _Flood(followed)
        flood.run(_WARM_UP)
        before_mib = memory_mib(followed.indexer.pid)
        count = 20_000 if quick else 1_000_000
        flood.run(count)
        yield _growth("memory.messages", before_mib, memory_mib(followed.indexer.pid), f"{count:,} changes later")
        before_mib = memory_mib(followed.indexer.pid)
        away_s = 10 if quick else 600
        followed.world.proxies["elasticsearch"].cut()
        load = change_steadily(followed.world.config, rate=_RATE, seconds=away_s)
        after_mib = memory_mib(followed.indexer.pid)
        what = f"after {away_s} s with the index away, in which {load.count:,} changes came"
        yield _growth("memory.index_away", before_mib, after_mib, what)
        followed.world.proxies["elasticsearch"].restore()
        back_s = time.monotonic()
        followed.wait_until_current()
        what = f"when the index had all of them, {time.monotonic() - back_s:.0f} s after it was back"
        yield _growth("memory.recovered", before_mib, memory_mib(followed.indexer.pid), what)


class _Flood:
    """Changes as fast as they are followed."""

    def __init__(self, followed: FollowedWorld) -> None:
        self._followed = followed
        self._first = {name: _announced(engine) for name, engine in followed.world.engines.items()}
        self._revision = 1

    def run(self, count: int) -> None:
        """At least so many changes; returns when the index has them."""
        made = 0
        while made < count:
            first = self._revision + 1
            self._revision += _AT_ONCE
            for name, engine in self._followed.world.engines.items():
                rows = [
                    {**announced, "revision": revision, "committed_at": system_clock()}
                    for revision in range(first, self._revision + 1)
                    for announced in self._first[name]
                ]
                with writing(engine) as connection:
                    connection.execute(update(instances).values(revision=self._revision))
                    connection.execute(insert(changes), rows)
                made += len(rows)
            wait_until(lambda: self._followed.behind() < _BACKLOG, timeout_s=_TIMEOUT_S)
        self._followed.wait_until_current()


def _announced(engine: Engine) -> list[dict[str, object]]:
    """What a cell has announced until now, which is the beginning of each instance."""
    names = ("instance_uuid", "event_type", "routing_key", "message")
    with engine.connect() as connection:
        return [dict(row) for row in connection.execute(select(*(changes.c[name] for name in names))).mappings()]


def _growth(name: str, before_mib: float, after_mib: float, what: str) -> Figure:
    text = f"resident memory of the indexer: {before_mib:,.0f} MiB, {after_mib:,.0f} MiB {what}"
    return figure(name, after_mib / before_mib, "ratio", text, runs=1, goal=at_most(1.2))
