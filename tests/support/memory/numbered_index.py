"""Shards in memory that number writes as those of Elasticsearch do, and the state of the index beside them."""

from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import msgspec

from fleetlight.indexer.backends.accounts import Numbers
from fleetlight.indexer.backends.elasticsearch.documents import Kept
from fleetlight.indexer.backends.elasticsearch.numbering import NumberedWrite, Routing, Versions, Written, WrittenIndex

CELL = "c0"


def _new_id() -> str:
    return uuid4().hex


@dataclass(frozen=True, slots=True)
class Write:
    """One that has a number. is_ours: of a writer of ours, not of another program."""

    document_id: str
    removes: bool
    is_ours: bool


@dataclass
class Shard:
    """writes: by their numbers. documents: the number of the write that each is of."""

    history: str = field(default_factory=_new_id)
    term: int = 1
    writes: list[Write] = field(default_factory=list)
    documents: dict[str, int] = field(default_factory=dict)

    @property
    def written(self) -> Written:
        return Written(self.history, len(self.writes), self.term)

    def write(self, write: Write) -> NumberedWrite:
        number = len(self.writes)
        self.writes.append(write)
        self.documents.pop(write.document_id, None)
        if not write.removes:
            self.documents[write.document_id] = number
        return NumberedWrite(write.document_id, self.term, number)

    def start_again(self, lost: int) -> None:
        """Without the last writes, which were not kept."""
        self.term += 1
        kept = self.writes[: len(self.writes) - lost]
        self.writes, self.documents = [], {}
        for write in kept:
            self.write(write)


@dataclass
class PhysicalIndex:
    """name: stays when it is restored; the uuid does not."""

    name: str
    shards: list[Shard]
    uuid: str = field(default_factory=_new_id)
    versions: Versions = field(default_factory=lambda: Versions(1, 1, 1))

    @property
    def routing(self) -> Routing:
        return Routing(len(self.shards), len(self.shards))

    def write(self, write: Write) -> tuple[int, NumberedWrite]:
        """The shard, and the number that it gave."""
        shard = self.routing.shard_of(write.document_id)
        return shard, self.shards[shard].write(write)

    def restored(self) -> "PhysicalIndex":
        """As it comes back of a snapshot that is taken now."""
        shards = [Shard(writes=list(each.writes), documents=dict(each.documents)) for each in self.shards]
        return PhysicalIndex(self.name, shards)

    @property
    def written(self) -> WrittenIndex:
        shards = {str(number): each.written for number, each in enumerate(self.shards)}
        return WrittenIndex(self.uuid, shards, self.versions)


class NumberedIndex:
    """Physical indexes behind aliases, and what fleetlight.indexer.backends.elasticsearch.seal needs of a writer.

    A search finds what was there when `make_searchable` was called last. absent: shards of indexes with several that
    do not answer.
    """

    def __init__(self) -> None:
        self.physical: dict[str, PhysicalIndex] = {}
        self.aliases: dict[str, str] = {}
        self.absent: frozenset[str] = frozenset()
        self._state: dict[str, dict[str, bytes]] = {}
        self._searchable: dict[str, PhysicalIndex] = {}

    def create(self, name: str, shards: int, *aliases: str) -> None:
        self.physical[name] = PhysicalIndex(name, [Shard() for _ in range(shards)])
        self.aliases |= dict.fromkeys(aliases, name)

    def behind(self, alias: str) -> PhysicalIndex:
        return self.physical[self.aliases.get(alias, alias)]

    def save_state(self, kind: str, values: Mapping[str, object | None]) -> None:
        facts = self._state.setdefault(kind, {})
        for name, value in values.items():
            if value is None:
                facts.pop(name, None)
            else:
                facts[name] = msgspec.json.encode(value)

    def save_fact(self, kind: str, name: str, value: object) -> None:
        self.save_state(kind, {name: value})

    def load_state(self, kind: str) -> Mapping[str, Any]:
        return {name: msgspec.json.decode(value) for name, value in self._state.get(kind, {}).items()}

    def load_kept(self) -> Kept:
        return Kept({(kind, name): value for kind in self._state for name, value in self.load_state(kind).items()}, ())

    def remove_altered(self, kept: Kept) -> None:
        """Nobody alters facts."""

    def put_right(self, *names: str) -> None:
        """What it is like nobody changes."""

    def make_searchable(self) -> None:
        self._searchable = deepcopy(self.physical)

    def written(self, _client: object, *names: str) -> dict[str, WrittenIndex]:
        """As fleetlight.indexer.backends.elasticsearch.numbering.written."""
        found = {self.aliases.get(name, name) for name in names} & self.physical.keys()
        return {name: self._there(self.physical[name].written) for name in sorted(found)}

    def _there(self, index: WrittenIndex) -> WrittenIndex:
        there = index.shards.keys() - self.absent if len(index.shards) > 1 else index.shards.keys()
        return WrittenIndex(index.uuid, {number: index.shards[number] for number in sorted(there)}, index.versions)

    def numbered(self, _client: object, index: str, shard: str, numbers: Numbers, limit: int) -> list[tuple[str, str]]:
        """As fleetlight.indexer.backends.elasticsearch.numbering.numbered."""
        documents = self._searchable[index].shards[int(shard)].documents
        wanted = set(numbers)
        return [(uuid, CELL) for uuid, number in documents.items() if number in wanted][:limit]

    def all_writes(self) -> Iterator[tuple[PhysicalIndex, int, int, Write]]:
        """With the index, the shard and the number of each."""
        for index in self.physical.values():
            for place, shard in enumerate(index.shards):
                for number, write in enumerate(shard.writes):
                    yield index, place, number, write
