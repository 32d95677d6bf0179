"""Converts a node's record to its notification payload, and back."""

from typing import Any

from fleetlight.notifications.payloads.fleetlight import HypervisorPayload
from fleetlight.resources.fields import Record, from_microseconds, to_microseconds
from fleetlight.resources.node import NODE_FIELDS
from fleetlight.resources.query_fields.definitions import ResultStatus

_TIMES = ("created_at", "updated_at", "status_since")


def to_payload(stored: Record, *, deleted_at: int | None = None) -> HypervisorPayload:
    """The payload of a stored node. Raises PayloadError if the contract does not allow a value of a damaged row."""
    times = {name: _moment(stored[name]) for name in _TIMES}
    deleted = {"deleted": deleted_at is not None, "deleted_at": _moment(deleted_at)}
    return HypervisorPayload(**{**stored, **times, **deleted})


def from_payload(payload: HypervisorPayload) -> Record:
    """The record of the node, with `deleted` and `deleted_at`."""
    record: dict[str, Any] = {name: getattr(payload, name) for name in (*NODE_FIELDS, "deleted", "deleted_at")}
    for name in (*_TIMES, "deleted_at"):
        if record[name] is not None:
            record[name] = to_microseconds(record[name])
    return record


def _moment(value: int | None) -> Any:
    return None if value is None or isinstance(value, ResultStatus) else from_microseconds(value)
