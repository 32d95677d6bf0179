"""An operation and its announcement are one transaction; rows, revisions and messages on both databases."""

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Engine, select

from fleetlight.cells.capabilities import CellKind
from fleetlight.cells.database.engines import create_database_engine
from fleetlight.cells.errors import (
    CellUnreachableError,
    FleetUnreachableError,
    InstanceExistsError,
    InstanceNotFoundError,
    InvalidTransitionError,
    InvalidValueError,
)
from fleetlight.cells.fleet.fleet import Fleet, InstanceMapping
from fleetlight.cells.kinds.native.adapter import NativeAdapter
from fleetlight.cells.model import Cell, InstanceRow
from fleetlight.cells.payloads.instance_payload import from_payload
from fleetlight.cells.tables import changes
from fleetlight.notifications.envelope import decode
from fleetlight.notifications.errors import PayloadError
from fleetlight.notifications.payloads.fleetlight import FullInstancePayload
from fleetlight.resources.errors import UnknownFieldError
from tests.support.fleets.instance_operations import Changed, InstanceOperations

UNUSED = "0c3b5a0a-90b1-4f36-8f6e-1e2d3c4b5a69"
FLAVOR = {"flavorid": "m1", "memory_mb": 512, "vcpus": 1, "root_gb": 10, "ephemeral_gb": 0, "name": "tiny"}
VALUES: dict[str, Any] = {
    "project_id": "demo",
    "user_id": "alice",
    "display_name": "Wéb 1",
    "host": "host-1",
    "flavor": FLAVOR,
    "tags": ["blue"],
    "metadata": {"role": "web"},
    "ip_addresses": [{"label": "net", "address": "10.0.0.4", "version": 4, "mac": "fa:16:3e:00:00:01"}],
    "block_devices": [{"volume_id": "00000000-0000-4000-8000-000000000001"}],
}


def stored(cell: Cell, uuid: str) -> InstanceRow:
    adapter = NativeAdapter(cell)
    try:
        row = adapter.find(uuid)
    finally:
        adapter.close()
    assert row is not None
    return row


def announced(engine: Engine) -> list[tuple[str, int, dict[str, Any]]]:
    """Event type, revision and record of every change in the outbox."""
    with engine.connect() as connection:
        rows = connection.execute(select(changes).order_by(changes.c.id)).all()
    found = []
    for row in rows:
        notification = decode(row.message)
        assert notification.event_type == row.event_type
        record = from_payload(FullInstancePayload.unwrap(notification.payload))
        assert record["uuid"] == row.instance_uuid
        found.append((row.event_type, row.revision, record))
    return found


def test_created_instance_is_stored_mapped_and_announced_alike(
    operations: InstanceOperations, engine: Engine, fleet: Fleet, cell: Cell
) -> None:
    changed = operations.create(VALUES)

    row = stored(cell, changed.uuid)
    assert (row.cell_uuid, row.revision) == (cell.uuid, changed.revision) == (cell.uuid, 1)
    assert announced(engine) == [("instance.create.end", 1, row.record)]
    assert row.record["hostname"] == "w-b-1"
    assert row.record["flavor_id"] == "m1"
    assert row.record["updated_at"] is None
    mapping = fleet.mapping_of(changed.uuid)
    assert mapping is not None
    assert (mapping.cell_uuid, mapping.project_id, mapping.user_id) == (cell.uuid, "demo", "alice")
    assert mapping.created_at == row.record["created_at"]


def test_each_operation_adds_one_revision_and_one_announcement(
    operations: InstanceOperations, engine: Engine, cell: Cell
) -> None:
    uuid = operations.create(VALUES).uuid
    operations.stop(uuid)
    operations.start(uuid)
    operations.move(uuid, "host-2")
    operations.update(uuid, {"display_name": "other", "tags": []})
    last = operations.delete(uuid)

    assert last == Changed(uuid, 6)
    events = announced(engine)
    assert [event for event, _, _ in events] == [
        "instance.create.end",
        "instance.power_off.end",
        "instance.power_on.end",
        "instance.live_migration_post_dest.end",
        "instance.update",
        "instance.delete.end",
    ]
    assert [revision for _, revision, _ in events] == list(range(1, 7))
    records = [record for _, _, record in events]
    assert [record["vm_state"] for record in records[:3]] == ["active", "stopped", "active"]
    assert [record["power_state"] for record in records[:3]] == [1, 4, 1]
    assert (records[3]["host"], records[3]["node"], records[3]["launched_on"]) == ("host-2", "host-2", "host-1")
    assert (records[4]["display_name"], records[4]["tags"]) == ("other", [])
    assert records[5] == stored(cell, uuid).record
    updates = [record["updated_at"] for record in records[1:]]
    assert updates == sorted(set(updates))


def test_deleted_instance_stays_as_a_marked_row_without_what_nova_removes(
    operations: InstanceOperations, fleet: Fleet, cell: Cell
) -> None:
    uuid = operations.create(VALUES).uuid
    operations.delete(uuid)

    record = stored(cell, uuid).record
    assert record["deleted"]
    assert record["vm_state"] == "deleted"
    assert record["deleted_at"] == record["terminated_at"] == record["updated_at"]
    assert (record["tags"], record["metadata"], record["block_devices"]) == ([], {}, [])
    assert record["host"] == "host-1"
    mapping = fleet.mapping_of(uuid)
    assert mapping is not None
    assert mapping.queued_for_delete


def test_unknown_and_deleted_instances_cannot_be_changed(operations: InstanceOperations, engine: Engine) -> None:
    uuid = operations.create(VALUES).uuid
    operations.delete(uuid)
    with pytest.raises(InstanceNotFoundError, match=uuid):
        operations.start(uuid)
    with pytest.raises(InstanceNotFoundError):
        operations.delete("no-such")
    assert len(announced(engine)) == len(["create", "delete"])


def test_refused_transition_changes_and_announces_nothing(
    operations: InstanceOperations, engine: Engine, cell: Cell
) -> None:
    uuid = operations.create(VALUES).uuid
    with pytest.raises(InvalidTransitionError, match=r"Cannot 'start' instance .* while it is in vm_state active"):
        operations.start(uuid)
    operations.stop(uuid)
    with pytest.raises(InvalidTransitionError):
        operations.move(uuid, "host-2")
    with pytest.raises(InvalidTransitionError):
        operations.stop(uuid)
    assert stored(cell, uuid).revision == len(announced(engine)) == len(["create", "stop"])


def test_change_that_cannot_be_announced_is_not_made(
    operations: InstanceOperations, engine: Engine, cell: Cell
) -> None:
    uuid = operations.create(VALUES).uuid
    with pytest.raises(PayloadError, match="metadata"):
        operations.update(uuid, {"metadata": {"size": 5}})
    assert stored(cell, uuid).revision == len(announced(engine)) == 1


def test_values_that_no_record_can_hold_are_refused_by_name(operations: InstanceOperations) -> None:
    with pytest.raises(UnknownFieldError, match="'colour'"):
        operations.create({"colour": "red"})
    with pytest.raises(InvalidValueError, match="'display_name' cannot be 5: expected text"):
        operations.create({"display_name": 5})
    for text in ("a\0", "\ud800"):
        with pytest.raises(InvalidValueError, match=r"'metadata'.*without NUL"):
            operations.create({"metadata": {"a": [text]}})
        with pytest.raises(InvalidValueError, match="'display_name'"):
            operations.create({"display_name": text})
    with pytest.raises(InvalidValueError, match="'tags'"):
        operations.create({"tags": None})
    with pytest.raises(InvalidValueError, match=r"'flavor'.*also vcpus"):
        operations.create({"flavor": {name: value for name, value in FLAVOR.items() if name != "vcpus"}})
    with pytest.raises(InvalidValueError, match="'flavor_id'"):
        operations.create({"flavor_id": "m1"})
    with pytest.raises(UnknownFieldError, match="'colour'"):
        operations.update("any", {"colour": "red"})


def test_many_instances_are_created_in_one_transaction(
    operations: InstanceOperations, engine: Engine, fleet: Fleet, cell: Cell
) -> None:
    wanted = [VALUES | {"display_name": f"web-{number}"} for number in range(50)]
    created = operations.create_many(wanted)

    assert [stored(cell, changed.uuid).record["display_name"] for changed in created[:3]] == ["web-0", "web-1", "web-2"]
    assert [record["uuid"] for _, _, record in announced(engine)] == [changed.uuid for changed in created]
    assert fleet.count_mappings(cell.uuid) == len(wanted)


def test_uuid_of_another_instance_is_refused_and_nothing_is_created(
    operations: InstanceOperations, engine: Engine, fleet: Fleet, cell: Cell
) -> None:
    taken = operations.create({}).uuid
    operations.delete(taken)
    with pytest.raises(InstanceExistsError, match=taken) as refused:
        operations.create_many([{}, {"uuid": taken}])
    assert refused.value.uuids == (taken,)
    elsewhere = InstanceOperations(engine, fleet, fleet.add_cell("two", cell.kind, cell.database_url, "memory://"))
    with pytest.raises(InstanceExistsError, match=taken):
        elsewhere.create({"uuid": taken})
    with pytest.raises(InvalidValueError, match="another one for each"):
        operations.create_many([{"uuid": UNUSED}, {"uuid": UNUSED}])
    assert fleet.mapping_of(UNUSED) is None


def test_creation_that_did_not_get_as_far_as_the_cell_can_be_repeated(
    operations: InstanceOperations, engine: Engine, fleet: Fleet, cell: Cell, new_database: Callable[[], str]
) -> None:
    empty = create_database_engine(new_database())
    with pytest.raises(CellUnreachableError):
        InstanceOperations(empty, fleet, cell).create({"uuid": UNUSED})
    empty.dispose()
    assert operations.create_many([{"uuid": UNUSED}, {}])[0].uuid == UNUSED
    assert stored(cell, UNUSED).revision == 1
    assert fleet.count_mappings(cell.uuid) == 2


def test_instance_that_the_contract_refuses_leaves_no_mapping(operations: InstanceOperations, fleet: Fleet) -> None:
    with pytest.raises(PayloadError, match="state"):
        operations.create({"uuid": UNUSED, "vm_state": "sleeping"})
    assert fleet.mapping_of(UNUSED) is None


def test_deletion_that_did_not_get_as_far_as_the_fleet_can_be_repeated(
    operations: InstanceOperations, engine: Engine, fleet: Fleet, cell: Cell, new_database: Callable[[], str]
) -> None:
    uuid = operations.create({}).uuid
    empty = create_database_engine(new_database())
    with pytest.raises(FleetUnreachableError):
        InstanceOperations(engine, Fleet(empty), cell).delete(uuid)
    empty.dispose()
    with pytest.raises(InstanceNotFoundError):
        operations.delete(uuid)
    mapping = fleet.mapping_of(uuid)
    assert mapping is not None
    assert mapping.queued_for_delete


def test_unknown_instance_of_this_cell_may_be_one_of_another(operations: InstanceOperations, fleet: Fleet) -> None:
    other = fleet.add_cell("two", CellKind.NATIVE, "sqlite:///two.db", "memory://")
    fleet.add_mappings([InstanceMapping(UNUSED, other.uuid, None, None, 1)])
    with pytest.raises(InstanceNotFoundError):
        operations.delete(UNUSED)
    mapping = fleet.mapping_of(UNUSED)
    assert mapping is not None
    assert not mapping.queued_for_delete


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("uuid", UNUSED.upper()),
        ("uuid", UNUSED.replace("-", "")),
        ("launch_index", 2**63),
        ("created_at", -(10**17)),
        ("created_at", 10**18),
    ],
)
def test_value_that_not_everybody_can_hold_is_refused(
    operations: InstanceOperations, field: str, value: object
) -> None:
    with pytest.raises(InvalidValueError, match=f"'{field}'"):
        operations.create({field: value})
