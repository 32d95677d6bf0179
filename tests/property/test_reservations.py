"""Whatever is reserved, made, changed, moved and killed: no node is over its capacity, and no reservation is in vain.

Capacity is counted here from the rows alone, by rules of its own.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import hypothesis.strategies as st
from hypothesis import HealthCheck, event, given, settings
from sqlalchemy import select
from structlog.testing import capture_logs

from fleetlight.cells.errors import InstanceNotFoundError, NoValidHostError
from fleetlight.cells.model import NO_REQUEST
from fleetlight.cells.tables import allocations, compute_nodes, instances, job_locks, jobs
from fleetlight.manager.operations.actions.accepting import Acceptance, Order
from fleetlight.manager.operations.hosts.cell_nodes import CellNodes, NewHost
from fleetlight.manager.operations.jobs.worker import Worker
from fleetlight.manager.operations.opcodes.instances.create_parameters import InstanceCreate
from fleetlight.manager.operations.opcodes.instances.modify import InstanceSetParams
from fleetlight.manager.operations.opcodes.instances.move import InstanceFailover, InstanceReplaceDisks
from fleetlight.manager.operations.opcodes.instances.remove import InstanceRemove
from fleetlight.manager.operations.opcodes.opcode import OpCode
from fleetlight.manager.operations.submitting import JobSubmission
from fleetlight.manager.operations.vocabulary import ALL_OPERATIONS
from fleetlight.resources.amount import Amount
from tests.property.test_jobs import AnyWorker, Killed, job_cell, killed_at
from tests.support.examples import examples
from tests.support.fleets.tiny_vocabulary import JobCell

HOSTS = ("a", "b", "c")
ROOM = Amount.of_gib(vcpus=8, memory_mib=2560, disk_gib=30)
FLAVOR = {"flavorid": "1", "name": "m", "memory_mb": 1024, "vcpus": 1, "root_gb": 5, "ephemeral_gb": 0, "swap": 0}

_NAMES = st.sampled_from([f"r{number}" for number in range(4)])
_MEMORY = st.sampled_from([512, 1024, 2048])
_KIND = st.sampled_from(["plain", "drbd"])
_WORK = st.tuples(st.just("work"), st.lists(st.integers(0, 4), min_size=1, max_size=8))
_EVENTS = st.one_of(
    *[st.tuples(st.just("reserve"), _NAMES, _MEMORY, _KIND)] * 3,
    st.tuples(st.just("create"), _NAMES, _MEMORY, _KIND),
    st.tuples(st.just("server")),
    st.tuples(st.just("commit"), _NAMES),
    st.tuples(st.just("remove"), _NAMES),
    *[st.tuples(st.just("grow"), _NAMES, _MEMORY)] * 3,
    st.tuples(st.just("fail over"), _NAMES),
    st.tuples(st.just("replace"), _NAMES),
    st.tuples(st.just("delete server")),
    *[_WORK] * 4,
    st.tuples(st.just("kill"), st.integers(0, 4), st.integers(1, 12)),
)


def opcode_of(name: str, details: list[Any]) -> OpCode | None:
    """The operation that an event submits, if it submits one."""
    makers: dict[str, Callable[..., OpCode]] = {
        "reserve": lambda *made: InstanceCreate.read({**new_instance(*made), "forthcoming": True}),
        "create": lambda *made: InstanceCreate.read(new_instance(*made)),
        "commit": lambda name: InstanceCreate.read({"instance_name": name, "commit": True}),
        "remove": lambda name: InstanceRemove.read({"instance_name": name}),
        "grow": lambda name, memory: InstanceSetParams.read({"instance_name": name, "beparams": {"memory": memory}}),
        "fail over": lambda name: InstanceFailover.read({"instance_name": name}),
        "replace": lambda name: InstanceReplaceDisks.read(
            {"instance_name": name, "mode": "replace_new_secondary", "iallocator": "hail"}
        ),
    }
    return makers[name](*details) if name in makers else None


def new_instance(name: str, memory: int, template: str) -> dict[str, Any]:
    return {
        "instance_name": name,
        "mode": "create",
        "disk_template": template,
        "disks": [{"size": 5 * 1024}],
        "nics": [{}],
        "os_type": "debian-12",
        "beparams": {"memory": memory},
    }


class World:
    """A cell of three nodes, and what is asked of it."""

    def __init__(self, cell: JobCell) -> None:
        self._cell = cell
        CellNodes(cell.engine, cell.cell).add_hosts([NewHost(host, ROOM) for host in HOSTS])
        self._submission = JobSubmission(cell.engine, cell.cell)
        self._acceptance = Acceptance(cell.engine, cell.fleet, cell.cell)
        self._servers: list[str] = []
        self.worker = AnyWorker(cell.engine, cell.fleet, cell.cell, ALL_OPERATIONS, cell.nodes)

    def happen(self, name: str, details: list[Any]) -> None:
        opcode = opcode_of(name, details)
        if opcode is not None:
            self._submission.submit([opcode], NO_REQUEST)
        elif name == "server":
            values = {"display_name": "server", "project_id": "p", "user_id": "u", "image_ref": "", "flavor": FLAVOR}
            with suppress(NoValidHostError):
                rows = self._acceptance.create([values], {}, NO_REQUEST, needs_hosts=True)
                self._servers += [row.uuid for row in rows]
        elif name == "delete server" and self._servers:
            with suppress(InstanceNotFoundError):
                self._acceptance.accept(self._servers.pop(), Order("delete"))
        elif name == "kill":
            self.worker.first = details[0]
            with suppress(Killed), killed_at(self._cell, details[1]):
                self.worker.run_once()
        elif name == "work":
            for self.worker.first in details[0]:
                self.worker.run_once()
                self.check()
        self.check()

    def finish(self, worker: Worker) -> None:
        while worker.run_once():
            self.check()

    def check(self) -> None:
        """No node is over its capacity, and what is taken is taken by an instance that is there."""
        with self._cell.engine.connect() as connection:
            taken = connection.execute(select(allocations)).all()
            sizes = {row.id: row for row in connection.execute(select(compute_nodes))}
            there = {row.uuid: row for row in connection.execute(select(instances)) if not row.deleted}
        for node, size in sizes.items():
            on_node = [row for row in taken if row.node_id == node]
            for name in ("vcpus", "memory_mib", "disk_gib"):
                used = sum(getattr(row, name) for row in on_node)
                assert used <= getattr(size, name), (name, used)
        for row in taken:
            assert row.instance_uuid in there, "nothing is taken by what is not there"
            assert row.is_forthcoming == there[row.instance_uuid].forthcoming
        placed = {row.instance_uuid for row in taken}
        for uuid, row in there.items():
            if row.node is not None:
                assert uuid in placed
            assert not (row.forthcoming and row.power_state == 1)

    def reserved(self) -> list[str]:
        with self._cell.engine.connect() as connection:
            rows = connection.execute(select(instances)).all()
        return [row.uuid for row in rows if row.forthcoming and not row.deleted]

    def commit(self, uuid: str) -> str:
        self._submission.submit([InstanceCreate.read({"instance_name": uuid, "commit": True})], NO_REQUEST)
        self.finish(self.worker)
        with self._cell.engine.connect() as connection:
            statement = select(jobs.c.status).order_by(jobs.c.id.desc()).limit(1)
            status: str = connection.execute(statement).scalar_one()
        return status

    def lock_count(self) -> int:
        with self._cell.engine.connect() as connection:
            return len(connection.execute(select(job_locks)).all())


@settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(_EVENTS, min_size=20, max_size=50))
def test_every_reservation_can_be_made_real_and_no_node_is_ever_over_its_capacity(
    events: list[tuple[Any, ...]],
) -> None:
    with job_cell() as cell, capture_logs():
        world = World(cell)
        for name, *details in events:
            world.happen(name, details)
        world.worker.first = 0
        world.finish(world.worker)
        assert world.lock_count() == 0
        reserved = world.reserved()
        event(f"{min(len(reserved), 3)} reservations at the end")
        for uuid in reserved:
            assert world.commit(uuid) == "success"
        assert world.reserved() == []
