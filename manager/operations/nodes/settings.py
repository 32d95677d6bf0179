"""The `nodes` section of the configuration."""

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr
from pydantic_core import Url

_SCHEMES = ("redis", "rediss")


def _of_redis(url: SecretStr) -> SecretStr:
    try:
        scheme = Url(url.get_secret_value()).scheme
    except ValueError:
        scheme = ""
    if scheme not in _SCHEMES:
        raise ValueError("must be the URL of a Redis or Valkey, as in redis://cache1:6379/0 or rediss://cache1/0")
    return url


class NodesSettings(BaseModel):
    """How processes call the agents of hosts, and where they remember what those say of their state.

    certificates_dir: has a folder for each cell, called like it, as `fleetlight cell certs` makes it. Unset: agents
        cannot be called.
    certificate: which of the certificates there is that of this process: the name after `--worker`.
    retry_s: how long an agent that cannot be reached is called again before the job that calls it fails.
    cache_url: a Redis or Valkey that all processes share, as in redis://cache1:6379/0; may hold a password. Unset:
        nothing is remembered.
    cache_ttl_s: how long what a node said of itself may be shown; 0: until something changes.
    cache_strict: whether calls that only write the configuration of a node count as changing it, too.
    refresh_interval_s: how often workers ask all nodes of a cell that have an agent for everything, so that it is
        remembered, and what is not as it is to be is announced; 0: never.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    certificates_dir: Path | None = None
    certificate: Annotated[str, Field(min_length=1)] = "worker"
    retry_s: float = Field(default=60.0, ge=0)
    cache_url: Annotated[SecretStr, AfterValidator(_of_redis)] | None = None
    cache_ttl_s: float = Field(default=600.0, ge=0)
    cache_strict: bool = False
    refresh_interval_s: float = Field(default=300.0, ge=0)
