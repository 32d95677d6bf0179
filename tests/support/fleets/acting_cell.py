"""A native cell with hosts, callers who want something done, and a worker that is called by hand."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
from sqlalchemy import Engine, func, select

from fleetlight.cells.capabilities import CellKind
from fleetlight.cells.database.engines import create_database_engine
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.migrations import upgrade_cell, upgrade_fleet
from fleetlight.cells.model import Cell, RequestContext
from fleetlight.cells.tables import changes, instances, jobs
from fleetlight.manager.operations.actions.accepting import Acceptance, Order
from fleetlight.manager.operations.cell_worker import new_worker
from fleetlight.manager.operations.hosts.cell_nodes import CellNodes, NewHost
from fleetlight.resources.amount import Amount
from tests.support.fleets.instance_operations import InstanceOperations

FLAVOR = {"flavorid": "m1", "name": "small", "memory_mb": 2048, "vcpus": 2, "root_gb": 20, "ephemeral_gb": 0}
SIZE = Amount.of_gib(vcpus=64, memory_mib=65_536, disk_gib=2000)
REQUEST = RequestContext("req-1", "ada", "demo")


@dataclass(frozen=True)
class Event:
    """A notification in the outbox; what is of the payload is None where it has no such thing."""

    event_type: str
    publisher_id: str
    revision: int
    vm_state: str | None
    task_state: str | None
    host: str | None


class ActingCell:
    """hosts: names of hosts, all alike."""

    def __init__(self, engine: Engine, fleet: Fleet, cell: Cell, hosts: Sequence[str] = ("host1", "host2")) -> None:
        self.engine = engine
        self.cell = cell
        self.fleet = fleet
        self.nodes = CellNodes(engine, cell)
        self.nodes.add_hosts([NewHost(host, SIZE, node=f"{host}.example.org") for host in hosts])
        self.acceptance = Acceptance(engine, fleet, cell)
        self.operations = InstanceOperations(engine, fleet, cell)
        self.worker = new_worker(engine, fleet, cell)

    def instance(self, **values: Any) -> str:
        """An instance that is there already, active on host1 unless `values` say something else."""
        placed = {"host": "host1", "node": "host1.example.org", "flavor": FLAVOR, "project_id": "demo"}
        return self.operations.create({**placed, **values}).uuid

    def accept(self, uuid: str, action: str, *, is_admin: bool = False, **parameters: Any) -> None:
        self.acceptance.accept(uuid, Order(action, parameters=parameters, request=REQUEST, is_admin=is_admin))

    def work(self) -> None:
        """Let the worker finish everything."""
        while self.worker.run_once():
            pass

    def do(self, uuid: str, action: str, **parameters: Any) -> Sequence[Event]:
        """Accept an action and carry it out; returns what was announced."""
        before = len(self.events())
        self.accept(uuid, action, **parameters)
        self.work()
        return self.events()[before:]

    def count_live_jobs(self) -> int:
        with self.engine.connect() as connection:
            live = select(func.count()).select_from(jobs).where(jobs.c.ended_at.is_(None))
            return connection.execute(live).scalar_one()

    def record(self, uuid: str) -> Mapping[str, Any]:
        with self.engine.connect() as connection:
            return dict(connection.execute(select(instances).where(instances.c.uuid == uuid)).one()._mapping)

    def state(self, uuid: str) -> tuple[str | None, str | None, int | None]:
        record = self.record(uuid)
        return record["vm_state"], record["task_state"], record["power_state"]

    def events(self) -> Sequence[Event]:
        with self.engine.connect() as connection:
            # What nodes go through is told of each of them.
            of_others = ~changes.c.event_type.startswith("hypervisor.")
            rows = connection.execute(select(changes).where(of_others).order_by(changes.c.id)).all()
        return [_event(row.message, row.revision) for row in rows]

    def check_revisions(self) -> None:
        """Every revision of every instance was announced exactly once, in order."""
        with self.engine.connect() as connection:
            rows = connection.execute(select(instances.c.uuid, instances.c.revision)).all()
            found = connection.execute(
                select(changes.c.instance_uuid, changes.c.revision)
                .where(changes.c.revision > 0, changes.c.instance_uuid != "")
                .order_by(changes.c.id)
            ).all()
        announced: dict[str, list[int]] = {}
        for uuid, revision in found:
            announced.setdefault(uuid, []).append(revision)
        assert announced == {uuid: list(range(1, revision + 1)) for uuid, revision in rows}

    def used(self) -> Mapping[str, int]:
        """Instances by host, of those that take up something there."""
        return {node.service.host: node.instance_count for node in self.nodes.nodes() if node.instance_count}


def _event(message: bytes, revision: int) -> Event:
    inner = msgspec.json.decode(msgspec.json.decode(message)["oslo.message"])
    data = inner["payload"]["nova_object.data"]
    return Event(
        inner["event_type"],
        inner["publisher_id"],
        revision,
        data.get("state"),
        data.get("task_state"),
        data.get("host"),
    )


@pytest.fixture
def acting(engine: Engine, fleet: Fleet, cell: Cell) -> ActingCell:
    return ActingCell(engine, fleet, cell)


@contextmanager
def acting_cell_in(folder: Path) -> Iterator[ActingCell]:
    """The cell `one` of a fleet of its own, in SQLite files of this folder."""
    fleet_engine = create_database_engine(f"sqlite:///{folder}/fleet.db")
    upgrade_fleet(fleet_engine)
    fleet = Fleet(fleet_engine)
    cell = fleet.add_cell("one", CellKind.NATIVE, f"sqlite:///{folder}/one.db", "memory://")
    engine = create_database_engine(cell.database_url)
    upgrade_cell(engine)
    yield ActingCell(engine, fleet, cell)
    engine.dispose()
    fleet.close()
