"""Stores messages that could not be indexed as failures in the fleet database, with the reason.

While that database is down, they wait in the dead-letter queue of their bus; the indexer moves them to the database
when it is back, together with messages that the broker itself gave up. If the bus is in memory, the follower of the
cell waits for the database instead, and the changelog still has the messages after a restart.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Protocol
from uuid import UUID

import msgspec
import structlog

from fleetlight.bus.bus import Headers, Message
from fleetlight.bus.topology import DETAIL_HEADER, REASON_HEADER, RESOURCE_HEADER, SEQUENCE_HEADER
from fleetlight.cells.errors import FleetUnreachableError
from fleetlight.cells.fleet.failures import Failure, FailureSummary, failure_id
from fleetlight.indexer.errors import DeadLetterReason, MalformedMessageError
from fleetlight.indexer.metrics import IndexerMetrics
from fleetlight.notifications.envelope import size_problem
from fleetlight.notifications.errors import MessageRefusedError
from fleetlight.notifications.event_types import OF_INSTANCES
from fleetlight.resources.clock import Clock, system_clock

_log = structlog.get_logger(__name__)

_TAKEN_AT_ONCE = 100
# Keep only this member of the sender's request context: older senders put tokens into the rest.
_CONTEXT_PREFIX = "_context_"
_KEPT_CONTEXT = "_context_request_id"
_MESSAGE = "oslo.message"

# Two equal bodies, damaged in the same way, are still two failures if these headers differ.
_IDENTITY = (SEQUENCE_HEADER, RESOURCE_HEADER)

_Object = dict[str, msgspec.Raw]


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that could not be indexed, and why. trace: the traceback of an unforeseen error."""

    message: Message
    reason: DeadLetterReason
    detail: str
    trace: str | None = None

    @classmethod
    def of(cls, message: Message, error: MalformedMessageError) -> "DeadLetter":
        """The dead letter of a message and its error, without a body that is too large to keep."""
        return cls(_without_large_body(message), error.reason, str(error), error.trace)


class RecordsFailures(Protocol):
    """The part of fleetlight.cells.fleet.failures.FailedMessages that a consumer uses; raises FleetUnreachableError."""

    def add(self, found: Sequence[Failure]) -> None: ...
    def mark_reread(self, cell_uuid: str, instance_uuids: Collection[str], at: int) -> None: ...


class KeepsFailures(RecordsFailures, Protocol):
    """The part of fleetlight.cells.fleet.failures.FailedMessages that an indexer uses; raises FleetUnreachableError."""

    def drop(self, ids: Collection[str]) -> int: ...
    def counts(self) -> Mapping[str, int]: ...
    def dropped(self) -> Mapping[str, int]: ...


class DeadLetterSink(Protocol):
    """The part of fleetlight.bus.bus.Receiver that handles dead letters; raises BusError."""

    @property
    def is_durable(self) -> bool: ...
    def dead_letter(self, message: Message, reason: str, detail: str) -> None: ...
    def take_dead(self, keep: Callable[[Sequence[Message]], None], limit: int) -> int: ...


class DeadLetters:
    """Stores the dead letters of one cell. source: of its messages (fleetlight.bus.external_exchange.source_of).

    Raises BusUnavailableError if neither fleet database nor bus takes a message, and FleetUnreachableError if the
    database is down and the bus is not durable.
    """

    def __init__(
        self,
        cell_uuid: str,
        failures: RecordsFailures,
        bus: DeadLetterSink,
        metrics: IndexerMetrics,
        clock: Clock = system_clock,
        *,
        source: str | None = None,
    ) -> None:
        self._cell_uuid = cell_uuid
        self._source = source or cell_uuid
        self._failures = failures
        self._bus = bus
        self._metrics = metrics
        self._clock = clock
        self._fleet_is_away = False

    def keep(self, letters: Sequence[DeadLetter]) -> list[str]:
        """Store dead letters durably; returns the uuids of their instances, without those of refused announcements,
        which the cell does not have.
        """
        if not letters:
            return []
        for letter in letters:
            _log.error(
                "indexer.dead_letter",
                cell=self._cell_uuid,
                reason=letter.reason.value,
                detail=letter.detail,
                sequence=letter.message.headers.get(SEQUENCE_HEADER),
            )
            self._metrics.messages_handled(self._cell_uuid, letter.reason.value, 1)
        found = self._failed(letters)
        try:
            self._failures.add(found)
        except FleetUnreachableError as error:
            if not self._bus.is_durable:
                raise
            self._fleet_is_away = True
            _log.warning("indexer.dead_letters_on_the_bus", cell=self._cell_uuid, reason=error.reason)
            for letter in letters:
                message = replace(letter.message, headers=_plain(letter.message.headers))
                try:
                    self._bus.dead_letter(message, letter.reason.value, letter.detail)
                except MessageRefusedError:
                    # The broker's size limit has become lower since it took the message.
                    self._bus.dead_letter(_without_body(message), letter.reason.value, letter.detail)
        summaries = [failure.summary for failure in found if failure.summary.reason != DeadLetterReason.REFUSED]
        return [summary.instance_uuid for summary in summaries if summary.instance_uuid is not None]

    def take_from_bus(self) -> None:
        """Move the messages of the dead-letter queue to the fleet database; while that is down, they stay there."""

        def keep(messages: Sequence[Message]) -> None:
            self._failures.add(self._failed([_from_queue(message) for message in messages]))

        try:
            if self._fleet_is_away:
                # Try the database first: RabbitMQ 4 drops a message that was taken and returned twenty times.
                self._failures.mark_reread(self._cell_uuid, (), self._clock())
                self._fleet_is_away = False
            while self._bus.take_dead(keep, _TAKEN_AT_ONCE):
                pass
        except FleetUnreachableError as error:
            self._fleet_is_away = True
            _log.warning("indexer.dead_letters_stay_on_the_bus", cell=self._cell_uuid, reason=error.reason)

    def was_reread(self, instance_uuids: Collection[str]) -> None:
        """Note on the failures of these instances that they were read from the cell and indexed, if the fleet database
        is up.
        """
        try:
            self._failures.mark_reread(self._cell_uuid, instance_uuids, self._clock())
        except FleetUnreachableError as error:
            _log.warning("indexer.reread_not_noted", cell=self._cell_uuid, reason=error.reason)

    def _failed(self, letters: Sequence[DeadLetter]) -> list[Failure]:
        now = self._clock()
        found: dict[str, Failure] = {}
        for letter in letters:
            failure = to_failure(self._cell_uuid, letter, now, source=self._source)
            known = found.get(failure.id)
            if known is not None:
                times = known.summary.times + 1
                failure = replace(failure, summary=replace(failure.summary, times=times))
            found[failure.id] = failure
        return list(found.values())


def to_failure(cell_uuid: str, letter: DeadLetter, now: int, *, source: str | None = None) -> Failure:
    """The failure for a message that failed for the first time at `now` (microseconds). source: as for `failure_id`."""
    message = letter.message
    summary = FailureSummary(
        id=failure_id(source or cell_uuid, message.body, repr([message.headers.get(name) for name in _IDENTITY])),
        cell_uuid=cell_uuid,
        reason=letter.reason.value,
        detail=letter.detail,
        instance_uuid=instance_of(message),
        first_at=now,
        last_at=now,
    )
    return Failure(summary, message.routing_key, _plain(message.headers), without_secrets(message.body), letter.trace)


def instance_of(message: Message) -> str | None:
    """The uuid of a message's instance, even if the rest is unreadable; None if it is unknown."""
    try:
        named = message.headers.get(RESOURCE_HEADER)
        if named is not None:
            return str(UUID(str(named)))
        outer = msgspec.json.decode(message.body)
        inner = msgspec.json.decode(outer[_MESSAGE]) if _MESSAGE in outer else outer
        if inner["event_type"].startswith(OF_INSTANCES):
            return str(UUID(inner["payload"]["nova_object.data"]["uuid"]))
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
        return None
    return None


def without_secrets(body: bytes) -> bytes:
    """The body without the request context of its sender; a body without one stays byte for byte the same."""
    try:
        outer = msgspec.json.decode(body, type=_Object)
        if _MESSAGE not in outer:
            return _without_context(body, outer)
        text = msgspec.json.decode(outer[_MESSAGE], type=str).encode()
        inner = _without_context(text, msgspec.json.decode(text, type=_Object))
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return body
    if inner == text:
        return body
    return msgspec.json.encode(outer | {_MESSAGE: msgspec.Raw(msgspec.json.encode(inner.decode()))})


def _without_context(text: bytes, members: _Object) -> bytes:
    kept = {
        name: value for name, value in members.items() if not name.startswith(_CONTEXT_PREFIX) or name == _KEPT_CONTEXT
    }
    return text if len(kept) == len(members) else msgspec.json.encode(kept)


def _from_queue(message: Message) -> DeadLetter:
    """The dead letter of a message in the dead-letter queue, which an indexer put there, or the broker without a
    reason.
    """
    headers = dict(message.headers)
    said, detail = headers.pop(REASON_HEADER, None), headers.pop(DETAIL_HEADER, None)
    try:
        reason = DeadLetterReason(str(said))
    except ValueError:
        reason, detail = DeadLetterReason.UNDELIVERABLE, "the broker has given up on delivering it"
    return DeadLetter(_without_large_body(replace(message, headers=headers)), reason, str(detail))


def _without_large_body(message: Message) -> Message:
    return message if size_problem(message.body) is None else _without_body(message)


def _without_body(message: Message) -> Message:
    """The message with the size and digest of its body instead of the body, which may contain secrets."""
    digest = sha256(message.body).hexdigest()
    return replace(message, body=f"<{len(message.body)} bytes that are not kept, SHA-256 {digest}>".encode())


def _plain(headers: Headers) -> Headers:
    """Headers in storable types; an external sender may have put any value into them."""
    return {str(name): value if isinstance(value, int | str) else repr(value) for name, value in headers.items()}
