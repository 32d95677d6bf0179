"""Soft deletion: what is deleted can be restored for a while (contracts/nova-rest, 2.2 and 2.3)."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from sqlalchemy import Engine, select

from fleetlight.cells.database.engines import create_database_engine
from fleetlight.cells.tables import changes
from fleetlight.manager.operations.actions.accepting import Acceptance
from fleetlight.manager.operations.actions.reclaiming import Reclaimer
from fleetlight.resources.clock import system_clock
from tests.contract.compute_fleet import MEMBER, Api, ComputeFleet, compute_fleet, microversion, searching

FLAVOR = {"flavorid": "1", "name": "m1.tiny", "memory_mb": 512, "vcpus": 1, "root_gb": 1, "ephemeral_gb": 0}
LATEST = microversion("2.104")


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[ComputeFleet]:
    with compute_fleet(tmp_path) as fleet:
        fleet.add_hosts(1)
        yield fleet


@pytest.fixture
def api(fleet: ComputeFleet) -> Api:
    return fleet.api(search=searching(enabled=False), soft_deletes=True)


@pytest.fixture
def server(fleet: ComputeFleet) -> str:
    return fleet.create("north", host="north-host0", node="north-host0", flavor=FLAVOR)


def delete(api: Api, server: str) -> int:
    return api.request("DELETE", f"/v2.1/servers/{server}", MEMBER).status_code


def act(api: Api, server: str, action: str) -> int:
    return api.request("POST", f"/v2.1/servers/{server}/action", MEMBER, json={action: None}).status_code


def states(api: Api, server: str) -> tuple[str, str, str | None]:
    shown = api.get(f"/v2.1/servers/{server}", LATEST).json()["server"]
    return shown["status"], shown["OS-EXT-STS:vm_state"], shown["OS-EXT-STS:task_state"]


def events(engine: Engine, server: str) -> list[str]:
    """What was announced of a server, in order, without its creation and updates."""
    statement = select(changes.c.message).where(changes.c.instance_uuid == server).order_by(changes.c.id)
    with engine.connect() as connection:
        messages = connection.execute(statement).scalars().all()
    types = [msgspec.json.decode(msgspec.json.decode(message)["oslo.message"])["event_type"] for message in messages]
    return [event for event in types if event not in {"instance.update", "instance.create.end"}]


def test_deleted_server_stays_for_a_while_and_can_be_restored(fleet: ComputeFleet, api: Api, server: str) -> None:
    assert delete(api, server) == 204
    assert states(api, server) == ("ACTIVE", "active", "soft-deleting")
    assert delete(api, server) == 204, "again while it is being done changes nothing"
    fleet.work()
    assert states(api, server) == ("SOFT_DELETED", "soft-delete", None)
    assert api.ids("/v2.1/servers") == []
    assert api.ids("/v2.1/servers?deleted=true") == [server]
    mapping = fleet.fleet.mapping_of(server)
    assert mapping is not None
    assert mapping.queued_for_delete
    assert act(api, server, "os-stop") == 409

    assert act(api, server, "restore") == 202
    fleet.work()
    assert states(api, server) == ("ACTIVE", "active", None)
    assert api.ids("/v2.1/servers") == [server]
    mapping = fleet.fleet.mapping_of(server)
    assert mapping is not None
    assert not mapping.queued_for_delete
    actions = api.get(f"/v2.1/servers/{server}/os-instance-actions").json()["instanceActions"]
    assert [action["action"] for action in actions] == ["restore", "delete"]


def test_deleted_again_it_is_soft_again_and_forced_it_is_gone(fleet: ComputeFleet, api: Api, server: str) -> None:
    for _ in range(2):
        assert delete(api, server) == 204
        fleet.work()
        assert states(api, server)[0] == "SOFT_DELETED"
    assert act(api, server, "forceDelete") == 202
    fleet.work()
    assert api.get(f"/v2.1/servers/{server}").status_code == 404


def test_server_on_no_host_is_deleted_for_good(fleet: ComputeFleet, api: Api) -> None:
    failed = fleet.create("north", vm_state="error", host=None, flavor=FLAVOR)
    assert delete(api, failed) == 204
    fleet.work()
    assert api.get(f"/v2.1/servers/{failed}").status_code == 404


def test_restored_server_must_fit_into_the_quotas(fleet: ComputeFleet, api: Api, server: str) -> None:
    fleet.fleet.quotas.set_limits("demo", {"cores": 1})
    delete(api, server)
    fleet.work()
    fleet.create("east", host="east-host0", flavor=FLAVOR)
    assert act(api, server, "restore") == 403
    fleet.fleet.quotas.set_limits("demo", {"cores": 2})
    assert act(api, server, "restore") == 202


def test_only_what_was_deleted_long_enough_ago_is_reclaimed(
    fleet: ComputeFleet, api: Api, server: str, tmp_path: Path
) -> None:
    young = fleet.create("north", host="north-host0", flavor=FLAVOR)
    delete(api, server)
    fleet.work()
    between = system_clock()
    delete(api, young)
    fleet.work()
    cell = fleet.cells["north"]
    engine = create_database_engine(cell.database_url)
    reclaimer = Reclaimer(Acceptance(engine, fleet.fleet, cell), engine, cell, 3600, lambda: between + 3600 * 1_000_000)
    assert reclaimer.reclaim() == 1
    fleet.work()
    assert reclaimer.reclaim() == 0
    announced = events(engine, server)
    engine.dispose()
    assert api.get(f"/v2.1/servers/{server}").status_code == 404
    assert states(api, young)[0] == "SOFT_DELETED"
    assert announced == [
        "instance.soft_delete.start",
        "instance.soft_delete.end",
        "instance.delete.start",
        "instance.shutdown.start",
        "instance.shutdown.end",
        "instance.delete.end",
    ]


def test_deletions_are_final_unless_it_is_switched_on(fleet: ComputeFleet, server: str) -> None:
    api = fleet.api(search=searching(enabled=False))
    assert delete(api, server) == 204
    fleet.work()
    assert api.get(f"/v2.1/servers/{server}").status_code == 404
    assert act(api, server, "restore") == 404
