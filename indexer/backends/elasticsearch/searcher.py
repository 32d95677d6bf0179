"""Reads from Elasticsearch: pages, single instances, and the progress of each cell. It retries no request."""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeVar

import msgspec

from fleetlight.cells.bounded_threads import AllThreadsHangError, BoundedThreads
from fleetlight.indexer.backends.base import CELL_FACTS, MISSHAPEN, CellProgress, FoundPage, FoundRow, counts_by_cell
from fleetlight.indexer.backends.elasticsearch.client import Client, open_client, send
from fleetlight.indexer.backends.elasticsearch.documents import (
    ALL_PROGRESS,
    MAX_ROWS,
    WITH_WRITES,
    fact_of,
    from_found_facts,
    from_kept_hits,
    from_progress_hits,
    state_of,
)
from fleetlight.indexer.backends.elasticsearch.known_pages import KnownPages
from fleetlight.indexer.backends.elasticsearch.mapping import VERSION
from fleetlight.indexer.backends.elasticsearch.names import Names
from fleetlight.indexer.backends.elasticsearch.other_items import search_items
from fleetlight.indexer.backends.elasticsearch.rows import (
    RowDecoder,
    Write,
    decoded,
    decoded_documents,
    row_decoder,
    writes_in,
)
from fleetlight.indexer.backends.seal import HELD, SEAL, SealState
from fleetlight.indexer.backends.settings import IndexSettings
from fleetlight.indexer.errors import IndexDocumentError, IndexUnavailableError
from fleetlight.query.counts import CountRequest, Counts
from fleetlight.query.errors import NotExpressibleError
from fleetlight.query.filters import Filter
from fleetlight.query.page import PageRequest
from fleetlight.query.to_dsl import search_after, sort, to_dsl
from fleetlight.resources.fields import Record
from fleetlight.resources.instance import INSTANCE_FIELDS
from fleetlight.views.projection import Projection

T = TypeVar("T")

# The most searches of one process at a time; others wait.
_SEARCH_THREADS = 16
_NO_VALUE = (None,)


class ValueDecoder:
    """Reads the rows of a search for the values of some fields, from columns or from the source.

    Values are read from columns where possible. Otherwise, also for lists whose members have an order, the server sends
    the whole source: leaving parts out costs more (decisions 0007 and 0009). keys: names of the sort keys. fields:
    fields whose values make up the items, followed by the version if wanted. options: members for the body of a search.
    """

    def __init__(self, keys: tuple[str, ...], fields: tuple[str, ...], *, with_version: bool = False) -> None:
        self._keys, self._fields = keys, (*fields, VERSION) if with_version else fields
        names = tuple(dict.fromkeys((*keys, *fields)))
        self._is_in_columns = all(INSTANCE_FIELDS[name].is_sortable for name in names)
        always: dict[str, Any] = {"cell_uuid": str, VERSION: int} if with_version else {"cell_uuid": str}
        self.options: Mapping[str, Any]
        if self._is_in_columns:
            self.options = {"_source": False, "stored_fields": "_none_", "docvalue_fields": [*always, *names]}
            # A column may have any number of values; ours has one or none.
            members: list[Any] = [(name, list[Any], _NO_VALUE) for name in names]
            found = msgspec.defstruct(
                "_Columns",
                [*((name, list[kind]) for name, kind in always.items()), *members],  # type: ignore[valid-type]
                gc=False,
            )
        else:
            self.options = {}
            found = msgspec.defstruct("_Members", [*always.items(), *((name, Any, _missing(name)) for name in names)])
        where = msgspec.field(name="fields" if self._is_in_columns else "_source")
        hit = msgspec.defstruct("_ValuesHit", [("found", found, where)])
        hits = msgspec.defstruct("_ValuesHits", [("hits", list[hit])])  # type: ignore[valid-type]
        self._answer: msgspec.json.Decoder[Any] = msgspec.json.Decoder(
            msgspec.defstruct("_ValuesAnswer", [("hits", hits)])
        )

    def rows(self, body: bytes, projection: Projection) -> Sequence[FoundRow]:
        """The rows of an answer. Raises IndexRequestError, and IndexDocumentError for a document that is not ours."""
        row = self._of_columns if self._is_in_columns else self._of_source
        return [row(hit.found, projection) for hit in decoded_documents(self._answer, body).hits.hits]

    def _of_columns(self, found: Any, projection: Projection) -> FoundRow:
        position = [getattr(found, name)[0] for name in self._keys]
        values = [getattr(found, name)[0] for name in self._fields]
        return _row(position, values, found.cell_uuid[0], projection)

    def _of_source(self, found: Any, projection: Projection) -> FoundRow:
        position = [getattr(found, name) for name in self._keys]
        values = [getattr(found, name) for name in self._fields]
        return _row(position, values, found.cell_uuid, projection)


def _missing(name: str) -> Any:
    """The default for a member that a document lacks, since nulls are left out."""
    return msgspec.field(default_factory=list) if INSTANCE_FIELDS[name].is_list else None


def _row(position: Sequence[Any], values: Sequence[Any], cell_uuid: str, projection: Projection) -> FoundRow:
    try:
        return FoundRow(tuple(position), projection.render(values, cell_uuid))
    except MISSHAPEN as error:
        raise IndexDocumentError.caused_by(error, str(position[-1])) from error


value_decoder = lru_cache(maxsize=64)(ValueDecoder)


class _Bucket(msgspec.Struct):
    key: dict[str, Any]
    doc_count: int


class _Groups(msgspec.Struct):
    buckets: list[_Bucket]


class _Aggregations(msgspec.Struct):
    groups: _Groups


class _Answer(msgspec.Struct):
    aggregations: _Aggregations


_ANSWER = msgspec.json.Decoder(_Answer)


def count_body(request: CountRequest, wanted: Mapping[str, Any]) -> dict[str, Any]:
    """The body of a search that counts. wanted: the query for the documents to count.

    It reads one page of a composite aggregation, which is exact, unlike `terms`, and counts as of one moment.
    """
    cell = {"cell_uuid": {"terms": {"field": "cell_uuid"}}}
    values = [{f"by_{name}": {"terms": {"field": name, "missing_bucket": True}}} for name in request.by]
    groups = {"composite": {"size": request.max_groups + 1, "sources": [cell, *values]}}
    return {"size": 0, "track_total_hits": False, "query": wanted, "aggs": {"groups": groups}}


def counts_in(answer: bytes, request: CountRequest) -> dict[str, Counts]:
    """Counts by the uuid of the cell. Raises IndexRequestError."""
    buckets = decoded(_ANSWER, answer).aggregations.groups.buckets
    names = [f"by_{name}" for name in request.by]
    found = ((each.key["cell_uuid"], tuple(each.key[name] for name in names), each.doc_count) for each in buckets)
    return counts_by_cell(found, request.max_groups)


class ElasticsearchSearcher:
    """The reading side (fleetlight.indexer.backends.base.IndexSearcher); needs only the right to read.

    It uses the blocking client in threads, which reads a page of 3 MB in a fraction of the asynchronous client's time.
    """

    def __init__(self, settings: IndexSettings) -> None:
        self._names = Names.of(settings.prefix)
        # An answer without the rows of some shard must not pass for the whole.
        self._search_path = f"/{self._names.read}/_search?allow_partial_search_results=false"
        self._client = open_client(settings, timeout_s=settings.search_timeout_s, connections=_SEARCH_THREADS + 1)
        self._known_pages = KnownPages() if settings.page_cache else None
        self._threads = BoundedThreads(_SEARCH_THREADS, "index-search")
        # A thread of its own, so that progress does not wait behind pages.
        self._progress_threads = BoundedThreads(1, "index-progress")
        # The client's limit applies to each silence of a server, and a server that trickles is never silent.
        self._timeout_s = settings.search_timeout_s * len(settings.urls)

    async def search(self, request: PageRequest, cells: Collection[str], projection: Projection) -> Sequence[FoundRow]:
        keys, body = _keys(request), _search_body(request, cells)
        if projection.pieces:
            decoder = row_decoder(keys, projection.pieces)
            return await self._run(lambda: decoder.rows(self._ask(body), projection))
        values = value_decoder(keys, projection.fields or (), with_version=projection.shows_revision)
        return await self._run(lambda: values.rows(self._ask({**body, **values.options}), projection))

    async def page(self, request: PageRequest, cells: Collection[str], projection: Projection) -> FoundPage:
        if not projection.pieces:
            rows = await self.search(request, cells, projection)
            return FoundPage(
                b",".join(filter(None, [row.item for row in rows])), len(rows), rows[-1].position if rows else None
            )
        key = (request, frozenset(cells), projection.form)
        # Fetching the whole source is faster than letting the server leave out a part.
        decoder = row_decoder(_keys(request), projection.pieces)
        search = _PageSearch(self._client, decoder, self._search_path, _search_body(request, cells), projection)
        known = self._known_pages
        return await self._run(lambda: known.find(key, projection.rendered_with, search) if known else search.page())

    def _ask(self, body: Mapping[str, Any]) -> bytes:
        return send(self._client, "POST", self._search_path, body, is_query=True)

    async def count(self, request: CountRequest, cells: Collection[str]) -> Mapping[str, Counts]:
        body = count_body(request, _wanted(request.filter, cells))
        return await self._run(lambda: counts_in(self._ask(body), request))

    async def items(self, item_type: str, cells: Collection[str]) -> Mapping[str, Sequence[Record]]:
        # The index is missing if an older program prepared the others; then no cell is whole.
        path = f"/{self._names.items}/_search?allow_partial_search_results=false&ignore_unavailable=true"
        return await self._run(
            lambda: search_items(lambda body: send(self._client, "POST", path, body, is_query=True), item_type, cells)
        )

    def describe(self, request: PageRequest, cells: Collection[str]) -> Mapping[str, Any]:
        """The body of the search for a page. Raises NotExpressibleError."""
        return {"dsl": _search_body(request, cells)}

    async def progress(self) -> Mapping[str, CellProgress]:
        return await self._run(self._read_progress, self._progress_threads)

    def _read_progress(self) -> Mapping[str, CellProgress]:
        # Read facts first, since a watermark read before them may be of an earlier epoch.
        facts = self._read_facts(*CELL_FACTS)
        progress = from_progress_hits(send(self._client, "POST", f"/{self._names.progress}/_search", ALL_PROGRESS))
        seal = SealState.of(facts)
        return {uuid: cell.with_facts(facts, seal) for uuid, cell in progress.items()}

    async def seal(self) -> SealState:
        return SealState.of(await self._run(lambda: self._read_facts(SEAL), self._progress_threads))

    def _read_facts(self, *kinds: str) -> Mapping[tuple[str, str], Any]:
        """Facts of these kinds, and when the seal last held."""
        # Read this first, so that a breach found since then is among the facts below.
        held = from_found_facts(send(self._client, "POST", f"/{self._names.state}/_mget", fact_of(SEAL, HELD)))
        # The index is missing if an older program prepared the others; then nothing was purged.
        path = f"/{self._names.state}/_search?ignore_unavailable=true"
        found = from_kept_hits(send(self._client, "POST", path, state_of(*kinds)))
        facts = {**found.facts, **held.facts}
        if ids := ", ".join(filter(None, (found.altered_ids, held.altered_ids))):
            facts[SEAL, ids] = {"reason": f"another program has altered what is kept of the index: {ids}"}
        return {fact: value for fact, value in facts.items() if value is not None}

    async def close(self) -> None:
        self._progress_threads.close(lambda: self._threads.close(self._client.close))

    async def _run(self, call: Callable[[], T], threads: BoundedThreads | None = None) -> T:
        """Run a call in a thread. threads: by default those for searches. Raises IndexUnavailableError."""
        try:
            return await (threads or self._threads).run(call, self._timeout_s)
        except AllThreadsHangError:
            raise IndexUnavailableError("earlier searches still wait for an answer") from None
        except TimeoutError:
            raise IndexUnavailableError(f"no answer within {self._timeout_s:g} s") from None


class _PageSearch:
    """The search for one page, for `KnownPages`."""

    def __init__(
        self, client: Client, decoder: RowDecoder, path: str, body: Mapping[str, Any], template: Projection
    ) -> None:
        self._client = client
        self._decoder = decoder
        self._path = path
        self._body = body
        self._template = template

    def page(self) -> FoundPage:
        return self._decoder.page(self._send(self._body), self._template)

    def writes(self) -> Sequence[Write]:
        # Without stored fields the server reads only columns.
        return writes_in(self._send({**self._body, **WITH_WRITES, "stored_fields": "_none_"}))

    def rows(self) -> Mapping[Write, FoundRow]:
        return self._rows({**self._body, **WITH_WRITES})

    def rows_of(self, writes: Collection[Write]) -> Mapping[Write, FoundRow]:
        these = {"ids": {"values": [write.uuid for write in writes]}}
        return self._rows({"size": len(writes), "query": these, "sort": self._body["sort"], **WITH_WRITES})

    def _rows(self, body: Mapping[str, Any]) -> Mapping[Write, FoundRow]:
        return self._decoder.rows_with_writes(self._send(body), self._template)

    def _send(self, body: Mapping[str, Any]) -> bytes:
        return send(self._client, "POST", self._path, body, is_query=True)


def _wanted(node: Filter, cells: Collection[str]) -> Mapping[str, Any]:
    return {"bool": {"filter": [to_dsl(node, INSTANCE_FIELDS), {"terms": {"cell_uuid": list(cells)}}]}}


def _keys(request: PageRequest) -> tuple[str, ...]:
    return tuple(key.field for key in request.order.keys)


def _search_body(request: PageRequest, cells: Collection[str]) -> dict[str, Any]:
    if request.limit > MAX_ROWS:
        raise NotExpressibleError("Elasticsearch", f"a page of more than {MAX_ROWS} rows")
    body: dict[str, Any] = {
        "size": request.limit,
        "track_total_hits": False,
        "query": _wanted(request.filter, cells),
        "sort": sort(request.order),
    }
    if request.after is not None:
        try:
            body["search_after"] = search_after(request.order, request.after, INSTANCE_FIELDS)
        except ValueError as error:
            # Only a cell can have such a row, since the index rejects it.
            raise NotExpressibleError("Elasticsearch", f"this position: {error}") from error
    return body
