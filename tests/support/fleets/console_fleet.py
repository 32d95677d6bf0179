"""A fleet that is looked at in a browser: `fleetlight up` with simulated hosts, and its databases, to change it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any
from uuid import uuid4

import yaml
from sqlalchemy import Engine, update

from fleetlight.cells.database.engines import create_database_engine, writing
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.model import NO_REQUEST, Cell
from fleetlight.cells.tables import jobs
from fleetlight.manager.operations.jobs.model import NewJob
from fleetlight.manager.operations.jobs.queue import add_jobs
from fleetlight.manager.operations.opcodes.groups import GroupAdd
from fleetlight.manager.operations.simulation.simulated_instances import new_instance
from fleetlight.manager.operations.vocabulary import ALL_OPERATIONS
from fleetlight.resources.clock import system_clock
from tests.support.fleets.changing_nodes import ChangingNodes
from tests.support.fleets.instance_operations import InstanceOperations
from tests.support.servers.live_api import LiveApi, live_api

_USUAL = {
    # Faster than users need it, so that no test waits long.
    "FLEETLIGHT_FLEET_CELLS_REFRESH_INTERVAL_S": "0.5",
    "FLEETLIGHT_SEARCH_STALENESS_LIMIT_S": "2",
    # However busy the machine is, it is the index that answers.
    "FLEETLIGHT_SEARCH_INDEX_DEADLINE_S": "30",
}


@dataclass(frozen=True, slots=True)
class ConsoleFleet:
    """fleet: what is in its database."""

    api: LiveApi
    fleet: Fleet

    def password(self, user: str) -> str:
        """user: admin, or demo, who is a member."""
        clouds = yaml.safe_load(self.api.clouds_file.read_text())["clouds"].values()
        return next(str(each["auth"]["password"]) for each in clouds if each["auth"]["username"] == user)

    def create(self, cell: str, **values: Any) -> str:
        """A new instance on a host of a cell; returns its uuid."""
        usual = new_instance(Random(1), cell, system_clock())
        with self._operations(cell) as operations:
            return operations.create(usual | values).uuid

    def stop(self, cell: str, uuid: str) -> None:
        with self._operations(cell) as operations:
            operations.stop(uuid)

    @contextmanager
    def waiting_job(self, cell: str) -> Iterator[None]:
        """A job that its cell does not begin before the end of the block."""
        with self._database(cell) as engine:
            with writing(engine) as connection:
                job = NewJob([GroupAdd(group_name=f"rack-{uuid4()}").to_operation()], NO_REQUEST)
                [number] = add_jobs(connection, ALL_OPERATIONS, [job], system_clock())
                connection.execute(update(jobs).where(jobs.c.id == number).values(is_ready=False))
            yield
            with writing(engine) as connection:
                connection.execute(update(jobs).where(jobs.c.id == number).values(is_ready=True))

    @contextmanager
    def forced_down(self, cell: str, host: str) -> Iterator[None]:
        """As an operator does with a host that is broken, until it is repaired at the end of the block."""
        with self._database(cell) as engine:
            nodes = ChangingNodes(engine, self.fleet, self.fleet.cell(cell), ())
            nodes.force_down(host, forced_down=True)
            try:
                yield
            finally:
                nodes.force_down(host, forced_down=False)

    @contextmanager
    def without(self, cell: str) -> Iterator[None]:
        """The database of a cell is nowhere to be found until the end of the block."""
        known = self.fleet.cell(cell)
        away = f"sqlite:///{self.api.data_dir}/nowhere/{cell}.db"
        self._move(known, away)
        try:
            yield
        finally:
            self._move(known, known.database_url)

    def _move(self, cell: Cell, database_url: str) -> None:
        self.fleet.add_cell(cell.name, cell.kind, database_url, cell.transport_url)

    @contextmanager
    def _operations(self, name: str) -> Iterator[InstanceOperations]:
        with self._database(name) as engine:
            yield InstanceOperations(engine, self.fleet, self.fleet.cell(name))

    @contextmanager
    def _database(self, cell: str) -> Iterator[Engine]:
        engine = create_database_engine(self.fleet.cell(cell).database_url)
        try:
            yield engine
        finally:
            engine.dispose()


@contextmanager
def console_fleet(folder: Path, *arguments: str, **variables: str) -> Iterator[ConsoleFleet]:
    """A fleet of the cells cell1 and cell2, with 60 instances that change only when a test changes them.

    arguments, variables: as of `live_api`.
    """
    simulated = ("--simulate", "--instances", "60", "--rate", "0", "--cells", "2", "--auth", "tokens")
    with live_api(folder, *simulated, *arguments, **(_USUAL | variables)) as api:
        fleet = Fleet(create_database_engine(f"sqlite:///{api.data_dir}/fleet.db"))
        try:
            yield ConsoleFleet(api, fleet)
        finally:
            fleet.close()
