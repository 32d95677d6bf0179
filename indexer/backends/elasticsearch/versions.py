"""Indexes with mappings that this program cannot use: how they are recognised, and what can be read from them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from fleetlight.indexer.backends.base import BareDocument, is_time
from fleetlight.indexer.backends.elasticsearch.client import Client, send
from fleetlight.indexer.backends.elasticsearch.mapping import MAPPING_VERSION, OLDEST_MAPPING_VERSION, is_usable
from fleetlight.indexer.errors import IndexVersionError

_BATCH = 500
_decode = msgspec.json.Decoder().decode


def mapping_version(mapping: Mapping[str, Any]) -> int:
    """The version in the `mappings` of an index of instances; 0 if there is none."""
    return int(mapping.get("_meta", {}).get("mapping_version", 0))


def is_unusable(mapping: Mapping[str, Any]) -> bool:
    return not is_usable(mapping_version(mapping))


def require_usable(mappings: Mapping[str, Mapping[str, Any]]) -> None:
    """Check mappings by physical index. Raises IndexVersionError for one that this program cannot use."""
    for name, mapping in mappings.items():
        if is_unusable(mapping):
            raise IndexVersionError(name, mapping_version(mapping), OLDEST_MAPPING_VERSION, MAPPING_VERSION)


def bare_documents(client: Client, index: str, cell_uuid: str) -> Iterator[Sequence[BareDocument]]:
    """Generations.bare_documents (fleetlight.indexer.backends.base), with uuid, cell and version, as of any mapping."""
    send(client, "POST", f"/{index}/_refresh")
    body: dict[str, Any] = {
        "size": _BATCH,
        "track_total_hits": False,
        "version": True,
        "_source": {"excludes": ["view"]},
        "query": {"bool": {"filter": [{"term": {"cell_uuid": cell_uuid}}]}},
        "sort": [{"uuid": "asc"}],
    }
    while True:
        path = f"/{index}/_search?allow_partial_search_results=false"
        hits = _decode(send(client, "POST", path, body))["hits"]["hits"]
        yield [
            BareDocument(hit["_version"], hit["_source"])
            for hit in hits
            # The first mapping had no searchable field for this.
            if is_time(hit["_version"])
        ]
        if len(hits) < _BATCH:
            return
        body["search_after"] = hits[-1]["sort"]
