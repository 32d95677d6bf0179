"""Metrics of the indexer, for Prometheus."""

from collections.abc import Iterable, Mapping
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from fleetlight.indexer.backends.base import CellProgress
from fleetlight.resources.units import MICROSECONDS_PER_SECOND

_BATCH_SIZES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)
_DOCUMENT_OUTCOMES = ("applied", "stale", "rejected")
_COMPARED = ("revisions", "content")


class IndexerMetrics:
    """The indexer's metrics, registered in `registry`; one object per registry. Cells are named by uuid."""

    def __init__(self, registry: CollectorRegistry) -> None:
        gauge = partial(Gauge, registry=registry)
        counter = partial(Counter, registry=registry)
        histogram = partial(Histogram, registry=registry)
        self._watermark = gauge(
            "fleetlight_indexer_watermark",
            "Every change of the cell up to this sequence can be found in the index",
            ["cell"],
        )
        self._lag = gauge(
            "fleetlight_indexer_lag_changes",
            "Changes that the indexer knows of and that cannot be found in the index yet",
            ["cell"],
        )
        self._fresh_as_of = gauge(
            "fleetlight_indexer_fresh_as_of_seconds",
            "Time of the cell's clock up to which the index is known to be complete",
            ["cell"],
        )
        self.is_complete = gauge(
            "fleetlight_indexer_complete",
            "1: every instance of the cell is in the index, and lists may rely on that",
            ["cell"],
        )
        self.is_active = gauge(
            "fleetlight_indexer_active",
            "1: this indexer gets the messages of the cell; 0: another indexer does, or there are none",
            ["cell"],
        )
        self.waiting = gauge(
            "fleetlight_indexer_queue_messages",
            "Messages that wait in the queue of the cell on its bus, behind those that an indexer has",
            ["cell"],
        )
        self._dead_letters = gauge(
            "fleetlight_indexer_dead_letters",
            "Messages that could not be indexed and that are neither solved nor dropped yet",
            ["cell"],
        )
        self._dropped = gauge(
            "fleetlight_indexer_dead_letters_dropped",
            "Messages that could not be indexed and that had to go because there were too many",
            ["cell"],
        )
        self._messages = counter("fleetlight_indexer_messages", "Messages by what became of them", ["cell", "outcome"])
        self._documents = counter(
            "fleetlight_indexer_documents", "Documents by what the index said", ["cell", "outcome"]
        )
        self._schema_violations = counter(
            "fleetlight_indexer_schema_violation_fields",
            "Fields of newer producers that contradict their schema: kept, and not searchable",
            ["cell"],
        )
        self.failures = counter(
            "fleetlight_indexer_failures", "Failures that were waited out, by kind", ["cell", "kind"]
        )
        self.replacements = counter(
            "fleetlight_indexer_index_replaced",
            "Times that another index, a restored or an empty one, was found in the place of the one that was prepared",
        )
        self.seal_breaches = counter(
            "fleetlight_indexer_seal_broken",
            "Times that writes were found in the index which no writer of ours accounts for",
        )
        self.seal_held = gauge(
            "fleetlight_indexer_seal_held_seconds",
            "Time up to which no other program is known to have written to the index; of the indexer that checks it",
        )
        self._audit_seconds = gauge(
            "fleetlight_indexer_audit_round_seconds",
            "How long the last comparison of the whole cell with the index took, of `revisions` or of `content`",
            ["cell", "compared"],
        )
        self._audited = gauge(
            "fleetlight_indexer_audited_seconds",
            "Time at which the last comparison of the whole cell with the index ended, of `revisions` or of `content`, "
            "or at which this indexer began with them",
            ["cell", "compared"],
        )
        self.audit_differences = counter(
            "fleetlight_indexer_audit_differences",
            "Instances and nodes that the index was found to have otherwise than the cell",
            ["cell"],
        )
        self.is_suspected = gauge(
            "fleetlight_indexer_audit_suspected",
            "1: the index was found to differ from the cell, and is not repaired yet: lists ask the cell",
            ["cell"],
        )
        self.restores = counter(
            "fleetlight_indexer_cell_restored",
            "Times that the index was made equal to a cell whose database went back to a backup",
            ["cell"],
        )
        self.holes = counter(
            "fleetlight_indexer_holes",
            "Times that messages had not come, and what they said was read from the cell",
            ["cell"],
        )
        self._is_followed_by_log = gauge(
            "fleetlight_indexer_followed_by_log",
            "1: this indexer follows the cell by the log of its database server; 0: it compares the cell, or waits",
            ["cell"],
        )
        self._log_readers = gauge("fleetlight_indexer_log_readers", "Logs of database servers that this indexer reads")
        self.hints = counter(
            "fleetlight_indexer_log_hints",
            "Instances that commits in the log were seen to touch, so that their rows were read again",
            ["cell"],
        )
        self.comparisons = counter(
            "fleetlight_indexer_comparisons",
            "Comparisons of all rows of a cell that numbers nothing: `due` by the clock, `forced` by a commit of which "
            "nothing says what it has touched",
            ["cell", "cause"],
        )
        # The database server of each cell that is followed by a log.
        self._logs: dict[str, str] = {}
        self.batch_messages = histogram(
            "fleetlight_indexer_batch_messages", "Messages in a batch", ["cell"], buckets=_BATCH_SIZES
        )
        self._write_seconds = histogram(
            "fleetlight_indexer_write_seconds", "Time of one bulk write, waiting for the index included", ["cell"]
        )

    def cell_followed(self, progress: CellProgress) -> None:
        """The indexer begins to follow a cell from this saved progress; its counters for the cell start at 0."""
        cell = progress.cell_uuid
        self.searchable(progress, progress.watermark)
        self.is_complete.labels(cell).set(progress.is_complete)
        self.is_active.labels(cell).set(0)
        self.holes.labels(cell)
        self.restores.labels(cell)
        self._schema_violations.labels(cell)
        self.batch_messages.labels(cell)
        self._write_seconds.labels(cell)
        for outcome in _DOCUMENT_OUTCOMES:
            self._documents.labels(cell, outcome)

    def failures_kept(self, cell_uuids: Iterable[str], counts: Mapping[str, int], dropped: Mapping[str, int]) -> None:
        """Set how many failed messages of each cell are kept, and how many were dropped unseen."""
        for cell_uuid in cell_uuids:
            self._dead_letters.labels(cell_uuid).set(counts.get(cell_uuid, 0))
            self._dropped.labels(cell_uuid).set(dropped.get(cell_uuid, 0))

    def messages_handled(self, cell_uuid: str, outcome: str, count: int) -> None:
        """outcome: what became of the messages, in one word.

        applied, superseded (not read, since the index had a newer one of the instance), duplicate, heartbeat, other,
        elsewhere (about another cell), forgotten (of a missing instance, from before the horizon), never happened (from
        a future that the cell lost when it was restored), or the reason of a dead letter.
        """
        if count:
            self._messages.labels(cell_uuid, outcome).inc(count)

    def documents_written(
        self, cell_uuid: str, *, applied: int, stale: int, rejected: int, schema_violations: int, duration_s: float
    ) -> None:
        for outcome, count in zip(_DOCUMENT_OUTCOMES, (applied, stale, rejected), strict=True):
            if count:
                self._documents.labels(cell_uuid, outcome).inc(count)
        if schema_violations:
            self._schema_violations.labels(cell_uuid).inc(schema_violations)
        self._write_seconds.labels(cell_uuid).observe(duration_s)

    def audit_began(self, cell_uuid: str) -> None:
        for compared in _COMPARED:
            self._audited.labels(cell_uuid, compared).set_to_current_time()

    def audited(self, cell_uuid: str, compared: str, round_s: float) -> None:
        """compared: `revisions` or `content`."""
        self._audit_seconds.labels(cell_uuid, compared).set(round_s)
        self._audited.labels(cell_uuid, compared).set_to_current_time()

    def log_followed(self, cell_uuid: str, log: str | None) -> None:
        """log: identifies the server by whose log this process follows the cell; None if it does not."""
        self._is_followed_by_log.labels(cell_uuid).set(log is not None)
        if log is None:
            self._logs.pop(cell_uuid, None)
        else:
            self._logs[cell_uuid] = log
        self._log_readers.set(len({*list(self._logs.values())}))

    def searchable(self, progress: CellProgress, highest_known: int) -> None:
        """This progress was saved and is searchable. highest_known: the highest sequence heard of."""
        cell = progress.cell_uuid
        self._watermark.labels(cell).set(progress.watermark)
        self._lag.labels(cell).set(max(0, highest_known - progress.watermark))
        self._fresh_as_of.labels(cell).set(progress.fresh_as_of / MICROSECONDS_PER_SECOND)
