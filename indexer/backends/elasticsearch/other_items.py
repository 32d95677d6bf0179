"""Items other than instances in Elasticsearch: bodies of requests, and what their answers say; pure but for one walk.

They have an index of their own, one for all types and outside of the generations: a record is an object that nothing
searches in, so the mapping is the same whatever the fields of a type are, and a rebuild has no need of another one. The
id of a document begins with its cell, so no cell can write what is another one's.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from fleetlight.indexer.backends.base import Document
from fleetlight.indexer.backends.elasticsearch.rows import decoded, search_decoder
from fleetlight.resources.fields import Record

# That of a document which says that all items of the type are there; no item has it.
_WHOLE = "whole"
_INDEX_UUID = "index_uuid"
# Begins what stands for the uuid where a document has an id that is no item's.
_ID = "_id="
# index.max_result_window of Elasticsearch.
_PAGE = 10_000
_encode = msgspec.json.Encoder().encode

Search = Callable[[Mapping[str, Any]], bytes]
"""Sends the body of a search, and returns the answer."""


class _Source(msgspec.Struct):
    item_type: str
    cell_uuid: str
    uuid: str
    record: dict[str, Any]


class _Hit(msgspec.Struct):
    id: str = msgspec.field(name="_id")
    source: _Source = msgspec.field(name="_source")
    sort: list[Any]
    version: int = msgspec.field(name="_version", default=0)

    @property
    def is_copy(self) -> bool:
        """Whether another program has put the item under another id."""
        return self.id != _id(self.source.item_type, self.source.cell_uuid, self.source.uuid)


_ANSWER = search_decoder(_Hit)


def item_lines(document: Document, index: str) -> bytes:
    """The two lines of a bulk request. index: the alias that it is written to."""
    record, uuid = document.record, document.id
    action = {"_index": index, "_id": _id(document.item_type, document.cell_uuid, uuid)}
    source = {
        "item_type": document.item_type,
        "cell_uuid": document.cell_uuid,
        "uuid": uuid,
        "version": document.version,
        "record": record,
    }
    if record["deleted"]:
        source["deleted_at"] = record["deleted_at"]
    versioned = {**action, "version": document.version, "version_type": "external"}
    return b"%b\n%b\n" % (_encode({"index": versioned}), _encode(source))


def mark_lines(item_type: str, cell_uuid: str, index_uuid: str | None) -> bytes:
    """The lines of a bulk request that say that all items are there; or with None, that they may not be.

    index_uuid: of the physical index that they are in. In another one, a restored copy, it is not true.
    """
    action = {"_id": _id(item_type, cell_uuid, _WHOLE)}
    if index_uuid is None:
        return _encode({"delete": action}) + b"\n"
    record = {_INDEX_UUID: index_uuid}
    source = {"item_type": item_type, "cell_uuid": cell_uuid, "uuid": _WHOLE, "version": 0, "record": record}
    return b"%b\n%b\n" % (_encode({"index": action}), _encode(source))


def removal_lines(item_type: str, cell_uuid: str, versions: Mapping[str, int]) -> bytes:
    """The lines of a bulk request that deletes items unless they are newer than these versions."""
    actions = (
        {"delete": {"_id": _id(item_type, cell_uuid, uuid), "version": version, "version_type": "external_gte"}}
        for uuid, version in versions.items()
    )
    return b"".join(_encode(action) + b"\n" for action in actions)


def mark_of(item_type: str, cell_uuid: str) -> dict[str, Any]:
    """The search for the document that says that all items of a cell are there."""
    return {"query": {"ids": {"values": [_id(item_type, cell_uuid, _WHOLE)]}}, "sort": [{"uuid": "asc"}]}


def is_marked_by(answer: bytes, index_uuid: str) -> bool:
    """Whether that document was found, and is about this physical index."""
    return any(hit.source.record.get(_INDEX_UUID) == index_uuid for hit in decoded(_ANSWER, answer).hits.hits)


def forgotten_items(cell_uuid: str, horizon: int) -> dict[str, Any]:
    """The query for those that were deleted before the horizon."""
    return {"bool": {"filter": [{"term": {"cell_uuid": cell_uuid}}, {"range": {"deleted_at": {"lt": horizon}}}]}}


def read_items(search: Search, item_type: str, cell_uuid: str) -> dict[str, Document]:
    """All items of a cell, deleted ones too, by uuid; a copy under another id by that id, as an item that is there."""
    found: dict[str, Document] = {}
    for hit in _all(search, _of(item_type, [cell_uuid])):
        record = {**hit.source.record, "deleted": False} if hit.is_copy else hit.source.record
        if hit.is_copy or hit.source.uuid != _WHOLE:
            uuid = _uuid(item_type, cell_uuid, hit.id)
            found[uuid] = Document(cell_uuid, hit.version, record, (), None, item_type)
    return found


def search_items(search: Search, item_type: str, cells: Collection[str]) -> dict[str, Sequence[Record]]:
    """fleetlight.indexer.backends.base.IndexSearcher.items."""
    wanted = _of(item_type, cells)
    wanted["bool"]["must_not"] = {"exists": {"field": "deleted_at"}}
    whole: set[str] = set()
    copied: set[str] = set()
    records: dict[str, list[Record]] = {}
    for hit in _all(search, wanted):
        if hit.is_copy:
            # It may be in the place of another item.
            copied.add(hit.source.cell_uuid)
        elif hit.source.uuid == _WHOLE:
            whole.add(hit.source.cell_uuid)
        else:
            records.setdefault(hit.source.cell_uuid, []).append(hit.source.record)
    return {cell_uuid: records.get(cell_uuid, []) for cell_uuid in whole - copied}


def _of(item_type: str, cells: Collection[str]) -> dict[str, Any]:
    return {"bool": {"filter": [{"term": {"item_type": item_type}}, {"terms": {"cell_uuid": list(cells)}}]}}


def _all(search: Search, query: Mapping[str, Any]) -> Iterator[_Hit]:
    """Whatever a query finds, page by page; what says that a cell is whole comes behind all its items."""
    body: dict[str, Any] = {
        "size": _PAGE,
        "track_total_hits": False,
        "version": True,
        "query": query,
        "sort": [{"cell_uuid": "asc"}, {"uuid": "asc"}],
    }
    while True:
        hits = decoded(_ANSWER, search(body)).hits.hits
        yield from hits
        if len(hits) < _PAGE:
            return
        body["search_after"] = hits[-1].sort


def _id(item_type: str, cell_uuid: str, uuid: str) -> str:
    return uuid.removeprefix(_ID) if uuid.startswith(_ID) else f"{item_type}:{cell_uuid}:{uuid}"


def _uuid(item_type: str, cell_uuid: str, document_id: str) -> str:
    """What `_id` makes this id of."""
    begin = _id(item_type, cell_uuid, "")
    return document_id.removeprefix(begin) if document_id.startswith(begin) else f"{_ID}{document_id}"
