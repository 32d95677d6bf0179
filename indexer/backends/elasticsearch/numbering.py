"""Reads the numbers that Elasticsearch gives to writes, and its versions of an index's properties.

Each primary shard numbers its operations from 0 without holes (`_seq_no`); stale documents, refreshes and merges take
no number. A restored or new index has another history. If a shard is allocated anew, or another copy becomes the
primary one, it continues the history under another term (`_primary_term`): writes that were not kept are gone, and
their numbers are given again. A node that was killed and restarts continues under the same term, with all that is on
its disk. Each change of settings, mapping or aliases of an index increments a version.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import mmh3
import msgspec

from fleetlight.indexer.backends.accounts import Numbers
from fleetlight.indexer.backends.elasticsearch.client import Client, send
from fleetlight.indexer.backends.elasticsearch.rows import decoded, search_decoder
from fleetlight.indexer.errors import IndexRequestError, IndexUnavailableError

_ASKED = (
    "indices.*.uuid,indices.*.shards.*.routing.primary,indices.*.shards.*.seq_no.max_seq_no,"
    "indices.*.shards.*.commit.user_data.history_uuid,_shards.failed"
)
_METADATA_ASKED = ",".join(
    f"metadata.indices.*.{each}"
    for each in ("settings.index.uuid", "mapping_version", "settings_version", "aliases_version", "primary_terms")
)
# The logarithm of the number of shards into which an index can be split (calculateNumRoutingShards of the server).
_LOG_OF_MOST_SHARDS = 10
_TRIED = 24


@dataclass(frozen=True, slots=True)
class Written:
    """What a shard has numbered. history: of its writes. count: of numbers given. term: the current one."""

    history: str
    count: int
    term: int

    @property
    def numbering(self) -> str:
        """The scope of numbers: the same numbers in another scope are other writes."""
        return numbering_of(self.history, self.term)


def numbering_of(history: str, term: int) -> str:
    return f"{history}/{term}"


class NumberedWrite(NamedTuple):
    """A document that was written, and the number of the write."""

    document_id: str
    term: int
    number: int


@dataclass(frozen=True, slots=True)
class Versions:
    """How often each property of an index was changed."""

    settings: int
    mapping: int
    aliases: int


@dataclass(frozen=True, slots=True)
class WrittenIndex:
    """What a physical index has numbered, by shard, and its versions."""

    uuid: str
    shards: Mapping[str, Written]
    versions: Versions

    @property
    def is_new(self) -> bool:
        return not any(shard.count for shard in self.shards.values())

    def without_counts(self) -> "WrittenIndex":
        """A copy for an index whose writes are not accounted for."""
        shards = {number: Written(each.history, 0, each.term) for number, each in self.shards.items()}
        return WrittenIndex(self.uuid, shards, self.versions)


class _ShardRouting(msgspec.Struct):
    primary: bool


class _UserData(msgspec.Struct):
    history_uuid: str


class _Commit(msgspec.Struct):
    user_data: _UserData


class _SeqNo(msgspec.Struct):
    max_seq_no: int


class _Shard(msgspec.Struct):
    routing: _ShardRouting
    commit: _Commit
    seq_no: _SeqNo


class _Index(msgspec.Struct):
    uuid: str
    shards: dict[str, list[_Shard]]


class _Shards(msgspec.Struct):
    failed: int = 0


class _Stats(msgspec.Struct):
    shards: _Shards = msgspec.field(name="_shards", default_factory=_Shards)
    indices: dict[str, _Index] = {}


class _UuidOfIndex(msgspec.Struct):
    uuid: str


class _SettingsOfIndex(msgspec.Struct):
    index: _UuidOfIndex


class _Metadata(msgspec.Struct):
    settings: _SettingsOfIndex
    mapping_version: int
    settings_version: int
    aliases_version: int
    primary_terms: dict[str, int]


class _AllMetadata(msgspec.Struct):
    indices: dict[str, _Metadata] = {}


class _ClusterState(msgspec.Struct):
    metadata: _AllMetadata = msgspec.field(default_factory=_AllMetadata)


class _Numbered(msgspec.Struct):
    id: str = msgspec.field(name="_id")
    source: dict[str, Any] = msgspec.field(name="_source", default_factory=dict)


class _ShardCount(msgspec.Struct):
    number_of_shards: str


class _IndexSettings(msgspec.Struct):
    index: _ShardCount


class _Settings(msgspec.Struct):
    settings: _IndexSettings


class _ShardCopy(msgspec.Struct):
    shard: int


class _SearchShards(msgspec.Struct):
    shards: list[list[_ShardCopy]]


_STATS = msgspec.json.Decoder(_Stats)
_CLUSTER_STATE = msgspec.json.Decoder(_ClusterState)
_NUMBERED = search_decoder(_Numbered)
_SETTINGS = msgspec.json.Decoder(dict[str, _Settings])
_SEARCH_SHARDS = msgspec.json.Decoder(_SearchShards)


def written(client: Client, *names: str) -> dict[str, WrittenIndex]:
    """Read the indexes behind some names and aliases, by physical name. Raises IndexUnavailableError.

    Takes two requests, whose cost does not depend on the number of documents.
    """
    names_text = ",".join(names)
    # The metadata comes first: if a term ends after it, the next look shows that.
    path = f"/_cluster/state/metadata/{names_text}?ignore_unavailable=true&filter_path={_METADATA_ASKED}"
    state: _ClusterState = decoded(_CLUSTER_STATE, send(client, "GET", path))
    path = f"/{names_text}/_stats?level=shards&ignore_unavailable=true&filter_path={_ASKED}"
    stats: _Stats = decoded(_STATS, send(client, "GET", path))
    if stats.shards.failed:
        raise IndexUnavailableError(f"{stats.shards.failed} shards do not say how many writes they have numbered")
    return {name: _written(name, index, state.metadata.indices.get(name)) for name, index in stats.indices.items()}


def _written(name: str, index: _Index, metadata: _Metadata | None) -> WrittenIndex:
    if metadata is None or metadata.settings.index.uuid != index.uuid:
        raise IndexUnavailableError(f"the index {name} is just being made")
    versions = Versions(metadata.settings_version, metadata.mapping_version, metadata.aliases_version)
    return WrittenIndex(index.uuid, dict(_primaries(index, metadata.primary_terms)), versions)


def _primaries(index: _Index, terms: Mapping[str, int]) -> Iterator[tuple[str, Written]]:
    for number, copies in index.shards.items():
        for copy in copies:
            if copy.routing.primary:
                yield number, Written(copy.commit.user_data.history_uuid, copy.seq_no.max_seq_no + 1, terms[number])


def numbered(client: Client, index: str, shard: str, numbers: Numbers, limit: int) -> list[tuple[str, str]]:
    """Ids and cells of the searchable documents whose last write has one of these numbers.

    At most `limit`. Documents that were deleted or written again since are not found.
    """
    ranges = [{"range": {"_seq_no": {"gte": begin, "lt": end}}} for begin, end in numbers.ranges]
    body = {
        "size": limit,
        "track_total_hits": False,
        "_source": ["cell_uuid"],
        "query": {"bool": {"should": ranges, "minimum_should_match": 1}},
    }
    path = f"/{index}/_search?preference=_shards:{shard}&allow_partial_search_results=false"
    hits = decoded(_NUMBERED, send(client, "POST", path, body)).hits.hits
    return [(hit.id, str(hit.source.get("cell_uuid"))) for hit in hits]


@dataclass(frozen=True, slots=True)
class Routing:
    """Which shard has a document: the hash of its id selects one of `places`, which the shards divide evenly."""

    shards: int
    places: int

    def shard_of(self, document_id: str) -> int:
        if self.shards == 1:
            return 0
        return int(mmh3.hash(document_id.encode("utf-16-le")) % self.places // (self.places // self.shards))


def routing_of(client: Client, index: str) -> Routing:
    """The routing of a physical index, which never changes.

    The number of places depends on the server's version, which does not tell it, so some ids are tried.
    Raises IndexRequestError if the server routes in an unknown way.
    """
    [found] = decoded(_SETTINGS, send(client, "GET", f"/{index}/_settings/index.number_of_shards")).values()
    shards = int(found.settings.index.number_of_shards)
    if shards == 1:
        return Routing(1, 1)
    tried = {str(number): _asked_shard(client, index, str(number)) for number in range(_TRIED)}
    for places in (shards, shards << max(1, _LOG_OF_MOST_SHARDS - (shards - 1).bit_length())):
        routing = Routing(shards, places)
        if all(routing.shard_of(each) == shard for each, shard in tried.items()):
            return routing
    raise IndexRequestError(f"the server routes documents of {index} to its shards in another way than is known")


def _asked_shard(client: Client, index: str, document_id: str) -> int:
    answer = send(client, "GET", f"/{index}/_search_shards?routing={document_id}&filter_path=shards.shard")
    [[copy, *_]] = decoded(_SEARCH_SHARDS, answer).shards
    return int(copy.shard)
