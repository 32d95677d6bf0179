"""The numbers that Elasticsearch gives to writes and to changes of an index: how many, and what has which; requests and
answers.

Each primary shard numbers its operations from 0 without holes (`_seq_no`). A stale document, a refresh or a merge takes
none. What is restored, or made anew, has another history. A shard that is allocated anew, or another copy that becomes
the primary one, goes on with the history under another term (`_primary_term`): what was not kept is gone then, and its
numbers are given anew. A node that was killed and starts goes on under the same term, with all that is on its disk.
Each change of the settings, the mapping or the aliases of an index moves a version of theirs.
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
# The logarithm of the shards that an index can be split into (calculateNumRoutingShards of the server).
_LOG_OF_MOST_SHARDS = 10
_TRIED = 24


@dataclass(frozen=True, slots=True)
class Written:
    """What a shard has given out. history: of its writes, and the term in which it goes on. count: of numbers."""

    history: str
    count: int
    term: int

    @property
    def numbering(self) -> str:
        """What numbers belong to: under another one the same numbers are those of other writes."""
        return numbering_of(self.history, self.term)


def numbering_of(history: str, term: int) -> str:
    return f"{history}/{term}"


class NumberedWrite(NamedTuple):
    """One document that was written, and the number of the write."""

    document_id: str
    term: int
    number: int


@dataclass(frozen=True, slots=True)
class Versions:
    """How often what an index is like was changed."""

    settings: int
    mapping: int
    aliases: int


@dataclass(frozen=True, slots=True)
class WrittenIndex:
    """What a physical index has given out, by the number of the shard, and its versions."""

    uuid: str
    shards: Mapping[str, Written]
    versions: Versions

    @property
    def is_new(self) -> bool:
        return not any(shard.count for shard in self.shards.values())

    def without_counts(self) -> "WrittenIndex":
        """That of an index whose writes nobody accounts for."""
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
    """What is behind some names and aliases, by the name of the physical index. Raises IndexUnavailableError.

    Two requests; what they cost does not depend on how many documents there are.
    """
    names_text = ",".join(names)
    # First: a term that ends afterwards, the next look shows.
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
    """The searchable documents whose last write has one of these numbers: ids, and the cells that they name.

    At most `limit`; what is deleted, or was written again since, is not among them.
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
    """Which shard has a document: a hash of its id, in one of so many `places`, which the shards share."""

    shards: int
    places: int

    def shard_of(self, document_id: str) -> int:
        if self.shards == 1:
            return 0
        return int(mmh3.hash(document_id.encode("utf-16-le")) % self.places // (self.places // self.shards))


def routing_of(client: Client, index: str) -> Routing:
    """That of a physical index, which never changes.

    Servers do not say into how many places they divide, which depends on their version, so some ids are tried.
    Raises IndexRequestError where a server does otherwise.
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
