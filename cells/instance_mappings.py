"""The cell of each server: from the fleet database for native cells, from Nova's API databases for theirs."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Lock

from fleetlight.cells.errors import DatabaseUrlError, FleetUnreachableError
from fleetlight.cells.fleet.fleet import Fleet, InstanceMapping
from fleetlight.cells.kinds.nova_db.deployment import Deployment, NovaMapping, NovaRequestSpec
from fleetlight.cells.model import Cell


class InstanceMappings:
    """Finds the cells of servers; thread-safe. Every call raises FleetUnreachableError if a database does not answer,
    or the fleet lacks the cell in which Nova has a server.

    statement_timeout_s: PostgreSQL, MySQL and MariaDB end a statement that takes longer.
    """

    def __init__(self, fleet: Fleet, *, statement_timeout_s: float | None = None) -> None:
        self._fleet = fleet
        self._statement_timeout_s = statement_timeout_s
        self._mutex = Lock()
        self._deployments: dict[str, Deployment] = {}

    def mapping_of(self, instance_uuid: str) -> InstanceMapping | None:
        """The mapping of an instance, or None. Raises FleetUnreachableError."""
        found = self._fleet.mapping_of(instance_uuid)
        if found is not None:
            return found
        cells = [cell for cell in self._fleet.cells() if cell.can.maps_instances]
        for url in sorted({cell.api_database_url for cell in cells if cell.api_database_url}):
            mapping = self._deployment(url).mapping_of(instance_uuid)
            if mapping is None:
                continue
            # The registry has a cell that stands for servers without a cell.
            homes = [cell for cell in cells if cell.api_database_url == url and cell.nova_uuid == mapping.cell_uuid]
            if not homes:
                raise FleetUnreachableError(f"cell {mapping.cell_uuid} of Nova is not in it: fleetlight cell add-nova")
            return _of_fleet(mapping, homes[0])
        return None

    def mappings_of_cell(
        self, cell_uuid: str, *, project_id: str | None = None, limit: int
    ) -> tuple[InstanceMapping, ...]:
        """At most `limit` mappings of a cell's instances that are not deleted, to show while the cell is down."""
        cell = next((cell for cell in self._fleet.cells() if cell.uuid == cell_uuid), None)
        if cell is None or cell.api_database_url is None:
            return self._fleet.mappings_of_cell(cell_uuid, project_id=project_id, limit=limit)
        deployment = self._deployment(cell.api_database_url)
        found = deployment.mappings_of_cell(cell.nova_uuid, project_id=project_id, limit=limit)
        return tuple(_of_fleet(mapping, cell) for mapping in found)

    def request_spec_of(self, cell: Cell, instance_uuid: str) -> NovaRequestSpec | None:
        """The request spec of a server, to show while its cell is down; None if Nova has none."""
        if cell.api_database_url is None:
            return None
        return self._deployment(cell.api_database_url).request_spec_of(instance_uuid)

    def groups_of(self, cell: Cell, instance_uuid: str, project_id: str | None) -> Sequence[str] | None:
        """The server groups of which a server of this cell is a member; None if the projects of groups are unknown.

        project_id: only groups of this project; None for all.
        """
        if cell.can.takes_changes:
            return self._fleet.server_groups.of_instance(instance_uuid, project_id=project_id)
        if cell.api_database_url is None:
            return None
        return self._deployment(cell.api_database_url).groups_of(instance_uuid, project_id)

    def close(self) -> None:
        with self._mutex:
            deployments, self._deployments = self._deployments, {}
        for deployment in deployments.values():
            deployment.close()

    def _deployment(self, url: str) -> Deployment:
        with self._mutex, _translated():
            if url not in self._deployments:
                self._deployments[url] = Deployment(url, statement_timeout_s=self._statement_timeout_s)
            return self._deployments[url]


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except DatabaseUrlError as error:
        raise FleetUnreachableError(error.reason) from error


def _of_fleet(mapping: NovaMapping, cell: Cell) -> InstanceMapping:
    return InstanceMapping(
        mapping.instance_uuid,
        cell.uuid,
        mapping.project_id,
        mapping.user_id,
        mapping.created_at,
        queued_for_delete=mapping.queued_for_delete,
    )
