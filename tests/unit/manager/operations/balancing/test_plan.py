"""Which moves balance a cluster."""

from dataclasses import replace

import pytest

from fleetlight.manager.operations.balancing.cluster import (
    Cluster,
    ClusterInstance,
    ClusterNode,
    DiskTemplate,
    InstanceStatus,
    NodeGroup,
)
from fleetlight.manager.operations.balancing.errors import UnknownGroupError
from fleetlight.manager.operations.balancing.moves import MoveKind
from fleetlight.manager.operations.balancing.plan import GroupPlan, NodesOfInstance, plan_balance

GROUP = NodeGroup("default", "uuid-1")


def node(name: str, group: NodeGroup = GROUP) -> ClusterNode:
    return ClusterNode(name, group.uuid, 65536, 1024, 64512, 409600, 409600, 16)


def instance(name: str, primary: str, secondary: str | None) -> ClusterInstance:
    template = DiskTemplate.SHARED_FILE if secondary is None else DiskTemplate.DRBD
    return ClusterInstance(name, 2048, 10240, 2, InstanceStatus.RUNNING, primary, secondary, template)


def reserved(name: str, primary: str, secondary: str | None) -> ClusterInstance:
    return replace(instance(name, primary, secondary), status=InstanceStatus.ADMIN_DOWN, is_forthcoming=True)


def cluster(*instances: ClusterInstance, nodes: int = 4) -> Cluster:
    """As it is reported once the real ones of these instances are there."""
    empty = Cluster((GROUP,), tuple(node(f"node{number}") for number in range(1, nodes + 1)), ())
    return with_instances(empty, *instances)


def with_instances(empty: Cluster, *instances: ClusterInstance) -> Cluster:
    taken = dict.fromkeys((node.name for node in empty.nodes), (0, 0))
    for each in instances:
        if each.is_forthcoming:
            continue
        for name in filter(None, (each.primary, each.secondary)):
            memory, disk = taken[name]
            memory += each.memory_mib if name == each.primary and each.uses_memory else 0
            taken[name] = (memory, disk + (each.disk_mib if each.uses_local_storage else 0))
    nodes = (
        replace(
            node,
            free_memory_mib=node.free_memory_mib - taken[node.name][0],
            free_disk_mib=node.free_disk_mib - taken[node.name][1],
        )
        for node in empty.nodes
    )
    return replace(empty, nodes=tuple(nodes), instances=instances)


def only(groups: object) -> GroupPlan:
    assert isinstance(groups, list)
    [group] = groups
    assert isinstance(group, GroupPlan)
    return group


def test_three_reservations_on_two_of_three_nodes_are_spread() -> None:
    crowded = cluster(*(reserved(f"uuid-{number}", "node1", "node2") for number in range(3)), nodes=3)
    plan = only(plan_balance(crowded).groups)
    assert plan.moves
    assert plan.score_after == pytest.approx(0)


def test_reservation_moves_rather_than_an_instance_and_changes_both_nodes_in_one_move() -> None:
    crowded = cluster(
        instance("web", "node1", "node2"),
        instance("db", "node3", "node4"),
        *(reserved(f"uuid-{number}", "node1", "node2") for number in range(2)),
    )
    plan = only(plan_balance(crowded).groups)
    assert plan.moves[0].is_forthcoming
    assert plan.moves[0].kind is MoveKind.PLACE
    assert {plan.moves[0].target.primary, plan.moves[0].target.secondary} == {"node3", "node4"}


def test_gains_are_what_is_between_the_scores() -> None:
    plan = only(plan_balance(cluster(*(instance(f"i{n}", "node1", "node2") for n in range(6)))).groups)
    assert sum(move.gain for move in plan.moves) == pytest.approx(plan.score_before - plan.score_after)
    assert plan.moves[-1].score_after == plan.score_after


def test_of_equal_moves_the_one_with_fewer_steps_then_the_first_name_in_nice_order() -> None:
    names = ("web10", "web9")
    plan = only(plan_balance(cluster(*(instance(name, "node1", None) for name in names), nodes=2)).groups)
    assert [move.instance for move in plan.moves] == ["web9"]


def test_nothing_leaves_its_group() -> None:
    other = NodeGroup("other", "uuid-2")
    empty = cluster(nodes=2)
    both = replace(empty, groups=(GROUP, other), nodes=(*empty.nodes, node("far1", other), node("far2", other)))
    crowded = with_instances(
        both, reserved("uuid-1", "node1", "node2"), *(instance(f"i{n}", "node1", "node2") for n in range(4))
    )
    first, second = plan_balance(crowded).groups
    assert first.moves
    assert {move.target.primary for move in first.moves} <= {"node1", "node2"}
    assert not second.moves


def test_group_is_chosen_by_name_or_uuid() -> None:
    assert [group.group for group in plan_balance(cluster(), "uuid-1").groups] == ["default"]
    with pytest.raises(UnknownGroupError, match="no node group 'far'; there are default"):
        plan_balance(cluster(), "far")


def test_offline_node_is_left_and_not_gone_to() -> None:
    online = cluster(instance("web", "node1", "node2"), instance("db", "node3", None))
    nodes = tuple(replace(node, is_offline=node.name == "node1") for node in online.nodes)
    plan = only(plan_balance(replace(online, nodes=nodes)).groups)
    assert any(move.instance == "web" for move in plan.moves)
    after = plan_balance(replace(online, nodes=nodes)).after
    assert all("node1" not in (each.primary, each.secondary) for each in after.instances)


def test_only_reservations_go_from_hosts_with_an_agent_to_others_or_back() -> None:
    mirrored = (instance(f"i{number}", "node1", "node2") for number in range(4))
    others = (instance(f"other{number}", "node3", None) for number in range(4))
    crowded = cluster(*mirrored, *others, reserved("uuid-1", "node3", "node4"), nodes=6)
    nodes = tuple(replace(node, has_agent=node.name in ("node1", "node2", "node5")) for node in crowded.nodes)
    plan = only(plan_balance(replace(crowded, nodes=nodes)).groups)
    assert plan.moves
    for move in plan.moves:
        reached = {move.target.primary, move.target.secondary} - {None}
        if move.is_forthcoming:
            continue
        assert reached <= (
            {"node1", "node2", "node5"} if move.instance.startswith("i") else {"node3", "node4", "node6"}
        )


def test_instance_that_is_not_auto_balanced_stays() -> None:
    pinned = (replace(instance(f"i{n}", "node1", "node2"), is_auto_balanced=False) for n in range(4))
    assert not only(plan_balance(cluster(*pinned)).groups).moves


def test_local_disk_without_a_mirror_stays_unless_it_is_reserved() -> None:
    plain = replace(instance("web", "node1", None), disk_template=DiskTemplate.PLAIN)
    crowded = cluster(*(replace(plain, name=f"i{n}") for n in range(4)))
    assert not only(plan_balance(crowded).groups).moves
    free = replace(plain, status=InstanceStatus.ADMIN_DOWN, is_forthcoming=True)
    moved = only(plan_balance(cluster(*(replace(free, name=f"r{n}") for n in range(4)))).groups).moves
    assert moved
    assert all(move.kind is MoveKind.FAILOVER_TO for move in moved)


def test_instances_that_exclude_each_other_do_not_meet() -> None:
    tagged = replace(instance("a", "node1", None), tags=("service:db",))
    crowded = cluster(tagged, replace(tagged, name="b"), replace(tagged, name="c", primary="node2"), nodes=3)
    plan = plan_balance(replace(crowded, tags=("htools:iextags:service",)))
    assert sorted(each.primary for each in plan.after.instances) == ["node1", "node2", "node3"]


def test_reservation_takes_no_room_that_is_not_there() -> None:
    small = cluster(nodes=3)
    nodes = tuple(
        replace(each, free_disk_mib=10240 if each.name == "node3" else each.free_disk_mib) for each in small.nodes
    )
    crowded = replace(small, nodes=nodes, instances=tuple(reserved(f"r{n}", "node1", "node2") for n in range(3)))
    after = plan_balance(crowded).after
    assert all("node3" not in (each.primary, each.secondary) for each in after.instances)


def test_cluster_after_the_moves_reports_what_is_taken_on_other_nodes() -> None:
    plan = plan_balance(cluster(*(instance(f"i{n}", "node1", "node2") for n in range(2)), nodes=2))
    [move] = only(plan.groups).moves
    assert move.target == NodesOfInstance("node2", "node1")
    assert [each.free_memory_mib for each in plan.after.nodes] == [64512 - 2048] * 2
    assert [each.free_disk_mib for each in plan.after.nodes] == [409600 - 20480] * 2
