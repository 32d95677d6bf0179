"""The seal of the Elasticsearch indexes: our writers never break it, and any other program does."""

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field

import pytest
from elasticsearch import Elasticsearch

from fleetlight.indexer.backends.base import CellProgress, Document, IndexWriter
from fleetlight.indexer.backends.elasticsearch.seal import ElasticsearchSeal
from fleetlight.indexer.backends.elasticsearch.writer import ElasticsearchWriter
from fleetlight.indexer.backends.opening import open_searcher, open_writer
from fleetlight.indexer.backends.seal import HELD, SEAL, Breach, Seal, SealState
from fleetlight.indexer.backends.settings import IndexSettings
from fleetlight.resources.clock import system_clock
from fleetlight.resources.indexed_items import INDEXED_ITEMS
from tests.support.fleets.documents import make_document, make_uuid
from tests.support.servers.index_server import index_at, index_client

pytestmark = pytest.mark.elasticsearch

[ITEM_TYPE] = INDEXED_ITEMS
UNTIL_TOLD = 1000.0


@dataclass
class Sealed:
    """An index with its seal. asked: what was asked about as if it came of a writer that was killed."""

    settings: IndexSettings
    writer: ElasticsearchWriter
    seal: Seal
    client: Elasticsearch
    are_right: bool = False
    asked: list[Mapping[str, Collection[str]]] = field(default_factory=list)

    def check(self, tolerance_s: float = UNTIL_TOLD) -> Breach | None:
        return self.seal.check(self._are_right, tolerance_s)

    def _are_right(self, documents: Mapping[str, Collection[str]]) -> bool:
        self.asked.append(documents)
        return self.are_right

    @property
    def held_at(self) -> int:
        """As lists know it."""
        return asyncio.run(self._read_held_at())

    async def _read_held_at(self) -> int:
        searcher = open_searcher(self.settings)
        try:
            return (await searcher.seal()).held_at or 0
        finally:
            await searcher.close()

    @property
    def refreshes(self) -> int:
        """Of the facts."""
        state = f"{self.settings.prefix}-state"
        stats = self.client.indices.stats(index=state, metric="refresh").body
        return int(stats["_all"]["primaries"]["refresh"]["external_total"])

    @property
    def instances(self) -> str:
        return f"{self.settings.prefix}-instances"


@pytest.fixture(params=[1, 3])
def sealed(request: pytest.FixtureRequest, elasticsearch_url: str, elasticsearch_prefix: str) -> Iterator[Sealed]:
    settings = index_at(elasticsearch_url, elasticsearch_prefix, shards=request.param)
    with closing(ElasticsearchWriter(settings)) as writer, closing(index_client(elasticsearch_url)) as client:
        writer.prepare()
        yield Sealed(settings, writer, writer.open_seal(system_clock), client)


def test_index_that_we_made_is_sealed(sealed: Sealed) -> None:
    before = sealed.held_at
    assert sealed.check() is None
    assert sealed.held_at > before


def test_check_that_finds_nothing_costs_no_refresh_and_lists_know_it_at_once(sealed: Sealed) -> None:
    sealed.check()
    for _ in range(3):
        before, refreshes = sealed.held_at, sealed.refreshes
        assert sealed.check() is None
        assert sealed.held_at > before
        assert sealed.refreshes == refreshes


def make_item(number: int) -> Document:
    record = {"uuid": make_uuid(number), "deleted": False, "deleted_at": None}
    return Document("c0", 1, record, (), None, ITEM_TYPE)


def write_some(writer: IndexWriter, count: int = 40, *, version: int = 5) -> None:
    writer.write([make_document(number, version=version) for number in range(count)])


def write_what_is_stale(writer: IndexWriter) -> None:
    write_some(writer)
    write_some(writer, version=3)


def remove_some(writer: IndexWriter) -> None:
    write_some(writer)
    writer.remove({make_uuid(1): 9, make_uuid(2): 1, make_uuid(999): 1})


def write_items(writer: IndexWriter) -> None:
    writer.write([make_item(number) for number in range(5)])


def remove_items(writer: IndexWriter) -> None:
    writer.write([make_item(1)])
    writer.remove_items(ITEM_TYPE, "c0", {make_uuid(1): 99})


def mark_items(writer: IndexWriter) -> None:
    for are_whole in (True, False, False):
        writer.mark_items(ITEM_TYPE, "c0", are_whole=are_whole)


def purge(writer: IndexWriter) -> None:
    writer.write([make_document(number, deleted=True, deleted_at=5, updated_at=5) for number in range(9)])
    writer.purge("c0", 10)


def remove_a_cell(writer: IndexWriter) -> None:
    write_some(writer)
    assert writer.remove_cell("c0")


def save(writer: IndexWriter) -> None:
    writer.save_progress([CellProgress("c0", 1, 1, is_complete=True)])
    writer.save_state("kind", {"name": 1})


def prepare_again(writer: IndexWriter) -> None:
    writer.prepare()


OURS = (
    write_some,
    write_what_is_stale,
    remove_some,
    write_items,
    remove_items,
    mark_items,
    purge,
    remove_a_cell,
    save,
    prepare_again,
)


@pytest.mark.parametrize("ours", OURS, ids=lambda ours: ours.__name__)
def test_what_we_write_is_accounted_for(sealed: Sealed, ours: Callable[[IndexWriter], object]) -> None:
    ours(sealed.writer)
    before = sealed.held_at
    assert sealed.check() is None
    assert sealed.held_at > before
    assert not sealed.asked
    # By another process too, when it has had the time to say so.
    with closing(open_writer(sealed.settings)) as other:
        other.prepare()
        ours(other)
    assert sealed.check() is None
    assert not sealed.asked


def restore_over_it(sealed: Sealed) -> None:
    """Another index takes its place, as one that a snapshot is restored from."""
    [name] = sealed.client.indices.get_alias(name=sealed.instances)
    aliases = sealed.client.indices.get_alias(index=name)[name]["aliases"]
    sealed.client.indices.put_settings(index=name, settings={"index.blocks.write": True})
    sealed.client.indices.clone(index=name, target=f"{name}-copy", settings={"index.blocks.write": None})
    sealed.client.indices.delete(index=name)
    sealed.client.indices.put_settings(index=f"{name}-copy", settings={"index.blocks.write": True})
    sealed.client.indices.clone(index=f"{name}-copy", target=name, settings={"index.blocks.write": None})
    sealed.client.indices.delete(index=f"{name}-copy")
    for alias in aliases:
        sealed.client.indices.put_alias(index=name, name=alias, is_write_index=alias.endswith("-write"))


def delete_one(sealed: Sealed) -> None:
    sealed.client.delete(index=sealed.instances, id=make_uuid(3), refresh=True)


def update_one(sealed: Sealed) -> None:
    sealed.client.update(index=sealed.instances, id=make_uuid(3), doc={"display_name": "changed"}, refresh=True)


def add_one(sealed: Sealed, like: str = make_uuid(3)) -> None:
    source = sealed.client.get(index=sealed.instances, id=like)["_source"]
    sealed.client.index(index=sealed.instances, id=make_uuid(77), document=source, refresh=True)


def delete_by_query(sealed: Sealed) -> None:
    query = {"terms": {"uuid": [make_uuid(number) for number in (1, 2, 3)]}}
    sealed.client.delete_by_query(index=sealed.instances, query=query, refresh=True)


def update_by_query(sealed: Sealed) -> None:
    script = {"source": "ctx._source.host = 'elsewhere'"}
    sealed.client.update_by_query(index=sealed.instances, script=script, refresh=True)


def delete_an_item(sealed: Sealed) -> None:
    sealed.client.delete(index=f"{sealed.settings.prefix}-items", id=f"{ITEM_TYPE}:c0:{make_uuid(1)}")


def point_the_alias_elsewhere(sealed: Sealed) -> None:
    sealed.client.indices.create(index=f"{sealed.instances}-other")
    sealed.client.indices.put_alias(index=f"{sealed.instances}-other", name=sealed.instances)


VANDALS = (
    delete_one,
    update_one,
    add_one,
    delete_by_query,
    update_by_query,
    delete_an_item,
    restore_over_it,
    point_the_alias_elsewhere,
)


@pytest.mark.parametrize("vandal", VANDALS, ids=lambda vandal: vandal.__name__)
def test_what_another_program_writes_is_a_breach(sealed: Sealed, vandal: Callable[[Sealed], None]) -> None:
    write_some(sealed.writer)
    sealed.writer.write([make_item(1)])
    sealed.writer.make_searchable()
    assert sealed.check() is None
    before = sealed.held_at
    vandal(sealed)
    breach = sealed.check()
    assert breach is not None
    assert sealed.held_at == before
    assert breach.id in sealed.writer.load_state(SEAL)


@pytest.mark.dialect
def test_instances_that_were_written_are_named(sealed: Sealed) -> None:
    write_some(sealed.writer)
    update_one(sealed)
    add_one(sealed)
    breach = sealed.check()
    assert breach is not None
    assert breach.uuids == frozenset({make_uuid(3), make_uuid(77)})


@pytest.mark.dialect
def test_breach_ends_when_the_index_was_compared(sealed: Sealed) -> None:
    write_some(sealed.writer)
    delete_one(sealed)
    breach = sealed.check()
    assert breach is not None
    # What comes after it was found is another one.
    add_one(sealed, make_uuid(4))
    sealed.seal.mend(breach)
    another = sealed.check()
    assert another is not None
    assert another.uuids == frozenset({make_uuid(77)})
    sealed.seal.mend(another)
    assert sealed.check() is None
    assert sealed.writer.load_state(SEAL).keys() == {HELD}


def test_breach_that_was_not_mended_is_found_by_the_next_process(sealed: Sealed) -> None:
    write_some(sealed.writer)
    update_one(sealed)
    breach = sealed.check()
    assert sealed.writer.open_seal(system_clock).check(lambda _: False, UNTIL_TOLD) == breach


@pytest.mark.dialect
def test_account_of_an_index_is_not_that_of_another_one_of_its_name(sealed: Sealed) -> None:
    sealed.writer.write([make_item(number) for number in range(9)])
    assert sealed.check() is None
    sealed.client.indices.delete(index=f"{sealed.settings.prefix}-items-v1")
    sealed.writer.prepare()
    assert sealed.check() is None
    # It gets a number that the one before had given to a writer of ours.
    source = {"item_type": ITEM_TYPE, "cell_uuid": "c0", "uuid": make_uuid(1), "version": 1, "record": {}}
    sealed.client.index(index=f"{sealed.settings.prefix}-items", id=f"{ITEM_TYPE}:c0:{make_uuid(1)}", document=source)
    assert sealed.check() is not None


@pytest.mark.parametrize("calls", range(4))
def test_process_that_wakes_after_another_one_took_over_takes_back_no_breach(sealed: Sealed, calls: int) -> None:
    """It is stopped before each of the facts that it saves, and behind the last one."""
    write_some(sealed.writer)
    found: list[Breach | None] = []

    class Stopped:
        """The state as a process sees it that is stopped before one of its calls."""

        def __init__(self) -> None:
            self.calls = 0

        def save_state(self, kind: str, values: Mapping[str, object | None]) -> None:
            if self.calls == calls:
                another_takes_over()
            self.calls += 1
            sealed.writer.save_state(kind, values)

        def save_fact(self, kind: str, name: str, value: object) -> None:
            self.save_state(kind, {name: value})

        def load_state(self, kind: str) -> Mapping[str, object]:
            return sealed.writer.load_state(kind)

        def make_searchable(self) -> None:
            sealed.writer.make_searchable()

    def another_takes_over() -> None:
        delete_one(sealed)
        found.append(sealed.check())

    writer = sealed.writer
    stopped = Stopped()
    late = ElasticsearchSeal(writer._client, writer._names, stopped, writer._account, system_clock)
    late.check(lambda _: False, UNTIL_TOLD)
    if not found:
        another_takes_over()
    [breach] = found
    assert breach is not None
    facts = {(SEAL, name): fact for name, fact in writer.load_state(SEAL).items()}
    assert breach.reason in SealState.of(facts).reasons
