"""Counts of documents by the values of their fields: the body of the search, and its answer; pure."""

from collections.abc import Mapping
from typing import Any

import msgspec

from fleetlight.indexer.backends.base import counts_by_cell
from fleetlight.indexer.backends.elasticsearch.rows import decoded
from fleetlight.query.counts import CountRequest, Counts


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
    """The body of a search. wanted: the query for the documents that are counted.

    One page of a composite aggregation, which is exact where `terms` guesses: what is counted is of one moment.
    """
    cell = {"cell_uuid": {"terms": {"field": "cell_uuid"}}}
    values = [{f"by_{name}": {"terms": {"field": name, "missing_bucket": True}}} for name in request.by]
    groups = {"composite": {"size": request.max_groups + 1, "sources": [cell, *values]}}
    return {"size": 0, "track_total_hits": False, "query": wanted, "aggs": {"groups": groups}}


def counts_in(answer: bytes, request: CountRequest) -> dict[str, Counts]:
    """By the uuid of the cell. Raises IndexRequestError."""
    buckets = decoded(_ANSWER, answer).aggregations.groups.buckets
    names = [f"by_{name}" for name in request.by]
    found = ((each.key["cell_uuid"], tuple(each.key[name] for name in names), each.doc_count) for each in buckets)
    return counts_by_cell(found, request.max_groups)
