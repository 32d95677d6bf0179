"""Clusters made of what cells answer to queries."""

from dataclasses import replace
from typing import Any

import pytest

from fleetlight.cells.node_capacity import NodeCapacity
from fleetlight.manager.operations.balancing.cluster import DEFAULT_POLICY, Cluster, DiskTemplate, InstanceStatus
from fleetlight.manager.operations.balancing.items import (
    GROUP_ITEM,
    INSTANCE_ITEM,
    NODE_ITEM,
    cluster_of_items,
    left_out,
)
from fleetlight.resources.amount import Amount

GROUP = {**dict.fromkeys(GROUP_ITEM), "name": "default", "uuid": "uuid-1"}
NODE = {
    **dict.fromkeys(NODE_ITEM),
    **{"name": "node1", "group.uuid": "uuid-1", "mtotal": 65536, "mfree": 60000, "dtotal": 409600, "dfree": 300000},
    **{"ctotal": 16, "offline": False, "drained": False, "vm_capable": True, "ndp/spindle_count": 2},
}
INSTANCE = {
    **dict.fromkeys(INSTANCE_ITEM),
    **{"name": "web", "uuid": "uuid-web", "pnode": "node1", "status": "running", "disk_usage": 10240},
    **{"be/memory": 2048, "be/vcpus": 2, "forthcoming": False, "vm_state": "active"},
}

NONE = Amount()


def made(*instances: dict[str, Any], **of_node: Any) -> Cluster:
    return cluster_of_items([GROUP], [{**NODE, **of_node}, {**NODE, "name": "node2"}], instances)


FLAVOR = {"flavorid": "1", "vcpus": 2, "memory_mb": 2048, "root_gb": 8, "ephemeral_gb": 2, "swap": 0}


def test_server_of_the_compute_api_takes_its_disk_along() -> None:
    [web] = made({**INSTANCE, "disk_template": "plain", "disk_usage": 2048, "flavor": FLAVOR}).instances
    assert (web.name, web.memory_mib, web.disk_mib, web.vcpus) == ("web", 2048, 10240, 2)
    assert (web.disk_template, web.uses_local_storage, web.is_auto_balanced) == (DiskTemplate.EXT, True, True)


@pytest.mark.parametrize(
    ("said", "of_node"),
    [
        ({"vm_state": "stopped"}, {}),
        ({"task_state": "rebooting"}, {}),
        ({"server_groups": ["uuid-g"]}, {}),
        ({"scheduler_hints": {"different_host": "uuid-other"}}, {}),
        ({"pinned_availability_zone": "east"}, {}),
        ({"flavor": {**FLAVOR, "extra_specs": {"trait:CUSTOM_GPU": "required"}}}, {}),
        ({}, {"offline": True}),
    ],
)
def test_server_that_cannot_migrate_live_or_asks_something_of_its_host_stays(said: Any, of_node: Any) -> None:
    """What it asks for, a score knows nothing of."""
    server = {**INSTANCE, "flavor": FLAVOR, **said}
    assert not made(server, **of_node).instances[0].is_auto_balanced
    assert made({**server, "flavor": None}, **of_node).instances[0].is_auto_balanced


def test_server_that_is_pinned_to_the_zone_of_all_nodes_may_move() -> None:
    east = NodeCapacity("node1", None, "east", True, Amount(16, 65536, 409600), Amount(16, 65536, 409600), NONE, NONE)
    server = {**INSTANCE, "flavor": FLAVOR, "pinned_availability_zone": "east"}
    nodes = [NODE, {**NODE, "name": "node2"}]
    for zone, may_move in (("east", True), ("west", False)):
        capacities = [east, replace(east, name="node2", zone=zone)]
        [found] = cluster_of_items([GROUP], nodes, [server], capacities).instances
        assert found.is_auto_balanced is may_move


def test_cell_tells_which_nodes_have_an_agent() -> None:
    node1 = NodeCapacity("node1", None, None, True, Amount(16), Amount(16), NONE, NONE, has_agent=True)
    nodes = [NODE, {**NODE, "name": "node2"}]
    made = cluster_of_items([GROUP], nodes, [], [node1, replace(node1, name="node2", has_agent=False)])
    assert [node.has_agent for node in made.nodes] == [True, False]


def test_instance_of_ganeti_stays_with_its_plain_disk() -> None:
    [web] = made({**INSTANCE, "disk_template": "plain", "flavor": {"flavorid": "ganeti"}}).instances
    assert (web.disk_template, web.claims_disk, web.disk_mib) == (DiskTemplate.PLAIN, False, 10240)


def test_mirrored_instance_of_ganeti_has_a_secondary_node() -> None:
    said = {"snodes": ["node2"], "disk_template": "drbd", "be/auto_balance": False, "be/spindle_use": 3, "tags": ["a"]}
    [web] = made({**INSTANCE, **said, "disk.spindles": [1, 2]}).instances
    assert (web.secondary, web.disk_template, web.is_auto_balanced) == ("node2", DiskTemplate.DRBD, False)
    assert (web.spindle_use, web.disk_spindles, web.tags) == (3, 3, ("a",))


def test_uuid_stands_in_for_a_missing_name_and_for_one_that_several_have() -> None:
    twins = ({**INSTANCE, "uuid": f"uuid-{number}"} for number in range(2))
    reserved = {**INSTANCE, "uuid": "uuid-r", "name": None, "forthcoming": True, "status": None}
    cluster = made(*twins, reserved)
    assert [each.name for each in cluster.instances] == ["uuid-0", "uuid-1", "uuid-r"]
    assert cluster.instances[2].is_forthcoming
    assert cluster.instances[2].status is InstanceStatus.ADMIN_DOWN


def test_node_of_a_cell_with_claims_has_free_what_is_only_claimed() -> None:
    down = {**INSTANCE, "name": "down", "status": "ADMIN_down"}
    reserved = {**INSTANCE, "name": "later", "forthcoming": True, "disk_template": "plain"}
    native = made(INSTANCE, down, reserved).nodes[0]
    assert (native.own_memory_mib, native.free_memory_mib, native.free_disk_mib) == (0, 60000 + 2048, 300000)


def test_what_a_node_keeps_for_itself_is_not_free_and_disks_are_claimed_in_whole_gib() -> None:
    usable = NodeCapacity("node1", None, None, True, Amount(16, 65536, 409600), Amount(8, 64512, 307200), NONE, NONE)
    more = replace(usable, name="node2", usable=Amount(64, 131072, 819200))
    plain = {**INSTANCE, "disk_template": "plain", "disk_usage": 1025, "flavor": {"flavorid": "ganeti"}}
    cluster = cluster_of_items([GROUP], [NODE, {**NODE, "name": "node2"}], [plain], [usable, more])
    less, overcommitted = cluster.nodes
    assert (less.own_memory_mib, less.free_memory_mib, less.free_disk_mib, less.vcpu_ratio) == (
        1024,
        58976,
        197600,
        0.5,
    )
    assert (overcommitted.own_memory_mib, overcommitted.free_memory_mib, overcommitted.vcpu_ratio) == (0, 60000, 4.0)
    assert cluster.instances[0].disk_mib == 2048


def test_nodes_of_a_cell_without_groups_are_one_group() -> None:
    cluster = cluster_of_items([], [{**NODE, "group.uuid": None}], [INSTANCE])
    assert [group.uuid for group in cluster.groups] == [cluster.nodes[0].group_uuid]


def test_live_figures_of_a_node_of_ganeti_stay_as_they_are() -> None:
    reserved = {**INSTANCE, "name": "later", "forthcoming": True}
    down = {**INSTANCE, "name": "down", "status": "ADMIN_down"}
    nodes = [{**NODE, "mnode": 1024, "cnos": 2}]
    [node] = cluster_of_items([GROUP], nodes, [INSTANCE, reserved, down], reports_usage=True).nodes
    assert (node.own_memory_mib, node.free_memory_mib, node.free_disk_mib, node.own_vcpus) == (1024, 60000, 300000, 2)


def test_nothing_goes_to_a_node_that_is_drained_not_for_instances_or_silent() -> None:
    for said in ({"offline": True}, {"drained": True}, {"vm_capable": False}, {"mfree": None}):
        first, second = made(**said).nodes
        assert (first.is_offline, second.is_offline) == (True, False), said


def test_instance_on_no_node_is_left_out() -> None:
    assert not made({**INSTANCE, "pnode": None}, {**INSTANCE, "snodes": ["node9"]}).instances


def test_only_what_is_on_a_node_that_is_not_there_is_named_and_not_what_is_on_none() -> None:
    placed = [{**INSTANCE, "pnode": None}, {**INSTANCE, "name": "far", "snodes": ["node9"]}]
    assert [each.name for each in left_out([GROUP], [NODE], placed, reports_usage=False)] == ["far"]


def test_nodes_of_cells_that_count_claims_need_not_say_what_they_use_themselves() -> None:
    nodes = [NODE, {**NODE, "name": "silent", "mfree": None}]
    for reports_usage, names in ((False, ["silent"]), (True, ["node1", "silent"])):
        assert [each.name for each in left_out([GROUP], nodes, [], reports_usage=reports_usage)] == names


def test_node_that_says_nothing_of_disks_is_named_where_instances_are_on_disks_of_nodes() -> None:
    nodes = [NODE, {**NODE, "name": "silent", "dfree": None}, {**NODE, "name": "away", "dfree": None, "offline": True}]
    of_nodes, elsewhere = ({**INSTANCE, "disk_template": template} for template in ("plain", "rbd"))
    assert left_out([GROUP], nodes, [elsewhere], reports_usage=False) == []
    [found] = left_out([GROUP], nodes, [elsewhere, of_nodes], reports_usage=False)
    assert (found.name, found.why) == ("silent", "has not said dtotal and dfree, and counts without disk")


def test_node_with_storage_of_its_own_has_to_say_its_spindles_and_one_without_a_disk_nothing_of_disks() -> None:
    said = {**NODE, "mnode": 1024, "cnos": 1, "dtotal": None, "dfree": None}
    [found] = left_out([GROUP], [said, {**said, "ndp/exclusive_storage": True}], [], reports_usage=True)
    assert found.why == "has not said sptotal, and counts as offline"
    [node] = cluster_of_items([GROUP], [said], [], reports_usage=True).nodes
    assert (node.is_offline, node.total_disk_mib, node.free_disk_mib) == (False, 0, 0)


def test_policy_of_a_group_is_read_and_filled_up() -> None:
    sizes = {"memory-size": 1, "cpu-count": 2, "disk-size": 3, "disk-count": 4, "nic-count": 5, "spindle-use": 6}
    said = {"minmax": [{"min": sizes, "max": sizes}], "vcpu-ratio": 2, "disk-templates": ["plain"]}
    policy = cluster_of_items([{**GROUP, "ipolicy": said}], [], []).groups[0].policy
    assert policy.bounds[0][0].spindle_use == 6
    assert (policy.vcpu_ratio, policy.disk_templates) == (2.0, (DiskTemplate.PLAIN,))
    assert (policy.standard, policy.spindle_ratio) == (DEFAULT_POLICY.standard, 32.0)
