"""Reads the API database of a Nova deployment: its cells, and the cell of each server.

The address of a cell may be a template, which is filled in from the configured address of Nova's own services
(contracts/nova-db, 4).
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

from sqlalchemy import ColumnElement, Connection, Engine, Join, Row, Select, or_, select, true

from fleetlight.cells.database.engines import translated_failures
from fleetlight.cells.errors import DatabaseUrlError, FleetUnreachableError
from fleetlight.cells.kinds.nova_db.databases import dialect_of, open_nova_database, parse_nova_url
from fleetlight.cells.kinds.nova_db.json_columns import decoded, flavor
from fleetlight.cells.kinds.nova_db.tables import (
    cell_buses,
    cell_mappings,
    instance_group_member,
    instance_groups,
    instance_mappings,
    request_specs,
    utf8,
)
from fleetlight.resources.clock import system_clock
from fleetlight.resources.fields import Record

_PLACE = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, slots=True)
class NovaCell:
    """A cell in its deployment. database_url: as stored there, perhaps a template; a secret."""

    uuid: str
    name: str
    database_url: str

    def __repr__(self) -> str:
        return f"NovaCell({self.name!r}, {self.uuid})"


@dataclass(frozen=True, slots=True)
class NovaMapping:
    """The cell of a server. cell_uuid: in Nova; None if the server is in no cell yet.

    created_at: microseconds since the epoch. queued_for_delete: a caller has requested its deletion.
    """

    instance_uuid: str
    cell_uuid: str | None
    project_id: str
    user_id: str | None
    created_at: int
    queued_for_delete: bool


@dataclass(frozen=True, slots=True)
class NovaRequestSpec:
    """The request for a server, updated by resizes, to show while its cell is down. flavor: as in a record."""

    user_id: str | None = None
    flavor: Record | None = None
    image_ref: str | None = None
    availability_zone: str | None = None


class Deployment:
    """An API database; thread-safe. Calls raise FleetUnreachableError if it does not answer.

    Raises DatabaseUrlError.
    """

    def __init__(self, url: str, *, statement_timeout_s: float | None = None) -> None:
        self._engine: Engine = open_nova_database(url, statement_timeout_s=statement_timeout_s)
        self._dialect = dialect_of(self._engine.url)

    def cells(self) -> Sequence[NovaCell]:
        """Every cell, including cell0 and disabled ones, which have servers but get no new ones."""
        columns = cell_mappings.c
        statement = select(columns.uuid, columns.name, columns.database_connection).order_by(columns.id)
        with self._reading() as connection:
            return [
                NovaCell(row.uuid, row.name or row.uuid, row.database_connection)
                for row in connection.execute(statement)
            ]

    def transport_urls(self) -> Mapping[str, str | None]:
        """The address of each cell's bus as stored there, by uuid in Nova: secrets.

        Not part of `cells`, since an account may lack the right to read it.
        """
        with self._reading() as connection:
            return {row.uuid: row.transport_url for row in connection.execute(select(cell_buses))}

    def mapping_of(self, instance_uuid: str) -> NovaMapping | None:
        columns = instance_mappings.c
        statement = _mappings().where(columns.instance_uuid == instance_uuid)
        with self._reading() as connection:
            row = connection.execute(statement).one_or_none()
        # MySQL and MariaDB ignore case, and also find texts that their collation treats as equal.
        return None if row is None or row.instance_uuid != instance_uuid.lower() else _mapping(row)

    def request_spec_of(self, instance_uuid: str) -> NovaRequestSpec | None:
        """The request spec of a server; None if it has none. Fields of an unreadable one are unknown."""
        statement = select(request_specs.c.spec).where(request_specs.c.instance_uuid == instance_uuid)
        with self._reading() as connection:
            row = connection.execute(statement).one_or_none()
        if row is None:
            return None
        spec = decoded(row.spec)
        if not isinstance(spec, dict):
            return NovaRequestSpec()
        image = spec.get("image")
        return NovaRequestSpec(
            spec.get("user_id"),
            flavor(spec.get("flavor")),
            image.get("id") if isinstance(image, dict) else None,
            spec.get("availability_zone"),
        )

    def groups_of(self, instance_uuid: str, project_id: str | None) -> Sequence[str]:
        """The server groups of a server. project_id: only groups of this project."""
        members, groups = instance_group_member.c, instance_groups.c
        statement = select(groups.uuid).where(members.instance_uuid == instance_uuid, groups.id == members.group_id)
        if project_id is not None:
            statement = statement.where(groups.project_id == project_id)
        with self._reading() as connection:
            return connection.scalars(statement).all()

    def mappings_of_cell(
        self, cell_uuid: str | None, *, project_id: str | None = None, limit: int
    ) -> Sequence[NovaMapping]:
        """At most `limit` servers of a cell, or of none yet for None, whose deletion is not requested."""
        columns = instance_mappings.c
        is_there = cell_mappings.c.uuid.is_(None) if cell_uuid is None else cell_mappings.c.uuid == cell_uuid
        statement = _mappings().where(is_there, _is_live()).order_by(columns.id).limit(limit)
        if project_id is not None:
            statement = statement.where(columns.project_id == project_id)
            if self._dialect == "mysql":
                statement = statement.where(utf8(columns.project_id) == project_id)
        with self._reading() as connection:
            return [_mapping(row) for row in connection.execute(statement)]

    def newest_of_cell(self, cell_uuid: str, limit: int) -> Sequence[str]:
        """The uuids of at most `limit` newest servers of a cell whose deletion is not requested."""
        is_there = cell_mappings.c.uuid == cell_uuid
        statement = _mappings().where(is_there, _is_live()).order_by(instance_mappings.c.id.desc()).limit(limit)
        with self._reading() as connection:
            return [_mapping(row).instance_uuid for row in connection.execute(statement)]

    def close(self) -> None:
        self._engine.dispose()

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        with translated_failures(FleetUnreachableError), self._engine.connect() as connection:
            yield connection


def read_homes(connection: Connection, uuids: Collection[str]) -> Mapping[str, str | None]:
    """The cell of Nova to which each server is mapped, by uuid; None for no cell yet. Unknown servers are left out."""
    columns = instance_mappings.c
    statement = select(columns.instance_uuid, cell_mappings.c.uuid.label("cell_uuid")).select_from(_joined())
    rows = connection.execute(statement.where(columns.instance_uuid.in_(uuids)))
    mapped = {row.instance_uuid: row.cell_uuid for row in rows}
    return {uuid: mapped[uuid] for uuid in uuids if uuid in mapped}


def living_in(homes: Mapping[str, str | None], cell_uuid: str | None) -> Collection[str]:
    """The servers of `read_homes` in this cell, or for None those in no cell yet."""
    return [uuid for uuid, home in homes.items() if home == cell_uuid]


def living_outside(homes: Mapping[str, str | None], cell_uuid: str | None) -> Mapping[str, str]:
    """The servers of `read_homes` in another cell, with that cell, without those in no cell yet."""
    return {uuid: home for uuid, home in homes.items() if home is not None and home != cell_uuid}


def filled_in(template: str, main_url: str | None) -> str:
    """The address of a cell. main_url: fills in templates; `[database] connection` of Nova's services.

    Raises DatabaseUrlError if a part of the template cannot be filled in.
    """
    places = set(_PLACE.findall(template))
    if not places:
        return template
    if main_url is None:
        raise DatabaseUrlError("…", "it is a template; give the address that Nova's own services use (main database)")
    known = _components(main_url)
    if unknown := sorted(places - known.keys()):
        raise DatabaseUrlError("…", f"it is a template, and the main database has no {{{unknown[0]}}}")
    return _PLACE.sub(lambda place: known[place[1]], template)


def with_account_of(url: str, given: str, *, at_its_server: bool = False) -> str:
    """The address `url` with the account of the address `given`, since Nova's own accounts can write.

    at_its_server: take host and port of `given` as well.
    """
    ours, theirs = parse_nova_url(given), parse_nova_url(url)
    if dialect_of(theirs) == "sqlite":
        return url
    is_alike = dialect_of(ours) == dialect_of(theirs)
    account = theirs.set(query=ours.query if is_alike else {})
    # `set` ignores None.
    account = account._replace(username=ours.username, password=ours.password)
    if at_its_server:
        account = account._replace(host=ours.host, port=ours.port)
    return account.render_as_string(hide_password=False)


def _components(url: str) -> dict[str, str]:
    """The parts of an address as Nova splits it: raw text, empty for missing parts."""
    parts = urlsplit(url)
    return {
        "scheme": parts.scheme,
        "username": parts.username or "",
        "password": parts.password or "",
        "hostname": parts.hostname or "",
        "port": str(parts.port or ""),
        "path": parts.path.lstrip("/"),
        "query": parts.query,
        "fragment": parts.fragment,
    }


def _mappings() -> Select[tuple[object, ...]]:
    columns = instance_mappings.c
    return select(
        columns.instance_uuid,
        columns.project_id,
        columns.user_id,
        columns.created_at,
        columns.queued_for_delete,
        cell_mappings.c.uuid.label("cell_uuid"),
    ).select_from(_joined())


def _joined() -> Join:
    return instance_mappings.outerjoin(cell_mappings, cell_mappings.c.id == instance_mappings.c.cell_id)


def _is_live() -> ColumnElement[bool]:
    asked = instance_mappings.c.queued_for_delete
    return or_(asked.is_(None), asked != true())


def _mapping(row: Row[tuple[object, ...]]) -> NovaMapping:
    values = row._mapping
    return NovaMapping(
        values["instance_uuid"],
        values["cell_uuid"],
        values["project_id"],
        values["user_id"],
        system_clock() if values["created_at"] is None else values["created_at"],
        queued_for_delete=bool(values["queued_for_delete"]),
    )
