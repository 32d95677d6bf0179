"""The index is rebuilt, and taken back, under live traffic: lists lose no row and no moment; also when it is killed."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from threading import Event
from typing import Any
from uuid import uuid4

import pytest

from fleetlight.cells.capabilities import CellKind
from fleetlight.indexer.backends.base import OLDEST_TIME_VERSION, Document, PartlyWrittenError
from fleetlight.indexer.backends.elasticsearch.generations import ElasticsearchGenerations
from fleetlight.indexer.backends.opening import open_generations, open_searcher, open_writer
from fleetlight.indexer.backends.settings import IndexSettings
from fleetlight.indexer.errors import IndexUnavailableError, IndexVersionError, RebuildError
from fleetlight.indexer.reconcile.rebuild import drop_previous, rebuild_index
from fleetlight.query.filters import In
from fleetlight.query.page import PageRequest
from fleetlight.query.sort import SortOrder
from fleetlight.resources.instance import INSTANCE_FIELDS
from tests.support.fleets.documents import TEMPLATE, make_document
from tests.support.fleets.indexer_worlds import World, in_thread, new_world
from tests.support.fleets.killed_rebuild import Moment
from tests.support.fleets.other_version_indexes import ANNOUNCED, ANNOUNCED_CELL, make_newer, store_other_version
from tests.support.fleets.rebuilding import Silent, open_parts
from tests.support.servers.index_server import index_at
from tests.support.waiting import wait_until

_LATEST_S = 60
# A rebuild has some dozen steps that each wait for the index; it is a process of its own that begins by importing all.
_LATEST_END_S = 240

pytestmark = [pytest.mark.night, pytest.mark.no_rerun, pytest.mark.timeout(300)]


@pytest.fixture
def world(tmp_path: Path, index: IndexSettings) -> Iterator[World]:
    with new_world(tmp_path, "memory://", str(uuid4()), index) as world:
        yield world


def rebuild(world: World, *, back: bool = False) -> None:
    with open_parts(world.index, world.fleet) as parts:
        with suppress(IndexVersionError):
            parts.current.prepare()
        rebuild_index(parts, Silent(), back=back)


def operate(world: World, stop: Event) -> None:
    """A hundred changes a second: instances come, change and go. Faster, it would have a processor for itself."""
    number = 0
    while not stop.wait(0.02):
        created = world.operations.create({})
        world.operations.update(created.uuid, {"display_name": str(number)})
        if number % 3 == 0:
            world.operations.delete(created.uuid)
        number += 1


@contextmanager
def lists_stay_whole(world: World, uuids: set[str], cells: list[str]) -> Iterator[None]:
    """Somebody lists these instances all the time, and each list has every one of them."""
    request = PageRequest(In("uuid", tuple(sorted(uuids))), SortOrder.of(INSTANCE_FIELDS, ()), len(uuids))

    async def list_until(stop: Event) -> int:
        searcher = open_searcher(world.index)
        lists = 0
        while not stop.is_set():
            found = await searcher.search(request, cells, TEMPLATE)
            assert {row.position[-1] for row in found} == uuids
            lists += 1
        await searcher.close()
        return lists

    stop = Event()
    with ThreadPoolExecutor(1) as threads:
        listing = threads.submit(lambda: asyncio.run(list_until(stop)))
        try:
            yield
        finally:
            stop.set()
        assert listing.result() > 0


def test_lists_and_changes_go_on_while_the_index_is_rebuilt_and_taken_back(world: World) -> None:
    quiet = {changed.uuid for changed in world.operations.create_many([{} for _ in range(50)])}
    nova = world.fleet.add_cell("nova", CellKind.NOVA_API, "", "")
    with world.relaying(), world.indexing(), closing(open_writer(world.index)) as writer:
        wait_until(world.index_equals_cell, _LATEST_S)
        kept = [
            make_document(1, version=OLDEST_TIME_VERSION, cell_uuid=nova.uuid),
            make_document(2, version=OLDEST_TIME_VERSION + 1, cell_uuid=world.cell.uuid),
        ]
        write_searchable(world, kept)
        listed = quiet | {document.id for document in kept}
        with (
            in_thread(lambda stop: operate(world, stop)),
            lists_stay_whole(world, listed, [world.cell.uuid, nova.uuid]),
        ):
            rebuild(world)
            rebuild(world, back=True)
        wait_until(world.index_equals_cell, _LATEST_S)
        assert world.documents([document.id for document in kept]) == {document.id: document for document in kept}
        with open_parts(world.index, world.fleet) as parts:
            assert drop_previous(parts)
        world.operations.create({})
        wait_until(world.index_equals_cell, _LATEST_S)
        assert writer.load_progress()[world.cell.uuid].is_complete


@pytest.mark.dialect
@pytest.mark.elasticsearch
def test_indexes_are_called_what_they_are_called_on_their_server(
    elasticsearch_url: str, elasticsearch_prefix: str
) -> None:
    settings = index_at(elasticsearch_url, elasticsearch_prefix.strip("-"))
    with closing(open_writer(settings)) as writer, closing(open_generations(settings)) as generations:
        writer.prepare()
        first, nothing = generations.names()
        generations.create_next()
        generations.switch(lambda: None)
        second, kept = generations.names()
    assert (nothing, kept) == (None, first)
    assert first is not None
    assert second is not None
    assert first != second
    assert first.startswith(f"{settings.prefix}-instances-v")


# Only the last moment differs between the two backends.
@pytest.mark.parametrize(
    ("index", "moment"),
    [
        *(("sqlite", moment) for moment in Moment),
        pytest.param("elasticsearch", Moment.WRITING_IS_PAUSED, marks=pytest.mark.elasticsearch),
    ],
    indirect=["index"],
)
def test_rebuild_that_is_killed_harms_nobody_and_is_finished_by_the_next_one(world: World, moment: Moment) -> None:
    world.operations.create_many([{} for _ in range(50)])
    with world.relaying(), world.indexing():
        wait_until(world.index_equals_cell, _LATEST_S)
        with in_thread(lambda stop: operate(world, stop)):
            assert killed_rebuild(world, moment) == -signal.SIGKILL
        # The indexer goes on by itself, whatever the dead has left.
        wait_until(world.index_equals_cell, _LATEST_S)
        rebuild(world)
        world.operations.create({})
        wait_until(world.index_equals_cell, _LATEST_S)


@pytest.mark.parametrize(
    ("index", "store"),
    [
        ("sqlite", "schema 1"),
        ("sqlite", "schema 2"),
        pytest.param("elasticsearch", "mapping 4", marks=pytest.mark.elasticsearch),
        pytest.param("elasticsearch", "mapping 2", marks=pytest.mark.elasticsearch),
        pytest.param("elasticsearch", "mapping 1", marks=pytest.mark.elasticsearch),
    ],
    indirect=["index"],
)
def test_index_of_an_older_program_is_brought_up_to_date(world: World, store: str) -> None:
    """It has a document that only notifications from outside have told of, and one that its cell does not have."""
    nova = world.fleet.add_cell("nova", CellKind.NOVA_API, "", "", uuid=ANNOUNCED_CELL)
    world.operations.create_many([{} for _ in range(30)])
    store_other_version(world.index, store)
    with (
        closing(open_writer(world.index)) as writer,
        pytest.raises(IndexVersionError, match="fleetlight index rebuild"),
    ):
        writer.prepare()
    with world.relaying():
        wait_until(world.has_published_everything, _LATEST_S)
        rebuild(world)
        with world.indexing():
            wait_until(world.index_equals_cell, _LATEST_S)
    with closing(open_writer(world.index)) as writer:
        announced = writer.revisions(nova.uuid, [""], external=True)
        assert (announced, writer.revisions(nova.uuid, [""])) == ({ANNOUNCED.id: ANNOUNCED.version}, {})
    assert world.documents([ANNOUNCED.id]) == {ANNOUNCED.id: ANNOUNCED}
    with pytest.raises(RebuildError, match="the previous index"):
        rebuild(world, back=True)


@pytest.mark.parametrize("back", [False, True], ids=["anew", "back to the kept one"])
def test_way_back_from_a_newer_program_loses_nothing_that_it_has_indexed(world: World, back: bool) -> None:
    """An upgrade has rebuilt the index, more has happened since, and now the program before it is wanted again."""
    nova = world.fleet.add_cell("nova", CellKind.NOVA_API, "", "")
    world.operations.create_many([{} for _ in range(10)])
    before, after = (make_document(n, version=OLDEST_TIME_VERSION + n, cell_uuid=nova.uuid) for n in (1, 2))
    with world.relaying():
        wait_until(world.has_published_everything, _LATEST_S)
        with world.indexing():
            wait_until(world.index_equals_cell, _LATEST_S)
        write_searchable(world, [before])
        rebuild(world)
        write_searchable(world, [after])
        make_newer(world.index)
        world.operations.create({})
        rebuild(world, back=back)
        with world.indexing():
            wait_until(world.index_equals_cell, _LATEST_S)
    assert world.documents([before.id, after.id]) == {document.id: document for document in (before, after)}


def killed_rebuild(world: World, moment: Moment) -> int:
    """The return code of a process that rebuilds the index and dies at that moment."""
    arguments = [str(world.fleet_url), world.index.model_dump_json(exclude_unset=True), moment.value]
    process = subprocess.run(
        [sys.executable, "-m", "tests.support.fleets.killed_rebuild", *arguments], timeout=_LATEST_END_S, check=False
    )
    return process.returncode


def write_searchable(world: World, documents: list[Document]) -> None:
    with closing(open_writer(world.index)) as writer:
        assert writer.write(documents).applied == len(documents)
        writer.make_searchable()


@pytest.mark.elasticsearch
@pytest.mark.parametrize("times_done", [0, 1, 2])
def test_answer_that_got_lost_at_the_swap_has_nobody_write_to_the_index_that_was_replaced(
    elasticsearch_url: str, elasticsearch_prefix: str, monkeypatch: pytest.MonkeyPatch, times_done: int
) -> None:
    """times_done: twice when the client asks another server, which refuses what was done already."""
    prefix = elasticsearch_prefix.rstrip("-")
    settings = index_at(elasticsearch_url, prefix)
    change = ElasticsearchGenerations._change_aliases

    def unanswered(generations: ElasticsearchGenerations, *actions: Mapping[str, Any]) -> None:
        for _ in range(times_done):
            change(generations, *actions)
        raise IndexUnavailableError("no answer")

    document = make_document()
    with closing(open_writer(settings)) as writer, closing(open_generations(settings)) as generations:
        writer.prepare()
        generations.create_next()
        monkeypatch.setattr(ElasticsearchGenerations, "_change_aliases", unanswered)
        if times_done:
            generations.switch(lambda: None)
            # Its first attempt is refused, and then it has looked where to write.
            with pytest.raises(PartlyWrittenError):
                writer.write([document])
        else:
            with pytest.raises(IndexUnavailableError):
                generations.switch(lambda: None)
        writer.write([document])
        writer.make_searchable()
        assert writer.read([document.id]).keys() == {document.id}
        assert generations.has_next() == (times_done == 0)
