"""The `scheduler` section of the configuration."""

from pydantic import BaseModel, ConfigDict, Field

DEFAULT_MAX_ATTEMPTS = 3


class SchedulerSettings(BaseModel):
    """How new and moved instances of native cells find their hosts.

    max_attempts: how many hosts a creation, a resize or a cold migration may try, the chosen one included; 1: no other.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    max_attempts: int = Field(default=DEFAULT_MAX_ATTEMPTS, ge=1, le=100)
