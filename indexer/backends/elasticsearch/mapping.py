"""The Elasticsearch mapping of an instance document, derived from the field definitions; pure.

A document has the fields of a record under their own names, without nulls, the cell, two numbers made of the uuid, the
keys of nice orders, the version and its digest (fleetlight.cells.digests), and the stored view. The mapping is strict:
a document with a field that is not defined here is rejected, with the name of the field.

Text is a `keyword` without `ignore_above`: a value longer than Lucene's 32,766 bytes gets the document rejected.
Ignoring such a value would keep the document, but filters would miss it and its place in the order would be wrong.
"""

from collections.abc import Mapping
from typing import Any

from fleetlight.query.to_dsl import NICE_KEYS, UUID_PARTS
from fleetlight.resources.fields import Field, Kind
from fleetlight.resources.instance import INSTANCE_FIELDS
from fleetlight.views.compute.view import PIECE_NAMES

MAPPING_VERSION = 9
"""Kept in the index, which a program with a lower number refuses to write to.

1  first version
2  + version, digest_high, digest_low: documents can be compared with their cell
3  the view is one text in segments; of an instance with a revision, fields that can only be read are not kept
4  + extra, extra_terms, extra_fields: what newer producers say can be searched for
5  the whole record is kept of every instance
6  + display_name_nice, node_nice: lists in nice order
7  + forthcoming, ganeti: reservations, and what only Ganeti has words for
8  + a check of the view, whose pieces are cut
9  + memory_mb, vcpus, disk_usage: lists in their order
"""
OLDEST_MAPPING_VERSION = 9
"""Indexes with older mappings cannot be read as they are, or not be sorted in every order."""
VERSION, DIGEST_HIGH, DIGEST_LOW = ("version", "digest_high", "digest_low")
EXTRA_TERMS, EXTRA_FIELDS = "extra_terms", "extra_fields"
CONTINUES = "continues"
"""The key in `_meta` of an index that a rebuild filled: the uuid of the index that it replaced."""
ABOUT = "index_uuid"
"""The key in `_meta` of the index of facts: the uuid of the index of instances that they are about."""
INDEX_UUID, STATE_UUID = "index_uuid", "state_uuid"
CHECK = "check"
"""Of a progress or a fact: what shows that a writer of ours has written it."""
"""Of a progress: which index of instances it is about, and beside which facts."""
# Documents without a creation time sort last, as everywhere in descending order (fleetlight.query.sort).
_DEFAULT_ORDER = (("created_at", "desc", "_last"), *((part, "asc", "_last") for part in UUID_PARTS))

_TYPES: dict[Kind, dict[str, Any]] = {
    Kind.TEXT: {"type": "keyword"},
    Kind.BOOL: {"type": "boolean"},
    Kind.NUMBER: {"type": "long"},
    Kind.UNIT: {"type": "long", "meta": {"unit": "MiB"}},
    Kind.FLOAT: {"type": "double"},
    Kind.TIMESTAMP: {"type": "long", "meta": {"unit": "micros"}},
}
_LIST = {"type": "keyword"}
OWN_SETTINGS: Mapping[str, Any] = {
    "default_pipeline": "_none",
    "final_pipeline": "_none",
    "gc_deletes": "0s",
    "hidden": False,
    "mapping": {"coerce": False, "ignore_malformed": False},
    "max_regex_length": 1000,
    "max_result_window": 10_000,
    "max_terms_count": 65_536,
    "refresh_interval": "-1",
    "translog": {"durability": "request"},
}
"""The `settings` of each of our indexes.

All settings that decide how documents are stored, or what a search finds, are set explicitly, although most have the
server's default value: a site's template may change those. Numbers are not coerced, since `"1"` in a number field is a
mistake of the writer. The server does not refresh by itself, since the indexer must know what is searchable
(docs/decisions/0001). Deletions are forgotten at the next refresh, so that documents of any version can be written in
place of deleted ones; deleted instances are not deletions, but documents that say so.
"""
_NOT_INDEXED = {"type": "object", "enabled": False}
_UNSEARCHED = {"type": "long", "index": False}


def is_usable(version: int) -> bool:
    """Whether this program can use an index with this mapping version, after adding missing fields."""
    return OLDEST_MAPPING_VERSION <= version <= MAPPING_VERSION


def instance_mapping() -> dict[str, Any]:
    """The `mappings` of an index of instances."""
    return {
        "dynamic": "strict",
        "_meta": {"mapping_version": MAPPING_VERSION, "pieces": list(PIECE_NAMES)},
        "properties": {
            **{field.name: _field_mapping(field) for field in INSTANCE_FIELDS.values()},
            "cell_uuid": {"type": "keyword"},
            **{part: {"type": "long"} for part in UUID_PARTS},
            **{key: {"type": "keyword", "index": False} for key in NICE_KEYS.values()},
            VERSION: {"type": "long"},
            **dict.fromkeys((DIGEST_HIGH, DIGEST_LOW), _UNSEARCHED),
            "view": _NOT_INDEXED,
            "extra": _NOT_INDEXED,
            EXTRA_TERMS: {"type": "keyword"},
            EXTRA_FIELDS: {"type": "keyword"},
        },
    }


def progress_mapping(instances_index: str) -> dict[str, Any]:
    """The `mappings` of the index with the progress of each cell in `instances_index`."""
    return {
        "dynamic": "strict",
        "_meta": {"instances_index": instances_index},
        "properties": {
            "watermark": {"type": "long"},
            "fresh_as_of": {"type": "long", "meta": {"unit": "micros"}},
            "is_complete": {"type": "boolean"},
            INDEX_UUID: {"type": "keyword"},
            STATE_UUID: {"type": "keyword"},
            CHECK: _UNSEARCHED,
        },
    }


def state_mapping() -> dict[str, Any]:
    """The `mappings` of the index with facts about work on the index (IndexWriter.save_state)."""
    return {
        "dynamic": "strict",
        "properties": {
            "kind": {"type": "keyword"},
            "name": {"type": "keyword"},
            "value": _NOT_INDEXED,
            CHECK: _UNSEARCHED,
        },
    }


def items_mapping() -> dict[str, Any]:
    """The `mappings` of the index of items other than instances."""
    keyword, number = {"type": "keyword"}, {"type": "long"}
    properties = {
        "item_type": keyword,
        "cell_uuid": keyword,
        "uuid": keyword,
        "version": number,
        "deleted_at": number,
        "record": _NOT_INDEXED,
    }
    return {"dynamic": "strict", "properties": properties}


def index_settings() -> dict[str, Any]:
    """The `settings` of an index of instances, except its size.

    The index is sorted at write time by the default order of lists, so that a page costs the same at any size of the
    fleet and any depth.
    """
    fields, orders, missing = zip(*_DEFAULT_ORDER, strict=True)
    return {**OWN_SETTINGS, "sort": {"field": fields, "order": orders, "missing": missing}}


def sizes(*, shards: int, replicas: int | None) -> dict[str, Any]:
    """The `settings` for the numbers of shards and replicas."""
    return {"number_of_shards": shards, **copies(replicas)}


def copies(replicas: int | None) -> dict[str, Any]:
    return {"auto_expand_replicas": "0-1"} if replicas is None else {"number_of_replicas": replicas}


def _field_mapping(field: Field) -> dict[str, Any]:
    if field.is_list:
        return _LIST
    return _TYPES.get(field.kind, _NOT_INDEXED)
