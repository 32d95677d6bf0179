"""Flavors: the sizes of instances, for the whole fleet."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from sqlalchemy import (
    Boolean,
    ColumnElement,
    Connection,
    Row,
    Select,
    and_,
    case,
    delete,
    exists,
    func,
    insert,
    or_,
    select,
    true,
    update,
)
from sqlalchemy.exc import IntegrityError

from fleetlight.cells.errors import ResourceExistsError, ResourceNotFoundError
from fleetlight.cells.fleet.database import FleetDatabase
from fleetlight.cells.fleet.tables import flavor_access, flavors

SORT_KEYS = (
    "flavorid",
    "name",
    "memory_mb",
    "vcpus",
    "root_gb",
    "ephemeral_gb",
    "swap",
    "rxtx_factor",
    "is_public",
    "disabled",
    "description",
)
_GIVEN = SORT_KEYS[1:]
BY_AGE = "number"
"""The sort key for the order in which flavors were made."""


@dataclass(frozen=True, slots=True)
class Flavor:
    """A flavor. memory_mb and swap in MiB, disks in GiB. number: the `instance_type_id` of its instances."""

    name: str
    memory_mb: int
    vcpus: int
    root_gb: int
    flavorid: str = ""
    ephemeral_gb: int = 0
    swap: int = 0
    rxtx_factor: float = 1.0
    is_public: bool = True
    disabled: bool = False
    description: str | None = None
    extra_specs: Mapping[str, str] = field(default_factory=dict)
    number: int = 0

    def payload(self) -> dict[str, Any]:
        """The flavor as an instance stores it: the fields of Nova's FlavorPayload."""
        return {
            "flavorid": self.flavorid,
            "name": self.name,
            "memory_mb": self.memory_mb,
            "vcpus": self.vcpus,
            "root_gb": self.root_gb,
            "ephemeral_gb": self.ephemeral_gb,
            "swap": self.swap,
            "rxtx_factor": self.rxtx_factor,
            "vcpu_weight": 0,
            "disabled": self.disabled,
            "is_public": self.is_public,
            "extra_specs": dict(self.extra_specs),
            "projects": None,
            "description": self.description,
        }


@dataclass(frozen=True, slots=True)
class FlavorQuery:
    """The query for one page of a list.

    project_id: include private flavors to which this project has access; None includes none. is_public: True for public
    (or accessible) flavors, False for private ones, None for all. keep: a filter of rows, in Python.
    """

    project_id: str | None
    is_public: bool | None = True
    includes_disabled: bool = False
    min_memory_mb: int = 0
    min_root_gb: int = 0
    sort_key: str = "flavorid"
    is_descending: bool = False
    marker: str | None = None
    keep: Callable[[Flavor], bool] | None = None
    limit: int = 1000


class Flavors:
    """All flavors. Calls block, and raise FleetUnreachableError, and ResourceNotFoundError for an unknown id."""

    def __init__(self, database: FleetDatabase) -> None:
        self._database = database

    def page(self, query: FlavorQuery) -> tuple[Flavor, ...]:
        """One page. Raises ResourceNotFoundError if the caller may not see the marker."""
        found: list[Flavor] = []
        with self._database.reading() as connection:
            for row in connection.execute(self._statement(connection, query)):
                if len(found) == query.limit:
                    break
                flavor = _flavor(row)
                if query.keep is None or query.keep(flavor):
                    found.append(flavor)
        return tuple(found)

    def find(self, flavorid: str, *, project_id: str | None = None, is_admin: bool = False) -> Flavor:
        """The flavor with this id. is_admin: also private ones to which `project_id` has no access. Raises
        ResourceNotFoundError.
        """
        condition = flavors.c.flavorid == flavorid
        if not is_admin:
            condition = and_(condition, or_(flavors.c.is_public.is_(True), _has_access(project_id)))
        with self._database.reading() as connection:
            row = connection.execute(select(flavors).where(condition)).one_or_none()
        if row is None:
            raise ResourceNotFoundError("Flavor", flavorid)
        return _flavor(row)

    def create(self, flavor: Flavor) -> Flavor:
        """Create a flavor, with a new id unless it has one. Raises ResourceExistsError if id or name is taken."""
        values = {name: getattr(flavor, name) for name in _GIVEN}
        flavorid = flavor.flavorid or str(uuid4())
        try:
            with self._database.writing() as connection:
                connection.execute(
                    insert(flavors).values(**values, flavorid=flavorid, extra_specs=dict(flavor.extra_specs))
                )
        except IntegrityError as error:
            raise ResourceExistsError(f"Flavor with name {flavor.name} or ID {flavorid} already exists.") from error
        return self.find(flavorid, is_admin=True)

    def describe(self, flavorid: str, description: str | None) -> None:
        """Set or remove the description of a flavor. Raises ResourceNotFoundError."""
        with self._database.writing() as connection:
            changed = connection.execute(
                update(flavors).where(flavors.c.flavorid == flavorid).values(description=description)
            )
            if not changed.rowcount:
                raise ResourceNotFoundError("Flavor", flavorid)

    def delete(self, flavorid: str) -> None:
        """Delete a flavor; its instances keep their copies of it. Raises ResourceNotFoundError."""
        with self._database.writing() as connection:
            number = _locked(connection, flavorid).number
            connection.execute(delete(flavor_access).where(flavor_access.c.flavor_number == number))
            connection.execute(delete(flavors).where(flavors.c.number == number))

    def change_extra_specs(self, flavorid: str, change: Callable[[dict[str, str]], dict[str, str]]) -> dict[str, str]:
        """Apply `change` to the extra specs in one transaction; returns the new ones. Raises ResourceNotFoundError, and
        what `change` raises.
        """
        with self._database.writing() as connection:
            row = _locked(connection, flavorid)
            extra_specs = change(dict(row.extra_specs))
            connection.execute(update(flavors).where(flavors.c.number == row.number).values(extra_specs=extra_specs))
        return extra_specs

    def projects(self, flavorid: str) -> tuple[str, ...]:
        """The projects that have access to a private flavor. Raises ResourceNotFoundError."""
        with self._database.reading() as connection:
            return _projects(connection, self.find(flavorid, is_admin=True).number)

    def add_access(self, flavorid: str, project_id: str) -> tuple[str, ...]:
        """Give a project access; returns all projects with access. Raises ResourceExistsError if the flavor is public,
        or the project has access already.
        """
        with self._database.writing() as connection:
            row = _locked(connection, flavorid)
            if row.is_public or project_id in _projects(connection, row.number):
                raise ResourceExistsError(
                    f"Flavor access already exists for flavor {flavorid} and project {project_id} combination."
                )
            connection.execute(insert(flavor_access).values(flavor_number=row.number, project_id=project_id))
            return _projects(connection, row.number)

    def remove_access(self, flavorid: str, project_id: str) -> tuple[str, ...]:
        """Remove a project's access; returns the projects that keep it. Raises ResourceNotFoundError if it has none."""
        with self._database.writing() as connection:
            row = _locked(connection, flavorid)
            removed = connection.execute(
                delete(flavor_access).where(
                    flavor_access.c.flavor_number == row.number, flavor_access.c.project_id == project_id
                )
            )
            if not removed.rowcount:
                raise ResourceNotFoundError("Flavor access of", f"project {project_id} to flavor {flavorid}")
            return _projects(connection, row.number)

    def _statement(self, connection: Connection, query: FlavorQuery) -> Select[Any]:
        columns = flavors.c
        statement = select(flavors).where(
            _is_listed(query), columns.memory_mb >= query.min_memory_mb, columns.root_gb >= query.min_root_gb
        )
        key = _sort_column(query.sort_key)
        if query.marker is not None:
            marker = connection.execute(
                select(key.label("key"), columns.number).where(_is_listed(query), columns.flavorid == query.marker)
            ).one_or_none()
            if marker is None:
                raise ResourceNotFoundError("Flavor", query.marker)
            beyond = key < marker.key if query.is_descending else key > marker.key
            statement = statement.where(or_(beyond, and_(key == marker.key, columns.number > marker.number)))
        return statement.order_by(key.desc() if query.is_descending else key, columns.number)


def _sort_column(name: str) -> ColumnElement[Any]:
    """The column to sort by, without nulls and booleans, which cannot be compared with a marker."""
    column = flavors.c[name]
    if isinstance(column.type, Boolean):
        return case((column, 1), else_=0)
    return func.coalesce(column, "") if column.nullable else column


def _is_listed(query: FlavorQuery) -> ColumnElement[bool]:
    condition: ColumnElement[bool] = true()
    if query.is_public is not None:
        condition = flavors.c.is_public == query.is_public
        if query.is_public:
            condition = or_(condition, _has_access(query.project_id))
    return condition if query.includes_disabled else and_(condition, flavors.c.disabled.is_(False))


def _has_access(project_id: str | None) -> ColumnElement[bool]:
    return exists().where(flavor_access.c.flavor_number == flavors.c.number, flavor_access.c.project_id == project_id)


def _locked(connection: Connection, flavorid: str) -> Row[Any]:
    row = connection.execute(select(flavors).where(flavors.c.flavorid == flavorid).with_for_update()).one_or_none()
    if row is None:
        raise ResourceNotFoundError("Flavor", flavorid)
    return row


def _projects(connection: Connection, number: int) -> tuple[str, ...]:
    columns = flavor_access.c
    statement = select(columns.project_id).where(columns.flavor_number == number).order_by(columns.project_id)
    return tuple(connection.execute(statement).scalars())


def _flavor(row: Row[Any]) -> Flavor:
    return Flavor(**row._mapping)
