"""Which producers may announce instances without a row in a native cell, and their names in documents; pure."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from fleetlight.cells.fleet.producer_keys import Announcer, RefusedAnnouncement
from fleetlight.cells.model import Cell
from fleetlight.indexer.errors import RefusedAnnouncementError
from fleetlight.indexer.extra_fields import Extra
from fleetlight.indexer.transform.documents import ExternalChange

ANNOUNCED_BY = "announced_by"
"""The field of a document, beside its record, with the producer that announced it last."""

KnowsAnnouncers = Callable[[str, Mapping[str, Any], bytes], Announcer]
"""Finds the producer of a message on a cell's bus, from the uuid of the cell, headers and body
(fleetlight.cells.fleet.producer_keys)."""

_UNKNOWN = RefusedAnnouncement("this process knows of no producer")


def no_producers(_cell_uuid: str, _headers: Mapping[str, Any], _body: bytes) -> Announcer:
    """For indexers without keys of producers."""
    return _UNKNOWN


class Announcers:
    """Finds the producers of one native cell. announcer: finds that of a message which the relay did not make."""

    def __init__(self, cell: Cell, announcer: KnowsAnnouncers = no_producers) -> None:
        self._cell_uuid = cell.uuid
        self._announcer = announcer
        remedy = f"`fleetlight cell set {cell.name} --announcements`"
        # The publisher of the outbox uses this name, which no producer can have.
        self.outbox: Announcer = f"fleetlight-cell:{cell.name}"
        """The producer of notifications in the outbox; only an account of the cell's database can write there."""
        self._refusal = None
        if not cell.takes_announcements:
            self._refusal = self.outbox = RefusedAnnouncement(
                f"cell {cell.name} takes no announcements: {remedy} lets it"
            )

    def of_message(self, headers: Mapping[str, Any], body: bytes) -> Announcer:
        """The producer of a message that the relay did not make, or why it is refused."""
        return self._refusal or self._announcer(self._cell_uuid, headers, body)


def announced(change: ExternalChange, announcer: Announcer | None) -> ExternalChange:
    """Add the name of its producer to a change. Raises RefusedAnnouncementError if there is none, or it is refused."""
    match announcer or _UNKNOWN:
        case RefusedAnnouncement(why):
            raise RefusedAnnouncementError(change.uuid, why)
        case name:
            said = change.extra
            payload, values, kinds = (said.payload, said.values, said.kinds) if said else ("", {}, {})
            extra = Extra(payload, values | {ANNOUNCED_BY: name}, kinds | {ANNOUNCED_BY: "text"})
            return replace(change, extra=extra)
