"""Definitions of fields: the one place for the fields of items and their kinds.

Sort keys, filters, the index mapping, fields queries and the columns of the command line and the console use these.
A *record* is one item as stored values by field. Stored values are None, bool, int, float, str, and for kind `other`
any JSON value; a timestamp is stored as an int, microseconds since the epoch, so that all databases, the index and
Python order and compare it alike.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from math import isfinite
from typing import Any

from fleetlight.resources.errors import FilterValueError, UnknownFieldError

Record = Mapping[str, Any]
Scalar = str | int | float | bool | datetime

_NAME = re.compile(r"[a-z0-9/._]+")
_TITLE = re.compile(r"\S+")
_DOC = re.compile(r"[A-Z].*[^.,?!\s]")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class Kind(StrEnum):
    """Kind of a field, with the names of Ganeti's Query2 ("Field definition"; `float` as implemented there)."""

    UNKNOWN = "unknown"
    TEXT = "text"
    BOOL = "bool"
    NUMBER = "number"
    FLOAT = "float"
    UNIT = "unit"  # MiB
    TIMESTAMP = "timestamp"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Field:
    """One field of an item.

    is_list: the stored value is a list of text; an absent list is an empty one, never null.
    is_constant: it never changes. is_derived: it is computed from other fields (fleetlight.resources.derived_fields),
    and not sent. Raises ValueError if the definition breaks the rules of Query2 ("Field definition").
    """

    name: str
    title: str
    kind: Kind
    doc: str
    is_list: bool = False
    is_constant: bool = False
    is_derived: bool = False

    def __post_init__(self) -> None:
        for rule, text in ((_NAME, self.name), (_TITLE, self.title), (_DOC, self.doc)):
            if not rule.fullmatch(text):
                raise ValueError(f"field {self.name!r}: {text!r} does not match {rule.pattern}")

    @property
    def is_sortable(self) -> bool:
        """Whether lists can be sorted by it."""
        return self.kind is not Kind.OTHER

    def stored(self, value: object) -> Scalar:
        """The stored form of `value`. Raises FilterValueError if it does not fit the kind."""
        match self.kind, value:
            case Kind.TIMESTAMP, datetime() if value.tzinfo is not None:
                return to_microseconds(value)
            case Kind.BOOL, bool():
                return value
            case ((Kind.NUMBER | Kind.UNIT), int()) if not isinstance(value, bool):
                return value
            case Kind.FLOAT, float() if isfinite(value):
                return value
            case Kind.TEXT, str() if _is_unicode(value):
                return value
            case Kind.OTHER, str() if self.is_list and _is_unicode(value):
                return value
        raise FilterValueError(self.name, value, _EXPECTED.get(self.kind, "nothing: it cannot be compared"))


def _is_unicode(text: str) -> bool:
    """Whether every store can hold a text: not if it has half of a surrogate pair, which JSON allows."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


_EXPECTED = {
    Kind.TIMESTAMP: "a time with its zone",
    Kind.BOOL: "true or false",
    Kind.NUMBER: "a whole number",
    Kind.UNIT: "a whole number of MiB",
    Kind.FLOAT: "a finite number with a point",
    Kind.TEXT: "text of valid Unicode",
    Kind.OTHER: "text that the list may contain",
}


@dataclass(frozen=True, slots=True)
class Member:
    """The member of a server by which the compute API shows a field (contracts/nova-servers, section 7).

    since: N of the microversion 2.N that added it. is_for_admins: whether only administrators see it.
    otherwise: its value if the field has none.
    """

    name: str
    since: int = 1
    is_for_admins: bool = False
    otherwise: str | bool | tuple[()] | None = None


class ItemType(Mapping[str, Field]):
    """A type of items that can be listed: its fields by name, in the order of their definition.

    unique: a field that is never null, and differs between items; it is the last key of every order.
    members: the members by which the compute API shows fields, by name of the field.
    Types compare by identity. Raises ValueError if a name, or (ignoring case) a title, appears twice.
    """

    def __init__(
        self, name: str, fields: Iterable[Field], *, unique: str = "uuid", members: Mapping[str, Member] | None = None
    ) -> None:
        self.name = name
        self.members = members or {}
        self.unique = unique
        self._fields: dict[str, Field] = {}
        titles: set[str] = set()
        for field in fields:
            if field.name in self._fields or field.title.lower() in titles:
                raise ValueError(f"{name}: field {field.name!r} or its title is defined twice")
            self._fields[field.name] = field
            titles.add(field.title.lower())

    def __getitem__(self, name: str) -> Field:
        return self._fields[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    def __repr__(self) -> str:
        return f"ItemType({self.name!r})"

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def require(self, name: str, purpose: str) -> Field:
        """The field called `name`. Raises UnknownFieldError with the `purpose` if there is none."""
        try:
            return self._fields[name]
        except KeyError:
            raise UnknownFieldError(name, purpose) from None


def to_microseconds(moment: datetime) -> int:
    """Microseconds since the epoch of a time with a zone."""
    return (moment - _EPOCH) // _MICROSECOND


def from_microseconds(value: int) -> datetime:
    """The UTC time of `value` microseconds since the epoch."""
    return _EPOCH + value * _MICROSECOND
