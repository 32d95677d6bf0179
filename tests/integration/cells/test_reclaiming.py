"""Soft deletion on both databases, up to the worker that a configured process runs (contracts/nova-rest, 2.2)."""

from threading import Event, Thread

import pytest

from fleetlight.cells.settings import FleetSettings
from fleetlight.cli.settings import Settings
from fleetlight.manager.commands.working import worker_of
from fleetlight.manager.operations.actions.accepting import Acceptance
from fleetlight.manager.operations.actions.reclaiming import Reclaimer
from tests.support.fleets.acting_cell import ActingCell
from tests.support.waiting import wait_until

_SECOND = 1_000_000


def is_queued_for_delete(acting: ActingCell, uuid: str) -> bool:
    mapping = acting.fleet.mapping_of(uuid)
    assert mapping is not None
    return mapping.queued_for_delete


def test_deleted_instance_can_be_restored_and_deleted_again(acting: ActingCell) -> None:
    uuid = acting.instance()
    acting.do(uuid, "softDelete")
    assert acting.state(uuid)[:2] == ("soft-delete", None)
    assert is_queued_for_delete(acting, uuid)
    acting.do(uuid, "restore")
    assert acting.state(uuid)[:2] == ("active", None)
    assert not is_queued_for_delete(acting, uuid)
    acting.do(uuid, "softDelete")
    acting.do(uuid, "forceDelete")
    assert acting.record(uuid)["deleted"]
    acting.check_revisions()


def test_those_deleted_long_enough_ago_go_first_and_locks_do_not_keep_them(acting: ActingCell) -> None:
    old, young = acting.instance(locked_by="admin"), acting.instance()
    for uuid in (old, young):
        acting.accept(uuid, "softDelete", is_admin=True)
        acting.work()
    acceptance = Acceptance(acting.engine, acting.fleet, acting.cell)
    just_before = int(acting.record(young)["deleted_at"]) - 1 + 3600 * _SECOND
    reclaimer = Reclaimer(acceptance, acting.engine, acting.cell, 3600, lambda: just_before)
    assert reclaimer.reclaim() == 1
    acting.work()
    assert reclaimer.reclaim() == 0
    assert (acting.record(old)["deleted"], acting.record(young)["deleted"]) == (True, False)


@pytest.mark.parametrize("interval_s", [0.01, 0.0])
def test_worker_of_a_process_reclaims_if_that_is_configured(acting: ActingCell, interval_s: float) -> None:
    """Without it nothing is soft-deleted any more, and what was before stays until somebody deletes it."""
    kept, other = acting.instance(), acting.instance()
    acting.do(kept, "softDelete")
    settings = Settings(fleet=FleetSettings(reclaim_instance_interval_s=interval_s))
    worker, stop = worker_of(settings, acting.engine, acting.fleet, acting.cell), Event()
    thread = Thread(target=worker.run, args=(stop,))
    thread.start()
    try:
        acting.accept(other, "delete")
        wait_until(lambda: bool(acting.record(other)["deleted"]))
        if interval_s:
            wait_until(lambda: bool(acting.record(kept)["deleted"]))
    finally:
        stop.set()
        thread.join()
    assert acting.record(kept)["deleted"] is bool(interval_s)
