"""The `fleet`, `relay`, `upstream`, `scheduler` and `nodes` sections of the configuration."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, model_validator
from pydantic_core import Url

from fleetlight.bus.settings import CertificatesFile
from fleetlight.resources.units import BYTES_PER_MIB

DEFAULT_MAX_ATTEMPTS = 3
_SCHEMES_OF_REDIS = ("redis", "rediss")


@dataclass(frozen=True, slots=True)
class FailureLimits:
    """Limits on the kept failures of a cell. count: messages. size: bytes; the newest failure is always kept."""

    count: int = 10_000
    size: int = 256 * BYTES_PER_MIB


class FleetSettings(BaseModel):
    """Where the list of cells and the instance mappings are.

    database_url: SQLAlchemy URL of the fleet database, SQLite or PostgreSQL; may hold a password. On SQLite indexers do
        not share the cells (docs/decisions/0016).
    cells_refresh_interval_s: time between two reads of the list of cells by a process.
    takeover_after_s: time without a heartbeat after which a standby takes over from a process that relays, syncs or
        rebuilds, and a worker loses its locks. Only on PostgreSQL.
    failures_max_count: how many messages that could not be indexed the fleet database keeps of each cell, the newest.
    failures_max_mib: how many MiB of such messages the fleet database keeps of each cell.
    reclaim_instance_interval_s: how long a deleted instance of a native cell can be restored; 0: deletions are final.
    jobs_kept_h: how long a native cell keeps an ended job with its log.
    jobs_kept_count: how many ended jobs each native cell keeps, the newest.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    database_url: SecretStr = SecretStr("sqlite:///fleetlight-data/fleet.db")
    cells_refresh_interval_s: float = Field(default=10.0, gt=0)
    takeover_after_s: float = Field(default=10.0, ge=1)
    failures_max_count: int = Field(default=10_000, ge=1)
    failures_max_mib: int = Field(default=256, ge=1)
    reclaim_instance_interval_s: float = Field(default=0.0, ge=0)
    jobs_kept_h: float = Field(default=168.0, gt=0)
    jobs_kept_count: int = Field(default=100_000, ge=0)

    @property
    def failure_limits(self) -> FailureLimits:
        return FailureLimits(self.failures_max_count, self.failures_max_mib * BYTES_PER_MIB)


class RelaySettings(BaseModel):
    """How a relay publishes the outbox of its cell.

    batch_size: changes that the relay publishes, and the bus confirms, at once.
    heartbeat_interval_s: time between two heartbeats; the index cannot prove a smaller age.
    poll_interval_s: time between two polls of a database for new commits, while there are none.
    retry_wait_max_s: longest pause between two attempts while the bus or the cell is away.
    changelog_retention_h: how long a cell keeps published changes, for indexers that catch up, lists as of a moment,
        and exact usage.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    batch_size: int = Field(default=500, ge=1, le=10_000)
    heartbeat_interval_s: float = Field(default=1.0, gt=0)
    poll_interval_s: float = Field(default=0.1, gt=0)
    retry_wait_max_s: float = Field(default=5.0, gt=0)
    changelog_retention_h: float = Field(default=24.0, gt=0)


class UpstreamSettings(BaseModel):
    """The compute API that `fleetlight index sync --source api` reads, and an administrator's account there.

    url: of the compute API with its version, as in https://nova.example.org:8774/v2.1.
    token: value of X-Auth-Token; or set username and password.
    username, password: credentials of basic authentication, instead of token.
    ca_certs: PEM file of the authority behind the API's certificate; unset: the authorities that the system trusts.
    timeout_s: how long one page may take.
    page_size: servers requested at once; the API may return fewer.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    url: str | None = None
    token: SecretStr | None = None
    username: str | None = None
    password: SecretStr | None = None
    ca_certs: CertificatesFile | None = None
    timeout_s: Annotated[float, Field(gt=0)] = 60.0
    page_size: Annotated[int, Field(ge=1, le=10_000)] = 1000

    @model_validator(mode="after")
    def _one_way_to_authenticate(self) -> Self:
        if (self.username is None) != (self.password is None):
            raise ValueError("username and password belong together: set both or neither")
        if self.token is not None and self.username is not None:
            raise ValueError("set either token or username and password, not both")
        return self


class SchedulerSettings(BaseModel):
    """How new and moved instances of native cells find their hosts.

    max_attempts: how many hosts a creation, a resize or a cold migration may try, the first one included.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    max_attempts: int = Field(default=DEFAULT_MAX_ATTEMPTS, ge=1, le=100)


def _of_redis(url: SecretStr) -> SecretStr:
    try:
        scheme = Url(url.get_secret_value()).scheme
    except ValueError:
        scheme = ""
    if scheme not in _SCHEMES_OF_REDIS:
        raise ValueError("must be the URL of a Redis or Valkey, as in redis://cache1:6379/0 or rediss://cache1/0")
    return url


class NodesSettings(BaseModel):
    """How processes call the agents of hosts, and where they cache the state of nodes.

    certificates_dir: folder with a folder for each cell, named after the cell, as `fleetlight cell certs` writes it.
        Unset: processes cannot call agents.
    certificate: name of the certificate of this process, as given to `--worker`.
    retry_s: how long a worker retries to reach an agent before the job fails.
    cache_url: a Redis or Valkey that all processes share, as in redis://cache1:6379/0; may hold a password. Unset:
        processes cache nothing.
    cache_ttl_s: how long cached state of a node may be shown; 0: until something changes.
    cache_strict: whether calls that only write the configuration of a node invalidate its cached state, too.
    refresh_interval_s: time between two reads of the whole state of all nodes with agents, by which workers fill the
        cache and announce deviations from the cell's rows; 0: never.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    certificates_dir: Path | None = None
    certificate: Annotated[str, Field(min_length=1)] = "worker"
    retry_s: float = Field(default=60.0, ge=0)
    cache_url: Annotated[SecretStr, AfterValidator(_of_redis)] | None = None
    cache_ttl_s: float = Field(default=600.0, ge=0)
    cache_strict: bool = False
    refresh_interval_s: float = Field(default=300.0, ge=0)
