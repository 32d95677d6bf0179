"""Quotas: the limits of projects, and the check before a project gets more.

Use is counted, not booked. So code that counts and then adds holds the lock of the project, or of the user
(fleetlight.cells.fleet.advisory_locks): two concurrent requests cannot exceed a limit together.
"""

from collections.abc import Mapping

from sqlalchemy import Connection, Table, delete, func, select

from fleetlight.cells.errors import QuotaExceededError
from fleetlight.cells.fleet.database import FleetDatabase
from fleetlight.cells.fleet.tables import instance_mappings, keypairs, quota_classes, quota_limits, server_groups

UNLIMITED = -1
DEFAULT_CLASS = "default"
"""The quota class of all projects; limits of other classes are stored without effect."""
# The limits of a new fleet; memory in MiB.
DEFAULTS = {
    "instances": 10,
    "cores": 20,
    "ram": 51200,
    "metadata_items": 128,
    "injected_files": 5,
    "injected_file_content_bytes": 10240,
    "injected_file_path_bytes": 255,
    "key_pairs": 100,
    "server_groups": 10,
    "server_group_members": 10,
}


def check(limits: Mapping[str, int], in_use: Mapping[str, int], requested: Mapping[str, int]) -> None:
    """Raises QuotaExceededError for the first resource whose `requested` amount exceeds the limit."""
    for resource, amount in requested.items():
        limit, used = limits[resource], in_use.get(resource, 0)
        if amount > 0 and limit != UNLIMITED and used + amount > limit:
            raise QuotaExceededError(resource, requested=amount, in_use=used, limit=limit)


class Quotas:
    """The limits of projects by resource (DEFAULTS), and their use, as far as the fleet database knows it. Calls block,
    and raise FleetUnreachableError.
    """

    def __init__(self, database: FleetDatabase) -> None:
        self._database = database

    def defaults(self) -> dict[str, int]:
        """The limits of a project without limits of its own."""
        return self.of_class(DEFAULT_CLASS)

    def of_class(self, name: str) -> dict[str, int]:
        """The limits of a quota class; those of a new fleet if the class is unknown."""
        with self._database.reading() as connection:
            return _of_class(connection, name)

    def limits(self, project_id: str) -> dict[str, int]:
        """The limits of a project, by resource."""
        columns = quota_limits.c
        statement = select(columns.resource, columns.limit).where(columns.project_id == project_id)
        with self._database.reading() as connection:
            return _of_class(connection, DEFAULT_CLASS) | {
                row.resource: row.limit for row in connection.execute(statement)
            }

    def set_class(self, name: str, limits: Mapping[str, int]) -> None:
        """Set some limits of a quota class; the others stay."""
        self._set(quota_classes, limits, name=name)

    def set_limits(self, project_id: str, limits: Mapping[str, int]) -> None:
        """Set some limits of a project; the others stay."""
        self._set(quota_limits, limits, project_id=project_id)

    def reset(self, project_id: str) -> None:
        """Reset a project to the defaults."""
        with self._database.writing() as connection:
            connection.execute(delete(quota_limits).where(quota_limits.c.project_id == project_id))

    def counts(self, project_id: str, user_id: str | None = None) -> dict[str, int]:
        """The use of the resources that the fleet database can count; key pairs are those of `user_id`.

        Only the cells know cores and memory (fleetlight.cells.fan_out.quota_usage).
        """
        live = select(func.count()).where(
            instance_mappings.c.project_id == project_id, instance_mappings.c.queued_for_delete.is_(False)
        )
        groups = select(func.count()).where(server_groups.c.project_id == project_id)
        keys = select(func.count()).where(keypairs.c.user_id == user_id)
        statement = select(
            live.scalar_subquery().label("instances"),
            groups.scalar_subquery().label("server_groups"),
            keys.scalar_subquery().label("key_pairs"),
        )
        with self._database.reading() as connection:
            return dict(connection.execute(statement).one()._mapping)

    def _set(self, table: Table, limits: Mapping[str, int], **whose: str) -> None:
        # Another process may set the same limits at the same time; one order for all prevents deadlocks.
        rows = [{**whose, "resource": resource, "limit": limits[resource]} for resource in sorted(limits)]
        if not rows:
            return
        new = self._database.insert(table)
        statement = new.on_conflict_do_update(
            index_elements=list(table.primary_key), set_={"limit": new.excluded["limit"]}
        )
        with self._database.writing() as connection:
            connection.execute(statement, rows)


def _of_class(connection: Connection, name: str) -> dict[str, int]:
    rows = connection.execute(select(quota_classes).where(quota_classes.c.name == name))
    return DEFAULTS | {row.resource: row.limit for row in rows}
