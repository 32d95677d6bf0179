"""Metrics of the indexer, for Prometheus."""

from collections.abc import Iterable, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from fleetlight.indexer.backends.base import CellProgress
from fleetlight.resources.units import MICROSECONDS_PER_SECOND

_BATCH_SIZES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)
_DOCUMENT_OUTCOMES = ("applied", "stale", "rejected")
_COMPARED = ("revisions", "content")


class IndexerMetrics:
    """The indexer's metrics, in the `registry` that is passed in; one object per registry. Cells are named by uuid."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._watermark = Gauge(
            "fleetlight_indexer_watermark",
            "Every change of the cell up to this sequence can be found in the index",
            ["cell"],
            registry=registry,
        )
        self._lag = Gauge(
            "fleetlight_indexer_lag_changes",
            "Changes that the indexer knows of and that cannot be found in the index yet",
            ["cell"],
            registry=registry,
        )
        self._fresh_as_of = Gauge(
            "fleetlight_indexer_fresh_as_of_seconds",
            "Time of the cell's clock up to which the index is known to be complete",
            ["cell"],
            registry=registry,
        )
        self._is_complete = Gauge(
            "fleetlight_indexer_complete",
            "1: every instance of the cell is in the index, and lists may rely on that",
            ["cell"],
            registry=registry,
        )
        self._is_active = Gauge(
            "fleetlight_indexer_active",
            "1: this indexer gets the messages of the cell; 0: another indexer does, or there are none",
            ["cell"],
            registry=registry,
        )
        self._waiting = Gauge(
            "fleetlight_indexer_queue_messages",
            "Messages that wait in the queue of the cell on its bus, behind those that an indexer has",
            ["cell"],
            registry=registry,
        )
        self._dead_letters = Gauge(
            "fleetlight_indexer_dead_letters",
            "Messages that could not be indexed and that are neither solved nor dropped yet",
            ["cell"],
            registry=registry,
        )
        self._dropped = Gauge(
            "fleetlight_indexer_dead_letters_dropped",
            "Messages that could not be indexed and that had to go because there were too many",
            ["cell"],
            registry=registry,
        )
        self._messages = Counter(
            "fleetlight_indexer_messages", "Messages by what became of them", ["cell", "outcome"], registry=registry
        )
        self._documents = Counter(
            "fleetlight_indexer_documents", "Documents by what the index said", ["cell", "outcome"], registry=registry
        )
        self._schema_violations = Counter(
            "fleetlight_indexer_schema_violation_fields",
            "Fields of newer producers that contradict their schema: kept, and not searchable",
            ["cell"],
            registry=registry,
        )
        self._failures = Counter(
            "fleetlight_indexer_failures",
            "Failures that were waited out, by kind",
            ["cell", "kind"],
            registry=registry,
        )
        self._replacements = Counter(
            "fleetlight_indexer_index_replaced",
            "Times that another index, a restored or an empty one, was found in the place of the one that was prepared",
            registry=registry,
        )
        self._seal_breaches = Counter(
            "fleetlight_indexer_seal_broken",
            "Times that writes were found in the index which no writer of ours accounts for",
            registry=registry,
        )
        self._seal_held = Gauge(
            "fleetlight_indexer_seal_held_seconds",
            "Time up to which no other program is known to have written to the index; of the indexer that checks it",
            registry=registry,
        )
        self._audit_seconds = Gauge(
            "fleetlight_indexer_audit_round_seconds",
            "How long the last comparison of the whole cell with the index took, of `revisions` or of `content`",
            ["cell", "compared"],
            registry=registry,
        )
        self._audited = Gauge(
            "fleetlight_indexer_audited_seconds",
            "Time at which the last comparison of the whole cell with the index ended, of `revisions` or of `content`, "
            "or at which this indexer began with them",
            ["cell", "compared"],
            registry=registry,
        )
        self._audit_differences = Counter(
            "fleetlight_indexer_audit_differences",
            "Instances and nodes that the index was found to have otherwise than the cell",
            ["cell"],
            registry=registry,
        )
        self._is_suspected = Gauge(
            "fleetlight_indexer_audit_suspected",
            "1: the index was found to differ from the cell, and is not repaired yet: lists ask the cell",
            ["cell"],
            registry=registry,
        )
        self._restores = Counter(
            "fleetlight_indexer_cell_restored",
            "Times that the index was made equal to a cell whose database went back to a backup",
            ["cell"],
            registry=registry,
        )
        self._holes = Counter(
            "fleetlight_indexer_holes",
            "Times that messages had not come, and what they said was read from the cell",
            ["cell"],
            registry=registry,
        )
        self._is_followed_by_log = Gauge(
            "fleetlight_indexer_followed_by_log",
            "1: this indexer follows the cell by the log of its database server; 0: it compares the cell, or waits",
            ["cell"],
            registry=registry,
        )
        self._log_readers = Gauge(
            "fleetlight_indexer_log_readers",
            "Logs of database servers that this indexer reads",
            registry=registry,
        )
        self._hints = Counter(
            "fleetlight_indexer_log_hints",
            "Instances that commits in the log were seen to touch, so that their rows were read again",
            ["cell"],
            registry=registry,
        )
        self._comparisons = Counter(
            "fleetlight_indexer_comparisons",
            "Comparisons of all rows of a cell that numbers nothing: `due` by the clock, `forced` by a commit of which "
            "nothing says what it has touched",
            ["cell", "cause"],
            registry=registry,
        )
        # Cells that are followed by logs, and the servers that have those.
        self._logs: dict[str, str] = {}
        self._batch_messages = Histogram(
            "fleetlight_indexer_batch_messages",
            "Messages in a batch",
            ["cell"],
            registry=registry,
            buckets=_BATCH_SIZES,
        )
        self._write_seconds = Histogram(
            "fleetlight_indexer_write_seconds",
            "Time of one bulk write, waiting for the index included",
            ["cell"],
            registry=registry,
        )

    def cell_followed(self, progress: CellProgress) -> None:
        """The indexer begins to follow a cell, from this saved progress: what it counts there begins with 0."""
        cell = progress.cell_uuid
        self.searchable(progress, progress.watermark)
        self.complete(cell, is_complete=progress.is_complete)
        self.active(cell, is_active=False)
        self._holes.labels(cell)
        self._restores.labels(cell)
        self._schema_violations.labels(cell)
        self._batch_messages.labels(cell)
        self._write_seconds.labels(cell)
        for outcome in _DOCUMENT_OUTCOMES:
            self._documents.labels(cell, outcome)

    def failures_kept(self, cell_uuids: Iterable[str], counts: Mapping[str, int], dropped: Mapping[str, int]) -> None:
        """How many messages of each cell wait for a person, and how many do not any more without having been seen."""
        for cell_uuid in cell_uuids:
            self._dead_letters.labels(cell_uuid).set(counts.get(cell_uuid, 0))
            self._dropped.labels(cell_uuid).set(dropped.get(cell_uuid, 0))

    def waiting(self, cell_uuid: str, messages: int) -> None:
        self._waiting.labels(cell_uuid).set(messages)

    def active(self, cell_uuid: str, *, is_active: bool) -> None:
        self._is_active.labels(cell_uuid).set(is_active)

    def batch_received(self, cell_uuid: str, messages: int) -> None:
        self._batch_messages.labels(cell_uuid).observe(messages)

    def messages_handled(self, cell_uuid: str, outcome: str, count: int) -> None:
        """outcome: what became of messages, in one word.

        applied, superseded (not read, since a newer one of the instance was there), duplicate, heartbeat, other,
        elsewhere (about another cell), forgotten (of an instance that is not there, and from before the horizon), never
        happened (from a future that its cell was restored out of), or the reason of a dead letter.
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

    def differences_found(self, cell_uuid: str, count: int) -> None:
        self._audit_differences.labels(cell_uuid).inc(count)

    def suspected(self, cell_uuid: str, *, is_suspected: bool) -> None:
        self._is_suspected.labels(cell_uuid).set(is_suspected)

    def seal_broken(self) -> None:
        self._seal_breaches.inc()

    def seal_held(self, moment: int) -> None:
        """moment: microseconds."""
        self._seal_held.set(moment / MICROSECONDS_PER_SECOND)

    def index_replaced(self) -> None:
        self._replacements.inc()

    def cell_restored(self, cell_uuid: str) -> None:
        self._restores.labels(cell_uuid).inc()

    def hole_found(self, cell_uuid: str) -> None:
        self._holes.labels(cell_uuid).inc()

    def log_followed(self, cell_uuid: str, log: str | None) -> None:
        """log: what names the server by whose log the cell is followed here; None where it is not."""
        self._is_followed_by_log.labels(cell_uuid).set(log is not None)
        if log is None:
            self._logs.pop(cell_uuid, None)
        else:
            self._logs[cell_uuid] = log
        self._log_readers.set(len({*list(self._logs.values())}))

    def hinted(self, cell_uuid: str, instances: int) -> None:
        self._hints.labels(cell_uuid).inc(instances)

    def compared(self, cell_uuid: str, *, is_forced: bool) -> None:
        self._comparisons.labels(cell_uuid, "forced" if is_forced else "due").inc()

    def failed(self, cell_uuid: str, kind: str) -> None:
        """kind: the name of the error's class."""
        self._failures.labels(cell_uuid, kind).inc()

    def searchable(self, progress: CellProgress, highest_known: int) -> None:
        """This progress has been made searchable and saved; `highest_known`: of the sequences heard of."""
        cell = progress.cell_uuid
        self._watermark.labels(cell).set(progress.watermark)
        self._lag.labels(cell).set(max(0, highest_known - progress.watermark))
        self._fresh_as_of.labels(cell).set(progress.fresh_as_of / MICROSECONDS_PER_SECOND)

    def complete(self, cell_uuid: str, *, is_complete: bool) -> None:
        """Whether lists may take the index for all of the cell, as far as it is fresh."""
        self._is_complete.labels(cell_uuid).set(is_complete)
