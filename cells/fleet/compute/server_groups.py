"""Server groups: instances that should run together, or apart."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

from sqlalchemy import Connection, Row, Select, and_, delete, insert, select

from fleetlight.cells.errors import QuotaExceededError, ResourceNotFoundError
from fleetlight.cells.fleet.compute.quotas import UNLIMITED
from fleetlight.cells.fleet.database import FleetDatabase
from fleetlight.cells.fleet.tables import instance_mappings, server_group_members, server_groups


@dataclass(frozen=True, slots=True)
class ServerGroup:
    """A server group. members: uuids of instances that are not deleted. max_server_per_host: of `anti-affinity`.

    claimed: uuids for which programs have claimed hosts, and which no instance has (yet).
    """

    uuid: str
    name: str
    project_id: str
    user_id: str
    policy: str
    max_server_per_host: int | None
    members: tuple[str, ...] = ()
    claimed: tuple[str, ...] = ()

    @property
    def most_on_one_host(self) -> int:
        """The most members on one host by the policy `anti-affinity`."""
        return self.max_server_per_host or 1


class ServerGroups:
    """All server groups. Calls block; they raise FleetUnreachableError, and ResourceNotFoundError for unknown uuids."""

    def __init__(self, database: FleetDatabase) -> None:
        self._database = database

    def page(self, project_id: str | None, *, limit: int, offset: int = 0) -> tuple[ServerGroup, ...]:
        """The groups of a project, or of all, in order of creation."""
        statement = select(server_groups).order_by(server_groups.c.number).limit(limit).offset(offset)
        if project_id is not None:
            statement = statement.where(server_groups.c.project_id == project_id)
        with self._database.reading() as connection:
            rows = connection.execute(statement).all()
            members = _members(connection, [row.uuid for row in rows])
        return tuple(_group(row, members) for row in rows)

    def find(self, uuid: str, *, project_id: str | None) -> ServerGroup:
        """The group with this uuid. project_id: of the owner; None allows any. Raises ResourceNotFoundError."""
        with self._database.reading() as connection:
            row = connection.execute(select(server_groups).where(server_groups.c.uuid == uuid)).one_or_none()
            if row is None or project_id not in {None, row.project_id}:
                raise ResourceNotFoundError("Instance group", uuid)
            return replace(_group(row, _members(connection, [uuid])), claimed=_claimed(connection, uuid))

    def create(
        self, name: str, policy: str, *, project_id: str, user_id: str, max_server_per_host: int | None = None
    ) -> ServerGroup:
        group = ServerGroup(str(uuid4()), name, project_id, user_id, policy, max_server_per_host)
        with self._database.writing() as connection:
            connection.execute(
                insert(server_groups).values(
                    uuid=group.uuid,
                    name=name,
                    project_id=project_id,
                    user_id=user_id,
                    policy=policy,
                    max_server_per_host=max_server_per_host,
                )
            )
        return group

    def delete(self, uuid: str, *, project_id: str | None) -> None:
        """Delete a group; its members stay. project_id: as for `find`. Raises ResourceNotFoundError."""
        with self._database.writing() as connection:
            # Lock the group, so that no member joins between the two removals.
            row = connection.execute(_locked(uuid)).one_or_none()
            if row is None or project_id not in {None, row.project_id}:
                raise ResourceNotFoundError("Instance group", uuid)
            connection.execute(delete(server_group_members).where(server_group_members.c.group_uuid == uuid))
            connection.execute(delete(server_groups).where(server_groups.c.uuid == uuid))

    def add_members(self, uuid: str, instance_uuids: Sequence[str], *, limit: int) -> None:
        """Add members: instances, or uuids for which hosts are claimed.

        Raises QuotaExceededError if the group would have more than `limit`, and ResourceNotFoundError.
        """
        with self._database.writing() as connection:
            if connection.execute(_locked(uuid)).one_or_none() is None:
                raise ResourceNotFoundError("Instance group", uuid)
            members = len(_members(connection, [uuid]).get(uuid, ()))
            if limit != UNLIMITED and members + len(instance_uuids) > limit:
                raise QuotaExceededError(
                    "server_group_members", requested=len(instance_uuids), in_use=members, limit=limit
                )
            values = [{"group_uuid": uuid, "instance_uuid": instance_uuid} for instance_uuid in instance_uuids]
            connection.execute(insert(server_group_members), values)

    def remove_claim(self, instance_uuid: str) -> None:
        """Remove a uuid for which hosts were claimed from its groups."""
        with self._database.writing() as connection:
            of_claim = server_group_members.c.instance_uuid == instance_uuid
            connection.execute(delete(server_group_members).where(of_claim))

    def of_instance(self, instance_uuid: str, *, project_id: str | None) -> tuple[str, ...]:
        """The uuids of the groups of an instance. project_id: as for `find`."""
        columns = server_group_members.c
        statement = select(columns.group_uuid).where(columns.instance_uuid == instance_uuid)
        if project_id is not None:
            statement = statement.join(server_groups, server_groups.c.uuid == columns.group_uuid)
            statement = statement.where(server_groups.c.project_id == project_id)
        with self._database.reading() as connection:
            return tuple(connection.execute(statement.order_by(columns.group_uuid)).scalars())


def _locked(uuid: str) -> Select[Any]:
    return select(server_groups).where(server_groups.c.uuid == uuid).with_for_update()


def _members(connection: Connection, groups: Sequence[str]) -> Mapping[str, Sequence[str]]:
    """The members of groups, by uuid of the group, with one statement for all."""
    columns = server_group_members.c
    is_live = and_(
        instance_mappings.c.instance_uuid == columns.instance_uuid, instance_mappings.c.queued_for_delete.is_(False)
    )
    statement = (
        select(columns.group_uuid, columns.instance_uuid)
        .join(instance_mappings, is_live)
        .where(columns.group_uuid.in_(groups))
        .order_by(instance_mappings.c.created_at, columns.instance_uuid)
    )
    members: dict[str, list[str]] = {}
    for row in connection.execute(statement):
        members.setdefault(row.group_uuid, []).append(row.instance_uuid)
    return members


def _claimed(connection: Connection, group: str) -> tuple[str, ...]:
    """The members of a group that no instance of the fleet has as its uuid."""
    columns, mappings = server_group_members.c, instance_mappings.c
    statement = (
        select(columns.instance_uuid)
        .outerjoin(instance_mappings, mappings.instance_uuid == columns.instance_uuid)
        .where(columns.group_uuid == group, mappings.instance_uuid.is_(None))
        .order_by(columns.instance_uuid)
    )
    return tuple(connection.scalars(statement))


def _group(row: Row[Any], members: Mapping[str, Sequence[str]]) -> ServerGroup:
    values = dict(row._mapping)
    del values["number"]
    return ServerGroup(**values, members=tuple(members.get(row.uuid, ())))
