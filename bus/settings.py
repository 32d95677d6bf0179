"""The `bus` section of the configuration. The address of a bus belongs to its cell, not here."""

import ssl
from pathlib import Path
from typing import Annotated, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, FilePath, SecretStr, model_validator


def _with_certificates(file: Path) -> Path:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cafile=file)
    except ssl.SSLError:
        raise ValueError("must be a file with certificates in PEM form") from None
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror}") from None
    return file


CertificatesFile = Annotated[FilePath, AfterValidator(_with_certificates)]
"""Authorities that verify a server's certificate. It is checked at the start, since without any the server would
look as if it were down, and processes would wait for it."""


class BusSettings(BaseModel):
    """How processes talk to the buses of the cells.

    username, password: the account of this process on brokers whose address names none.
    ca_certs: PEM file of the authority behind the certificates of `amqps://` brokers; unset: those that the system
        trusts. A certificate is always checked, and so is the name in it.
    connect_timeout_s: how long to wait for a broker to accept a connection.
    confirm_timeout_s: how long to wait until the broker has confirmed a batch of messages.
    heartbeat_s: a connection that was silent for twice this long is given up, by either side.
    read_ahead: read all that a broker has sent in one go; without it messages are received as py-amqp does it, which
        costs an indexer a quarter of what it takes in.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    username: str | None = None
    password: SecretStr | None = None
    ca_certs: CertificatesFile | None = None
    connect_timeout_s: float = Field(default=5.0, gt=0)
    confirm_timeout_s: float = Field(default=30.0, gt=0)
    heartbeat_s: int = Field(default=30, ge=2)
    read_ahead: bool = True

    @model_validator(mode="after")
    def _whole_account(self) -> Self:
        if (self.username is None) != (self.password is None):
            raise ValueError("username and password belong together: set both or neither")
        return self
