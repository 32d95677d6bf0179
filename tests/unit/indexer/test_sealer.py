"""The sealer has repaired what another program has written, cell by cell, and then has the index sealed anew."""

from contextlib import AbstractContextManager

import pytest
from structlog.testing import capture_logs

from fleetlight.indexer.backends.base import REPAIRS
from fleetlight.indexer.backends.seal import Breach
from fleetlight.indexer.metrics import IndexerMetrics
from fleetlight.indexer.reconcile import sealer as module
from fleetlight.indexer.reconcile.sealer import Sealer
from fleetlight.resources.clock import system_clock
from tests.support.fleets.indexer_worlds import in_thread
from tests.support.memory.memory_cell import CELL_UUID, MemoryCell
from tests.support.memory.memory_fleet import MemoryLeases
from tests.support.memory.stage import NativeStage
from tests.support.waiting import wait_until


class Stage(NativeStage[MemoryCell]):
    def breach(self, *uuids: str) -> Breach:
        """Found by the next look."""
        breach = Breach("b", "somebody wrote", frozenset(uuids))
        self.index.seal.breaches.append(breach)
        return breach

    def sealing(self) -> AbstractContextManager[None]:
        return in_thread(Sealer(self.repair, IndexerMetrics(self.registry)).run)


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Stage:
    monkeypatch.setattr(module, "_INTERVAL_S", 0.01)
    monkeypatch.setattr(module, "_RETRY_S", 0.01)
    stage = Stage(MemoryCell(instances=10))
    stage.follow()
    return stage


def test_breach_is_mended_after_every_cell_was_repaired(stage: Stage) -> None:
    stage.lose(min(stage.cell.rows))
    breach = stage.breach()
    with capture_logs() as logs, stage.sealing():
        wait_until(lambda: stage.index.seal.mended == [breach])
        assert stage.is_right()
    assert [each["event"] for each in logs] == ["indexer.seal_broken", "indexer.seal_mended"]
    assert stage.sample("seal_broken_total") == 1


def test_cell_that_is_away_stays_suspected_alone_until_it_is_back(stage: Stage) -> None:
    stage.lose(min(stage.cell.rows))
    stage.cell.is_away = True
    breach = stage.breach()
    with stage.sealing():
        wait_until(lambda: stage.index.seal.mended == [breach])
        assert stage.index.load_state(REPAIRS) == {CELL_UUID: True}
        stage.cell.is_away = False
        wait_until(lambda: not stage.index.load_state(REPAIRS))
        assert stage.is_right()


def test_time_up_to_which_the_seal_held_is_told(stage: Stage) -> None:
    began_at = system_clock()
    with stage.sealing():
        wait_until(lambda: stage.index.seal.held_at > began_at)
    told = stage.sample("seal_held_seconds")
    assert told is not None
    assert told * 1e6 >= began_at


def test_process_without_the_lease_checks_nothing(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.leases.taken["index-seal"] = "another indexer"
    breach = stage.breach()
    asked: list[str] = []

    def acquire(name: str, *, shared: bool = False) -> bool:
        asked.append(name)
        return MemoryLeases.acquire(stage.leases, name, shared=shared)

    monkeypatch.setattr(stage.leases, "acquire", acquire)
    with stage.sealing():
        wait_until(lambda: len(asked) > 2)
        assert stage.index.seal.breaches == [breach]
        stage.leases.taken.clear()
        wait_until(lambda: stage.index.seal.mended == [breach])
