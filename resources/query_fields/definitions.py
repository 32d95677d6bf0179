"""Fields of queries: definitions, flags, and the fields of one item type with their aliases.

The rules are those of contracts/ganeti-query, 1.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum, IntFlag

from fleetlight.resources.fields import Field, ItemType, Kind


class FieldFlag(IntFlag):
    """Properties of a field's values, beside their kind.

    HOSTNAME: an abbreviation at a dot is equal to the name. JOB_ID: orders as a number. SPLIT_TIMESTAMP: the value is
    [seconds, microseconds].
    """

    NONE = 0
    HOSTNAME = 1
    IP_ADDRESS = 2
    JOB_ID = 4
    SPLIT_TIMESTAMP = 8


class ResultStatus(IntEnum):
    """The status of a value in an answer; only NORMAL has a value."""

    NORMAL = 0
    UNKNOWN = 1
    NO_DATA = 2
    UNAVAILABLE = 3
    OFFLINE = 4


@dataclass(frozen=True, slots=True)
class QueryField(Field):
    """A field of queries, for columns, filters and orders. Raises ValueError as Field."""

    flags: FieldFlag = FieldFlag.NONE


def is_time(field: Field | None) -> bool:
    """Whether values of the field are times, in either of the two forms of Query2."""
    is_split = isinstance(field, QueryField) and FieldFlag.SPLIT_TIMESTAMP in field.flags
    return field is not None and (field.kind is Kind.TIMESTAMP or is_split)


class QueryFields(ItemType):
    """The fields of queries for one item type.

    aliases: other names of fields, which share everything but the name. name_field: the field with the name of an item;
    lists are in nice order of it by default. Raises ValueError if a name or title appears twice, or an alias has no
    field.
    """

    def __init__(
        self,
        name: str,
        fields: Iterable[QueryField],
        aliases: Mapping[str, str],
        *,
        unique: str = "uuid",
        name_field: str = "name",
    ) -> None:
        self._own = tuple(fields)
        super().__init__(name, self._own, unique=unique)
        for alias, target in aliases.items():
            if alias in self._fields or target not in self._fields:
                raise ValueError(f"{name}: alias {alias!r} of {target!r} is taken, or its target is missing")
            self._fields[alias] = replace(self._fields[target], name=alias)
        self.aliases = aliases
        self.name_field = name_field

    def without(self, names: Collection[str]) -> "QueryFields":
        """These fields without `names` and their aliases."""
        fields = [field for field in self._own if field.name not in names]
        aliases = {alias: target for alias, target in self.aliases.items() if target not in names}
        return QueryFields(self.name, fields, aliases, unique=self.unique, name_field=self.name_field)
