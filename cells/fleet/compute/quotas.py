"""Quotas: how much a project may have, and the check before it gets more.

What is in use is counted and not booked, so what counts and then adds takes the lock of the project, or of the user
(fleetlight.cells.fleet.advisory_locks): two requests that pass each other cannot exceed a limit together.
"""

from collections.abc import Mapping

from sqlalchemy import Connection, Table, delete, func, select

from fleetlight.cells.errors import QuotaExceededError
from fleetlight.cells.fleet.database import FleetDatabase
from fleetlight.cells.fleet.tables import instance_mappings, keypairs, quota_classes, quota_limits, server_groups

UNLIMITED = -1
DEFAULT_CLASS = "default"
"""The quota class that all projects are in; what is said of others is kept, and means nothing."""
# What a fleet begins with; memory in MiB.
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
    """Raises QuotaExceededError for the first resource of which the `requested` amount does not fit."""
    for resource, amount in requested.items():
        limit, used = limits[resource], in_use.get(resource, 0)
        if amount > 0 and limit != UNLIMITED and used + amount > limit:
            raise QuotaExceededError(resource, requested=amount, in_use=used, limit=limit)


class Quotas:
    """The limits of projects, by resource (DEFAULTS), and what the fleet database knows of their use. Calls block."""

    def __init__(self, database: FleetDatabase) -> None:
        self._database = database

    def defaults(self) -> dict[str, int]:
        """The limits of a project of which nothing else is said."""
        return self.of_class(DEFAULT_CLASS)

    def of_class(self, name: str) -> dict[str, int]:
        """The limits of a quota class; of an unknown one, those that a fleet begins with."""
        with self._database.reading() as connection:
            return _of_class(connection, name)

    def limits(self, project_id: str) -> dict[str, int]:
        columns = quota_limits.c
        statement = select(columns.resource, columns.limit).where(columns.project_id == project_id)
        with self._database.reading() as connection:
            return _of_class(connection, DEFAULT_CLASS) | {
                row.resource: row.limit for row in connection.execute(statement)
            }

    def set_class(self, name: str, limits: Mapping[str, int]) -> None:
        """Set those of `limits`; the others stay."""
        self._set(quota_classes, limits, name=name)

    def set_limits(self, project_id: str, limits: Mapping[str, int]) -> None:
        """Set those of `limits`; the others stay."""
        self._set(quota_limits, limits, project_id=project_id)

    def reset(self, project_id: str) -> None:
        """Let the project have the defaults again."""
        with self._database.writing() as connection:
            connection.execute(delete(quota_limits).where(quota_limits.c.project_id == project_id))

    def counts(self, project_id: str, user_id: str | None = None) -> dict[str, int]:
        """How much is in use of what the fleet database can count; key pairs are those of `user_id`.

        Cores and memory are known to the cells alone (fleetlight.cells.fan_out.quota_usage).
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
        # Another process may set the same at the same time. All do so in one order, so that none waits in a circle.
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
