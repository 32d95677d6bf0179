"""The `bus` section of the configuration. The address of a bus belongs to its cell, not here."""

from pydantic import BaseModel, ConfigDict, Field


class BusSettings(BaseModel):
    """How processes talk to the buses of the cells.

    connect_timeout_s: how long to wait for a broker to accept a connection.
    confirm_timeout_s: how long to wait until the broker has confirmed a batch of messages.
    heartbeat_s: a connection that was silent for twice this long is given up, by either side.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    connect_timeout_s: float = Field(default=5.0, gt=0)
    confirm_timeout_s: float = Field(default=30.0, gt=0)
    heartbeat_s: int = Field(default=30, ge=2)
