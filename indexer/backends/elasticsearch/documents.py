"""Encodes requests for Elasticsearch and decodes its answers; pure.

A document in the index consists of the record without nulls, the cell, the uuid as two numbers, the keys of nice
orders, version, digest, and the view, of which each piece is a separate value, so that it can be cut out of an answer
without being parsed.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from operator import itemgetter
from typing import Any
from zlib import crc32

import msgspec

from fleetlight.cells.digests import row_digest
from fleetlight.indexer.backends.base import EPOCHS, HORIZONS, REPAIRS, CellProgress, Document
from fleetlight.indexer.backends.elasticsearch.client import Cause, is_of_index, unavailable
from fleetlight.indexer.backends.elasticsearch.mapping import (
    CHECK,
    DIGEST_HIGH,
    DIGEST_LOW,
    EXTRA_FIELDS,
    EXTRA_TERMS,
    INDEX_UUID,
    STATE_UUID,
    VERSION,
)
from fleetlight.indexer.backends.elasticsearch.numbering import NumberedWrite
from fleetlight.indexer.backends.elasticsearch.other_items import item_lines
from fleetlight.indexer.backends.elasticsearch.rows import (
    SOURCE,
    check_of,
    decoded,
    decoded_documents,
    search_decoder,
)
from fleetlight.indexer.errors import IndexDocumentError, IndexRequestError, IndexUnavailableError
from fleetlight.indexer.extra_fields import Extra
from fleetlight.query.sort import nice_key
from fleetlight.query.to_dsl import NICE_KEYS, UUID_PARTS, uuid_parts
from fleetlight.resources.fields import Record
from fleetlight.resources.instance import INSTANCE_FIELDS
from fleetlight.views.compute.view import PIECE_NAMES

# 500 documents a bulk is about right (measured): fewer cost more requests, more let the server wait for a bulk.
BULK_MAX_DOCUMENTS = 500
BULK_MAX_BYTES = 5_000_000
# Four times a document must be below a tenth of the server's memory, or the server always answers that it is too
# busy (measured: 30 MB with 1 GB). Real documents have some kilobytes.
DOCUMENT_MAX_BYTES = 10_000_000
MAX_CELLS = 10_000
# index.max_result_window of Elasticsearch.
MAX_ROWS = 10_000
ALL_PROGRESS = {"size": MAX_CELLS}
"""The search for the progress of every cell."""
WITH_WRITES = {"seq_no_primary_term": True}
"""Part of a search that also asks for the sequence numbers of the writes."""
NEVER_REMOVED = (HORIZONS, EPOCHS, REPAIRS)
"""Kinds of state whose absence would let lists take more of a cell from the index. A forgotten fact stays as null,
so if one is missing, another program has removed it.
"""

_CREATED_OR_UPDATED = (200, 201)
_DROPPED = "noop"
_DROPPED_BY_PIPELINE = Cause("dropped", "an ingest pipeline of the server has dropped it")
_NOT_FOUND = 404
_CONFLICT = 409
_BAD_REQUEST = 400
_BULK_LINE = b'{"index":{"_id":"%%b","version":%%d,"version_type":"external"}}\n%b\n' % SOURCE
_encode = msgspec.json.Encoder().encode


class Bulk(msgspec.Struct):
    """One bulk request, without its documents, which would take several times its memory.

    numbers, ids: of its documents; numbers count all documents given to `to_bulks`. schema_violations: as in
    WriteResult. body: newline-delimited JSON.
    """

    numbers: list[int]
    ids: list[str]
    schema_violations: int
    body: bytes


class BulkOutcome(msgspec.Struct):
    """The result of one bulk request, with documents by number as in `Bulk`.

    rejected: the reasons. failure: the first of those for `unwritten`, which the server could not take now.
    schema_violations: of all documents.
    """

    applied: int = 0
    stale: int = 0
    rejected: dict[int, str] = msgspec.field(default_factory=dict)
    unwritten: list[int] = msgspec.field(default_factory=list)
    failure: IndexUnavailableError | IndexRequestError | None = None
    schema_violations: int = 0


@dataclass(frozen=True, slots=True)
class RemovalOutcome:
    """The result of removing found rows. total: all of them; some may have changed and so stay."""

    deleted: int
    total: int


class _Written(msgspec.Struct):
    """result: what the server did; a pipeline that drops a document gives `noop`, with a status of success."""

    status: int
    result: str = ""
    error: Cause | None = None

    @property
    def is_done(self) -> bool:
        return self.status in _CREATED_OR_UPDATED and self.result != _DROPPED

    @property
    def cause(self) -> Cause:
        return _DROPPED_BY_PIPELINE if self.result == _DROPPED else self.error or Cause()

    @property
    def is_of_index(self) -> bool:
        """Whether the index is the cause, so that the same may succeed once the index is repaired."""
        return self.result == _DROPPED or is_of_index(self.status, self.cause)

    def failure(self, what: str) -> IndexUnavailableError | IndexRequestError:
        """The error for it. what: a clause that says what was not done."""
        failure = IndexUnavailableError if self.is_of_index else IndexRequestError
        return failure(f"{what}: status {self.status}, {self.cause}")


class _BulkItem(msgspec.Struct):
    index: _Written


class _BulkAnswer(msgspec.Struct):
    items: list[_BulkItem]


class _StateBulkAnswer(msgspec.Struct):
    items: list[dict[str, _Written]]


class _Write(msgspec.Struct, gc=False):
    index: str = msgspec.field(name="_index")
    id: str = msgspec.field(name="_id")
    seq_no: int = msgspec.field(name="_seq_no", default=-1)
    primary_term: int = msgspec.field(name="_primary_term", default=0)


class _WritesAnswer(msgspec.Struct):
    items: list[dict[str, _Write]]


class _FoundWrite(msgspec.Struct):
    id: str = msgspec.field(name="_id")
    seq_no: int = msgspec.field(name="_seq_no")
    primary_term: int = msgspec.field(name="_primary_term")


class _KeptHit(msgspec.Struct):
    """A progress or a fact, into which another program may have written anything. source: empty if it does not exist.

    index, seq_no, primary_term: only if the search asks for them.
    """

    id: str = msgspec.field(name="_id")
    source: dict[str, Any] = msgspec.field(name="_source", default_factory=dict)
    index: str = msgspec.field(name="_index", default="")
    seq_no: int = msgspec.field(name="_seq_no", default=-1)
    primary_term: int = msgspec.field(name="_primary_term", default=0)

    @property
    def is_ours(self) -> bool:
        """Whether it is as a writer of ours has written it under this id."""
        return bool(self.source.get(CHECK) == _check(self.id, self.source))


@dataclass(frozen=True, slots=True)
class Kept:
    """Facts by kind and name, None for forgotten ones. altered: documents that no writer of ours has written so."""

    facts: Mapping[tuple[str, str], Any]
    altered: Sequence[_KeptHit]

    @property
    def altered_ids(self) -> str:
        return ", ".join(each.id for each in self.altered)

    def of(self, kind: str) -> dict[str, Any]:
        return {name: value for (of, name), value in self.facts.items() if of == kind and value is not None}


class _FieldBucket(msgspec.Struct):
    key: str
    doc_count: int


class _FieldBuckets(msgspec.Struct):
    buckets: list[_FieldBucket]


class _FieldsAnswer(msgspec.Struct):
    aggregations: dict[str, _FieldBuckets]


class _FactsFound(msgspec.Struct):
    docs: list[_KeptHit]


# Fields that `_made` computes from the record and the version.
_MADE = (*UUID_PARTS, *NICE_KEYS.values(), VERSION, DIGEST_HIGH, DIGEST_LOW)
_Source = msgspec.defstruct(
    "_Source",
    [
        ("cell_uuid", str),
        ("view", dict[str, msgspec.Raw]),
        ("extra", Extra | None, None),
        *((name, Any, None) for name in INSTANCE_FIELDS),
        *((name, Any, None) for name in _MADE),
    ],
)


# Members that are not part of an instance's record.
_OTHERS = (*_MADE, "extra", EXTRA_TERMS, EXTRA_FIELDS)
# Encoding a structure takes half the time of building and encoding a dict. Nulls are left out.
_Members = msgspec.defstruct(
    "_Members", [(name, Any, None) for name in (*INSTANCE_FIELDS, *_OTHERS)], omit_defaults=True, gc=False
)
_values_of = itemgetter(*INSTANCE_FIELDS)
_named = itemgetter(*NICE_KEYS)


class _Found(msgspec.Struct):
    id: str = msgspec.field(name="_id")
    found: bool = False
    source: _Source | None = msgspec.field(name="_source", default=None)  # type: ignore[valid-type]
    version: int = msgspec.field(name="_version", default=0)
    error: Cause | None = None


class _FoundAnswer(msgspec.Struct):
    docs: list[_Found]


_BULK_ANSWER = msgspec.json.Decoder(_BulkAnswer)
_STATE_BULK_ANSWER = msgspec.json.Decoder(_StateBulkAnswer)
_KEPT_ANSWER = search_decoder(_KeptHit)
_FIELDS_ANSWER = msgspec.json.Decoder(_FieldsAnswer)
_FACTS_FOUND = msgspec.json.Decoder(_FactsFound)
_WRITES_ANSWER = msgspec.json.Decoder(_WritesAnswer)
_FOUND_WRITES = search_decoder(_FoundWrite)
_FOUND_ANSWER = msgspec.json.Decoder(_FoundAnswer)


def to_bulks(documents: Iterable[Document], rejected: dict[int, str], items: str = "") -> Iterator[Bulk]:
    """Yield requests of at most BULK_MAX_DOCUMENTS and about BULK_MAX_BYTES, while earlier ones are under way.

    rejected: receives the numbers of documents that cannot be sent at all, with the reasons. items: the alias for items
    other than instances; instances go to the index of the request.
    """
    numbers: list[int] = []
    ids: list[str] = []
    lines: list[bytes] = []
    size = schema_violations = 0
    for number, document in enumerate(documents):
        try:
            line = _bulk_line(document) if document.is_instance else item_lines(document, items)
        except (ValueError, OverflowError) as error:
            rejected[number] = str(error)
            continue
        if len(line) > DOCUMENT_MAX_BYTES:
            rejected[number] = f"the document has {len(line)} bytes, more than {DOCUMENT_MAX_BYTES}"
            continue
        if numbers and (len(numbers) == BULK_MAX_DOCUMENTS or size + len(line) > BULK_MAX_BYTES):
            yield Bulk(numbers, ids, schema_violations, b"".join(lines))
            numbers, ids, lines, size, schema_violations = [], [], [], 0, 0
        numbers.append(number)
        ids.append(document.id)
        lines.append(line)
        size += len(line)
        if document.extra is not None:
            schema_violations += len(document.extra.schema_violations)
    if numbers:
        yield Bulk(numbers, ids, schema_violations, b"".join(lines))


def to_outcome(bulk: Bulk, answer: bytes) -> BulkOutcome:
    """Collect the server's result of each document."""
    result = BulkOutcome(schema_violations=bulk.schema_violations)
    for number, uuid, item in zip(bulk.numbers, bulk.ids, decoded(_BULK_ANSWER, answer).items, strict=True):
        status, cause = item.index.status, item.index.cause
        if item.index.is_done:
            result.applied += 1
        elif status == _CONFLICT:
            result.stale += 1
        elif item.index.is_of_index:
            result.unwritten.append(number)
            result.failure = result.failure or unavailable(f"document {uuid}: {cause}", cause)
        elif status == _BAD_REQUEST:
            result.rejected[number] = str(cause)
        else:
            # Such a failure takes precedence over one that would pass by itself.
            result.failure = IndexRequestError(f"document {uuid}: status {status}, {cause}")
    return result


def to_progress_bulk(
    progress: Iterable[CellProgress], over: Mapping[str, CellProgress], *, index_uuid: str, state_uuid: str
) -> bytes:
    """The body of a bulk request that saves the progress of cells in an index, with its facts' index (Owner).

    over: as in IndexWriter.save_progress.
    """
    lines: list[bytes] = []
    for cell in progress:
        action: dict[str, Any] = {"_id": cell.cell_uuid}
        if (known := over.get(cell.cell_uuid)) is not None and known.saved_as is not None:
            action["if_seq_no"], action["if_primary_term"] = known.saved_as
        lines.append(_encode({"index": action}))
        source = {"watermark": cell.watermark, "fresh_as_of": cell.fresh_as_of, "is_complete": cell.is_complete}
        lines.append(_checked(cell.cell_uuid, {**source, INDEX_UUID: index_uuid, STATE_UUID: state_uuid}))
    return b"\n".join([*lines, b""])


def not_saved(progress: Iterable[CellProgress], answer: bytes) -> Set[str]:
    """The cells whose progress another process has saved meanwhile, from the answer of a bulk request.

    Raises IndexUnavailableError or IndexRequestError if the server did not save the progress for another reason.
    """
    changed = set[str]()
    for cell, item in zip(progress, decoded(_BULK_ANSWER, answer).items, strict=True):
        if item.index.status == _CONFLICT:
            changed.add(cell.cell_uuid)
        elif not item.index.is_done:
            raise item.index.failure("the progress could not be saved")
    return changed


def progress_of(index_uuids: Sequence[str], state_uuid: str) -> dict[str, Any]:
    """The search for the progress of every cell in one of these indexes."""
    wanted = [{"terms": {INDEX_UUID: list(index_uuids)}}, {"term": {STATE_UUID: state_uuid}}]
    return {"size": MAX_CELLS, "seq_no_primary_term": True, "query": {"bool": {"filter": wanted}}}


def from_progress_hits(answer: bytes) -> dict[str, CellProgress]:
    """Progress by cell uuid from the answer of a search, without what another program has written."""
    return {
        hit.id: CellProgress(
            hit.id,
            **{name: hit.source[name] for name in ("watermark", "fresh_as_of", "is_complete")},
            saved_as=(hit.seq_no, hit.primary_term),
        )
        for hit in decoded(_KEPT_ANSWER, answer).hits.hits
        if hit.is_ours
    }


def to_state_bulk(kind: str, values: Mapping[str, object | None]) -> bytes:
    """The body of a bulk request that saves facts, and forgets those that are None."""
    lines: list[bytes] = []
    for name, value in values.items():
        fact_id = _fact_id(kind, name)
        if value is None and kind not in NEVER_REMOVED:
            lines.append(_encode({"delete": {"_id": fact_id}}))
        else:
            # Nested in an object, since a field that is not indexed has to be one.
            source = {"kind": kind, "name": name, "value": {"json": value}}
            lines += [_encode({"index": {"_id": fact_id}}), _checked(fact_id, source)]
    return b"\n".join([*lines, b""])


def fact_of(kind: str, name: str) -> dict[str, Any]:
    """The body of a multi-get of one fact, which returns the last saved value, even before a refresh."""
    return {"ids": [_fact_id(kind, name)]}


def _fact_id(kind: str, name: str) -> str:
    return f"{kind}:{name}"


def _checked(document_id: str, source: Mapping[str, Any]) -> bytes:
    return _encode({**source, CHECK: _check(document_id, source)})


def _check(document_id: str, source: Mapping[str, Any]) -> int:
    """A checksum by which a progress or a fact shows that a writer of ours wrote it under its id; the seal does not
    account for these writes.

    It leaves out which indexes a progress is about, since a rebuild changes that.
    """
    said = [[name, source[name]] for name in sorted(source.keys() - {CHECK, INDEX_UUID, STATE_UUID})]
    return crc32(_encode([document_id, said]))


def check_state_saved(answer: bytes) -> None:
    """Raises IndexUnavailableError or IndexRequestError if the server did not do what `to_state_bulk` asked for."""
    for item in decoded(_STATE_BULK_ANSWER, answer).items:
        for action, written in item.items():
            is_gone = action == "delete" and written.status == _NOT_FOUND
            if not written.is_done and not is_gone:
                raise written.failure("the state could not be saved")


def from_kept_hits(answer: bytes) -> Kept:
    """Facts and altered documents from the answer of a search. Raises IndexRequestError if there are too many."""
    hits = decoded(_KEPT_ANSWER, answer).hits.hits
    if len(hits) == MAX_CELLS:
        raise IndexRequestError(f"{MAX_CELLS} facts or more are kept, and some may be missing here")
    return _kept(hits)


def from_found_facts(answer: bytes) -> Kept:
    """The same from the answer of a multi-get; empty if the fact or the index does not exist."""
    return _kept([each for each in decoded(_FACTS_FOUND, answer).docs if each.source])


def _kept(hits: Iterable[_KeptHit]) -> Kept:
    ours: dict[tuple[str, str], Any] = {}
    altered = []
    for hit in hits:
        if not hit.is_ours:
            altered.append(hit)
        elif "kind" in hit.source:
            ours[hit.source["kind"], hit.source["name"]] = hit.source["value"]["json"]
    return Kept(ours, altered)


def to_kept_removals(altered: Iterable[_KeptHit]) -> bytes:
    """The body of a bulk request that removes altered documents, unless they were written again since."""
    lines = [
        {"_index": hit.index, "_id": hit.id, "if_seq_no": hit.seq_no, "if_primary_term": hit.primary_term}
        for hit in altered
    ]
    return b"\n".join([*(_encode({"delete": line}) for line in lines), b""])


def from_field_counts(answer: bytes) -> dict[str, int]:
    """The number of documents with each extra field, from the answer of a search."""
    buckets = decoded(_FIELDS_ANSWER, answer).aggregations["fields"].buckets
    return {bucket.key: bucket.doc_count for bucket in buckets}


WRITES_ASKED = (
    "items.*._index,items.*._id,items.*._seq_no,items.*._primary_term,items.*.status,items.*.result,items.*.error"
)
"""The parts of a bulk request's answer that `from_writes` reads, and the result of each document."""


def from_writes(answer: bytes) -> dict[str, list[NumberedWrite]]:
    """The writes of a bulk request, by physical index."""
    written: dict[str, list[NumberedWrite]] = {}
    for item in decoded(_WRITES_ANSWER, answer).items:
        for write in item.values():
            # A refused document has no number.
            if write.seq_no >= 0:
                written.setdefault(write.index, []).append(NumberedWrite(write.id, write.primary_term, write.seq_no))
    return written


def to_exact_removals(found: bytes) -> bytes:
    """The body of a bulk request that removes found documents if they are unchanged; empty if none were found."""
    lines = [
        _encode({"delete": {"_id": hit.id, "if_seq_no": hit.seq_no, "if_primary_term": hit.primary_term}})
        for hit in decoded(_FOUND_WRITES, found).hits.hits
    ]
    return b"\n".join([*lines, b""]) if lines else b""


def from_removals(answer: bytes) -> RemovalOutcome:
    """The result of a removal. Raises IndexUnavailableError or IndexRequestError if a document was not removed."""
    statuses = []
    for item in decoded(_STATE_BULK_ANSWER, answer).items:
        [written] = item.values()
        if written.status not in (*_CREATED_OR_UPDATED, _NOT_FOUND, _CONFLICT):
            raise written.failure("a document was not removed")
        statuses.append(written.status)
    return RemovalOutcome(sum(status in _CREATED_OR_UPDATED for status in statuses), len(statuses))


def from_found(answer: bytes) -> Iterator[Document]:
    """Yield the documents that a multi-get found.

    Raises IndexUnavailableError if one could not be read, IndexDocumentError if one is not ours.
    """
    for found in decoded_documents(_FOUND_ANSWER, answer).docs:
        if found.error is not None:
            raise IndexUnavailableError(f"a document could not be read: {found.error}")
        if found.source is not None:
            try:
                document = _document(found.id, found.source, found.version)
            except KeyError as error:
                raise IndexDocumentError.caused_by(error, found.id) from error
            if document.id != found.id:
                raise IndexDocumentError(found.id, f"it is a copy of the document of instance {document.id}")
            yield document


def from_found_versions(answer: bytes) -> dict[str, int]:
    """Versions by id of the documents that a multi-get without sources found. Raises IndexUnavailableError."""
    versions: dict[str, int] = {}
    for found in decoded(_FOUND_ANSWER, answer).docs:
        if found.error is not None:
            raise IndexUnavailableError(f"a document could not be read: {found.error}")
        if found.found:
            versions[found.id] = found.version
    return versions


def _bulk_line(document: Document) -> bytes:
    """The two lines of one document. Raises ValueError or OverflowError if it cannot be expressed."""
    uuid, version, extra = document.id, document.version, document.extra
    members = _Members(
        *_values_of(document.record),
        *_made(document.record, version),
        *((extra, extra.terms, extra.fields) if extra is not None else ()),
    )
    return _BULK_LINE % (
        *(uuid.encode(), version, _encode(members)[1:-1], _encode(document.cell_uuid)),
        *(*document.view, check_of(document.view)),
    )


def _made(record: Record, version: int) -> tuple[Any, ...]:
    """The values of _MADE."""
    uuid = record["uuid"]
    return *uuid_parts(uuid), *map(_nice_key, _named(record)), version, *row_digest(uuid, version)


def _nice_key(value: Any) -> str | None:
    """None for a value that is not text; the document is then refused anyway."""
    return nice_key(value) if isinstance(value, str) else None


def _document(document_id: str, source: Any, version: int) -> Document:
    record: Mapping[str, Any] = {name: getattr(source, name) for name in INSTANCE_FIELDS}
    # Lists are ordered by these fields, and comparisons rely on them.
    if tuple(getattr(source, name) for name in _MADE) != _made(record, version):
        raise IndexDocumentError(document_id, "what is made of its fields and its version is not what they make")
    view = tuple([bytes(source.view[name]) for name in PIECE_NAMES])
    if bytes(source.view["check"]) != b"%d" % check_of(view):
        raise IndexDocumentError(str(record["uuid"]), "its view is not as it was written")
    return Document(source.cell_uuid, version, record, view, source.extra)


def state_of(*kinds: str) -> dict[str, Any]:
    """The search for all facts of some kinds."""
    return {"size": MAX_CELLS, "query": {"terms": {"kind": kinds}}}
