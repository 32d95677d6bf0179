"""The keys with which producers sign announcements, and their cells, in the fleet database, where indexers read them.

A producer signs with one key for all its cells; for a while indexers accept older ones as well.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import delete, insert, select, update

from fleetlight.bus.signatures import ProducerKey, SigningKey, is_signed, key_id_of
from fleetlight.bus.topology import CELL_HEADER, PRODUCER_HEADER
from fleetlight.cells.fleet.cell_keys import KeyLookups
from fleetlight.cells.fleet.database import FleetDatabase
from fleetlight.cells.fleet.tables import producer_keys
from fleetlight.resources.clock import Clock, system_clock

_COLUMNS = producer_keys.c


@dataclass(frozen=True, slots=True)
class RefusedAnnouncement:
    """Why an announcement is refused, as a sentence without a period."""

    why: str


Announcer = str | RefusedAnnouncement
"""The name of the producer of an announcement, or why it is refused."""


@dataclass(frozen=True, slots=True)
class AcceptedKey:
    """A key of a producer in one cell. expires_at: in microseconds, when indexers cease to accept it, if ever."""

    producer: str
    cell_uuid: str
    key: SigningKey
    expires_at: int | None


class ProducerKeys:
    """The keys of all producers. Every call raises FleetUnreachableError. Times in microseconds."""

    def __init__(self, database: FleetDatabase) -> None:
        self._database = database

    def all(self) -> Sequence[AcceptedKey]:
        """All keys, ordered by producer and cell, newest first."""
        newest_first = (_COLUMNS.expires_at.is_not(None), _COLUMNS.created_at.desc())
        statement = select(producer_keys).order_by(_COLUMNS.producer, _COLUMNS.cell_uuid, *newest_first)
        with self._database.reading() as connection:
            return [
                AcceptedKey(row.producer, row.cell_uuid, SigningKey(row.key_id, row.secret), row.expires_at)
                for row in connection.execute(statement)
            ]

    def is_current(self, key: ProducerKey) -> bool:
        """Whether that is the newest key of its producer in some cell."""
        with self._database.reading() as connection:
            found = connection.scalar(select(_COLUMNS.secret).where(*_is_newest_of(key)).limit(1))
        return found == key.key.secret

    def accept(self, key: ProducerKey, cell_uuids: Collection[str], *, now: int, accepted_until: int) -> Sequence[str]:
        """Let a producer announce in these cells as well, with this key; returns the uuids of all its cells.

        Its older keys are accepted until `accepted_until`; expired ones are removed.
        """
        its = _COLUMNS.producer == key.producer
        with self._database.writing() as connection:
            connection.execute(delete(producer_keys).where(its, _COLUMNS.expires_at <= now))
            allowed = set(connection.scalars(select(_COLUMNS.cell_uuid).where(its).distinct())) | set(cell_uuids)
            have_it = set(connection.scalars(select(_COLUMNS.cell_uuid).where(*_is_newest_of(key))))
            is_older = (its, _COLUMNS.key_id != key.key.id, _COLUMNS.expires_at.is_(None))
            connection.execute(update(producer_keys).where(*is_older).values(expires_at=accepted_until))
            for cell_uuid in sorted(allowed - have_it):
                row = {"producer": key.producer, "cell_uuid": cell_uuid, "key_id": key.key.id}
                values = row | {"secret": key.key.secret, "created_at": now, "expires_at": None}
                connection.execute(insert(producer_keys).values(values))
        return sorted(allowed)

    def revoke(self, producer: str, cell_uuids: Collection[str] | None = None) -> Sequence[str]:
        """Remove the keys of a producer in these cells, or in all; returns the uuids of the cells where it had one."""
        conditions = [_COLUMNS.producer == producer]
        if cell_uuids is not None:
            conditions.append(_COLUMNS.cell_uuid.in_(sorted(cell_uuids)))
        with self._database.writing() as connection:
            revoked = set(connection.scalars(select(_COLUMNS.cell_uuid).where(*conditions)))
            connection.execute(delete(producer_keys).where(*conditions))
        return sorted(revoked)


def _is_newest_of(key: ProducerKey) -> Sequence[Any]:
    return _COLUMNS.producer == key.producer, _COLUMNS.key_id == key.key.id, _COLUMNS.expires_at.is_(None)


class ProducerKeyring:
    """The keys of producers that a process knows; thread-safe. Call `refresh` now and then.

    clock: of the fleet, microseconds.
    """

    def __init__(self, keys: ProducerKeys, clock: Clock = system_clock) -> None:
        self._keys = keys
        self._clock = clock
        self._pace = KeyLookups()
        self._known: Mapping[tuple[str, str, str], AcceptedKey] = {}

    def refresh(self) -> None:
        """Read all keys. Raises FleetUnreachableError, and then keeps the known ones."""
        self._known = {(each.cell_uuid, each.producer, each.key.id): each for each in self._keys.all()}

    def announcer(self, cell_uuid: str, headers: Mapping[str, Any], body: bytes) -> Announcer:
        """The producer that signed a message on the bus of a cell, or why the announcement is refused."""
        producer, key_id = headers.get(PRODUCER_HEADER), key_id_of(headers)
        if not isinstance(producer, str):
            return RefusedAnnouncement(
                f"headers.{PRODUCER_HEADER}: an announcement has to name its producer, and be signed"
            )
        if key_id is None:
            return RefusedAnnouncement(f"an announcement of producer {producer!r} has to be signed")
        if headers.get(CELL_HEADER) != cell_uuid:
            return RefusedAnnouncement(
                f"headers.{CELL_HEADER}: an announcement has to be signed for {cell_uuid}, whose bus this is"
            )
        key = self._known.get((cell_uuid, producer, key_id))
        if key is None:
            # The producer may have a new key that this process does not know yet.
            self._pace.look(cell_uuid, self.refresh)
            key = self._known.get((cell_uuid, producer, key_id))
        if key is None:
            return RefusedAnnouncement(f"producer {producer!r} has no key {key_id!r} in this cell (any more)")
        if key.expires_at is not None and key.expires_at <= self._clock():
            return RefusedAnnouncement(
                f"key {key_id} of producer {producer!r} is not accepted any more; there is a newer one"
            )
        if not is_signed(headers, body, key.key):
            return RefusedAnnouncement(
                f"the signature is not that of producer {producer!r}, or the message was changed since"
            )
        return producer
