"""A worker is killed at every commit and at every call of a node of every operation on instances.

Another one goes on: the end is that of an undisturbed run, nothing is half made, taken twice, leaked or locked.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event, func, select

from fleetlight.cells.model import NO_REQUEST
from fleetlight.cells.tables import allocations, instances, job_locks, job_operations, jobs, network_nics, nic_macs
from fleetlight.manager.operations.cell_worker import SimulatedHosts
from fleetlight.manager.operations.jobs.nodes import NodeCall
from fleetlight.manager.operations.jobs.worker import Worker
from fleetlight.manager.operations.opcodes.instances.create_parameters import InstanceCreate
from fleetlight.manager.operations.opcodes.instances.modify import InstanceGrowDisk, InstanceRename, InstanceSetParams
from fleetlight.manager.operations.opcodes.instances.move import InstanceFailover, InstanceMigrate, InstanceReplaceDisks
from fleetlight.manager.operations.opcodes.instances.place_reservation import InstancePlace
from fleetlight.manager.operations.opcodes.instances.power import InstanceReboot, InstanceShutdown, InstanceStartup
from fleetlight.manager.operations.opcodes.instances.remove import InstanceRemove
from fleetlight.manager.operations.opcodes.opcode import OpCode
from fleetlight.manager.operations.submitting import JobSubmission
from fleetlight.manager.operations.vocabulary import ALL_OPERATIONS
from tests.contract.compute_fleet import ComputeFleet, compute_fleet

MIRRORED: Mapping[str, Any] = {
    "instance_name": "web1",
    "mode": "create",
    "disk_template": "drbd",
    "disks": [{"size": 2048}],
    "nics": [{}],
    "os_type": "debian-12",
    "pnode": "north-host0",
    "snode": "north-host1",
}
RESERVED = {**MIRRORED, "forthcoming": True}


def of(opcode: type[OpCode], **parameters: Any) -> OpCode:
    return opcode.read({"instance_name": "web1", **parameters})


# What there is before, and what is done then.
SCENARIOS: Mapping[str, tuple[Mapping[str, Any] | None, OpCode]] = {
    "create": (None, InstanceCreate.read(MIRRORED)),
    "reserve": (None, InstanceCreate.read(RESERVED)),
    "commit": (RESERVED, of(InstanceCreate, commit=True, nics=[{}, {}])),
    "remove": (MIRRORED, of(InstanceRemove)),
    "remove a reservation": (RESERVED, of(InstanceRemove)),
    "shut down": (MIRRORED, of(InstanceShutdown)),
    "start": ({**MIRRORED, "start": False}, of(InstanceStartup)),
    "reboot": (MIRRORED, of(InstanceReboot)),
    "migrate": (MIRRORED, of(InstanceMigrate)),
    "fail over": (MIRRORED, of(InstanceFailover)),
    "fail a reservation over": (RESERVED, of(InstanceFailover)),
    "replace disks": (
        MIRRORED,
        of(InstanceReplaceDisks, mode="replace_new_secondary", remote_node="north-host2"),
    ),
    "modify": (MIRRORED, of(InstanceSetParams, beparams={"memory": 512}, disks=[["add", {"size": 1024}]])),
    "grow": (MIRRORED, of(InstanceGrowDisk, disk=0, amount=1024)),
    "place": (
        RESERVED,
        of(InstancePlace, primary_node="north-host1", secondary_node="north-host2"),
    ),
    "rename": (RESERVED, of(InstanceRename, new_name="web2")),
}


class Killed(BaseException):
    """The worker is killed here."""


class DeadlyHosts(SimulatedHosts):
    """Hosts that do what they are called for, and whose answer a worker does not live to see, once."""

    def __init__(self, dies_at: int | None) -> None:
        self.calls = 0
        self._dies_at = dies_at

    def call(self, call: NodeCall, key: str) -> None:
        super().call(call, key)
        self.calls += 1
        if self.calls - 1 == self._dies_at:
            raise Killed


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[ComputeFleet]:
    with compute_fleet(tmp_path) as fleet:
        fleet.add_hosts(3)
        yield fleet


class Cell:
    """The cell `north`, whose workers can be killed."""

    def __init__(self, fleet: ComputeFleet) -> None:
        self._fleet = fleet
        self.engine: Engine = fleet.engine("north")
        self._cell = fleet.cells["north"]

    def submit(self, opcode: OpCode) -> None:
        JobSubmission(self.engine, self._cell).submit([opcode], NO_REQUEST)

    def work(self, nodes: SimulatedHosts | None = None) -> None:
        worker = Worker(self.engine, self._fleet.fleet, self._cell, ALL_OPERATIONS, nodes or SimulatedHosts())
        while worker.run_once():
            pass

    def commits_of(self, work: Callable[[], None], dies_at: int | None = None) -> int:
        """How many transactions of the cell were committed; before that with the number `dies_at` the worker dies."""
        count = 0

        def on_commit(_connection: object) -> None:
            nonlocal count
            count += 1
            if count - 1 == dies_at:
                raise Killed

        event.listen(self.engine, "commit", on_commit)
        try:
            work()
        finally:
            event.remove(self.engine, "commit", on_commit)
        return count

    def state(self) -> Mapping[str, Any]:
        """What is left when all is done; names of hosts and addresses, which chance chooses, are left out."""
        with self.engine.connect() as connection:
            columns = instances.c
            rows = connection.execute(
                select(
                    columns.display_name, columns.vm_state, columns.task_state, columns.power_state, columns.node,
                    columns.forthcoming, columns.ganeti, columns.flavor,
                ).where(columns.deleted.is_(False))
            ).all()  # fmt: skip
            taken = connection.execute(
                select(
                    allocations.c.node_id, allocations.c.vcpus, allocations.c.memory_mib, allocations.c.disk_gib,
                    allocations.c.is_forthcoming,
                ).order_by(allocations.c.node_id)
            ).all()  # fmt: skip
            ends = connection.execute(select(jobs.c.status).order_by(jobs.c.id)).scalars().all()
            return {
                "instances": [(*row[:6], row.ganeti["values"]["disk.sizes"], row.flavor["memory_mb"]) for row in rows],
                "secondaries": [row.ganeti["values"]["snodes"] for row in rows],
                "allocations": [tuple(row) for row in taken],
                "locks": connection.scalar(select(func.count()).select_from(job_locks)),
                "macs": connection.scalar(select(func.count()).select_from(nic_macs)),
                "addresses": connection.scalar(select(func.count()).select_from(network_nics)),
                "results": [row and len(row) for row in connection.scalars(select(job_operations.c.result))],
                "ends": ends,
            }

    def clear(self) -> None:
        """Remove every instance and every job."""
        with self.engine.begin() as connection:
            for table in (allocations, nic_macs, network_nics, job_locks, jobs, instances):
                connection.execute(table.delete())


@pytest.mark.parametrize("name", SCENARIOS)
def test_killed_worker_leaves_nothing_half_done(fleet: ComputeFleet, name: str) -> None:
    before, opcode = SCENARIOS[name]
    cell = Cell(fleet)

    def prepare() -> None:
        cell.clear()
        if before is not None:
            cell.submit(InstanceCreate.read(before))
            cell.work()
        cell.submit(opcode)

    prepare()
    hosts = DeadlyHosts(None)
    commits = cell.commits_of(lambda: cell.work(hosts))
    undisturbed = cell.state()
    assert set(undisturbed["ends"]) == {"success"}
    assert (undisturbed["locks"], commits > 0) == (0, True)
    for number in range(commits):
        prepare()
        with pytest.raises(Killed):
            cell.commits_of(cell.work, dies_at=number)
        cell.work()
        assert cell.state() == undisturbed, f"killed before commit {number} of {commits}"
    for number in range(hosts.calls):
        prepare()
        with pytest.raises(Killed):
            cell.work(DeadlyHosts(number))
        cell.work()
        assert cell.state() == undisturbed, f"killed behind call {number} of {hosts.calls}"
