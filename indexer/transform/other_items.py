"""Documents of items other than instances (nodes), from messages of a cell; pure."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from fleetlight.cells.payloads.node_payload import from_payload
from fleetlight.indexer.backends.base import Document
from fleetlight.notifications.payloads.fleetlight import HypervisorPayload
from fleetlight.notifications.versioned import VersionedPayload
from fleetlight.resources.fields import Record
from fleetlight.resources.query_fields.node import NODE

ITEM_PAYLOADS: Mapping[type[VersionedPayload], tuple[str, Callable[[Any], Record]]] = {
    HypervisorPayload: (NODE.name, from_payload)
}
"""By payload with the whole state of an item: the type of the item, and the function that reads its record."""


class OtherItemChange(msgspec.Struct, frozen=True, gc=False):
    """One revision of an item, with its complete record."""

    item_type: str
    revision: int
    record: Record

    @property
    def uuid(self) -> str:
        return str(self.record["uuid"])


def read_other_item_change(payload: VersionedPayload, revision: int) -> OtherItemChange | None:
    """The change of an item in a payload; None if the payload has no item."""
    known = ITEM_PAYLOADS.get(type(payload))
    if known is None:
        return None
    item_type, to_record = known
    return OtherItemChange(item_type, revision, to_record(payload))


def other_item_document(cell_uuid: str, change: OtherItemChange) -> Document:
    return Document(cell_uuid, change.revision, change.record, (), None, change.item_type)
