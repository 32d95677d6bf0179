"""The signing keys of native cells, in the fleet database, where relays and indexers read them.

The relay of a cell signs with its newest key; for a while indexers accept older ones as well.
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
# Any sender can name an unknown key.
_LOOK_AGAIN_S = 1.0
# The fleet database may hang, and the thread that waits for it has messages to handle.
_LOOK_AGAIN_AFTER_FAILURE_S = 30.0


@dataclass(frozen=True, slots=True)
class CellKey:
    """A key of a cell. expires_at: in microseconds, when indexers cease to accept it; None for the newest."""

    key: SigningKey
    expires_at: int | None


class CellKeys:
    """The keys of all cells. Every call raises FleetUnreachableError."""

    def __init__(self, database: FleetDatabase) -> None:
        self._database = database

    def of_cells(self) -> Mapping[str, Sequence[CellKey]]:
        """The keys of each cell, newest first."""
        columns = cell_keys.c
        found: dict[str, list[CellKey]] = {}
        newest_first = (columns.expires_at.is_not(None), columns.created_at.desc())
        with self._database.reading() as connection:
            for row in connection.execute(select(cell_keys).order_by(columns.cell_uuid, *newest_first)):
                key = CellKey(SigningKey(row.key_id, row.secret), row.expires_at)
                found.setdefault(row.cell_uuid, []).append(key)
        return found

    def rotate(self, cell_uuid: str, *, now: int, accepted_until: int) -> SigningKey:
        """Give a cell a new key, and remove expired ones. Older keys are accepted until `accepted_until`.

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
    """Generate a random key with a random id."""
    return SigningKey(secrets.token_hex(_ID_BYTES), secrets.token_bytes(_SECRET_BYTES))


def add_key(connection: Connection, cell_uuid: str, now: int) -> SigningKey:
    """Add a new key of a cell in the transaction of `connection`. now: microseconds."""
    key = new_key()
    row = {"cell_uuid": cell_uuid, "key_id": key.id, "secret": key.secret, "created_at": now, "expires_at": None}
    connection.execute(insert(cell_keys).values(row))
    return key


class KeyLookups:
    """Limits how often a process looks for unknown keys, which any message may name."""

    def __init__(self) -> None:
        self._looking = Lock()
        self._look_at_s = 0.0

    def look(self, cell_uuid: str, look: Callable[[], None]) -> None:
        """Call `look`, unless it was called just before. A FleetUnreachableError that it raises is logged."""
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
    """The keys of cells that a process knows; thread-safe. Call `refresh` now and then.

    clock: of the fleet, microseconds.
    """

    def __init__(self, keys: CellKeys, clock: Clock = system_clock) -> None:
        self._keys = keys
        self._clock = clock
        self._known: Mapping[str, Sequence[CellKey]] = {}
        self._by_id: Mapping[tuple[str, str], CellKey] = {}
        self._pace = KeyLookups()

    def refresh(self) -> None:
        """Read all keys. Raises FleetUnreachableError, and then keeps the known ones."""
        self._known = known = self._keys.of_cells()
        self._by_id = {(cell_uuid, each.key.id): each for cell_uuid, keys in known.items() for each in keys}

    def sign(self, cell_uuid: str, message: Message) -> Message:
        """Sign a message with the newest key of the cell; without a key it stays as it is."""
        if not self._known.get(cell_uuid):
            self._look_again(cell_uuid)
        known = self._known.get(cell_uuid, ())
        return signed(message, known[0].key) if known else message

    def is_of_relay(self, cell_uuid: str, headers: Mapping[str, Any], body: bytes) -> bool:
        """Whether the relay of a cell signed exactly this message."""
        key_id = key_id_of(headers)
        if key_id is None:
            return False
        key = self._by_id.get((cell_uuid, key_id))
        if key is None:
            # The relay may know a new key before this process does.
            self._look_again(cell_uuid)
            key = self._by_id.get((cell_uuid, key_id))
        if key is None or (key.expires_at is not None and key.expires_at <= self._clock()):
            return False
        return is_signed(headers, body, key.key)

    def _look_again(self, cell_uuid: str) -> None:
        self._pace.look(cell_uuid, self.refresh)
