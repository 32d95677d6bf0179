"""How much more a cluster holds."""

from dataclasses import replace

from fleetlight.manager.operations.balancing.capacity import Tier, count_of, tiers_of, without_reservations
from fleetlight.manager.operations.balancing.cluster import DEFAULT_POLICY, AllocationPolicy, DiskTemplate
from fleetlight.resources.amount import Amount
from tests.unit.manager.operations.balancing.test_plan import GROUP, cluster, instance, reserved

SIZE = Amount(2, 16384, 10240)


def test_instances_fill_what_is_free_and_then_come_smaller_ones() -> None:
    tiers = tiers_of(cluster(nodes=2), SIZE, DiskTemplate.PLAIN, stays_redundant=False)
    assert tiers[0] == Tier(SIZE, 6)
    assert tiers[1].size.memory_mib < SIZE.memory_mib
    assert count_of(SIZE, tiers) == 6


def test_plain_ones_leave_room_for_all_that_is_on_any_node() -> None:
    """Six fit on two nodes, and three of them when one is lost."""
    assert count_of(SIZE, tiers_of(cluster(nodes=2), SIZE, DiskTemplate.PLAIN)) == 3
    assert count_of(SIZE, tiers_of(cluster(nodes=3), SIZE, DiskTemplate.PLAIN)) == 6
    assert tiers_of(cluster(nodes=1), SIZE, DiskTemplate.PLAIN) == []


def test_nothing_is_added_where_a_node_could_not_be_lost_before() -> None:
    alone = cluster(*(instance(f"i{number}", "node1", None) for number in range(31)), nodes=2)
    tiny = tuple(replace(each, free_memory_mib=1000) if each.name == "node2" else each for each in alone.nodes)
    crowded = replace(alone, nodes=tiny)
    assert tiers_of(crowded, Amount(1, 128, 1024), DiskTemplate.PLAIN) == []
    assert tiers_of(crowded, Amount(1, 128, 1024), DiskTemplate.PLAIN, stays_redundant=False)


def test_mirrored_ones_leave_room_for_the_failure_of_a_node() -> None:
    tiers = tiers_of(cluster(nodes=2), SIZE, DiskTemplate.DRBD)
    assert count_of(SIZE, tiers) < 6


def test_reservations_take_up_room_and_are_left_out_on_request() -> None:
    crowded = cluster(*(reserved(f"r{number}", "node1", None) for number in range(16)), nodes=1)
    assert count_of(SIZE, tiers_of(crowded, SIZE, DiskTemplate.PLAIN, stays_redundant=False)) == 1
    assert count_of(SIZE, tiers_of(without_reservations(crowded), SIZE, DiskTemplate.PLAIN, stays_redundant=False)) == 3


def test_nothing_goes_to_a_group_that_is_not_allocated_to_or_to_a_node_that_is_offline() -> None:
    whole = cluster(nodes=2)
    closed = replace(whole, groups=(replace(GROUP, allocation_policy=AllocationPolicy.UNALLOCABLE),))
    assert tiers_of(closed, SIZE, DiskTemplate.PLAIN, stays_redundant=False) == []
    half = replace(whole, nodes=(replace(whole.nodes[0], is_offline=True), whole.nodes[1]))
    assert count_of(SIZE, tiers_of(half, SIZE, DiskTemplate.PLAIN, stays_redundant=False)) == 3


def test_policy_of_the_group_bounds_the_size() -> None:
    [(least, greatest)] = DEFAULT_POLICY.bounds
    policy = replace(DEFAULT_POLICY, bounds=((least, replace(greatest, memory_mib=8192)),))
    bounded = replace(cluster(nodes=1), groups=(replace(GROUP, policy=policy),))
    tiers = tiers_of(bounded, SIZE, DiskTemplate.PLAIN, stays_redundant=False)
    assert tiers[0].size.memory_mib == 8192


def test_template_that_no_policy_has_fits_nowhere() -> None:
    policy = replace(DEFAULT_POLICY, disk_templates=(DiskTemplate.DRBD,))
    bounded = replace(cluster(nodes=2), groups=(replace(GROUP, policy=policy),))
    assert tiers_of(bounded, SIZE, DiskTemplate.PLAIN, stays_redundant=False) == []


def test_nothing_is_added_while_a_node_could_not_take_over() -> None:
    crowded = cluster(*(instance(f"i{number}", "node1", "node2") for number in range(2)), nodes=2)
    full = tuple(replace(each, free_memory_mib=1000) for each in crowded.nodes)
    assert tiers_of(replace(crowded, nodes=full), Amount(1, 128, 1024), DiskTemplate.PLAIN, stays_redundant=False) == []
