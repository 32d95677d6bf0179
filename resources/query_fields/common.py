"""Fields that several item types have."""

from fleetlight.resources.fields import Kind
from fleetlight.resources.query_fields.definitions import QueryField


def serial_number(what: str) -> QueryField:
    return QueryField("serial_no", "SerialNo", Kind.NUMBER, f"Number that rises with each change of the {what}")


def identifier(what: str) -> QueryField:
    return QueryField("uuid", "UUID", Kind.TEXT, f"Identifier of the {what}, the same for ever", is_constant=True)


def tags(what: str) -> QueryField:
    return QueryField("tags", "Tags", Kind.OTHER, f"Tags of the {what}", is_list=True)


def creation_time(what: str) -> QueryField:
    return QueryField("ctime", "CTime", Kind.TIMESTAMP, f"When the {what} was created", is_constant=True)


def modification_time(what: str) -> QueryField:
    return QueryField("mtime", "MTime", Kind.TIMESTAMP, f"When the {what} was last changed")


def of_every_object(what: str) -> tuple[QueryField, ...]:
    """The fields of all configured objects: identifier, serial number, tags and times."""
    return (
        identifier(what),
        serial_number(what),
        tags(what),
        creation_time(what),
        modification_time(what),
    )
