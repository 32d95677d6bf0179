"""The last known hosts of native cells, to show the services of a cell that is down."""

from collections.abc import Collection, Mapping, Sequence

from sqlalchemy import delete, select

from fleetlight.cells.fleet.database import FleetDatabase
from fleetlight.cells.fleet.tables import known_hosts

_COLUMNS = known_hosts.c


class KnownHosts:
    """The known hosts of all cells. Calls block, and raise FleetUnreachableError."""

    def __init__(self, database: FleetDatabase) -> None:
        self._database = database
        # Another process may insert the same row at the same time.
        self._insert = database.insert(known_hosts).on_conflict_do_nothing()

    def of(self, cell_uuids: Collection[str]) -> Mapping[str, Sequence[str]]:
        """The hosts of each of these cells, by name."""
        statement = select(known_hosts).where(_COLUMNS.cell_uuid.in_(cell_uuids)).order_by(_COLUMNS.host)
        hosts: dict[str, list[str]] = {uuid: [] for uuid in cell_uuids}
        with self._database.reading() as connection:
            for row in connection.execute(statement):
                hosts[row.cell_uuid].append(row.host)
        return hosts

    def remember(self, hosts: Mapping[str, Collection[str]]) -> None:
        """Replace the known hosts, by cell uuid; writes nothing if they are the same."""
        before = self.of(hosts)
        for cell_uuid, names in hosts.items():
            gone, new = set(before[cell_uuid]) - set(names), set(names) - set(before[cell_uuid])
            if not gone and not new:
                continue
            with self._database.writing() as connection:
                connection.execute(delete(known_hosts).where(_COLUMNS.cell_uuid == cell_uuid, _COLUMNS.host.in_(gone)))
                if new:
                    connection.execute(self._insert, [{"cell_uuid": cell_uuid, "host": host} for host in sorted(new)])

    def forget(self, cell_uuid: str, host: str) -> None:
        """Remove one host of a cell."""
        with self._database.writing() as connection:
            connection.execute(delete(known_hosts).where(_COLUMNS.cell_uuid == cell_uuid, _COLUMNS.host == host))
