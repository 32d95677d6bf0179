"""The `fleet` and `relay` sections of the configuration."""

from pydantic import BaseModel, ConfigDict, Field, SecretStr


class FleetSettings(BaseModel):
    """Where the list of cells and the instance mappings are.

    database_url: SQLAlchemy URL of the fleet database, SQLite or PostgreSQL; may hold a password.
    cells_refresh_interval_s: how long a process may work with the list of cells that it read last.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    database_url: SecretStr = SecretStr("sqlite:///fleetlight-data/fleet.db")
    cells_refresh_interval_s: float = Field(default=10.0, gt=0)


class RelaySettings(BaseModel):
    """How a relay works through the outbox of its cell.

    batch_size: changes published (and confirmed) at once.
    heartbeat_interval_s: time between two heartbeats; the age that the index can prove is never better than this.
    poll_interval_s: time between two looks at an empty outbox.
    retry_wait_max_s: longest wait between two attempts while the bus or the cell is away.
    changelog_retention_h: how long a published change stays, for indexers that have to catch up.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    batch_size: int = Field(default=500, ge=1, le=10_000)
    heartbeat_interval_s: float = Field(default=1.0, gt=0)
    poll_interval_s: float = Field(default=0.1, gt=0)
    retry_wait_max_s: float = Field(default=10.0, gt=0)
    changelog_retention_h: float = Field(default=24.0, gt=0)
