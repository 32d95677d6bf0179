"""The hosts that the instances of one request get one after the other, out of those that were read."""

import random
from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

import pytest

from fleetlight.cells.fleet.compute.server_groups import ServerGroup
from fleetlight.manager.operations.scheduling.hosts import Host, HostQuery, after_claim
from fleetlight.manager.operations.scheduling.request_spec import RequestSpec
from fleetlight.manager.operations.scheduling.select_destinations import _best_of_each_moment
from fleetlight.resources.amount import Amount

DEMAND = Amount.of_gib(1, 512, 1)
POLICIES = (None, "affinity", "anti-affinity", "soft-affinity", "soft-anti-affinity")


class Counted(float):
    """A weight that counts how often it is compared."""

    comparisons = 0

    def __lt__(self, other: float) -> bool:
        Counted.comparisons += 1
        return float(self) < float(other)


def query_of(policy: str | None) -> HostQuery:
    group = None if policy is None else ServerGroup(str(UUID(int=1)), "g", "red", "ada", policy, None, ())
    return HostQuery(DEMAND, RequestSpec(group=group))


def some_hosts(query: HostQuery, count: int, dice: random.Random) -> Sequence[Host]:
    """Nodes with different room, of which some share a host."""
    nodes = [
        Host(
            node_id=number,
            node_uuid=str(UUID(int=number)),
            nodename=f"n{number}",
            group_uuid=str(UUID(int=0)),
            host_ip="",
            service_host=f"h{dice.randrange(count)}",
            availability_zone="nova",
            usable=Amount.of_gib(dice.randint(1, 8), 512 * dice.randint(1, 8), 100),
            used=Amount(),
            instances=dice.randint(0, 3),
            members=-1,
            weights=(),
        )
        for number in range(count)
    ]
    # As if a claim of another node had made each of them what it is.
    return [after_claim(node, query, -1) for node in nodes]


def plainly_chosen(hosts: Sequence[Host], query: HostQuery, count: int) -> list[int]:
    """Looks at all nodes for each instance."""
    group, left, chosen = query.spec.group, list(hosts), list[int]()
    while left and len(chosen) < count:
        best = min(left, key=lambda host: host.weights)
        chosen.append(best.node_id)
        is_beside = [host.service_host == best.service_host for host in left]
        left = [
            after_claim(host, query, best.node_id) if it else host for host, it in zip(left, is_beside, strict=True)
        ]
        if group is not None and group.policy == "affinity":
            left = [host for host, it in zip(left, is_beside, strict=True) if it]
        is_apart = group is not None and group.policy == "anti-affinity"
        left = [host for host in left if DEMAND.fits_into(host.usable - host.used)]
        left = [host for host in left if not (is_apart and host.service_host == best.service_host)]
    return chosen


@pytest.mark.parametrize("policy", POLICIES)
def test_each_instance_gets_the_best_host_of_its_moment(policy: str | None) -> None:
    dice, query = random.Random(4), query_of(policy)
    for _ in range(20):
        hosts = some_hosts(query, 12, dice)
        for count in (1, 5, 100):
            chosen = [host.node_id for host in _best_of_each_moment(hosts, query, count)]
            assert chosen == plainly_chosen(hosts, query, count)


def test_ten_times_as_many_instances_on_as_many_hosts_cost_little_more_than_ten_times_as_much() -> None:
    query, costs = query_of(None), list[int]()
    for count in (50, 500):
        plain = some_hosts(query, count, random.Random(4))
        hosts = [replace(host, weights=tuple(map(Counted, host.weights))) for host in plain]
        Counted.comparisons = 0
        assert len(_best_of_each_moment(hosts, query, count)) == count
        costs.append(Counted.comparisons)
    assert costs[1] < 25 * costs[0]
