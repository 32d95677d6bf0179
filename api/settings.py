"""The `api` and `search` sections of the configuration."""

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field


def _without_trailing_slash(url: str) -> str:
    if not url.startswith(("http://", "https://")):
        raise ValueError("must be a URL that starts with http:// or https://")
    return url.rstrip("/")


class ApiSettings(BaseModel):
    """How the faces are served.

    max_limit: the largest page; also the page when a request names no limit.
    compute_link_prefix: what links begin with instead of the address that the request was sent to.
    auth: who is asked who is calling (api.identity).
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    host: str = "127.0.0.1"
    port: int = Field(default=8774, ge=0, le=65535)
    max_limit: int = Field(default=1000, ge=1, le=10_000)
    compute_link_prefix: Annotated[str, AfterValidator(_without_trailing_slash)] | None = None
    auth: Literal["none"] = "none"


class SearchSettings(BaseModel):
    """How lists use the index.

    enabled: off unless somebody runs an indexer.
    staleness_limit_s: a cell that the index follows by no less than this is asked itself.
    retry_after_s: an index that failed is probed in the background this long after; None: not before a restart.
    cell_timeout_s: what one cell may cost a request.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    enabled: bool = False
    staleness_limit_s: float = Field(default=5.0, gt=0)
    retry_after_s: float | None = Field(default=None, gt=0)
    cell_timeout_s: float = Field(default=5.0, gt=0, le=60)
