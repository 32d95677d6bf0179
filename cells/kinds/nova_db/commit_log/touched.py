"""Which instances the changed rows of Nova's tables belong to."""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_HARMLESS = re.compile(r"\s*(BEGIN|COMMIT|SAVEPOINT|ROLLBACK TO|RELEASE SAVEPOINT|ROLLBACK)\b", re.IGNORECASE)

# More of one schema are read sooner by a comparison of the whole cell.
_MOST = 50_000


@dataclass(frozen=True, slots=True)
class _Owner:
    """Where a row says whose it is: in `column`, or, through its `key`, in the rows of `members` that name it."""

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
"""By table, of a cell's database or of the API's, those that instances are made of (contracts/nova-db, 1).

That of the cells names none: where they change everything is compared.
"""

LookedUp = tuple[str, str, str]
"""A table, the column that names an instance there, and the column by which its rows are found."""


@dataclass(slots=True)
class Touched:
    """What was touched of one schema.

    uuids: of instances. has_unknown: whether any other one may have been too. keys: values of rows that name their
        instance only through another one, by where that is looked up.
    """

    uuids: set[str] = field(default_factory=set)
    has_unknown: bool = False
    keys: dict[LookedUp, set[Any]] = field(default_factory=dict)

    def add(self, uuids: Collection[str]) -> None:
        self.uuids.update(uuids)
        if len(self.uuids) > _MOST:
            self.forget()

    def merge(self, other: "Touched") -> None:
        """What was touched of another schema, or later; its keys were looked up."""
        self.add(other.uuids)
        if other.has_unknown:
            self.forget()

    def forget(self) -> None:
        """Too many were touched, or it cannot be said which."""
        self.has_unknown = True
        self.uuids.clear()
        self.keys.clear()

    def take_row(self, table: str, columns: Mapping[str, int], images: Collection[Mapping[str, Any]]) -> None:
        """One changed row. columns: places of the table's columns, by name, from 0.

        images: the row before and after, as far as it is there, by `UNKNOWN_COLn` or by name; a row that was only
        partly logged has None for what is missing (`binlog_row_image`).
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
    """Whether a logged statement only begins, ends or divides a transaction, whose rows are logged by themselves."""
    return _HARMLESS.match(statement) is not None


def _values(images: Collection[Mapping[str, Any]], column: str, columns: Mapping[str, int]) -> Iterator[Any]:
    place = columns.get(column)
    for image in images:
        value = image.get(column, None if place is None else image.get(f"UNKNOWN_COL{place}"))
        if value is not None:
            yield value.decode() if isinstance(value, bytes) else value
