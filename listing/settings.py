"""The section `search` of the configuration."""

from pydantic import BaseModel, ConfigDict, Field


class SearchSettings(BaseModel):
    """How lists use the index.

    enabled: whether lists may use the index; to be switched on where an indexer runs.
    staleness_limit_s: a cell that the index is behind of by more than this is asked itself.
    retry_after_s: an index that failed is probed in the background this long after; unset: not before a restart, and
        5 s with `fleetlight up`.
    index_deadline_s: a request that the index has not answered by then is answered by the cells.
    token_wait_s: how long a request waits for the index to know what its tokens stand for, before it asks their cells.
    cell_timeout_s: what one cell may cost a request; one that is silent for so long is then treated as down until a
        probe in the background was answered.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    enabled: bool = False
    staleness_limit_s: float = Field(default=5.0, gt=0)
    retry_after_s: float | None = Field(default=None, gt=0)
    index_deadline_s: float = Field(default=1.0, gt=0)
    token_wait_s: float = Field(default=0.5, ge=0, le=60)
    cell_timeout_s: float = Field(default=5.0, gt=0, le=60)
