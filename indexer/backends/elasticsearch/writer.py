"""Writes to Elasticsearch: a sorted physical index behind a read and a write alias, and a small one for progress.

Nothing is searchable until the indexer calls `make_searchable`, and no request is retried here.
"""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import chain, islice
from typing import Any, TypeVar

from fleetlight.cells.digests import RangeDigest
from fleetlight.indexer.backends.base import (
    CELL_FACTS,
    CellProgress,
    Document,
    PartlyWrittenError,
    Rejection,
    WriteResult,
    ignore_removed,
)
from fleetlight.indexer.backends.damaged import read_around_damage
from fleetlight.indexer.backends.elasticsearch import digests as compared
from fleetlight.indexer.backends.elasticsearch import other_items
from fleetlight.indexer.backends.elasticsearch.client import (
    NDJSON,
    TooLargeError,
    open_client,
    send,
)
from fleetlight.indexer.backends.elasticsearch.documents import (
    ALL_PROGRESS,
    MAX_ROWS,
    WITH_WRITES,
    WRITES_ASKED,
    Bulk,
    BulkOutcome,
    Kept,
    RemovalOutcome,
    check_state_saved,
    from_field_counts,
    from_found,
    from_found_versions,
    from_kept_hits,
    from_progress_hits,
    from_removals,
    from_writes,
    not_saved,
    progress_of,
    state_of,
    to_bulks,
    to_exact_removals,
    to_kept_removals,
    to_outcome,
    to_progress_bulk,
    to_state_bulk,
)
from fleetlight.indexer.backends.elasticsearch.mapping import (
    EXTRA_FIELDS,
    EXTRA_TERMS,
)
from fleetlight.indexer.backends.elasticsearch.names import Names
from fleetlight.indexer.backends.elasticsearch.numbering import routing_of
from fleetlight.indexer.backends.elasticsearch.pause import end_pause
from fleetlight.indexer.backends.elasticsearch.physical import (
    make_usable,
    physical_indexes,
)
from fleetlight.indexer.backends.elasticsearch.preparation import Preparation, remove_all
from fleetlight.indexer.backends.elasticsearch.seal import ACCOUNTS, OWN, ElasticsearchSeal, load_sealed, seal_new
from fleetlight.indexer.backends.elasticsearch.target import Target
from fleetlight.indexer.backends.elasticsearch.write_account import WriteAccount
from fleetlight.indexer.backends.extra import count_schema_violations, described_documents
from fleetlight.indexer.backends.settings import IndexSettings
from fleetlight.indexer.errors import (
    IndexAbsentError,
    IndexReplacedError,
    IndexRequestError,
    IndexUnavailableError,
    IndexVersionError,
)
from fleetlight.resources.clock import Clock, system_clock

T = TypeVar("T")

# With one bulk at a time the server is idle while the next is made; more than two only queue up there.
_BULKS_IN_FLIGHT = 2
_MAX_FIELDS = 1000
# The removal of a batch takes some seconds at most, well below index.write_timeout_s.
_REMOVE_BATCH = 5000
_SAMPLE = 1000
# The server measures the age of deletions by a clock that ticks each 0.2 s (thread_pool.estimated_time_interval).
_TOMBSTONE_CLOCK_S = 0.5
_FORGET_ATTEMPTS = 20


class ElasticsearchWriter:
    """The writing side (fleetlight.indexer.backends.base.IndexWriter); threads may share one."""

    def __init__(self, settings: IndexSettings, *, of_next: bool = False) -> None:
        """of_next: read and write the next generation, which must exist; do not call `prepare` then."""
        self._settings = settings
        names = Names.of(settings.prefix)
        self._names = replace(names, write=names.next, progress=names.next_progress) if of_next else names
        self._client = open_client(settings, timeout_s=settings.write_timeout_s)
        self._target = Target(self._client, self._names)
        self._preparation = Preparation(self._client, names, settings, self._target)
        self._account = WriteAccount(self._save_account, partial(routing_of, self._client), partial(load_sealed, self))
        self._threads = ThreadPoolExecutor(_BULKS_IN_FLIGHT, thread_name_prefix="index-bulk")

    def prepare(self) -> None:
        """Create the indexes, or extend the mapping with new fields; two processes may do so at once.

        Missing indexes and aliases are created, and promises about an index that is gone are forgotten. Raises
        IndexVersionError.
        """
        self._preparation.prepare()
        self.seal_new()

    def write(self, documents: Iterable[Document]) -> WriteResult:
        """Write documents, with two bulks in flight.

        If the server cannot take some of them now, the rest is written nevertheless. Raises PartlyWrittenError.
        """
        refused: dict[int, str] = {}
        described = described_documents(documents, self._settings.schemas_dir)
        bulks = to_bulks(described, refused, self._names.items)
        first = list(islice(bulks, 2))
        # A single bulk needs no other thread: the consumer has two of its own.
        send_all = map if len(first) < 2 else self._threads.map
        outcomes = list(send_all(self._send_bulk, chain(first, bulks)))
        passing: IndexUnavailableError | None = None
        for outcome in outcomes:
            if isinstance(outcome.failure, IndexUnavailableError):
                passing = passing or outcome.failure
            elif outcome.failure is not None:
                raise outcome.failure
            refused |= outcome.rejected
        applied = sum(outcome.applied for outcome in outcomes)
        stale = sum(outcome.stale for outcome in outcomes)
        rejected = tuple(Rejection(document, refused[number]) for number, document in self._among(documents, refused))
        unwritten = {number for outcome in outcomes for number in outcome.unwritten}
        remaining = [document for _, document in self._among(documents, unwritten)]
        schema_violations = sum(outcome.schema_violations for outcome in outcomes) - count_schema_violations(remaining)
        result = WriteResult(applied, stale, rejected, schema_violations)
        if passing is not None:
            passing = self._keep_up_after(passing)
            raise PartlyWrittenError(passing, result, remaining) from passing
        return result

    def make_searchable(self) -> None:
        self._target.keep_up()
        # The index of items may have been removed by hand; the writer that finds it missing creates it again.
        send(self._client, "POST", f"/{self._names.write},{self._names.items}/_refresh?ignore_unavailable=true")

    def read(self, ids: Collection[str]) -> Mapping[str, Document]:
        return read_around_damage(ids, self._read)

    def _read(self, ids: Collection[str]) -> Mapping[str, Document]:
        if not ids:
            return {}
        answer = send(self._client, "POST", f"/{self._names.write}/_mget", {"ids": list(ids)})
        return {document.id: document for document in from_found(answer)}

    def versions(self, ids: Collection[str]) -> Mapping[str, int]:
        if not ids:
            return {}
        path = f"/{self._names.write}/_mget?_source=false"
        return from_found_versions(send(self._client, "POST", path, {"ids": list(ids)}))

    def digests(
        self, cell_uuid: str, prefixes: Sequence[str], length: int, *, horizon: int = 0, external: bool = False
    ) -> Mapping[str, RangeDigest]:
        body = compared.digests_body(cell_uuid, prefixes, length, horizon, external=external)
        return compared.from_digests(self._search(body))

    def revisions(
        self, cell_uuid: str, prefixes: Sequence[str], *, horizon: int = 0, external: bool = False
    ) -> Mapping[str, int]:
        body = compared.revisions_body(cell_uuid, prefixes, MAX_ROWS, horizon, external=external)
        return compared.from_hits(self._search(body))

    def count_external(self, cell_uuid: str) -> int:
        path = f"/{self._names.write}/_count"
        return compared.from_count(send(self._client, "POST", path, compared.external_body(cell_uuid)))

    def remove(self, versions: Mapping[str, int]) -> None:
        """Remove documents. Apart from this only `purge` and `remove_cell` delete documents of instances."""
        if not versions:
            return
        self._delete(versions)
        self._have_forgotten(versions.keys())

    def items(self, item_type: str, cell_uuid: str) -> Mapping[str, Document]:
        return other_items.read_items(self._search_items, item_type, cell_uuid)

    def remove_items(self, item_type: str, cell_uuid: str, versions: Mapping[str, int]) -> None:
        if versions:
            lines = other_items.removal_lines(item_type, cell_uuid, versions)
            compared.newer_in(self._send_items(lines), list(versions))
            time.sleep(_TOMBSTONE_CLOCK_S)
            self.make_searchable()  # which also forgets deletions

    def mark_items(self, item_type: str, cell_uuid: str, *, are_whole: bool) -> None:
        marked = self._items_uuid() if are_whole else None
        check_state_saved(self._send_items(other_items.mark_lines(item_type, cell_uuid, marked)))
        self.make_searchable()

    def are_items_whole(self, item_type: str, cell_uuid: str) -> bool:
        path = f"/{self._names.items}/_search?ignore_unavailable=true"
        return other_items.is_marked_by(
            send(self._client, "POST", path, other_items.mark_of(item_type, cell_uuid)), self._items_uuid()
        )

    def save_progress(
        self, progress: Sequence[CellProgress], over: Mapping[str, CellProgress] | None = None
    ) -> Set[str]:
        """Save progress, and refresh at once: the API reads it by searching, and it is small."""
        if not progress:
            return frozenset()
        self._target.keep_up()
        asked = "items.index.status,items.index.result,items.index.error"
        path = f"/{self._names.progress}/_bulk?refresh=true&filter_path={asked}"
        owner = self._target.owner
        lines = to_progress_bulk(progress, over or {}, index_uuid=owner.instances, state_uuid=owner.state)
        return not_saved(progress, send(self._client, "POST", path, lines, content_type=NDJSON))

    def load_progress(self) -> Mapping[str, CellProgress]:
        """The progress of the current physical indexes; a writer that prepared others notices that when it saves."""
        owner = self._target.owner
        path, body = f"/{self._names.progress}/_search", progress_of(owner.all_instances, owner.state)
        return from_progress_hits(send(self._client, "POST", path, body))

    def count_extra_fields(self) -> Mapping[str, int]:
        fields = {"terms": {"field": EXTRA_FIELDS, "size": _MAX_FIELDS}}
        body = {"size": 0, "track_total_hits": False, "aggs": {"fields": fields}}
        return from_field_counts(self._search(body))

    def find_extra(self, terms: Sequence[str], limit: int) -> Sequence[str]:
        body = {
            "size": min(limit, MAX_ROWS),
            "track_total_hits": False,
            "_source": False,
            "version": True,
            "query": {"terms": {EXTRA_TERMS: list(terms)}},
            "sort": [{"uuid": "asc"}],
        }
        return list(compared.from_hits(self._search(body)))

    def save_state(self, kind: str, values: Mapping[str, object | None]) -> None:
        if values:
            path = f"/{self._names.state}/_bulk?refresh=true"
            check_state_saved(send(self._client, "POST", path, to_state_bulk(kind, values), content_type=NDJSON))

    def save_fact(self, kind: str, name: str, value: object) -> None:
        """Save one fact that is read by its name. Searches find its old value until something else is saved, because a
        refresh would cost ten times as much as the rest.
        """
        body = to_state_bulk(kind, {name: value})
        check_state_saved(send(self._client, "POST", f"/{self._names.state}/_bulk", body, content_type=NDJSON))

    def load_state(self, kind: str) -> Mapping[str, Any]:
        return from_kept_hits(send(self._client, "POST", f"/{self._names.state}/_search", state_of(kind))).of(kind)

    def load_kept(self) -> Kept:
        """The facts that lists and the seal rely on, and facts and progresses that another program has altered."""
        progress, facts = (
            from_kept_hits(send(self._client, "POST", f"/{name}/_search", {**body, **WITH_WRITES}))
            for name, body in ((self._names.progress, ALL_PROGRESS), (self._names.state, state_of(*CELL_FACTS, *OWN)))
        )
        return Kept(facts.facts, [*progress.altered, *facts.altered])

    def remove_altered(self, kept: Kept) -> None:
        """Remove altered facts and progresses; indexers save both anew."""
        if kept.altered:
            body = to_kept_removals(kept.altered)
            from_removals(send(self._client, "POST", "/_bulk?refresh=true", body, content_type=NDJSON))

    def purge(self, cell_uuid: str, horizon: int, on_batch: Callable[[int], None] = ignore_removed) -> int:
        self.make_searchable()
        while self._remove_matching(self._names.items, other_items.forgotten_items(cell_uuid, horizon)).deleted:
            pass
        removed = 0
        while True:
            # Documents that changed since the search stay; the loop ends once it deletes nothing more.
            rows = self._remove_matching(self._names.write, compared.forgotten_documents(cell_uuid, horizon))
            if not rows.deleted:
                return removed
            removed += rows.deleted
            on_batch(removed)

    def allow_writes(self) -> None:
        names = self._names
        if physical_indexes(self._client, names.write):
            end_pause(self._client, names.write)
        make_usable(self._client, names.read, names.write, names.progress, names.state, names.items)

    def remove_cell(self, cell_uuid: str, on_batch: Callable[[int], None] = ignore_removed) -> int:
        """As IndexWriter does. Raises IndexUnavailableError while rows of the cell are still being written."""
        remove_all(self._client, self._names.progress, {"ids": {"values": [cell_uuid]}})
        self.make_searchable()
        of_cell = {"term": {"cell_uuid": cell_uuid}}
        while self._remove_matching(self._names.items, of_cell).deleted:
            pass
        removed = 0
        last: Collection[str] = ()
        while found := self._some_of(of_cell):
            last = found
            rows = self._remove_matching(self._names.write, of_cell)
            if rows.total and not rows.deleted:
                raise IndexUnavailableError(f"rows of cell {cell_uuid} are still being written")
            removed += rows.deleted
            on_batch(removed)
        # Earlier deletions are forgotten earlier, so it is enough to check the last ones.
        self._have_forgotten(last)
        return removed

    def put_right(self, *names: str) -> None:
        """See Preparation.put_right. Afterwards all earlier writes are on disk, whatever the settings were."""
        self._preparation.put_right(*names)
        send(self._client, "POST", f"/{','.join(names)}/_flush?ignore_unavailable=true")

    def open_seal(self, clock: Clock) -> ElasticsearchSeal:
        return ElasticsearchSeal(self._client, self._names, self, self._account, clock)

    def close(self) -> None:
        self._threads.shutdown()
        self._account.close()
        self._client.close()

    def _search(self, body: Mapping[str, Any]) -> bytes:
        # A shard that does not answer must count neither as a difference nor as none.
        return send(self._client, "POST", f"/{self._names.write}/_search?allow_partial_search_results=false", body)

    def _search_items(self, body: Mapping[str, Any]) -> bytes:
        path = f"/{self._names.items}/_search?allow_partial_search_results=false"
        return send(self._client, "POST", path, body)

    def _send_items(self, lines: bytes) -> bytes:
        return self._send_writes(f"/{self._names.items}/_bulk?require_alias=true", lines)

    def _send_writes(self, path: str, lines: bytes) -> bytes:
        """Send a bulk request; every write of instances or items goes through here, and is accounted for."""
        with self._account.writing() as add:
            answer = send(self._client, "POST", f"{path}&filter_path={WRITES_ASKED}", lines, content_type=NDJSON)
            for index, written in from_writes(answer).items():
                add(index, written)
        return answer

    def _some_of(self, query: dict[str, Any]) -> Collection[str]:
        """Ids of so many searchable documents that every shard has some among them, if there are that many."""
        body = {"size": _SAMPLE, "track_total_hits": False, "_source": False, "version": True, "query": query}
        return compared.from_hits(self._search(body)).keys()

    def _have_forgotten(self, deleted: Collection[str]) -> None:
        """Return when documents of any version can be written in place of the deleted ones."""
        if not deleted:
            return
        for _ in range(_FORGET_ATTEMPTS):
            time.sleep(_TOMBSTONE_CLOCK_S)
            self.make_searchable()  # which also forgets deletions
            newer = self._delete(dict.fromkeys(deleted, 0))
            deleted = newer - self.versions(newer).keys()
            if not deleted:
                return
        raise IndexUnavailableError(f"the index still remembers {len(deleted)} documents that were removed from it")

    def _delete(self, versions: Mapping[str, int]) -> set[str]:
        """Delete documents unless they are newer; returns those that are, or were when deleted before."""
        path = f"/{self._names.write}/_bulk?require_alias=true"
        return compared.newer_in(self._send_writes(path, compared.to_removal_bulk(versions)), list(versions))

    def _among(self, documents: Iterable[Document], numbers: Collection[int]) -> Iterator[tuple[int, Document]]:
        """Yield the documents with these numbers, each with its number."""
        if numbers:
            for number, document in enumerate(described_documents(documents, self._settings.schemas_dir)):
                if number in numbers:
                    yield number, document

    def _send_bulk(self, bulk: Bulk) -> BulkOutcome:
        # Without require_alias the server would create a missing index, with a guessed mapping.
        path = f"/{self._target.alias}/_bulk?require_alias=true"
        try:
            return to_outcome(bulk, self._send_writes(path, bulk.body))
        except TooLargeError as failure:
            if len(bulk.numbers) > 1:
                return BulkOutcome(unwritten=bulk.numbers, failure=failure, schema_violations=bulk.schema_violations)
            return BulkOutcome(rejected={bulk.numbers[0]: str(failure)}, schema_violations=bulk.schema_violations)
        except (IndexUnavailableError, IndexRequestError) as failure:
            return BulkOutcome(unwritten=bulk.numbers, failure=failure, schema_violations=bulk.schema_violations)

    def _keep_up_after(self, failure: IndexUnavailableError) -> IndexUnavailableError:
        """Why documents cannot be written now. If a rebuild has just ended, the next attempt succeeds."""
        try:
            self._preparation.create_items()
            self.seal_new()
            self._target.keep_up()
        except IndexVersionError as error:
            return error
        except (IndexUnavailableError, IndexReplacedError):
            # Saving the next progress reports the replacement; until then this write waits.
            pass
        return failure

    def _items_uuid(self) -> str:
        """The uuid of the index of items; empty if it is missing."""
        return next((each.uuid for each in physical_indexes(self._client, self._names.items).values()), "")

    def _remove_matching(self, alias: str, query: dict[str, Any]) -> RemovalOutcome:
        """Remove some of the rows that a query finds, unless they changed since. The server's own removal by query is
        not used, since it does not return the numbers of its writes.
        """
        body = {"size": _REMOVE_BATCH, "track_total_hits": False, "_source": False, "seq_no_primary_term": True}
        answer = send(
            self._client, "POST", f"/{alias}/_search?allow_partial_search_results=false", {**body, "query": query}
        )
        if not (lines := to_exact_removals(answer)):
            return RemovalOutcome(0, 0)
        return from_removals(self._send_writes(f"/{alias}/_bulk?require_alias=true&refresh=true", lines))

    def seal_new(self) -> None:
        """Correct the properties of the written indexes, and seal those to which nothing was ever written."""
        self._preparation.put_right(*self._names.written)
        seal_new(self._client, self, system_clock, self._names)
        self._account.learn()

    def _save_account(self, writer: str, account: Mapping[str, Any]) -> None:
        if account["reports"] == 1 and not physical_indexes(self._client, self._names.state):
            # The server would create the index, with a guessed mapping.
            raise IndexAbsentError(f"there is no index {self._names.state}: start the indexer")
        self.save_state(ACCOUNTS, {writer: account})
