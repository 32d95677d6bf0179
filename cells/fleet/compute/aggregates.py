"""Aggregates: named groups of hosts of native cells (fleetlight.manager.operations.host_zones applies their zones)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from sqlalchemy import Connection, Row, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from fleetlight.cells.errors import AggregateInUseError, ResourceExistsError, ResourceNotFoundError
from fleetlight.cells.fleet.database import FleetDatabase
from fleetlight.cells.fleet.tables import aggregate_hosts, aggregates
from fleetlight.resources.clock import Clock, system_clock

ZONE_KEY = "availability_zone"
"""The key of the metadata that holds the zone."""
# More than a column can hold, so no aggregate has such a number.
_NUMBERS = 2**63


@dataclass(frozen=True, slots=True)
class Aggregate:
    """An aggregate. Times in microseconds since the epoch. updated_at: None if only its hosts have changed."""

    number: int
    uuid: str
    name: str
    metadata: Mapping[str, str]
    created_at: int
    updated_at: int | None
    hosts: Sequence[str] = ()

    @property
    def zone(self) -> str | None:
        """The availability zone of its hosts; None if it sets none."""
        return self.metadata.get(ZONE_KEY)


class Aggregates:
    """All aggregates. Calls block, and raise FleetUnreachableError, and ResourceNotFoundError for an unknown number."""

    def __init__(self, database: FleetDatabase, clock: Clock = system_clock) -> None:
        self._database = database
        self._clock = clock

    def all(self) -> Sequence[Aggregate]:
        """All aggregates, in order of creation."""
        with self._database.reading() as connection:
            rows = connection.execute(select(aggregates).order_by(aggregates.c.number)).all()
            hosts = _hosts(connection)
        return [_aggregate(row, hosts) for row in rows]

    def find(self, number: int) -> Aggregate:
        """The aggregate with this number. Raises ResourceNotFoundError."""
        statement = select(aggregates).where(aggregates.c.number == number)
        with self._database.reading() as connection:
            row = connection.execute(statement).one_or_none() if number < _NUMBERS else None
            if row is None:
                raise _not_found(number)
            return _aggregate(row, _hosts(connection, number))

    def create(self, name: str, metadata: Mapping[str, str]) -> Aggregate:
        """Create an aggregate without hosts. Raises ResourceExistsError if the name is taken."""
        values = {"uuid": str(uuid4()), "name": name, "metadata": metadata, "created_at": self._clock()}
        try:
            with self._database.writing() as connection:
                row = connection.execute(insert(aggregates).values(values).returning(aggregates)).one()
        except IntegrityError as error:
            raise _name_is_taken(name) from error
        return _aggregate(row, {})

    def change(self, number: int, name: str, metadata: Mapping[str, str]) -> Aggregate:
        """Set name and metadata. Raises ResourceExistsError if another aggregate has the name."""
        self.find(number)
        statement = update(aggregates).where(aggregates.c.number == number)
        values = {"name": name, "metadata": metadata, "updated_at": self._clock()}
        try:
            with self._database.writing() as connection:
                connection.execute(statement.values(values))
        except IntegrityError as error:
            raise _name_is_taken(name) from error
        return self.find(number)

    def remove(self, number: int) -> None:
        """Remove an aggregate. Raises AggregateInUseError if it has hosts, and ResourceNotFoundError."""
        with self._database.writing() as connection:
            if number >= _NUMBERS:
                raise _not_found(number)
            if _hosts(connection, number):
                raise AggregateInUseError(number)
            if not connection.execute(delete(aggregates).where(aggregates.c.number == number)).rowcount:
                raise _not_found(number)

    def add_host(self, number: int, host: str) -> None:
        """Add a host. Raises ResourceExistsError if the aggregate has it already."""
        try:
            with self._database.writing() as connection:
                connection.execute(insert(aggregate_hosts).values(aggregate_number=number, host=host))
        except IntegrityError as error:
            raise ResourceExistsError(f"Aggregate {number} already has host {host}.") from error

    def remove_host(self, number: int, host: str) -> None:
        """Remove a host from an aggregate, if it is in it."""
        columns = aggregate_hosts.c
        statement = delete(aggregate_hosts).where(columns.aggregate_number == number, columns.host == host)
        with self._database.writing() as connection:
            connection.execute(statement)

    def forget_host(self, host: str) -> None:
        """Remove a deleted host from every aggregate."""
        with self._database.writing() as connection:
            connection.execute(delete(aggregate_hosts).where(aggregate_hosts.c.host == host))


def _hosts(connection: Connection, number: int | None = None) -> Mapping[int, Sequence[str]]:
    """The hosts of one aggregate or of all, by number."""
    statement = select(aggregate_hosts).order_by(aggregate_hosts.c.host)
    if number is not None:
        statement = statement.where(aggregate_hosts.c.aggregate_number == number)
    hosts: dict[int, list[str]] = {}
    for row in connection.execute(statement):
        hosts.setdefault(row.aggregate_number, []).append(row.host)
    return hosts


def _aggregate(row: Row[Any], hosts: Mapping[int, Sequence[str]]) -> Aggregate:
    return Aggregate(**row._mapping, hosts=tuple(hosts.get(row.number, ())))


def _not_found(number: int) -> ResourceNotFoundError:
    return ResourceNotFoundError("Aggregate", str(number))


def _name_is_taken(name: str) -> ResourceExistsError:
    return ResourceExistsError(f"Aggregate {name} already exists.")
