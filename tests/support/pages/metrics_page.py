"""docs/reference/metrics.md, made of the metrics that are counted: `python -m tests.support.pages.metrics_page`."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from prometheus_client import CollectorRegistry, Info
from sqlalchemy import create_engine

from fleetlight.api.metrics import ApiMetrics
from fleetlight.api.monitoring.instance_gauges import InstanceGauges
from fleetlight.api.operating.findings import FindingGauges
from fleetlight.cells.fleet.clock_metrics import measure_clock
from fleetlight.cells.fleet.database import FleetDatabase
from fleetlight.cells.fleet.fleet_clock import FleetClock
from fleetlight.cells.kinds.native.relay_metrics import RelayMetrics
from fleetlight.cli.monitoring import add_process_metrics
from fleetlight.delivery.metrics import DelivererMetrics
from fleetlight.indexer.metrics import IndexerMetrics
from fleetlight.manager.operations.jobs.metrics import WorkerMetrics
from fleetlight.manager.operations.nodes.metrics import CacheCounts

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "metrics.md"
_HEAD = """\
# Metrics and health

`/metrics` is for Prometheus, `/healthz` and `/readyz` are for orchestrators. Every process serves them at the port
that `monitoring.port` names, and nowhere unless it is set. `fleetlight up` and `fleetlight api` are several
processes, of which one serves that port for all: counters and histograms are summed, over those that were killed too;
of a gauge the largest value counts, or the smallest (`fleetlight_api_index_watermark`,
`fleetlight_api_fleet_reachable`); pages that wait or are made, and what processes use of the machine, are summed.
`/readyz` names each process under `processes`, with `down`, `starting`, `stuck`, or what it says of itself; lists can
be answered as long as one does. `/healthz` says no when one that runs does not answer. All of it tells the names of
cells and what is down, so that address is a loopback one unless `monitoring.host` says otherwise. At the address of
the API itself anyone can ask `/healthz` and `/readyz`, and gets a status and one word.
Metrics call a cell by its uuid; `fleetlight_cell_info` has the name of each. What is counted per cell is there, with 0,
as soon as a process works on the cell.

[Monitoring](../operations/monitoring.md) has alert rules and a dashboard that are made of these metrics.

The tables are made of the program: `python -m tests.support.pages.metrics_page`, and a test compares them. A histogram
is three series: `_bucket`, `_sum` and `_count`.
"""
_INSTANCES_NOTE = """\
At an address of the API, `GET /fleetlight/metrics/instances`, for administrators and not at `monitoring.port`: it costs
one count of the index, of all cells together, which serves all that ask within 15 seconds. A cell is asked only if the
index does not know it. Servers are counted as the compute API lists them, without reservations. Where
`fleetlight_instances_complete` is 0, the counts are of what is known, as old as `fleetlight_instances_age_seconds`, and
what they lack may still be there. `?projects=20` adds the 20 projects that have most servers, at most 100, with all
others as `other`; it costs a second count. [How to scrape it](../operations/monitoring.md#instances-as-metrics).
"""
_FINDINGS_NOTE = """\
At an address of the API, `GET /fleetlight/metrics/findings`, for administrators: it asks native cells, the fleet
database, and the index as lists do, at most once in 30 seconds. [The kinds](operations-api.md#findings).
"""
_INDEXER_NOTE = """\
Of several indexers one is active for a cell, and the figures of the others lag behind: take the highest one of each
cell (`max by (cell) (…)`).

`outcome` is one of `applied`, `superseded` (not read, since a newer one of the instance had come too), `duplicate`,
`heartbeat`, `other` (nothing in it for the index), `elsewhere` (about a server of another cell), `forgotten` (external,
of an instance that is not there, and older than what the index remembers), `never happened` (from an epoch that ended
when the cell was restored), or the reason of a dead letter: `malformed`, `unknown_payload`, `unsupported_version`,
`rejected`, `unexpected`, `too_large`, `undeliverable`, `refused`. Of those tells
[Index work](../operations/index-work.md#messages-that-cannot-be-indexed).
"""
_RELAY_NOTE = """\
How far the index is behind a cell is `max by (cell) (fleetlight_relay_sequence) - max by (cell)
(fleetlight_indexer_watermark)`. While no relay reaches the bus, `fleetlight_relay_active` is 0 for all of them.
"""
_WORKER_NOTE = """\
`status` is one of Ganeti's: `queued`, `waiting` (for locks or for other jobs), `running`, `canceling`; ended jobs have
`success`, `error` or `canceled`. The queue is counted every 15 seconds, by each worker of the cell: take the highest.
The age of the oldest job goes on growing while the database does not answer.
"""
_DELIVERER_NOTE = """\
`outcome` is one of `delivered`, `refused` (the target did not take the event), `away` (it took nothing) and `unwanted`
(it wants no more). `state` is one of `active`, `failing`, `paused`, `suspended` and `ended`; every deliverer counts all
subscriptions of the fleet.
"""
_NODES_NOTE = """\
Of every process that calls node agents.

`event` is one of `hits`, `misses` (of which some are `expired`), `invalidations` (of single nodes), `flushes` (of all),
`bypasses`, `stores`, `discarded_stores` (a change was faster) and `unreachable` (the server did not answer).
"""
_CLOCK_NOTE = """\
Of every process that looks at the clock of the fleet database, which counts. The `clock` of an API's `/readyz` is `ok`,
`disagrees`, or `unsure` while the process does not know the time and asks all cells.
"""
_FOOT = """\
## Health

| | `/healthz` | `/readyz` |
| --- | --- | --- |
| API | 200 | 200 with `ready`, or `degraded` while the index or a cell is away |
| indexer | 503 when work has not got done for `indexer.liveness_timeout_s` (60) | 503 while the index is away |
| relay, worker, deliverer | 503 when one step takes minutes | 503 while the fleet database is away at the start |

A process whose `/healthz` says 503 is to be started again. One that waits for an index, a bus, a cell or the fleet
database is alive.
So is an API that is busy with pages: its part of `/readyz` then says what was seen last, with `busy_s`; after 25
seconds in which it did nothing else it is `stuck`. `fleetlight up` and `fleetlight api` replace a process of theirs
that is, or that does not answer, ten seconds later.
"""


@dataclass(frozen=True, slots=True)
class Shown:
    """One metric, by the name that a query uses. kind: that of Prometheus."""

    name: str
    kind: str
    labels: Sequence[str]
    meaning: str

    @property
    def series(self) -> Sequence[str]:
        """The names of its samples."""
        return (
            [f"{self.name}{end}" for end in ("_bucket", "_sum", "_count")] if self.kind == "histogram" else [self.name]
        )


_SECTIONS: Mapping[str, tuple[Callable[[], Sequence[CollectorRegistry]], str]] = {
    "Every process": (lambda: _filled(add_process_metrics), ""),
    "Clock": (lambda: _filled(_measure_clock), _CLOCK_NOTE),
    "API": (lambda: ApiMetrics().registries, ""),
    "Instances": (lambda: [InstanceGauges().registry], _INSTANCES_NOTE),
    "Findings": (lambda: [FindingGauges().registry], _FINDINGS_NOTE),
    "Indexer": (lambda: _filled(IndexerMetrics), _INDEXER_NOTE),
    "Relay": (lambda: _filled(RelayMetrics), _RELAY_NOTE),
    "Worker": (lambda: _filled(WorkerMetrics), _WORKER_NOTE),
    "Deliverer": (lambda: _filled(DelivererMetrics), _DELIVERER_NOTE),
    "Nodes": (lambda: _filled(CacheCounts), _NODES_NOTE),
}
_ENDS = {"counter": "_total", "info": "_info"}


def page() -> str:
    """The whole page."""
    return "\n".join([_HEAD, *(line for title in _SECTIONS for line in _section(title)), _FOOT])


def metrics() -> Mapping[str, Shown]:
    """All metrics of all processes, by name."""
    return {shown.name: shown for title in _SECTIONS for shown in _shown(title)}


def _section(title: str) -> Iterator[str]:
    yield f"## {title}"
    yield ""
    yield "| metric | kind | labels | meaning |"
    yield "| --- | --- | --- | --- |"
    for shown in _shown(title):
        labels = ", ".join(f"`{label}`" for label in shown.labels)
        yield f"| `{shown.name}` | {shown.kind} | {labels} | {shown.meaning} |"
    yield ""
    if note := _SECTIONS[title][1]:
        yield note


def _shown(title: str) -> Iterator[Shown]:
    make, _ = _SECTIONS[title]
    for registry in make():
        # What is registered says its labels before it has a sample only in there.
        for collector in registry._collector_to_names:
            labels = list(getattr(collector, "_labelnames", ()))
            for family in collector.collect():
                if isinstance(collector, Info):
                    labels = sorted(family.samples[0].labels)
                yield Shown(f"{family.name}{_ENDS.get(family.type, '')}", family.type, labels, family.documentation)


def _measure_clock(registry: CollectorRegistry) -> None:
    measure_clock(registry, FleetClock(FleetDatabase(create_engine("sqlite://"))))


def _filled(add: Callable[[CollectorRegistry], object]) -> Sequence[CollectorRegistry]:
    registry = CollectorRegistry()
    add(registry)
    return [registry]


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    sys.exit(0)
