"""Items other than instances in Elasticsearch: bodies of requests, and their answers; pure but for one walk.

They are in one index for all types, outside of the generations: records are objects that no search looks into, so the
mapping does not depend on a type's fields, and a rebuild needs no new index. The id of a document begins with its cell,
so no cell can overwrite another one's items.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from fleetlight.indexer.backends.base import Document
from fleetlight.indexer.backends.elasticsearch.rows import decoded, search_decoder
from fleetlight.resources.fields import Record

# The uuid of the document that marks the items of a type as whole; no item has it.
_WHOLE = "whole"
_INDEX_UUID = "index_uuid"
# Precedes the document's id where that is not an item's, and so replaces the uuid.
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
        """Whether another program has stored the item under another id."""
        return self.id != _id(self.source.item_type, self.source.cell_uuid, self.source.uuid)


_ANSWER = search_decoder(_Hit)


def item_lines(document: Document, index: str) -> bytes:
    """The two lines of a bulk request. index: the alias to write to."""
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
    """The lines of a bulk request that mark all items as present; with None, that remove the mark.

    index_uuid: of the physical index of the items. The mark does not hold in another one, such as a restored copy.
    """
    action = {"_id": _id(item_type, cell_uuid, _WHOLE)}
    if index_uuid is None:
        return _encode({"delete": action}) + b"\n"
    record = {_INDEX_UUID: index_uuid}
    source = {"item_type": item_type, "cell_uuid": cell_uuid, "uuid": _WHOLE, "version": 0, "record": record}
    return b"%b\n%b\n" % (_encode({"index": action}), _encode(source))


def removal_lines(item_type: str, cell_uuid: str, versions: Mapping[str, int]) -> bytes:
    """The lines of a bulk request that deletes items, unless they are newer than these versions."""
    actions = (
        {"delete": {"_id": _id(item_type, cell_uuid, uuid), "version": version, "version_type": "external_gte"}}
        for uuid, version in versions.items()
    )
    return b"".join(_encode(action) + b"\n" for action in actions)


def mark_of(item_type: str, cell_uuid: str) -> dict[str, Any]:
    """The search for the document that marks a cell's items as whole."""
    return {"query": {"ids": {"values": [_id(item_type, cell_uuid, _WHOLE)]}}, "sort": [{"uuid": "asc"}]}


def is_marked_by(answer: bytes, index_uuid: str) -> bool:
    """Whether the mark was found, and is about this physical index."""
    return any(hit.source.record.get(_INDEX_UUID) == index_uuid for hit in decoded(_ANSWER, answer).hits.hits)


def forgotten_items(cell_uuid: str, horizon: int) -> dict[str, Any]:
    """The query for items that were deleted before the horizon."""
    return {"bool": {"filter": [{"term": {"cell_uuid": cell_uuid}}, {"range": {"deleted_at": {"lt": horizon}}}]}}


def read_items(search: Search, item_type: str, cell_uuid: str) -> dict[str, Document]:
    """All items of a cell by uuid, including deleted ones; a copy counts as an existing item, by its own id."""
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
            # The copy may have replaced another item.
            copied.add(hit.source.cell_uuid)
        elif hit.source.uuid == _WHOLE:
            whole.add(hit.source.cell_uuid)
        else:
            records.setdefault(hit.source.cell_uuid, []).append(hit.source.record)
    return {cell_uuid: records.get(cell_uuid, []) for cell_uuid in whole - copied}


def _of(item_type: str, cells: Collection[str]) -> dict[str, Any]:
    return {"bool": {"filter": [{"term": {"item_type": item_type}}, {"terms": {"cell_uuid": list(cells)}}]}}


def _all(search: Search, query: Mapping[str, Any]) -> Iterator[_Hit]:
    """Yield all hits of a query, page by page; the mark of a whole cell comes after its items."""
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
    """The inverse of `_id`: the uuid from which it made this id."""
    begin = _id(item_type, cell_uuid, "")
    return document_id.removeprefix(begin) if document_id.startswith(begin) else f"{_ID}{document_id}"
