"""Key pairs of users: the public halves; a private half is returned once and never stored."""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, delete, insert, select
from sqlalchemy.exc import IntegrityError

from fleetlight.cells.errors import ResourceExistsError, ResourceNotFoundError
from fleetlight.cells.fleet.database import FleetDatabase
from fleetlight.cells.fleet.tables import keypairs
from fleetlight.resources.clock import Clock, system_clock

SSH, X509 = "ssh", "x509"


@dataclass(frozen=True, slots=True)
class PublicKey:
    """A public key. type: SSH (a line of authorized_keys) or X509 (a certificate in PEM)."""

    type: str
    text: str
    fingerprint: str


@dataclass(frozen=True, slots=True)
class Keypair:
    """A key pair of a user. created_at: microseconds since the epoch."""

    number: int
    user_id: str
    name: str
    type: str
    public_key: str
    fingerprint: str
    created_at: int

    def payload(self) -> dict[str, Any]:
        """The key pair as an instance stores it: the fields of Nova's KeypairPayload."""
        return {
            "user_id": self.user_id,
            "name": self.name,
            "type": self.type,
            "public_key": self.public_key,
            "fingerprint": self.fingerprint,
        }


class Keypairs:
    """All key pairs. Calls block, and raise FleetUnreachableError, and ResourceNotFoundError for an unknown name."""

    def __init__(self, database: FleetDatabase, clock: Clock = system_clock) -> None:
        self._database = database
        self._clock = clock

    def page(self, user_id: str, *, marker: str | None = None, limit: int) -> tuple[Keypair, ...]:
        """The key pairs of a user, ordered by name, after the one called `marker`."""
        columns = keypairs.c
        statement = select(keypairs).where(columns.user_id == user_id).order_by(columns.name).limit(limit)
        if marker is not None:
            statement = statement.where(columns.name > self.find(user_id, marker).name)
        with self._database.reading() as connection:
            return tuple(_keypair(row) for row in connection.execute(statement))

    def find(self, user_id: str, name: str) -> Keypair:
        """One key pair of a user. Raises ResourceNotFoundError."""
        with self._database.reading() as connection:
            row = connection.execute(
                select(keypairs).where(keypairs.c.user_id == user_id, keypairs.c.name == name)
            ).one_or_none()
        if row is None:
            raise _not_found(user_id, name)
        return _keypair(row)

    def add(self, user_id: str, name: str, key: PublicKey) -> Keypair:
        """Add a key pair. Raises ResourceExistsError if the user has one of that name."""
        values = {
            "user_id": user_id,
            "name": name,
            "type": key.type,
            "public_key": key.text,
            "fingerprint": key.fingerprint,
            "created_at": self._clock(),
        }
        try:
            with self._database.writing() as connection:
                row = connection.execute(insert(keypairs).values(values).returning(keypairs)).one()
        except IntegrityError as error:
            raise ResourceExistsError(f"Key pair '{name}' already exists.") from error
        return _keypair(row)

    def remove(self, user_id: str, name: str) -> None:
        """Remove a key pair. Raises ResourceNotFoundError if the user does not have it."""
        with self._database.writing() as connection:
            removed = connection.execute(delete(keypairs).where(keypairs.c.user_id == user_id, keypairs.c.name == name))
            if not removed.rowcount:
                raise _not_found(user_id, name)


def _not_found(user_id: str, name: str) -> ResourceNotFoundError:
    return ResourceNotFoundError("Keypair", f"{name} of user {user_id}")


def _keypair(row: Row[Any]) -> Keypair:
    return Keypair(**row._mapping)
