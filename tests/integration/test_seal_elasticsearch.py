"""The seal of the Elasticsearch indexes: our writers never break it, and any other program does."""

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import pytest
from elasticsearch import Elasticsearch

from fleetlight.indexer.backends.base import (
    EPOCHS,
    HORIZONS,
    REPAIRS,
    CellProgress,
    Document,
    IndexWriter,
    PartlyWrittenError,
)
from fleetlight.indexer.backends.elasticsearch.documents import Kept
from fleetlight.indexer.backends.elasticsearch.generations import ElasticsearchGenerations
from fleetlight.indexer.backends.elasticsearch.names import Names
from fleetlight.indexer.backends.elasticsearch.seal import ACCOUNTS, SEALED, ElasticsearchSeal
from fleetlight.indexer.backends.elasticsearch.shape import deviating
from fleetlight.indexer.backends.elasticsearch.writer import ElasticsearchWriter
from fleetlight.indexer.backends.opening import examine_index, open_searcher, open_writer
from fleetlight.indexer.backends.seal import HELD, SEAL, Breach, Seal, SealState
from fleetlight.indexer.backends.settings import IndexSettings
from fleetlight.indexer.errors import IndexRequestError, IndexUnavailableError
from fleetlight.resources.clock import system_clock
from fleetlight.resources.indexed_items import INDEXED_ITEMS
from tests.support.fleets.documents import make_document, make_uuid
from tests.support.servers.index_server import index_at, index_client
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.night, pytest.mark.elasticsearch]

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

    def progress(self) -> Mapping[str, CellProgress]:
        """As lists know it."""
        return asyncio.run(self._read_progress())

    async def _read_progress(self) -> Mapping[str, CellProgress]:
        searcher = open_searcher(self.settings)
        try:
            return await searcher.progress()
        finally:
            await searcher.close()

    def alter(self, index: str, document_id: str, statement: str) -> None:
        """statement: of a script, about a field of the document."""
        script = {"source": f"ctx._source.{statement}"}
        name = f"{self.settings.prefix}-{index}"
        self.client.update(index=name, id=document_id, script=script, refresh=True, retry_on_conflict=20)

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

    @property
    def items(self) -> str:
        return f"{self.settings.prefix}-items"

    @property
    def deviations(self) -> Mapping[str, object]:
        """Of what our indexes are like."""
        names = Names.of(self.settings.prefix)
        return deviating(self.writer._client, names, *names.all)

    def _problems(self) -> list[str]:
        """What doctor says of this index; the health of the cluster is that of the indexes of other tests, too."""
        problems = examine_index(self.settings, 30).problems
        return [problem.says for problem in problems if not problem.says.startswith("the cluster is")]

    def break_by(self, vandal: "Callable[[Sealed], None]") -> Breach:
        write_some(self.writer)
        self.writer.write([make_item(1)])
        self.writer.make_searchable()
        assert self.check() is None
        before = self.held_at
        vandal(self)
        problems = self._problems()
        found: list[Breach | None] = []
        wait_until(lambda: self._has_looked(found), timeout_s=30)
        [breach] = found
        assert breach is not None
        assert bool(problems) == (vandal not in UNSEEN_BY_DOCTOR)
        assert not self._problems()
        assert self.held_at == before
        assert breach.id in self.writer.load_state(SEAL)
        assert not self.deviations
        return breach

    def _has_looked(self, found: list[Breach | None]) -> bool:
        """Not while a shard that starts again says nothing."""
        try:
            found.append(self.check())
        except IndexUnavailableError:
            return False
        return True

    def set(self, index: str, **settings: object) -> None:
        self.client.indices.put_settings(index=index, settings={"index": settings})

    def add_alias(self, alias: str, **options: object) -> None:
        [name] = self.client.indices.get_alias(name=alias)
        self.client.indices.update_aliases(actions=[{"add": {"index": name, "alias": alias, **options}}])

    def shadow(self, index: str, name: str, field_type: str, script: str) -> None:
        runtime = {name: {"type": field_type, "script": {"source": script}}}
        self.client.indices.put_mapping(index=index, runtime=runtime)


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


def filter_the_alias(sealed: Sealed) -> None:
    sealed.add_alias(sealed.instances, filter={"term": {"cell_uuid": "another"}})


def route_the_alias(sealed: Sealed) -> None:
    sealed.add_alias(f"{sealed.instances}-write", routing="elsewhere", is_write_index=True)


def filter_the_items(sealed: Sealed) -> None:
    sealed.add_alias(sealed.items, filter={"term": {"cell_uuid": "another"}}, is_write_index=True)


def shadow_a_field(sealed: Sealed) -> None:
    sealed.shadow(sealed.instances, "deleted", "boolean", "emit(true)")


def shadow_progress(sealed: Sealed) -> None:
    sealed.shadow(f"{sealed.settings.prefix}-progress", "index_uuid", "keyword", "emit('x')")


def shadow_facts(sealed: Sealed) -> None:
    """What has been found to be wrong is among them."""
    sealed.shadow(f"{sealed.settings.prefix}-state", "kind", "keyword", "emit('x')")


def take_any_field(sealed: Sealed) -> None:
    sealed.client.indices.put_mapping(index=sealed.instances, dynamic="true")


def alter_by_pipeline(sealed: Sealed) -> None:
    sealed.set(sealed.instances, final_pipeline="anything")


def alter_by_pipeline_for_a_moment(sealed: Sealed) -> None:
    alter_by_pipeline(sealed)
    sealed.set(sealed.instances, final_pipeline="_none")


def alter_items_by_pipeline(sealed: Sealed) -> None:
    sealed.set(sealed.items, default_pipeline="anything")


def alter_progress_by_pipeline(sealed: Sealed) -> None:
    sealed.set(f"{sealed.settings.prefix}-progress", default_pipeline="anything")


def keep_writes_later(sealed: Sealed) -> None:
    sealed.set(sealed.instances, **{"translog.durability": "async"})


def show_few(sealed: Sealed) -> None:
    sealed.set(sealed.instances, max_result_window=5, max_terms_count=2)


def close_and_open(sealed: Sealed) -> None:
    sealed.client.indices.close(index=sealed.instances)
    sealed.client.indices.open(index=sealed.instances)
    sealed.client.cluster.health(index=sealed.instances, wait_for_status="yellow")


def start_again(sealed: Sealed) -> None:
    """Under another term, as a copy that takes over: what it has not kept is gone, and its numbers are given anew."""
    [[shard, *_], *_] = sealed.client.search_shards(index=sealed.instances)["shards"]
    place = {name: shard[name] for name in ("index", "shard", "node")}
    sealed.client.cluster.reroute(commands=[{"cancel": {**place, "allow_primary": True}}])
    sealed.client.cluster.health(index=sealed.instances, wait_for_status="yellow")


SHAPES = (
    filter_the_alias,
    route_the_alias,
    filter_the_items,
    take_any_field,
    alter_by_pipeline,
    alter_by_pipeline_for_a_moment,
    alter_items_by_pipeline,
    alter_progress_by_pipeline,
    keep_writes_later,
    show_few,
    close_and_open,
    start_again,
)
# What is over: only the versions show it.
UNSEEN_BY_DOCTOR = (alter_by_pipeline_for_a_moment, close_and_open, start_again)
OF_ELASTICSEARCH_ALONE = (shadow_a_field, shadow_progress, shadow_facts)
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
@pytest.mark.parametrize("vandal", SHAPES, ids=lambda vandal: vandal.__name__)
def test_what_another_program_makes_of_the_index_is_a_breach_and_is_put_right(
    sealed: Sealed, vandal: Callable[[Sealed], None]
) -> None:
    breach = sealed.break_by(vandal)
    # What was written last is the same, or older than its cell has it.
    assert breach.uuids == (frozenset() if vandal is start_again else None)
    sealed.seal.mend(breach)
    before = sealed.held_at
    assert sealed.check() is None
    assert sealed.held_at > before
    write_some(sealed.writer, version=9)
    assert sealed.check() is None
    assert not sealed.deviations


@pytest.mark.parametrize("vandal", OF_ELASTICSEARCH_ALONE, ids=lambda vandal: vandal.__name__)
def test_field_that_a_script_makes_is_a_breach_and_is_taken_away(
    sealed: Sealed, vandal: Callable[[Sealed], None]
) -> None:
    test_what_another_program_makes_of_the_index_is_a_breach_and_is_put_right(sealed, vandal)


KEPT: Mapping[str, Mapping[str, object]] = {HORIZONS: {"c0": 1000}, EPOCHS: {"c0": "epoch"}, REPAIRS: {"c1": True}}


def raise_the_moment(sealed: Sealed) -> None:
    sealed.alter("progress", "c0", "fresh_as_of += 1000")


def raise_the_watermark(sealed: Sealed) -> None:
    sealed.alter("progress", "c0", "watermark = 99")


def call_a_cell_complete(sealed: Sealed) -> None:
    sealed.alter("progress", "c1", "is_complete = true")


def say_nonsense(sealed: Sealed) -> None:
    sealed.alter("progress", "c0", "watermark = null")


def copy_the_progress(sealed: Sealed) -> None:
    source = sealed.client.get(index=f"{sealed.settings.prefix}-progress", id="c0")["_source"]
    sealed.client.index(index=f"{sealed.settings.prefix}-progress", id="c1", document=source, refresh=True)


def lower_the_horizon(sealed: Sealed) -> None:
    sealed.alter("state", f"{HORIZONS}:c0", "value.json = 1")


def change_the_epoch(sealed: Sealed) -> None:
    sealed.alter("state", f"{EPOCHS}:c0", "value.json = 'another'")


def call_a_suspected_cell_right(sealed: Sealed) -> None:
    sealed.alter("state", f"{REPAIRS}:c1", "name = 'another'")


def change_what_is_sealed(sealed: Sealed) -> None:
    [name, *_] = sealed.writer.load_state(SEALED)
    sealed.alter("state", f"{SEALED}:{name}", "value.json.uuid = 'x'")


def change_an_account(sealed: Sealed) -> None:
    [writer] = sealed.writer.load_state(ACCOUNTS)
    sealed.alter("state", f"{ACCOUNTS}:{writer}", "value.json.reports = 0")


def remove_the_horizon(sealed: Sealed) -> None:
    sealed.client.delete(index=f"{sealed.settings.prefix}-state", id=f"{HORIZONS}:c0", refresh=True)


def put_an_earlier_horizon_back(sealed: Sealed) -> None:
    index = f"{sealed.settings.prefix}-state"
    before = sealed.client.get(index=index, id=f"{HORIZONS}:c0")["_source"]
    sealed.writer.save_state(HORIZONS, {"c0": 2000})
    assert sealed.check() is None
    sealed.client.index(index=index, id=f"{HORIZONS}:c0", document=before, refresh=True)


def remove_a_suspicion(sealed: Sealed) -> None:
    sealed.client.delete(index=f"{sealed.settings.prefix}-state", id=f"{REPAIRS}:c1", refresh=True)


def remove_all_facts(sealed: Sealed) -> None:
    index = f"{sealed.settings.prefix}-state"
    sealed.client.delete_by_query(index=index, query={"match_all": {}}, refresh=True, conflicts="proceed")


READ_BY_LISTS = (raise_the_moment, raise_the_watermark, call_a_cell_complete, say_nonsense, copy_the_progress)
REMOVED = (remove_the_horizon, put_an_earlier_horizon_back, remove_a_suspicion, remove_all_facts)
OF_FACTS = (lower_the_horizon, change_the_epoch, call_a_suspected_cell_right, change_what_is_sealed, change_an_account)


@pytest.mark.dialect
@pytest.mark.parametrize("vandal", [*READ_BY_LISTS, *OF_FACTS, *REMOVED], ids=lambda vandal: vandal.__name__)
def test_what_another_program_makes_of_progress_and_facts_is_a_breach_and_is_put_right(
    sealed: Sealed, vandal: Callable[[Sealed], None]
) -> None:
    saved = [CellProgress("c0", 7, 1, is_complete=True), CellProgress("c1", 7, 1, is_complete=False)]
    write_some(sealed.writer)
    sealed.writer.save_progress(saved)
    for kind, values in KEPT.items():
        sealed.writer.save_state(kind, values)
    assert sealed.check() is None
    before = sealed.held_at
    vandal(sealed)
    if vandal in READ_BY_LISTS:
        # At once: lists ask the cell.
        cell = "c1" if vandal in (call_a_cell_complete, copy_the_progress) else "c0"
        assert cell not in sealed.progress()
        assert cell not in sealed.writer.load_progress()
    elif vandal in (lower_the_horizon, change_the_epoch):
        assert not sealed.progress()["c0"].is_complete
    breach = sealed.check()
    assert breach is not None
    assert not any(cell.is_complete for cell in sealed.progress().values())
    if vandal is not remove_all_facts:
        assert sealed.held_at <= max(before, sealed.seal.held_at)
    sealed.writer.save_progress(saved)
    assert sealed.writer.load_progress() == {cell.cell_uuid: cell for cell in saved}
    for kind, values in KEPT.items():
        later = {"c0": 2000} if (vandal, kind) == (put_an_earlier_horizon_back, HORIZONS) else values
        assert sealed.writer.load_state(kind) == later
    sealed.seal.mend(breach)
    assert sealed.check() is None
    assert sealed.held_at > before
    assert sealed.progress()["c0"].is_complete


@pytest.mark.dialect
def test_moment_of_the_seal_that_another_program_has_raised_is_not_believed(sealed: Sealed) -> None:
    sealed.writer.save_progress([CellProgress("c0", 7, system_clock(), is_complete=True)])
    assert sealed.check() is None
    assert sealed.progress()["c0"].is_complete
    sealed.alter("state", f"{SEAL}:{HELD}", "value.json += 3600000000L")
    assert not sealed.progress()["c0"].is_complete


@pytest.mark.dialect
def test_horizon_that_was_removed_while_nobody_looked_is_put_back(sealed: Sealed) -> None:
    sealed.writer.save_state(HORIZONS, {"c0": 1000})
    assert sealed.check() is None
    remove_the_horizon(sealed)
    seal = sealed.writer.open_seal(system_clock)
    assert seal.check(lambda _: False, UNTIL_TOLD) is not None
    assert sealed.writer.load_state(HORIZONS) == {"c0": 1000}


@pytest.mark.dialect
def test_horizon_that_nobody_knows_any_more_has_lists_ask_the_cell_for_all_that_is_deleted(sealed: Sealed) -> None:
    sealed.writer.save_state(HORIZONS, {"c0": 1000})
    before = system_clock()
    lower_the_horizon(sealed)
    assert sealed.check() is not None
    assert sealed.writer.load_state(HORIZONS)["c0"] >= before


@pytest.mark.dialect
def test_facts_that_we_forget_break_no_seal(sealed: Sealed) -> None:
    for kind, values in KEPT.items():
        sealed.writer.save_state(kind, values)
    assert sealed.check() is None
    for kind, values in KEPT.items():
        forgotten: dict[str, object | None] = dict.fromkeys(values)
        sealed.writer.save_state(kind, forgotten)
        assert sealed.writer.load_state(kind) == {}
    assert sealed.check() is None


@pytest.mark.dialect
def test_what_was_to_be_kept_later_is_kept_before_the_seal_is_made_anew(sealed: Sealed) -> None:
    """A node that is killed afterwards loses nothing that was compared."""
    assert sealed.check() is None
    sealed.set(sealed.instances, **{"translog.durability": "async", "translog.sync_interval": "60s"})
    write_some(sealed.writer)
    assert sealed.check() is not None
    [stats] = sealed.client.indices.stats(index=sealed.instances, level="shards")["indices"].values()
    for [shard] in stats["shards"].values():
        assert int(shard["commit"]["user_data"]["max_seq_no"]) == shard["seq_no"]["max_seq_no"]


def test_document_that_a_pipeline_drops_is_not_written(sealed: Sealed) -> None:
    """The next look puts right what drops it."""
    pipeline = f"{sealed.settings.prefix}-drop"
    sealed.client.ingest.put_pipeline(id=pipeline, processors=[{"drop": {}}])
    sealed.set(sealed.instances, final_pipeline=pipeline)
    with pytest.raises(PartlyWrittenError, match="dropped") as raised:
        write_some(sealed.writer, 3)
    assert (raised.value.result.applied, len(raised.value.remaining)) == (0, 3)
    assert sealed.check() is not None
    sealed.client.ingest.delete_pipeline(id=pipeline)
    write_some(sealed.writer, 3)
    assert len(sealed.writer.read([make_uuid(number) for number in range(3)])) == 3


def test_progress_and_facts_that_a_pipeline_drops_are_not_saved(sealed: Sealed) -> None:
    pipeline = f"{sealed.settings.prefix}-drop"
    sealed.client.ingest.put_pipeline(id=pipeline, processors=[{"drop": {}}])
    for name in ("progress", "state"):
        sealed.set(f"{sealed.settings.prefix}-{name}", final_pipeline=pipeline)
    with pytest.raises(IndexUnavailableError, match="dropped"):
        sealed.writer.save_progress([CellProgress("c0", 1, 1, is_complete=True)])
    with pytest.raises(IndexUnavailableError, match="dropped"):
        sealed.writer.save_state("kind", {"name": 1})
    # Of what is wrong nothing can be saved before that is put right.
    with pytest.raises(IndexUnavailableError, match="dropped"):
        sealed.check()
    sealed.writer.save_state("kind", {"name": 1})
    breach = sealed.check()
    assert breach is not None
    assert not sealed.deviations
    sealed.client.ingest.delete_pipeline(id=pipeline)
    sealed.seal.mend(breach)
    assert sealed.check() is None


@pytest.mark.dialect
def test_index_that_cannot_be_put_right_is_suspected_until_it_is_made_anew(sealed: Sealed) -> None:
    assert sealed.check() is None
    before = sealed.held_at
    # What is written with it cannot be found by that name.
    properties = {"display_name": {"type": "keyword", "ignore_above": 3}}
    sealed.client.indices.put_mapping(index=sealed.instances, properties=properties)
    for _ in range(2):
        with pytest.raises(IndexRequestError, match="display_name is mapped as"):
            sealed.check()
    assert sealed.held_at == before
    [reason] = SealState.of({(SEAL, name): fact for name, fact in sealed.writer.load_state(SEAL).items()}).reasons
    assert "display_name" in reason
    with closing(ElasticsearchGenerations(sealed.settings)) as generations:
        generations.create_next()
        generations.switch(lambda: None)
    sealed.writer.prepare()
    breach = sealed.check()
    assert breach is not None
    sealed.seal.mend(breach)
    assert sealed.check() is None


@pytest.mark.dialect
def test_template_of_the_site_decides_nothing_of_our_indexes(elasticsearch_url: str, elasticsearch_prefix: str) -> None:
    settings = index_at(elasticsearch_url, elasticsearch_prefix)
    site: dict[str, Any] = {
        "settings": {
            "index": {
                "max_result_window": 5,
                "max_terms_count": 3,
                "max_regex_length": 10,
                "final_pipeline": "site",
                "default_pipeline": "site",
                "hidden": True,
                "translog": {"durability": "async"},
                "mapping": {"ignore_malformed": True},
            }
        },
        "mappings": {"dynamic_templates": [{"all": {"match": "*", "mapping": {"type": "keyword"}}}]},
    }
    if settings.backend == "elasticsearch":
        site["mappings"]["runtime"] = {"deleted": {"type": "boolean", "script": {"source": "emit(true)"}}}
        site["settings"]["index"]["mapping"]["ignore_above"] = 3
    else:
        site["settings"]["index"]["search"] = {"default_pipeline": "site"}
        site["settings"]["index"]["replication"] = {"type": "SEGMENT"}
    with (
        closing(index_client(elasticsearch_url)) as client,
        closing(ElasticsearchWriter(settings)) as writer,
    ):
        template = elasticsearch_prefix.rstrip("-")
        client.indices.put_index_template(
            name=template, index_patterns=[f"{elasticsearch_prefix}*"], priority=4000, template=site
        )
        try:
            writer.prepare()
            with closing(ElasticsearchGenerations(settings)) as generations:
                generations.create_next()
                generations.switch(lambda: None)
            writer.prepare()
            sealed = Sealed(settings, writer, writer.open_seal(system_clock), client)
            assert not sealed.deviations
            write_some(writer)
            assert sealed.check() is None
        finally:
            client.indices.delete_index_template(name=template)


@pytest.mark.dialect
def test_rebuild_breaks_no_seal(sealed: Sealed) -> None:
    write_some(sealed.writer)
    assert sealed.check() is None
    with closing(ElasticsearchGenerations(sealed.settings)) as generations:
        for _ in range(2):
            generations.create_next()
            with closing(generations.open_next()) as following:
                write_some(following)
                generations.switch(lambda: None)
            assert sealed.check() is None
            sealed.writer.make_searchable()
            write_some(sealed.writer, version=9)
            assert sealed.check() is None
        generations.take_previous_as_next()
        with closing(generations.open_next()) as previous:
            write_some(previous, version=9)
            generations.switch(lambda: None)
        assert sealed.check() is None


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


@pytest.mark.parametrize("calls", range(5))
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

        def load_kept(self) -> Kept:
            return sealed.writer.load_kept()

        def remove_altered(self, kept: Kept) -> None:
            sealed.writer.remove_altered(kept)

        def make_searchable(self) -> None:
            sealed.writer.make_searchable()

        def put_right(self, *names: str) -> None:
            sealed.writer.put_right(*names)

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
