"""What operators are told of the jobs of a cell."""

from collections.abc import Iterator
from pathlib import Path
from threading import Event

import pytest
from prometheus_client import CollectorRegistry

from fleetlight.manager.operations.cell_worker import SimulatedHosts
from fleetlight.manager.operations.jobs.maintenance import AT_ONCE, MaintenanceTask
from fleetlight.manager.operations.jobs.metrics import WorkerMetrics
from fleetlight.manager.operations.jobs.vocabulary import Vocabulary
from fleetlight.manager.operations.jobs.worker import Worker
from fleetlight.manager.operations.vocabulary import ALL_OPERATIONS
from tests.support.fleets.acting_cell import FLAVOR, REQUEST, ActingCell, acting_cell_in

_RECEIVED_AT = 1_700_000_000_000_000


@pytest.fixture
def acting(tmp_path: Path) -> Iterator[ActingCell]:
    with acting_cell_in(tmp_path) as acting:
        yield acting


class Counted:
    """A worker of the cell, and what it says of it. vocabulary: that of this version, unless given."""

    def __init__(self, acting: ActingCell, vocabulary: Vocabulary = ALL_OPERATIONS) -> None:
        self.registry = CollectorRegistry()
        self._cell = acting.cell.uuid
        self._stop = Event()
        self._worker = Worker(
            acting.engine,
            acting.fleet,
            acting.cell,
            vocabulary,
            SimulatedHosts(),
            metrics=WorkerMetrics(self.registry),
            maintenance=[MaintenanceTask(self._end)],
        )

    def begin(self) -> None:
        """Count, and do the first step."""
        self._stop.clear()
        self._worker.run(self._stop)

    def _end(self) -> int:
        self._stop.set()
        return AT_ONCE

    def work(self) -> None:
        self.begin()
        while self._worker.run_once():
            pass

    def value(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"fleetlight_worker_{name}", {"cell": self._cell, **labels})


def create(acting: ActingCell, count: int) -> None:
    values = [{"project_id": "demo", "flavor": {**FLAVOR, "memory_mb": 1, "root_gb": 0, "vcpus": 0}}] * count
    acting.acceptance.create(values, {}, REQUEST)


def test_everything_of_a_cell_is_there_before_its_first_job(acting: ActingCell) -> None:
    counted = Counted(acting)
    counted.begin()
    assert counted.value("oldest_waiting_job_seconds") == 0
    for status in ("queued", "waiting", "running", "canceling"):
        assert counted.value("jobs", status=status) == 0
    for status in ("success", "error", "canceled"):
        assert counted.value("ended_jobs_total", status=status) == 0


def test_jobs_that_wait_are_counted_with_the_age_of_the_oldest(acting: ActingCell) -> None:
    create(acting, 3)
    counted = Counted(acting)
    counted.begin()
    assert counted.value("jobs", status="queued") == 3
    oldest = counted.value("oldest_waiting_job_seconds")
    assert oldest is not None
    assert 0 < oldest < 60


def test_jobs_that_have_ended_are_counted_once_by_status_and_timed_by_action(acting: ActingCell) -> None:
    create(acting, 2)
    counted = Counted(acting)
    counted.work()
    assert counted.value("ended_jobs_total", status="success") == 2
    assert counted.value("ended_jobs_total", status="error") == 0
    (timed,) = [
        sample.labels["action"]
        for metric in counted.registry.collect()
        for sample in metric.samples
        if sample.name == "fleetlight_worker_job_seconds_count" and sample.value
    ]
    assert counted.registry.get_sample_value(
        "fleetlight_worker_job_seconds_count", {"action": timed, "status": "success"}
    ) == 2  # fmt: skip


def test_jobs_that_have_failed_are_counted_as_such(acting: ActingCell) -> None:
    create(acting, 2)
    counted = Counted(acting, vocabulary={})
    counted.work()
    assert counted.value("ended_jobs_total", status="error") == 2


def test_age_of_the_oldest_job_grows_while_the_queue_cannot_be_looked_at() -> None:
    now = _RECEIVED_AT
    registry = CollectorRegistry()
    metrics = WorkerMetrics(registry, clock=lambda: now)
    metrics.cell_known("uuid")
    metrics.queue_seen("uuid", {"queued": 1}, _RECEIVED_AT)
    now += 90_000_000
    assert registry.get_sample_value("fleetlight_worker_oldest_waiting_job_seconds", {"cell": "uuid"}) == 90
