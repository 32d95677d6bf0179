"""Digests and versions in Elasticsearch, for comparisons with a cell: bodies of requests, and their answers; pure.

Documents have their version and the two numbers of their digest (fleetlight.cells.digests) as fields, because the
server can neither filter nor sum by `_version`. A range is a prefix of the uuid, and a request reads its ranges by a
`filters` aggregation: on 50,000 documents 256 ranges take 30 ms, and 1,024 small ones 100 ms (measured).
"""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from fleetlight.cells.digests import RangeDigest
from fleetlight.indexer.backends.base import OLDEST_TIME_VERSION
from fleetlight.indexer.backends.elasticsearch.client import Cause, is_passing
from fleetlight.indexer.backends.elasticsearch.mapping import DIGEST_HIGH, DIGEST_LOW, VERSION
from fleetlight.indexer.backends.elasticsearch.rows import decoded, search_decoder
from fleetlight.indexer.errors import IndexRequestError, IndexUnavailableError
from fleetlight.query.retention import forgotten, remembered
from fleetlight.query.to_dsl import to_dsl
from fleetlight.resources.instance import INSTANCE_FIELDS

_HEXADECIMAL = "0123456789abcdef"
# The positions of dashes in a uuid's usual form; the index rejects other forms.
_DASHES = (8, 13, 18, 23)
_DELETED = (200, 404)
_CONFLICT = 409
_encode = msgspec.json.Encoder().encode


class _Sum(msgspec.Struct):
    value: float


class _Bucket(msgspec.Struct):
    doc_count: int
    digest_high: _Sum
    digest_low: _Sum


class _Ranges(msgspec.Struct):
    buckets: dict[str, _Bucket]


class _Aggregations(msgspec.Struct):
    ranges: _Ranges


class _DigestAnswer(msgspec.Struct):
    aggregations: _Aggregations


class _Hit(msgspec.Struct):
    id: str = msgspec.field(name="_id")
    version: int = msgspec.field(name="_version", default=0)


class _Count(msgspec.Struct):
    count: int


class _Deleted(msgspec.Struct):
    status: int
    error: Cause | None = None


class _DeleteItem(msgspec.Struct):
    delete: _Deleted


class _DeleteAnswer(msgspec.Struct):
    items: list[_DeleteItem]


_DIGESTS = msgspec.json.Decoder(_DigestAnswer)
_HITS = search_decoder(_Hit)
_COUNT = msgspec.json.Decoder(_Count)
_DELETIONS = msgspec.json.Decoder(_DeleteAnswer)


def digests_body(
    cell_uuid: str, prefixes: Sequence[str], length: int, horizon: int, *, external: bool
) -> dict[str, Any]:
    """The body of a search with aggregations alone."""
    beginnings = [beginning for prefix in prefixes for beginning in _longer(prefix, length)]
    return {
        "size": 0,
        "track_total_hits": False,
        "query": _documents(cell_uuid, prefixes, horizon, external),
        "aggs": {
            "ranges": {
                "filters": {"filters": {beginning: {"prefix": {"uuid": beginning}} for beginning in beginnings}},
                "aggs": {name: {"sum": {"field": name}} for name in (DIGEST_HIGH, DIGEST_LOW)},
            }
        },
    }


def from_digests(answer: bytes) -> dict[str, RangeDigest]:
    """Digests by prefix. Sums of whole numbers below 2^53 are exact, although they come as doubles."""
    return {
        beginning: RangeDigest(bucket.doc_count, int(bucket.digest_high.value), int(bucket.digest_low.value))
        for beginning, bucket in decoded(_DIGESTS, answer).aggregations.ranges.buckets.items()
        if bucket.doc_count
    }


def revisions_body(
    cell_uuid: str, prefixes: Sequence[str], limit: int, horizon: int, *, external: bool
) -> dict[str, Any]:
    """The body of a search for ids and versions of documents whose uuid begins with a prefix, or whose id is one."""
    return {
        "size": limit,
        "track_total_hits": False,
        "_source": False,
        "version": True,
        "query": _documents(cell_uuid, prefixes, horizon, external),
    }


def from_hits(answer: bytes) -> dict[str, int]:
    """Versions by id, in the order of the answer; the id is the uuid of an instance unless the document is a copy."""
    return {hit.id: hit.version for hit in decoded(_HITS, answer).hits.hits}


def external_body(cell_uuid: str) -> dict[str, Any]:
    """The body of a count of external documents."""
    return {"query": _documents(cell_uuid, [""], 0, True)}


def from_count(answer: bytes) -> int:
    return int(decoded(_COUNT, answer).count)


def to_removal_bulk(versions: Mapping[str, int]) -> bytes:
    """The body of a bulk request that deletes documents, unless they are newer than these versions."""
    lines = [
        _encode({"delete": {"_id": uuid, "version": version, "version_type": "external_gte"}})
        for uuid, version in versions.items()
    ]
    return b"\n".join([*lines, b""])


def newer_in(answer: bytes, uuids: Sequence[str]) -> set[str]:
    """The documents that stay since they are newer, of those that a bulk request was to delete; in its order.

    Raises IndexUnavailableError or IndexRequestError if another document was not deleted.
    """
    newer: set[str] = set()
    for uuid, item in zip(uuids, decoded(_DELETIONS, answer).items, strict=True):
        status = item.delete.status
        if status == _CONFLICT:
            newer.add(uuid)
        elif status not in _DELETED:
            error = IndexUnavailableError if is_passing(status) else IndexRequestError
            raise error(f"a document was not removed: status {status}, {item.delete.error or Cause()}")
    return newer


def _longer(prefix: str, length: int) -> list[str]:
    """All prefixes of `length` characters of uuids that begin with `prefix`."""
    characters = ["-" if position in _DASHES else _HEXADECIMAL for position in range(len(prefix), length)]
    return [prefix + "".join(rest) for rest in itertools.product(*characters)]


def forgotten_documents(cell_uuid: str, horizon: int) -> dict[str, Any]:
    """The query for forgotten documents of a cell."""
    is_forgotten = to_dsl(forgotten(horizon), INSTANCE_FIELDS)
    return {"bool": {"filter": [{"term": {"cell_uuid": cell_uuid}}, is_forgotten]}}


def _documents(cell_uuid: str, prefixes: Sequence[str], horizon: int, external: bool) -> dict[str, Any]:
    version = {"range": {VERSION: {"gte" if external else "lt": OLDEST_TIME_VERSION}}}
    wanted: list[dict[str, Any]] = [{"term": {"cell_uuid": cell_uuid}}, version]
    if horizon:
        wanted.append(to_dsl(remembered(horizon), INSTANCE_FIELDS))
    if "" not in prefixes:
        # By id as well: a copy that another program has made contains another uuid.
        by_id = {"ids": {"values": list(prefixes)}}
        wanted.append({"bool": {"should": [by_id, *({"prefix": {"uuid": prefix}} for prefix in prefixes)]}})
    return {"bool": {"filter": wanted}}
