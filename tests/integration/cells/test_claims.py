"""The host that an instance gets, against the same chosen among all nodes in plain Python."""

import random
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import Connection, Engine, func, insert, select, text
from sqlalchemy.event import listen
from sqlalchemy.exc import OperationalError
from structlog.testing import capture_logs

from fleetlight.cells.database.engines import writing
from fleetlight.cells.errors import NoValidHostError
from fleetlight.cells.fleet.compute.server_groups import ServerGroup
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.kinds.native.nodes import ComputeNode
from fleetlight.cells.model import NO_REQUEST, Cell
from fleetlight.cells.tables import allocations, instances, jobs
from fleetlight.manager.operations.actions.accepting import Acceptance
from fleetlight.manager.operations.actions.vocabulary import VOCABULARY
from fleetlight.manager.operations.hosts.cell_nodes import CellNodes, NewHost
from fleetlight.manager.operations.jobs.errors import NodeCallError
from fleetlight.manager.operations.jobs.nodes import NodeCall
from fleetlight.manager.operations.jobs.worker import Worker
from fleetlight.manager.operations.scheduling import hosts
from fleetlight.manager.operations.scheduling.announced_selection import tried_selection
from fleetlight.manager.operations.scheduling.request_spec import RequestSpec
from fleetlight.manager.operations.scheduling.select_destinations import claim_alternate, claim_host
from fleetlight.resources.amount import Amount

NEW = str(UUID(int=1_000_000))
POLICIES = ("affinity", "anti-affinity", "soft-affinity", "soft-anti-affinity")
DEMANDS = (Amount.of_gib(1, 512, 1), Amount.of_gib(4, 3072, 0), Amount(), Amount.of_gib(64, 1, 1))


def fill(
    engine: Engine, cell: Cell, dice: random.Random
) -> tuple[Sequence[ComputeNode], Mapping[str, Collection[str]]]:
    """Hosts, some alike and some full, disabled or down, and where instances have claimed something."""
    found = CellNodes(engine, cell)
    sizes = [Amount.of_gib(16, memory, 40) for memory in (0, 3000, 4096, 8192)]
    found.add_hosts([NewHost(f"h{n}", dice.choice(sizes), dice.choice(("west", "east"))) for n in range(14)])
    for node in found.nodes()[::5]:
        found.update_service(node.service.uuid, disabled=True, disabled_reason=None, forced_down=False)
    for node in found.nodes()[3::7]:
        found.update_service(node.service.uuid, disabled=False, disabled_reason=None, forced_down=True)
    hosts_of: dict[str, set[str]] = {}
    nodes = found.nodes()
    with writing(engine) as connection:
        for number in range(30):
            uuid = str(UUID(int=number))
            for node in dice.sample(nodes, dice.choice((1, 1, 2))):  # one that moves has two
                size = {"vcpus": dice.randint(0, 6), "memory_mib": dice.choice((0, 256, 1024)), "disk_gib": 2}
                connection.execute(insert(allocations).values(instance_uuid=uuid, node_id=node.id, **size))
                hosts_of.setdefault(uuid, set()).add(node.service.host)
    return found.nodes(), hosts_of


def some_spec(dice: random.Random) -> RequestSpec:
    some = [str(UUID(int=number)) for number in dice.sample(range(32), 5)]  # two of them are nowhere
    policy = dice.choice((None, *POLICIES))
    # Members that belong together mostly share a host already, so there are few of them here.
    members = tuple(some[: 1 if policy == "affinity" else 5])
    limit = dice.choice((None, 2)) if policy == "anti-affinity" else None
    group = None if policy is None else ServerGroup(NEW, "g", "red", "ada", policy, limit, members)
    kind = dice.randrange(6)
    return RequestSpec(
        zone="west" if kind == 0 else None,
        host="h4" if kind == 1 else None,
        without=("h1", "h2") if kind == 2 else (),
        beside=tuple(some[:1]) if kind == 3 else (),
        apart=tuple(some[:3]) if kind == 4 else (),
        group=group,
    )


def best(
    nodes: Sequence[ComputeNode], hosts_of: Mapping[str, Collection[str]], demand: Amount, spec: RequestSpec
) -> str | None:
    group = spec.group
    members = () if group is None else group.members
    neighbours = Counter(host for member in members for host in hosts_of.get(member, ()))

    def may(node: ComputeNode) -> bool:
        host, is_forced = node.service.host, spec.host is not None
        policy = None if group is None else group.policy
        return (
            node.service.is_up
            and (is_forced or not node.service.disabled)
            and spec.zone in {None, node.service.availability_zone}
            and spec.host in {None, host}
            and host not in spec.without
            and all(host in hosts_of.get(uuid, ()) for uuid in spec.beside)
            and not any(host in hosts_of.get(uuid, ()) for uuid in spec.apart)
            and (policy != "affinity" or all(host in hosts_of[uuid] for uuid in members if uuid in hosts_of))
            and (policy != "anti-affinity" or neighbours[host] < ((group and group.max_server_per_host) or 1))
            and demand.fits_into(node.free)
        )

    def rank(node: ComputeNode) -> tuple[int, float, int, int]:
        sign = {"soft-affinity": -1, "soft-anti-affinity": 1}.get("" if group is None else group.policy, 0)
        free = node.free.memory_mib / max(1, node.capacity.memory_mib)
        return sign * neighbours[node.service.host], -free, node.instance_count, node.id

    chosen = min(filter(may, nodes), key=rank, default=None)
    return None if chosen is None else chosen.service.host


@pytest.mark.parametrize("seed", range(4))
def test_instance_gets_the_best_of_all_nodes_that_may_take_it(engine: Engine, cell: Cell, seed: int) -> None:
    dice = random.Random(seed)
    nodes, hosts_of = fill(engine, cell, dice)
    chosen = Counter[bool]()
    for _ in range(100):
        demand, spec = dice.choice(DEMANDS), some_spec(dice)
        expected = best(nodes, hosts_of, demand, spec)
        chosen[expected is not None] += 1
        assert claimed(engine, demand, spec) == expected, (demand, spec)
    assert min(chosen[True], chosen[False]) > 10


@pytest.mark.parametrize("policy", [None, *POLICIES])
def test_request_costs_as_many_statements_for_many_instances_as_for_a_few(
    engine: Engine, cell: Cell, policy: str | None
) -> None:
    CellNodes(engine, cell).add_hosts([NewHost(f"h{n:03}", Amount.of_gib(400, 400, 400)) for n in range(300)])
    statements: list[str] = []
    listen(engine, "before_cursor_execute", lambda *call: statements.append(call[2]))

    def cost(count: int) -> int:
        uuids = [str(UUID(int=number)) for number in range(count)]
        group = None if policy is None else ServerGroup(NEW, "g", "red", "ada", policy, None, tuple(uuids))
        statements.clear()
        tried_selection(engine, cell, uuids, Amount.of_gib(1, 1, 1), RequestSpec(group=group), max_attempts=3)
        return len(statements)

    assert cost(300) == cost(3)


def test_of_many_nodes_few_are_read(engine: Engine, cell: Cell, monkeypatch: pytest.MonkeyPatch) -> None:
    CellNodes(engine, cell).add_hosts([NewHost(f"h{n:03}", Amount.of_gib(16, 4096, 40)) for n in range(100)])
    read: list[str] = []
    made = hosts._host

    def host(row: Any, query: hosts.HostQuery) -> hosts.Host:
        found = made(row, query)
        read.append(found.service_host)
        return found

    monkeypatch.setattr(hosts, "_host", host)
    assert claimed(engine, Amount.of_gib(1, 512, 1), RequestSpec()) == "h000"
    assert read == ["h000", "h001", "h002", "h003", "h000"]  # the last one under its lock


def test_node_that_filled_up_meanwhile_is_passed_over(
    engine: Engine, cell: Cell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when all that were read at once did."""
    CellNodes(engine, cell).add_hosts([NewHost(f"h{n}", Amount.of_gib(16, 4096, 40)) for n in range(7)])
    full = {node.id for node in CellNodes(engine, cell).nodes()[:6]}
    read = hosts.read_host

    def locked(connection: Connection, question: hosts.HostQuery, node_id: int) -> hosts.Host | None:
        return None if node_id in full else read(connection, question, node_id)

    monkeypatch.setattr("fleetlight.manager.operations.scheduling.select_destinations.read_host", locked)
    assert claimed(engine, Amount.of_gib(1, 512, 1), RequestSpec()) == "h6"
    assert claimed(engine, Amount.of_gib(1, 512, 1), RequestSpec(without=("h6",))) is None


def claimed(engine: Engine, demand: Amount, spec: RequestSpec) -> str | None:
    """The host that a claim gets, which is given back."""
    with engine.connect() as connection, connection.begin() as transaction:
        try:
            return claim_host(connection, NEW, demand, spec).service_host
        except NoValidHostError:
            return None
        finally:
            transaction.rollback()


@pytest.mark.parametrize(("count", "accepted"), [(1, 3), (2, 1)])
def test_last_room_is_given_to_as_many_requests_as_it_has_room_for(
    engine: Engine, cell: Cell, fleet: Fleet, count: int, accepted: int
) -> None:
    """Three hosts have room for one instance each, and four requests for `count` come at once: all or none of each."""
    CellNodes(engine, cell).add_hosts([NewHost(f"h{n}", Amount.of_gib(3, 4096, 40)) for n in range(3)])
    flavor = {"flavorid": "m", "name": "m", "vcpus": 2, "memory_mb": 512, "root_gb": 1, "ephemeral_gb": 0}
    schedulers = [Acceptance(engine, fleet, cell) for _ in range(4)]
    at_once = Barrier(len(schedulers))

    def create(scheduler: Acceptance) -> bool:
        at_once.wait(60)
        try:
            scheduler.create([{"flavor": flavor}] * count, {}, NO_REQUEST, needs_hosts=True)
        except NoValidHostError:
            return False
        return True

    with ThreadPoolExecutor(len(schedulers)) as threads:
        assert sum(threads.map(create, schedulers)) == accepted
    assert sorted(node.used.vcpus for node in CellNodes(engine, cell).nodes()) == sorted(
        [2] * (accepted * count) + [0] * (3 - accepted * count)
    )
    with engine.connect() as connection:
        assert connection.scalar(select(func.count()).select_from(instances)) == accepted * count


@pytest.mark.parametrize("new_database", [pytest.param("postgresql", marks=pytest.mark.postgresql)], indirect=True)
def test_two_that_pass_over_the_same_alternates_do_not_wait_for_each_other(engine: Engine, cell: Cell) -> None:
    """Each looks at two full nodes, in opposite orders: neither may hold the first while it looks at the second."""
    CellNodes(engine, cell).add_hosts([NewHost(f"h{n}", Amount.of_gib(1, 4096, 40)) for n in range(2)])
    [(first, second)] = tried_selection(engine, cell, [NEW], Amount.of_gib(1, 512, 1), RequestSpec(), max_attempts=2)
    with engine.begin() as one, engine.begin() as other:
        for connection in (one, other):
            connection.execute(text("SET LOCAL lock_timeout = '5s'"))
        for connection, alternate in ((one, first), (other, second), (one, second), (other, first)):
            assert claim_alternate(connection, alternate, NEW, Amount.of_gib(2, 512, 1), RequestSpec()) is None


@pytest.mark.parametrize("new_database", [pytest.param("postgresql", marks=pytest.mark.postgresql)], indirect=True)
def test_node_that_another_transaction_is_filling_is_not_waited_for_while_others_have_room(
    engine: Engine, cell: Cell
) -> None:
    """The member of a group waits, since it may want that very node, and so does who finds no other."""
    CellNodes(engine, cell).add_hosts([NewHost(f"h{n}", Amount.of_gib(2, 4096, 40)) for n in range(2)])
    group = ServerGroup("6b9e1d6f-9f39-4f2c-8d2a-7d44c1e1f0aa", "p", "u", "g", "soft-affinity", None)
    with engine.begin() as one, engine.begin() as other:
        assert claim_host(one, NEW, Amount.of_gib(1, 512, 1), RequestSpec()).service_host == "h0"
        assert claim_host(other, str(UUID(int=1)), Amount.of_gib(1, 512, 1), RequestSpec()).service_host == "h1"
        for spec in (RequestSpec(group=group), RequestSpec(host="h0")):
            with engine.connect() as third:
                third.execute(text("SET LOCAL lock_timeout = '200ms'"))
                with pytest.raises(OperationalError, match="lock timeout"):
                    claim_host(third, str(UUID(int=2)), Amount.of_gib(1, 512, 1), spec)


class HostsThatFailTogether:
    """Hosts of which the first two fail to build: the first time once both are asked, then at once."""

    def __init__(self) -> None:
        self._both = Barrier(2)
        self._asked: set[str] = set()

    def call(self, call: NodeCall, key: str) -> None:
        if call.host in {"h0", "h1"}:
            if call.host not in self._asked:
                self._asked.add(call.host)
                self._both.wait(60)
            raise NodeCallError(call.host, call.name, "no image")


def test_last_alternate_is_claimed_by_one_of_two_whose_hosts_fail_at_once(
    engine: Engine, cell: Cell, fleet: Fleet
) -> None:
    CellNodes(engine, cell).add_hosts([NewHost(f"h{n}", Amount.of_gib(3, 9000 - n, 40)) for n in range(3)])
    flavor = {"flavorid": "m", "name": "m", "vcpus": 2, "memory_mb": 512, "root_gb": 1, "ephemeral_gb": 0}
    Acceptance(engine, fleet, cell).create([{"flavor": flavor}] * 2, {}, NO_REQUEST, needs_hosts=True)
    failing = HostsThatFailTogether()

    def work(_number: int) -> None:
        with capture_logs():
            worker = Worker(engine, fleet, cell, VOCABULARY, failing)
            while worker.run_once() or count_live():
                pass

    def count_live() -> int:
        with engine.connect() as connection:
            return connection.scalar(select(func.count()).select_from(jobs).where(jobs.c.ended_at.is_(None))) or 0

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(work, range(2)))
    assert [node.used.vcpus for node in CellNodes(engine, cell).nodes()] == [0, 0, 2]
    with engine.connect() as connection:
        ends = connection.execute(select(instances.c.vm_state, instances.c.host)).all()
    assert sorted(map(tuple, ends), key=str) == [("active", "h2"), ("error", None)]
