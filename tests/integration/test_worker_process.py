"""`fleetlight worker` as a process: killed in the middle of actions, replaced by another one, and stopped."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.commands import Command
from tests.support.fleets.acting_cell import FLAVOR, REQUEST, ActingCell, acting_cell_in
from tests.support.waiting import wait_until

EVENTS_OF_A_CREATION = 8
COUNT = 10


@pytest.fixture
def acting(tmp_path: Path) -> Iterator[ActingCell]:
    with acting_cell_in(tmp_path) as acting:
        yield acting


@contextmanager
def worker(folder: Path, number: int) -> Iterator[Command]:
    """The process; its log is in worker-N.log. What is still running at the end is killed."""
    config = folder / "fleetlight.toml"
    config.write_text(f'[fleet]\ndatabase_url = "sqlite:///{folder}/fleet.db"\n')
    environment = {name: value for name, value in os.environ.items() if not name.startswith("FLEETLIGHT_")}
    log = folder / f"worker-{number}.log"
    process = Command("worker", "--config", str(config), log=log, environment=environment)
    try:
        yield process
    finally:
        process.kill()
        process.wait(timeout=60)


def log_of(folder: Path, number: int) -> str:
    return (folder / f"worker-{number}.log").read_text()


def create(acting: ActingCell) -> list[str]:
    values = [{"project_id": "demo", "flavor": FLAVOR}] * COUNT
    return [row.uuid for row in acting.acceptance.create(values, {}, REQUEST)]


def test_worker_that_is_killed_in_the_middle_is_replaced_and_nothing_is_done_twice(
    acting: ActingCell, tmp_path: Path
) -> None:
    uuids = create(acting)
    with worker(tmp_path, 1) as first:
        wait_until(lambda: len(acting.events()) >= 2 * COUNT)
        first.send_signal(signal.SIGKILL)
        assert first.wait(timeout=60) == -signal.SIGKILL
        with worker(tmp_path, 2) as second:
            wait_until(lambda: len(acting.events()) == EVENTS_OF_A_CREATION * COUNT)
            second.send_signal(signal.SIGTERM)
            assert second.wait(timeout=60) == 0, log_of(tmp_path, 2)
    assert {acting.state(uuid)[:2] for uuid in uuids} == {("active", None)}
    assert "Traceback" not in log_of(tmp_path, 1) + log_of(tmp_path, 2)
    acting.check_revisions()


def test_worker_that_is_stopped_leaves_its_jobs_between_two_steps(acting: ActingCell, tmp_path: Path) -> None:
    uuids = create(acting)
    with worker(tmp_path, 1) as process:
        wait_until(lambda: len(acting.events()) >= 2 * COUNT)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 0, log_of(tmp_path, 1)
    acting.check_revisions()
    acting.work()
    assert len(acting.events()) == EVENTS_OF_A_CREATION * COUNT
    assert {acting.state(uuid)[:2] for uuid in uuids} == {("active", None)}
    acting.check_revisions()
