"""What of a Ganeti cluster is taken, from what it says of nodes and instances."""

from typing import Any

from fleetlight.cells.kinds.ganeti.capacity import NODE_QUERY, capacity_of
from fleetlight.cells.node_capacity import UNKNOWN_DISK
from fleetlight.resources.amount import Amount
from fleetlight.resources.query_fields.definitions import ResultStatus

NODE = {
    **dict.fromkeys(NODE_QUERY, False),
    **{"name": "node1", "group": "default", "vm_capable": True, "ctotal": 16, "cnos": 1},
    **{"mtotal": 65536, "mfree": 60000, "dtotal": 409600, "dfree": 300000},
}


def row(**values: Any) -> dict[str, tuple[int, Any]]:
    said = {"pnode": "node1", "snodes": [], "status": "running", "forthcoming": False, "disk_template": "drbd"}
    sizes = {"be/vcpus": 2, "be/memory": 2048, "disk_usage": 10240}
    return {name: (0, value) for name, value in {**said, **sizes, **values}.items()}


def test_reservations_are_told_apart_on_both_their_nodes() -> None:
    nodes = [NODE, {**NODE, "name": "node2"}]
    first, second = capacity_of(nodes, [row(), row(forthcoming=True, snodes=["node2"])])
    assert first.used == Amount(3, 5536, 109600)
    assert (first.reserved, second.reserved) == (Amount(2, 2048, 10240), Amount(0, 0, 10240))
    # Four processors for each that there is, by the policy, less those of two instances and of the node.
    assert first.free == Amount(4 * 16 - 5, 57952, 289760)


def test_node_that_does_not_report_has_nothing_and_takes_nothing() -> None:
    [silent] = capacity_of([{**NODE, "mfree": ResultStatus.OFFLINE}], [row()])
    assert (silent.total, silent.used, silent.is_available) == (Amount(), Amount(), False)
    assert silent.is_silent


def test_node_that_says_nothing_of_disks_is_available_and_its_disk_unknown() -> None:
    [found] = capacity_of([{**NODE, "dtotal": ResultStatus.NO_DATA, "dfree": None}], [])
    assert (found.total, found.is_available, found.is_silent) == (Amount(16, 65536, 0), True, False)
    assert found.unknown == {UNKNOWN_DISK}
    assert capacity_of([NODE], [])[0].unknown == frozenset()


def test_ratio_of_processors_is_that_of_the_policy_of_the_group() -> None:
    groups: list[dict[str, Any]] = [
        {"name": "default", "ipolicy": {"vcpu-ratio": 2.5}},
        {"name": "old", "ipolicy": None},
    ]
    of_default, of_old = capacity_of([NODE, {**NODE, "group": "old"}], [], groups)
    assert (of_default.usable.vcpus, of_old.usable.vcpus) == (40, 64)


def test_drained_node_is_not_available_and_switched_off_instances_take_no_processors() -> None:
    [drained] = capacity_of([{**NODE, "drained": True}], [row(status="ADMIN_offline")])
    assert (drained.is_available, drained.used.vcpus) == (False, 1)
