"""Prometheus metrics of the workers of a process."""

from collections.abc import Mapping
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from fleetlight.manager.operations.jobs.model import ENDED, Status
from fleetlight.resources.clock import Clock, system_clock
from fleetlight.resources.units import MICROSECONDS_PER_SECOND

_SECONDS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)
_UNDER_WAY = tuple(status for status in Status if status not in ENDED)


class WorkerMetrics:
    """The metrics of workers; one object per registry. Labels name cells by uuid.

    registry: None: export them nowhere. clock: the clock of jobs' times.
    """

    def __init__(self, registry: CollectorRegistry | None = None, clock: Clock = system_clock) -> None:
        self._clock = clock
        self._waiting_since: dict[str, int] = {}
        gauge = partial(Gauge, registry=registry)
        counter = partial(Counter, registry=registry)
        histogram = partial(Histogram, registry=registry)
        self._jobs = gauge(
            "fleetlight_worker_jobs",
            "Jobs of the cell that have not ended, by status; every worker of a cell counts all of them",
            ["cell", "status"],
        )
        self._oldest = gauge(
            "fleetlight_worker_oldest_waiting_job_seconds",
            "How long the oldest job has waited that has not begun; 0 when none waits",
            ["cell"],
        )
        self._ended = counter(
            "fleetlight_worker_ended_jobs", "Jobs that this worker has ended, by status", ["cell", "status"]
        )
        self._seconds = histogram(
            "fleetlight_worker_job_seconds",
            "Time from the acceptance of a job to its end, by its last action",
            ["action", "status"],
            buckets=_SECONDS,
        )
        self.failures = counter(
            "fleetlight_worker_failures", "Failures of databases that were waited out, by kind", ["cell", "kind"]
        )
        self._repaired_mappings = counter(
            "fleetlight_mappings_repaired",
            "Mappings of instances that differed from the rows of their cell and were repaired",
            ["cell"],
        )
        self._mappings_elsewhere = gauge(
            "fleetlight_mappings_elsewhere", "Instances of a cell whose mapping names another cell", ["cell"]
        )

    def cell_known(self, cell_uuid: str) -> None:
        """Begin the counters of a cell at 0."""
        self.queue_seen(cell_uuid, {}, None)
        self._oldest.labels(cell_uuid).set_function(lambda: self._oldest_s(cell_uuid))
        self.mappings_compared(cell_uuid, repaired=0, elsewhere=0)
        for status in ENDED:
            self._ended.labels(cell_uuid, status)

    def queue_seen(self, cell_uuid: str, counts: Mapping[str, int], waiting_since: int | None) -> None:
        """Set the gauges of the queue. counts: unended jobs by status. waiting_since: when the oldest job that has not
        begun was received, microseconds since the epoch."""
        for status in _UNDER_WAY:
            self._jobs.labels(cell_uuid, status).set(counts.get(status, 0))
        if waiting_since is None:
            self._waiting_since.pop(cell_uuid, None)
        else:
            self._waiting_since[cell_uuid] = waiting_since

    def ended(self, cell_uuid: str, action: str, status: Status, received_at: int) -> None:
        self._ended.labels(cell_uuid, status).inc()
        self._seconds.labels(action, status).observe(self._seconds_since(received_at))

    def mappings_compared(self, cell_uuid: str, *, repaired: int, elsewhere: int) -> None:
        """Record a comparison of a cell's mappings with its rows."""
        self._repaired_mappings.labels(cell_uuid).inc(repaired)
        self._mappings_elsewhere.labels(cell_uuid).set(elsewhere)

    def _oldest_s(self, cell_uuid: str) -> float:
        # Computed at each scrape, so it grows even while the queue cannot be read.
        since = self._waiting_since.get(cell_uuid)
        return 0.0 if since is None else self._seconds_since(since)

    def _seconds_since(self, moment: int) -> float:
        return max(0, self._clock() - moment) / MICROSECONDS_PER_SECOND
