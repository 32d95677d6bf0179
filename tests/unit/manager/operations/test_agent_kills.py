"""Worker, agent, connection and cache are lost at every step of what is done on hosts with agents, and at every call.

Another worker goes on: the end is that of an undisturbed run. So each guest runs on the host that its record names and
on no other one, and nothing is locked, allocated, or left on a host that has no use for it.
"""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from sqlalchemy import event, select

from fleetlight.cells.tables import (
    allocations,
    compute_nodes,
    instances,
    job_locks,
    job_operations,
    jobs,
    migrations,
    network_nics,
    nic_macs,
)
from fleetlight.manager.operations.nodes.errors import StoreUnreachableError
from fleetlight.manager.operations.nodes.stores.store import StateChange
from fleetlight.manager.operations.opcodes.instances.create_parameters import InstanceCreate
from fleetlight.manager.operations.opcodes.instances.move import InstanceFailover, InstanceMigrate
from fleetlight.manager.operations.opcodes.opcode import OpCode
from tests.support.fleets.acting_cell import FLAVOR, REQUEST
from tests.support.memory.memory_store import MemoryStore
from tests.support.played.hosts_with_agents import MIRRORED, AgentCell
from tests.unit.manager.operations.test_hosts_with_agents import acting

__all__ = ["acting"]


def create(acting: AgentCell) -> None:
    acting.acceptance.create([{"flavor": FLAVOR, "project_id": "demo"}], {"host": "host1"}, REQUEST)


def create_mirrored(acting: AgentCell) -> None:
    acting.submit(InstanceCreate.read(MIRRORED))


def act(action: str, **parameters: Any) -> Callable[[AgentCell], None]:
    def accept(acting: AgentCell) -> None:
        with acting.engine.connect() as connection:
            uuid = connection.scalars(select(instances.c.uuid).where(instances.c.deleted.is_(False))).one()
        acting.accept(uuid, action, **parameters)

    return accept


def move(opcode: type[OpCode]) -> Callable[[AgentCell], None]:
    return lambda acting: acting.submit(opcode.read({"instance_name": "web1"}))


Act = Callable[[AgentCell], None]
# What is there before, and what is done then.
SCENARIOS: Mapping[str, tuple[tuple[Act, ...], Act]] = {
    "create": ((), create),
    "stop": ((create,), act("os-stop")),
    "start": ((create, act("os-stop")), act("os-start")),
    "reboot": ((create,), act("reboot HARD")),
    "delete": ((create,), act("delete")),
    "migrate live": ((create,), act("os-migrateLive", host="host2")),
    "migrate": ((create,), act("migrate", host="host2")),
    "revert": ((create, act("migrate", host="host2")), act("revertResize")),
    "create mirrored": ((), create_mirrored),
    "fail over": ((create_mirrored,), move(InstanceFailover)),
    "migrate mirrored": ((create_mirrored,), move(InstanceMigrate)),
}


class Killed(BaseException):
    """The worker is killed here."""


class CountingStore(MemoryStore):
    """A server that is away once, when a change is to begin that has the number `fails_at`."""

    def __init__(self, fails_at: int | None = None) -> None:
        super().__init__(600)
        self.begun = 0
        self._fails_at = fails_at

    def begin_change(self, change: StateChange) -> None:
        self.begun += 1
        if self.begun - 1 == self._fails_at:
            raise StoreUnreachableError("redis://cache1", "Connection refused")
        super().begin_change(change)


_TABLES = (instances, migrations, jobs, job_operations, job_locks, allocations, nic_macs, network_nics)


class Trial:
    """One scenario, as often as it is disturbed."""

    def __init__(self, acting: AgentCell, name: str) -> None:
        self._acting = acting
        before, self._act = SCENARIOS[name]
        for each in before:
            each(acting)
            acting.work()
        with acting.engine.connect() as connection:
            self._rows = {table: connection.execute(select(table)).mappings().all() for table in _TABLES}
        self._hosts = acting.agents.rows()

    def prepare(self) -> None:
        """Accept it, in a cell and on hosts as they were the first time."""
        with self._acting.engine.begin() as connection:
            for table in reversed(_TABLES):
                connection.execute(table.delete())
            for table in _TABLES:
                if self._rows[table]:
                    connection.execute(table.insert(), [dict(row) for row in self._rows[table]])
        self._acting.agents.restore(self._hosts)
        self._acting.restart_worker()
        self._act(self._acting)

    def work_after_a_loss(self) -> None:
        """Another worker goes on, when everything answers again."""
        self._acting.agents.clock.now_s += 5
        self._acting.restart_worker()
        self._acting.work()

    def commits(self, dies_at: int | None = None) -> int:
        """How many transactions of the cell were committed; before that with the number `dies_at` the worker dies."""
        count = 0

        def on_commit(_connection: object) -> None:
            nonlocal count
            count += 1
            if count - 1 == dies_at:
                raise Killed

        event.listen(self._acting.engine, "commit", on_commit)
        try:
            self._acting.work()
        finally:
            event.remove(self._acting.engine, "commit", on_commit)
        return count

    def state(self) -> Mapping[str, Any]:
        """What is left when all is done. Of instances and guests there is one at most."""
        acting = self._acting
        columns = instances.c
        with acting.engine.connect() as connection:
            rows = connection.execute(
                select(columns.vm_state, columns.task_state, columns.power_state, columns.host, columns.fault).where(
                    columns.deleted.is_(False)
                )
            ).all()
            taken = connection.execute(
                select(compute_nodes.c.hypervisor_hostname, allocations.c.memory_mib, allocations.c.disk_gib)
                .join_from(allocations, compute_nodes)
                .order_by(compute_nodes.c.id)
            ).all()
            ends = connection.scalars(select(jobs.c.status).order_by(jobs.c.id)).all()
        return {
            "instances": rows,
            "guests": list(acting.agents.guests().values()),
            "free": acting.agents.free_mib(),
            "memory": acting.agents.memory_mib(),
            "allocations": taken,
            "locks": acting.locks(),
            "ends": ends,
        }


@pytest.mark.parametrize("name", SCENARIOS)
def test_nothing_is_started_twice_or_forgotten_whatever_is_lost(acting: AgentCell, name: str) -> None:
    trial, connection = Trial(acting, name), acting.agents.connection
    trial.prepare()
    connection.made.clear()
    store = CountingStore()
    acting.restart_worker(store)
    commits = trial.commits()
    undisturbed, calls, changes = trial.state(), len(connection.made), store.begun
    assert set(undisturbed["ends"]) == {"success"}
    assert undisturbed["locks"] == 0
    assert calls >= 1

    for number in range(commits):
        trial.prepare()
        with pytest.raises(Killed):
            trial.commits(dies_at=number)
        trial.work_after_a_loss()
        assert trial.state() == undisturbed, f"killed before commit {number} of {commits}"
    for number in range(calls):
        for where, what in (("behind", Killed), ("before", "cannot connect"), ("behind", "lost")):
            trial.prepare()
            with connection.losing(where, number, what):
                try:
                    acting.work()
                except Killed:
                    assert what is Killed
            trial.work_after_a_loss()
            assert trial.state() == undisturbed, f"{what} {where} call {number} of {calls}"
    for number in range(changes):
        trial.prepare()
        acting.restart_worker(CountingStore(number))
        acting.work()
        trial.work_after_a_loss()
        assert trial.state() == undisturbed, f"the cache was away at change {number} of {changes}"
