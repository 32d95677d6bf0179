"""Whatever is asked of whatever hosts: capacity, alternates, order and failures as the contract has them.

The oracle is plain Python over what the test itself has put into the cell; it shares nothing with the product.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any
from uuid import UUID

import hypothesis.strategies as st
import pytest
from hypothesis import event, given, settings
from sqlalchemy import Engine, create_engine, delete, insert, select
from sqlalchemy.pool import StaticPool

from fleetlight.cells.capabilities import CellKind
from fleetlight.cells.database.engines import writing
from fleetlight.cells.errors import NoValidHostError
from fleetlight.cells.fleet.compute.server_groups import ServerGroup
from fleetlight.cells.model import Cell
from fleetlight.cells.tables import allocations, cell_metadata, compute_nodes, node_traits, services
from fleetlight.manager.operations.scheduling.request_spec import RequestSpec
from fleetlight.manager.operations.scheduling.select_destinations import claim_pair, select_destinations
from fleetlight.resources.amount import Amount
from tests.support.examples import examples

CELL = Cell(str(UUID(int=7)), "one", CellKind.NATIVE, "sqlite://", "memory://")
_AMOUNTS = ("vcpus", "memory_mib", "disk_gib")
_GROUPS = [str(UUID(int=100 + n)) for n in range(2)]


@dataclass
class Node:
    """A node as the test made it; amounts by name."""

    number: int
    host: str
    zone: str
    is_disabled: bool
    is_down: bool
    group: str
    total: dict[str, int]
    reserved: dict[str, int]
    permille: dict[str, int]
    traits: frozenset[str]
    taken: dict[str, dict[str, int]] = field(default_factory=dict)

    @property
    def uuid(self) -> str:
        return str(UUID(int=1000 + self.number))

    def limit(self, name: str) -> Fraction:
        return (self.total[name] - self.reserved[name]) * Fraction(self.permille[name], 1000)

    def used(self, name: str) -> int:
        return sum(amounts[name] for amounts in self.taken.values())

    def has_room(self, demand: dict[str, int]) -> bool:
        return all(self.used(name) + demand[name] <= self.limit(name) for name in _AMOUNTS)


@st.composite
def nodes_of_a_cell(draw: st.DrawFn) -> list[Node]:
    small = st.integers(0, 4)
    found = []
    for number in range(1, draw(st.integers(3, 8)) + 1):
        found.append(
            Node(
                number=number,
                host=f"h{number}",
                zone=draw(st.sampled_from(["west", "east"])),
                is_disabled=draw(st.integers(0, 7)) == 0,
                is_down=draw(st.integers(0, 7)) == 0,
                group=draw(st.sampled_from(_GROUPS)),
                total={"vcpus": 4 + draw(small), "memory_mib": 100 * draw(st.integers(4, 12)), "disk_gib": 8},
                reserved={"vcpus": draw(st.integers(0, 1)), "memory_mib": 100 * draw(st.integers(0, 1)), "disk_gib": 0},
                permille={"vcpus": draw(st.sampled_from([1000, 1500, 4000])), "memory_mib": 1000, "disk_gib": 1000},
                traits=frozenset(draw(st.sets(st.sampled_from(["CUSTOM_A", "CUSTOM_B"])))),
            )
        )
    for number in range(draw(st.integers(0, 6))):
        node = draw(st.sampled_from(found))
        amounts = {"vcpus": draw(st.integers(0, 2)), "memory_mib": 50 * draw(small), "disk_gib": draw(small)}
        if node.has_room(amounts):
            node.taken[str(UUID(int=number))] = amounts
    return found


@dataclass(frozen=True)
class Asked:
    demand: dict[str, int]
    spec: RequestSpec
    count: int
    max_attempts: int

    @property
    def uuids(self) -> list[str]:
        return [str(UUID(int=500 + n)) for n in range(self.count)]


@st.composite
def requests(draw: st.DrawFn) -> Asked:
    count = draw(st.integers(1, 4))
    policy = draw(st.sampled_from([None, None, "anti-affinity", "soft-anti-affinity", "soft-affinity", "affinity"]))
    members = tuple(str(UUID(int=n)) for n in draw(st.sets(st.integers(0, 5), max_size=2)))
    own = tuple(str(UUID(int=500 + n)) for n in range(count))
    group = None
    if policy is not None:
        members = members[:1] if policy == "affinity" else members
        group = ServerGroup(str(UUID(int=9)), "g", "red", "ada", policy, None, (*members, *own))
    demand = {
        "vcpus": draw(st.integers(0, 3)),
        "memory_mib": draw(st.sampled_from([0, 100, 250])),
        "disk_gib": draw(st.integers(0, 3)),
    }
    spec = RequestSpec(
        zone=draw(st.sampled_from([None, None, None, "west"])),
        without=draw(st.sampled_from([(), (), ("h2",)])),
        node_group=draw(st.sampled_from([None, None, None, _GROUPS[0]])),
        required_traits=draw(st.sampled_from([(), (), (), ("CUSTOM_A",)])),
        forbidden_traits=draw(st.sampled_from([(), (), (), ("CUSTOM_B",)])),
        group=group,
    )
    return Asked(demand, spec, count, draw(st.integers(1, 4)))


def suits(node: Node, nodes: Sequence[Node], asked: Asked, uuid: str) -> bool:
    spec, group = asked.spec, asked.spec.group
    policy = None if group is None else group.policy
    others = set() if group is None else set(group.members) - {uuid}
    placed = {member: {each.host for each in nodes if member in each.taken} for member in others}
    return (
        not node.is_down
        and not node.is_disabled
        and spec.zone in {None, node.zone}
        and node.host not in spec.without
        and spec.node_group in {None, node.group}
        and node.traits.issuperset(spec.required_traits)
        and not node.traits.intersection(spec.forbidden_traits)
        and (policy != "affinity" or all(node.host in hosts for hosts in placed.values() if hosts))
        and (policy != "anti-affinity" or not others & node.taken.keys())
        and node.has_room(asked.demand)
    )


def rank(node: Node, asked: Asked, uuid: str) -> tuple[Any, ...]:
    """Less is better: the soft policy, then the largest part of memory that is free, then the fewest instances."""
    group = asked.spec.group
    sign = {"soft-affinity": -1, "soft-anti-affinity": 1}.get("" if group is None else group.policy, 0)
    members = set() if group is None else set(group.members) - {uuid}
    # Memory has no ratio but 1 here, so its limit is a whole number; of none at all, one MiB is the measure.
    limit = int(node.limit("memory_mib"))
    free = (limit - node.used("memory_mib")) / max(1, limit)
    return sign * len(members & node.taken.keys()), -free, len(node.taken), node.number


def expected(nodes: Sequence[Node], asked: Asked) -> list[list[str]] | None:
    """The hosts of each instance, chosen one after the other, or None if one finds none; takes it up in `nodes`."""
    chosen = []
    for uuid in asked.uuids:
        best = min(
            (node for node in nodes if suits(node, nodes, asked, uuid)),
            key=lambda node: rank(node, asked, uuid),
            default=None,
        )
        if best is None:
            return None
        best.taken[uuid] = dict(asked.demand)
        chosen.append(best.host)
    last = asked.uuids[-1]
    rest = [node for node in nodes if node.host not in chosen and suits(node, nodes, asked, last)]
    rest.sort(key=lambda node: rank(node, asked, last))
    alternates = [node.host for node in rest][: asked.max_attempts - 1]
    return [[host, *alternates] for host in chosen]


@pytest.fixture(scope="module")
def database() -> Iterator[Engine]:
    engine = create_engine("sqlite://", poolclass=StaticPool)
    cell_metadata.create_all(engine)
    yield engine
    engine.dispose()


def fill(engine: Engine, nodes: Sequence[Node]) -> None:
    with writing(engine) as connection:
        for table in (allocations, node_traits, compute_nodes, services):
            connection.execute(delete(table))
        for node in nodes:
            common = {"id": node.number, "uuid": node.uuid, "created_at": 0}
            service = {"host": node.host, "binary": "nova-compute", "availability_zone": node.zone, "updated_at": 0}
            flags = {"disabled": node.is_disabled, "forced_down": node.is_down}
            connection.execute(insert(services).values(**common, **service, **flags))
            kinds = {"hypervisor_type": "x", "hypervisor_version": 1, "host_ip": "127.0.0.1", "group_uuid": node.group}
            amounts = {
                **node.total,
                **{f"reserved_{name}": node.reserved[name] for name in _AMOUNTS},
                **{f"{name}_permille": node.permille[name] for name in _AMOUNTS},
            }
            name = {"service_id": node.number, "hypervisor_hostname": f"{node.host}.example.org"}
            connection.execute(insert(compute_nodes).values(**common, **name, **kinds, **amounts))
            for trait in node.traits:
                connection.execute(insert(node_traits).values(node_id=node.number, trait=trait))
            for uuid, taken in node.taken.items():
                connection.execute(insert(allocations).values(instance_uuid=uuid, node_id=node.number, **taken))


def taken(engine: Engine) -> set[tuple[Any, ...]]:
    with engine.connect() as connection:
        columns = [allocations.c[name] for name in ("node_id", "instance_uuid", *_AMOUNTS)]
        return set(map(tuple, connection.execute(select(*columns))))


def counted(nodes: Sequence[Node]) -> set[tuple[Any, ...]]:
    return {
        (node.number, uuid, *(amounts[name] for name in _AMOUNTS))
        for node in nodes
        for uuid, amounts in node.taken.items()
    }


@settings(max_examples=examples(60), deadline=None)
@given(nodes_of_a_cell(), requests())
def test_hosts_are_chosen_in_the_order_of_the_weighers_and_claimed_all_or_none(
    database: Engine, nodes: list[Node], asked: Asked
) -> None:
    before = counted(nodes)
    fill(database, nodes)
    wanted = expected(nodes, asked)
    try:
        with writing(database) as connection:
            selections = select_destinations(
                connection,
                CELL,
                asked.uuids,
                Amount.of_gib(**asked.demand),
                asked.spec,
                max_attempts=asked.max_attempts,
            )
    except NoValidHostError:
        event("no valid host")
        assert wanted is None
        assert taken(database) == before
        return
    event(f"{len(selections[0]) - 1} alternates")
    assert [[each.service_host for each in one] for one in selections] == wanted
    assert taken(database) == counted(nodes)
    for node in nodes:
        assert all(node.used(name) <= node.limit(name) or not node.taken for name in _AMOUNTS)
    chosen = {one[0].service_host for one in selections}
    for one in selections:
        hosts = [each.service_host for each in one]
        assert {each.cell_uuid for each in one} == {CELL.uuid}
        assert not chosen.intersection(hosts[1:])
        assert max(Counter(hosts).values()) == 1
        assert len(hosts) <= asked.max_attempts


@settings(max_examples=examples(30), deadline=None)
@given(nodes_of_a_cell(), requests())
def test_mirrored_disks_get_two_nodes_of_one_group_or_none(database: Engine, nodes: list[Node], asked: Asked) -> None:
    uuid, demand = asked.uuids[0], asked.demand
    mirrored = {"vcpus": 0, "memory_mib": 0, "disk_gib": demand["disk_gib"]}

    def may_be_second(first: Node, second: Node) -> bool:
        return (
            second is not first
            and first.group == second.group
            and not (second.is_down or second.is_disabled or second.host in asked.spec.without)
            and second.has_room(mirrored)
        )

    pairs = {
        (first.host, second.host)
        for first in nodes
        for second in nodes
        if suits(first, nodes, asked, uuid) and may_be_second(first, second)
    }
    fill(database, nodes)
    before = taken(database)
    try:
        with writing(database) as connection:
            first, second = claim_pair(connection, uuid, Amount.of_gib(**demand), asked.spec)
    except NoValidHostError:
        event("no pair")
        assert not pairs
        assert taken(database) == before
        return
    assert (first.service_host, second.service_host) in pairs
    assert taken(database) - before == {
        (first.node_id, uuid, *(demand[name] for name in _AMOUNTS)),
        (second.node_id, uuid, *(mirrored[name] for name in _AMOUNTS)),
    }
