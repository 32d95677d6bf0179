"""The keys that relays sign with, of each native cell: in the fleet database, where relays and indexers read them.

A cell has one that its relay signs with, the newest, and for a while those before it, which are still believed.
"""

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any

import structlog
from sqlalchemy import Connection, delete, insert, select, update

from fleetlight.bus.bus import Message
from fleetlight.bus.signatures import SigningKey, is_signed, key_id_of, signed
from fleetlight.cells.errors import FleetUnreachableError
from fleetlight.cells.fleet.database import FleetDatabase
from fleetlight.cells.fleet.tables import cell_keys
from fleetlight.resources.clock import Clock, system_clock

_log = structlog.get_logger(__name__)

_ID_BYTES, _SECRET_BYTES = 4, 32
# A message of any origin can name a key that there is not.
_LOOK_AGAIN_S = 1.0
# It may hang, and the thread that waits for it here has messages to deal with.
_LOOK_AGAIN_AFTER_FAILURE_S = 30.0


@dataclass(frozen=True, slots=True)
class CellKey:
    """A key of a cell; expires_at: in microseconds, from when on it is not believed any more; None for the newest."""

    key: SigningKey
    expires_at: int | None


class CellKeys:
    """The keys of all cells. Every call raises FleetUnreachableError."""

    def __init__(self, database: FleetDatabase) -> None:
        self._database = database

    def of_cells(self) -> Mapping[str, Sequence[CellKey]]:
        """By cell, those that there are, the newest first."""
        columns = cell_keys.c
        found: dict[str, list[CellKey]] = {}
        newest_first = (columns.expires_at.is_not(None), columns.created_at.desc())
        with self._database.reading() as connection:
            for row in connection.execute(select(cell_keys).order_by(columns.cell_uuid, *newest_first)):
                key = CellKey(SigningKey(row.key_id, row.secret), row.expires_at)
                found.setdefault(row.cell_uuid, []).append(key)
        return found

    def rotate(self, cell_uuid: str, *, now: int, accepted_until: int) -> SigningKey:
        """Give a cell a new key. Those before it are believed until then; those that are not any more are forgotten.

        Times in microseconds.
        """
        columns = cell_keys.c
        its = columns.cell_uuid == cell_uuid
        with self._database.writing() as connection:
            connection.execute(delete(cell_keys).where(its, columns.expires_at <= now))
            connection.execute(
                update(cell_keys).where(its, columns.expires_at.is_(None)).values(expires_at=accepted_until)
            )
            return add_key(connection, cell_uuid, now)


def new_key() -> SigningKey:
    return SigningKey(secrets.token_hex(_ID_BYTES), secrets.token_bytes(_SECRET_BYTES))


def add_key(connection: Connection, cell_uuid: str, now: int) -> SigningKey:
    """A new key in the transaction of `connection`. now: microseconds."""
    key = new_key()
    row = {"cell_uuid": cell_uuid, "key_id": key.id, "secret": key.secret, "created_at": now, "expires_at": None}
    connection.execute(insert(cell_keys).values(row))
    return key


class KeyLookups:
    """Looks for a key that is not known, but not as often as messages may name one."""

    def __init__(self) -> None:
        self._looking = Lock()
        self._look_at_s = 0.0

    def look(self, cell_uuid: str, look: Callable[[], None]) -> None:
        """Call `look`, unless the last time was just now. It may raise FleetUnreachableError, which is logged."""
        with self._looking:
            if time.monotonic() < self._look_at_s:
                return
            pause_s = _LOOK_AGAIN_S
            try:
                look()
            except FleetUnreachableError as error:
                _log.warning("keys.unreachable", cell=cell_uuid, reason=error.reason)
                pause_s = _LOOK_AGAIN_AFTER_FAILURE_S
            self._look_at_s = time.monotonic() + pause_s


class Keyring:
    """The keys as a process knows them; threads may share one. `refresh` it now and then.

    clock: of the fleet, microseconds.
    """

    def __init__(self, keys: CellKeys, clock: Clock = system_clock) -> None:
        self._keys = keys
        self._clock = clock
        self._known: Mapping[str, Sequence[CellKey]] = {}
        self._by_id: Mapping[tuple[str, str], CellKey] = {}
        self._pace = KeyLookups()

    def refresh(self) -> None:
        """Raises FleetUnreachableError; then what is known stays."""
        self._known = known = self._keys.of_cells()
        self._by_id = {(cell_uuid, each.key.id): each for cell_uuid, keys in known.items() for each in keys}

    def sign(self, cell_uuid: str, message: Message) -> Message:
        """The message signed with the newest key of the cell; as it is while there is no key."""
        if not self._known.get(cell_uuid):
            self._look_again(cell_uuid)
        known = self._known.get(cell_uuid, ())
        return signed(message, known[0].key) if known else message

    def is_of_relay(self, cell_uuid: str, headers: Mapping[str, Any], body: bytes) -> bool:
        """Whether a message on the bus of a cell is from the cell's relay, byte for byte."""
        key_id = key_id_of(headers)
        if key_id is None:
            return False
        key = self._by_id.get((cell_uuid, key_id))
        if key is None:
            # A relay may know of a new one before we do.
            self._look_again(cell_uuid)
            key = self._by_id.get((cell_uuid, key_id))
        if key is None or (key.expires_at is not None and key.expires_at <= self._clock()):
            return False
        return is_signed(headers, body, key.key)

    def _look_again(self, cell_uuid: str) -> None:
        self._pace.look(cell_uuid, self.refresh)
