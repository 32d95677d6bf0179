"""The `indexer` and `index` sections of the configuration."""

from typing import TYPE_CHECKING, Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from fleetlight.indexer.backends.settings import IndexSettings
from fleetlight.resources.units import BYTES_PER_MIB

if TYPE_CHECKING:
    from fleetlight.cells.model import Cell

__all__ = ["IndexSettings", "IndexerSettings"]

PositiveSeconds = Annotated[float, Field(gt=0)]


class IndexerSettings(BaseModel):
    """How the indexer follows its cells; every number is per cell.

    batch_max_messages: a batch is written as soon as it has so many messages.
    batch_max_bytes: or so many bytes.
    batch_wait_s: or when its first message has waited for so long; what comes after a rest waits for no others.
    prefetch: messages that the broker may hand out before the first of them is acknowledged. So many of each cell wait
        in memory while the index is away; by default no more than it takes to keep the writes going.
    prefetch_max_bytes: bytes of such messages. What comes beyond them is returned to the bus, and comes again when
        some are acknowledged; messages of usual size do not come near it.
    writes_in_flight: bulk writes that may be under way at once while there is a backlog. Measured: two raise the rate
        into Elasticsearch by a fifth, three no more; into a SQLite file one is fastest, since it shares our processor.
    hole_timeout_s: how long a missing sequence may take to arrive before it is read from the cell's changelog.
    sync_batch_size: rows or changes read from a cell at once.
    sync_processes: processes in which a sync or a rebuild reads cells, also one that an indexer was ordered to do; each
        cell is read by one of them. Several are faster where Elasticsearch has processors of its own. The SQLite index
        takes the writes of one process at a time, so there it is always one.
    comparison_interval_s: how often a cell that does not number its changes, Nova's, is compared with the index as a
        whole: lists of it are known to be complete as of then. It is read as fast as it answers, sync_batch_size rows
        at once.
    poll_interval_s: the same, for a cell that announces nothing, a Ganeti cluster: the indexer, and with it watches,
        learn of changes there so much later.
    audit_interval_s: how often the revisions of every instance and node that the index has are compared with those of
        the cell, which finds mistakes of this program (the seal shows what others write); longer if audit_share is not
        enough for that.
    audit_share: of the time by the clock, how much is spent comparing at most, in all cells together: 0.005 is half a
        percent. Servers that answer a query with several processors take more of these. What documents say is
        compared beside the revisions.
    liveness_timeout_s: how long work may be there without any of it getting done, before `/healthz` says so; longer
        than index.write_timeout_s.
    retry_wait_max_s: longest wait between two attempts while the bus, the cell or the index is away.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    batch_max_messages: int = Field(default=500, ge=1, le=10_000)
    batch_max_bytes: int = Field(default=8 * BYTES_PER_MIB, ge=1024)
    batch_wait_s: PositiveSeconds = 0.1
    prefetch: int = Field(default=1500, ge=1, le=65_535)
    prefetch_max_bytes: int = Field(default=32 * BYTES_PER_MIB, ge=1024)
    writes_in_flight: int = Field(default=2, ge=1, le=8)
    hole_timeout_s: PositiveSeconds = 5.0
    sync_batch_size: int = Field(default=500, ge=1, le=10_000)
    sync_processes: int = Field(default=1, ge=1, le=64)
    comparison_interval_s: PositiveSeconds = 600.0
    poll_interval_s: PositiveSeconds = 30.0
    audit_interval_s: PositiveSeconds = 600.0
    audit_share: float = Field(default=0.005, gt=0, le=1)
    liveness_timeout_s: PositiveSeconds = 60.0
    retry_wait_max_s: PositiveSeconds = 5.0

    def interval_s(self, cell: "Cell") -> float:
        """How often a cell that does not number its changes is compared with the index."""
        return self.poll_interval_s if cell.can.announces_nothing else self.comparison_interval_s

    @model_validator(mode="after")
    def _prefetch_fills_the_pipeline(self) -> Self:
        batches = self.writes_in_flight + 1
        for name, held, batch_name, batch in (
            ("prefetch", self.prefetch, "batch_max_messages", self.batch_max_messages),
            ("prefetch_max_bytes", self.prefetch_max_bytes, "batch_max_bytes", self.batch_max_bytes),
        ):
            if held < batch * batches:
                raise ValueError(
                    f"{name} must be at least {batch_name} * (writes_in_flight + 1) = {batch * batches}, "
                    f"not {held}: with less the next batch is not full before the one before is acknowledged"
                )
        return self
