"""Delivered events, in the envelope of CloudEvents 1.0, as JSON.

The id of a change is the same in each delivery, so that consumers can drop repetitions; each `reset`, `complete` and
`incomplete` has an id of its own.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import uuid4

import msgspec
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent

CONTENT_TYPE = "application/cloudevents+json"
_FORMAT = JSONFormat()


@dataclass(frozen=True, slots=True)
class Event:
    """An event. subject: uuid of its item, if it has one. body: the whole event as JSON."""

    id: str
    type: str
    subject: str | None
    body: str


def change_event(subscription_id: str, what: str, data: bytes) -> Event:
    """Make the event of a change. data: from the feed of changes (fleetlight.api.changes.watched_items)."""
    said = msgspec.json.decode(data)
    event_id = f"{said['id']}-{said['revision']}-{said['kind']}"
    at = None if said["at"] is None else datetime.fromisoformat(said["at"])
    return _event(subscription_id, event_id, f"fleetlight.{what}.{said['kind']}", said, subject=said["id"], time=at)


def other_event(subscription_id: str, name: str, data: bytes = b"{}") -> Event:
    """Make another event. name: `reset`, `complete`, `incomplete` or `test`. data: JSON."""
    return _event(subscription_id, str(uuid4()), f"fleetlight.{name}", msgspec.json.decode(data))


def _event(subscription_id: str, event_id: str, kind: str, data: Any, **others: Any) -> Event:
    attributes = {
        "specversion": "1.0",
        "id": event_id,
        "source": f"/fleetlight/subscriptions/{subscription_id}",
        "type": kind,
        "datacontenttype": "application/json",
        **{name: value for name, value in others.items() if value is not None},
    }
    return Event(event_id, kind, others.get("subject"), _FORMAT.write(CloudEvent(attributes, data)).decode())
