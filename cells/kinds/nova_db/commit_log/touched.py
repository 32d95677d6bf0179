"""Finds the instances to which changed rows of Nova's tables belong."""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_HARMLESS = re.compile(r"\s*(BEGIN|COMMIT|SAVEPOINT|ROLLBACK TO|RELEASE SAVEPOINT|ROLLBACK)\b", re.IGNORECASE)

# For more instances of one schema, a comparison of the whole cell is faster.
_MOST = 50_000


@dataclass(frozen=True, slots=True)
class _Owner:
    """Where a row names its instance: in `column`, or in the rows of `members` that refer to its `key`."""

    column: str = "instance_uuid"
    key: str = "id"
    members: tuple[str, str] | None = None


OWNERS: Mapping[str, _Owner] = {
    "instances": _Owner("uuid"),
    "instance_extra": _Owner(),
    "instance_info_caches": _Owner(),
    "instance_metadata": _Owner(),
    "instance_system_metadata": _Owner(),
    "instance_faults": _Owner(),
    "block_device_mapping": _Owner(),
    "tags": _Owner("resource_id"),
    "instance_mappings": _Owner(),
    "build_requests": _Owner(),
    "request_specs": _Owner(),
    "instance_group_member": _Owner(),
    "instance_groups": _Owner("", members=("instance_group_member", "group_id")),
    "cell_mappings": _Owner("", key=""),
}
"""The tables, of cell and API databases, with data of instances (contracts/nova-db, 1).

The table of cells names no instance: after a change there, everything is compared.
"""

LookedUp = tuple[str, str, str]
"""A table, its column with the uuid of an instance, and the column by which to find rows."""


@dataclass(slots=True)
class Touched:
    """The touched instances of one schema.

    has_unknown: whether any other instance may have been touched as well. keys: of rows that name their instance only
        through other rows, by where these are looked up.
    """

    uuids: set[str] = field(default_factory=set)
    has_unknown: bool = False
    keys: dict[LookedUp, set[Any]] = field(default_factory=dict)

    def add(self, uuids: Collection[str]) -> None:
        """Add instances; if they become too many, all count as touched."""
        self.uuids.update(uuids)
        if len(self.uuids) > _MOST:
            self.forget()

    def merge(self, other: "Touched") -> None:
        """Add the instances of another schema, or later ones, after their keys were looked up."""
        self.add(other.uuids)
        if other.has_unknown:
            self.forget()

    def forget(self) -> None:
        """Count all instances as touched, since too many are, or they are unknown."""
        self.has_unknown = True
        self.uuids.clear()
        self.keys.clear()

    def take_row(self, table: str, columns: Mapping[str, int], images: Collection[Mapping[str, Any]]) -> None:
        """Add the instance of a changed row. columns: positions of the table's columns by name, from 0.

        images: the row before and after the change, if they exist, by `UNKNOWN_COLn` or by name; None for values that
        were not logged (`binlog_row_image`).
        """
        if self.has_unknown:
            return
        owner = OWNERS[table]
        named = [uuid for uuid in _values(images, owner.column, columns) if isinstance(uuid, str) and _UUID.match(uuid)]
        if named:
            self.add([uuid.lower() for uuid in named])
            return
        keys = set(_values(images, owner.key, columns))
        was_removed = len(images) == 1
        if owner.members is not None:
            members, column = owner.members
            where = (members, OWNERS[members].column, column)
        else:
            where = (table, owner.column, owner.key)
        if not keys or (was_removed and owner.members is None):
            self.forget()
        else:
            self.keys.setdefault(where, set()).update(keys)


def is_harmless(statement: str) -> bool:
    """Whether a logged statement only begins, ends or divides a transaction, whose rows are logged separately."""
    return _HARMLESS.match(statement) is not None


def _values(images: Collection[Mapping[str, Any]], column: str, columns: Mapping[str, int]) -> Iterator[Any]:
    place = columns.get(column)
    for image in images:
        value = image.get(column, None if place is None else image.get(f"UNKNOWN_COL{place}"))
        if value is not None:
            yield value.decode() if isinstance(value, bytes) else value
