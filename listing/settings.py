"""The section `search` of the configuration."""

from pydantic import BaseModel, ConfigDict, Field


class SearchSettings(BaseModel):
    """How lists use the index.

    enabled: whether lists may use the index; operators switch it on where an indexer runs.
    staleness_limit_s: lists read a cell live if the index is further behind it than this.
    retry_after_s: a background probe tries a failed index after this long; unset: never before a restart, and 5 s with
        `fleetlight up`.
    index_deadline_s: the cells answer a request that the index has not answered by then.
    token_wait_s: how long a request waits for the index to have the changes of its tokens, before it asks their cells.
    cell_timeout_s: time limit of one cell within a request; a cell that misses it counts as down until it answers a
        background probe.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    enabled: bool = False
    staleness_limit_s: float = Field(default=5.0, gt=0)
    retry_after_s: float | None = Field(default=None, gt=0)
    index_deadline_s: float = Field(default=1.0, gt=0)
    token_wait_s: float = Field(default=0.5, ge=0, le=60)
    cell_timeout_s: float = Field(default=5.0, gt=0, le=60)
