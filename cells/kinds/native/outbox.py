"""The outbox: committed changes that the relay has yet to announce, and the form of their messages.

A transaction appends each change that it makes. The body of the message is final from then on; its sequence, which the
relay assigns later, travels in a header.
"""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4

from sqlalchemy import Connection, Engine, Row, insert

from fleetlight.bus import topology
from fleetlight.bus.bus import Headers, Message
from fleetlight.cells.database.engines import cell_failures, writing
from fleetlight.cells.model import NO_REQUEST, NO_REVISION, Cell, InstanceRow, RequestContext
from fleetlight.cells.payloads.instance_payload import to_payload
from fleetlight.cells.tables import changes
from fleetlight.notifications.envelope import Notification, decode, encode
from fleetlight.notifications.event_types import CELL_HEARTBEAT
from fleetlight.notifications.payloads.fleetlight import CellHeartbeatPayload
from fleetlight.notifications.versioned import VersionedPayload
from fleetlight.resources.clock import system_clock
from fleetlight.resources.fields import from_microseconds

_APPEND = insert(changes)
_INFO = "INFO"
_ERROR = "ERROR"


def announcements(
    cell: Cell,
    event_type: str,
    rows: Sequence[InstanceRow],
    committed_at: int,
    *,
    publisher_id: str | None = None,
    request: RequestContext = NO_REQUEST,
) -> list[dict[str, object]]:
    """Rows of `changes` that announce `rows` as they are now.

    committed_at: microseconds since the epoch. publisher_id: None for the cell itself. request: origin of the change.
    Raises PayloadError (fleetlight.notifications.errors).
    """
    return [
        {
            "instance_uuid": row.uuid,
            "revision": row.revision,
            "event_type": event_type,
            "routing_key": topology.routing_key(_priority(event_type)),
            "message": _encode(
                publisher_id or _cell_itself(cell), event_type, to_payload(row.record, request), committed_at, request
            ),
            "committed_at": committed_at,
        }
        for row in rows
    ]


def append_event(
    connection: Connection,
    event_type: str,
    payload: VersionedPayload,
    *,
    publisher_id: str,
    at: int,
    revision: int = NO_REVISION,
    request: RequestContext = NO_REQUEST,
) -> None:
    """Append a notification of our own that is not about an instance, but a service, the scheduler, or a node.

    at: microseconds since the epoch. revision: of the item, if it is indexed.
    Raises PayloadError (fleetlight.notifications.errors).
    """
    connection.execute(
        insert(changes).values(
            instance_uuid="",
            revision=revision,
            event_type=event_type,
            routing_key=topology.routing_key(_priority(event_type)),
            message=_encode(publisher_id, event_type, payload, at, request),
            committed_at=at,
        )
    )


def append(connection: Connection, announced: Sequence[Mapping[str, object]]) -> None:
    """Append `announcements` to the transaction of `connection`, which makes the changes."""
    if announced:
        connection.execute(_APPEND, announced)


def append_external(engine: Engine, cell: Cell, message: bytes, routing_key: str, instance_uuid: str = "") -> None:
    """Append a notification of other software to the outbox of `cell`: it is durable, and the relay publishes it.

    It gets a sequence and no revision. instance_uuid: empty if it is not about an instance.
    Raises EnvelopeError (fleetlight.notifications.errors) when it is no notification, and CellUnreachableError.
    """
    event_type = decode(message).event_type
    with cell_failures(cell.name), writing(engine) as connection:
        connection.execute(
            insert(changes).values(
                instance_uuid=instance_uuid,
                revision=NO_REVISION,
                event_type=event_type,
                routing_key=routing_key,
                message=message,
                committed_at=system_clock(),
            )
        )


def to_message(cell: Cell, row: Row[Any], epoch: str) -> Message:
    """The message of a numbered row of `changes`. epoch: of the cell (fleetlight.cells.kinds.native.epochs)."""
    headers: Headers = {
        topology.CELL_HEADER: cell.uuid,
        topology.EPOCH_HEADER: epoch,
        topology.SEQUENCE_HEADER: row.sequence,
    }
    if row.revision != NO_REVISION:
        headers[topology.REVISION_HEADER] = row.revision
    if row.instance_uuid:
        headers[topology.RESOURCE_HEADER] = row.instance_uuid
    return Message(body=row.message, routing_key=row.routing_key, headers=headers)


def heartbeat_message(cell: Cell, sequence: int, at: int, epoch: str | None = None) -> Message:
    """The message of a heartbeat: every change that was committed before `at` has at most this sequence."""
    headers: Headers = {topology.CELL_HEADER: cell.uuid}
    if epoch is not None:
        headers[topology.EPOCH_HEADER] = epoch
    payload = CellHeartbeatPayload(cell_uuid=cell.uuid, sequence=sequence, at=from_microseconds(at))
    return Message(
        body=_encode(_cell_itself(cell), CELL_HEARTBEAT, payload, at, NO_REQUEST),
        routing_key=topology.routing_key(_INFO),
        headers=headers,
    )


def _cell_itself(cell: Cell) -> str:
    return f"fleetlight-cell:{cell.name}"


def _priority(event_type: str) -> str:
    return _ERROR if event_type.endswith(".error") else _INFO


def _encode(publisher_id: str, event_type: str, payload: VersionedPayload, at: int, request: RequestContext) -> bytes:
    return encode(
        Notification(
            event_type=event_type,
            payload=payload.wrap(),
            publisher_id=publisher_id,
            priority=_priority(event_type),
            timestamp=from_microseconds(at),
            message_id=str(uuid4()),
            request_id=request.request_id,
        )
    )
