"""The producer kit: what a program needs to emit valid notifications.

    key = ProducerKey.read(Path("rack-agent.producer-key").read_text())
    producer = Producer("amqp://guest:guest@localhost//", cell_uuid, key, publisher_id="nova-compute:host7")
    producer.emit("service.update", ServiceStatusPayload(host="host7", binary="nova-compute", ...))
    producer.close()

A payload that lacks a field, or holds a wrong value, fails where it is created, with the field's name. Nothing invalid
reaches the bus. Each message is signed: indexers take announcements only from producers that the cell takes them from
(`fleetlight accounts producer`), and the signature is good for this cell alone.
"""

import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from fleetlight.bus.bus import Message, Publisher
from fleetlight.bus.settings import BusSettings
from fleetlight.bus.signatures import ProducerKey, signed_by_producer
from fleetlight.bus.topology import routing_key
from fleetlight.notifications.check import find_problems, unknown_event
from fleetlight.notifications.envelope import Notification, encode, size_problem
from fleetlight.notifications.errors import EnvelopeError
from fleetlight.notifications.registry import parse_payload
from fleetlight.notifications.versioned import VersionedPayload


class Producer:
    """Emits notifications on the bus of one cell, signed with `key`, under one `publisher_id` (`service:host`)."""

    def __init__(
        self,
        transport_url: str,
        cell_uuid: str,
        key: ProducerKey,
        publisher_id: str,
        settings: BusSettings | None = None,
    ) -> None:
        self._publisher = Publisher(transport_url, cell_uuid, settings, declares=False)
        self._cell_uuid = cell_uuid
        self._key = key
        self._publisher_id = publisher_id

    def emit(
        self,
        event_type: str,
        payload: VersionedPayload | Mapping[str, Any],
        *,
        priority: str | None = None,
        request_id: str | None = None,
    ) -> Notification:
        """Send one notification; return it when the broker has it.

        event_type: one for this kind of payload (fleetlight.notifications.event_types). payload: an object, or its
        wrapped form. priority: by default ERROR for the phase `error`, else INFO. Raises PayloadError,
        UnknownPayloadError, UnsupportedVersionError or EnvelopeError before anything is sent, and BusUnavailableError
        if sending fails.
        """
        if not isinstance(payload, VersionedPayload):
            payload = parse_payload(payload)
        notification = Notification(
            event_type=event_type,
            payload=payload.wrap(),
            publisher_id=self._publisher_id,
            priority=priority or ("ERROR" if event_type.endswith(".error") else "INFO"),
            timestamp=datetime.now(UTC),
            message_id=str(uuid.uuid4()),
            request_id=request_id,
        )
        self.send([notification])
        return notification

    def send(self, notifications: Sequence[Notification]) -> None:
        """Send complete notifications in order, unchanged; if one is invalid, none is sent. Raises as `emit` does."""
        messages = [to_message(notification) for notification in notifications]
        for problem in filter(None, map(unknown_event, notifications)):
            raise EnvelopeError(problem.where, problem.what)
        self._publisher.publish([signed_by_producer(message, self._cell_uuid, self._key) for message in messages])

    def close(self) -> None:
        self._publisher.close()


def to_message(notification: Notification) -> Message:
    """Convert a valid notification to its message. Raises as `Producer.emit` does."""
    parse_payload(notification.payload)
    problems = find_problems(notification)
    if problems:
        raise EnvelopeError(problems[0].where, problems[0].what)
    body = encode(notification)
    if problem := size_problem(body):
        raise EnvelopeError("message", problem)
    return Message(body, routing_key(notification.priority), headers={})
