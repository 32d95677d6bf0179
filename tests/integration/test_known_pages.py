"""A page that is asked for again and again is, each time, what somebody finds who asks for the first time."""

import asyncio
import random
from collections.abc import Iterator
from typing import Any

import pytest

from fleetlight.indexer.backends.base import Document, FoundPage, IndexWriter
from fleetlight.indexer.backends.opening import open_searcher, open_writer
from fleetlight.indexer.backends.settings import IndexSettings
from fleetlight.query.filters import Eq
from fleetlight.query.page import PageRequest
from fleetlight.query.sort import Direction, SortKey, SortOrder
from fleetlight.resources.instance import INSTANCE_FIELDS
from fleetlight.views.compute.view import BriefTemplate, FullTemplate, HostStatuses, ItemTemplate
from tests.support.fleets.documents import make_document, make_uuid
from tests.support.servers.index_server import index_at

pytestmark = [pytest.mark.elasticsearch, pytest.mark.night]

ROWS = 240
LIMIT = 200
BASES: dict[str, Any] = {"versioned_base": "http://api/v2.1", "plain_base": "http://api"}
NOT_DELETED = Eq("deleted", False)
BY_CREATION = SortOrder.of(INSTANCE_FIELDS, [SortKey("created_at", Direction.DESC)])
BY_NAME = SortOrder.of(INSTANCE_FIELDS, [SortKey("display_name")])
UP: HostStatuses = {"c0": {b'"node-0"': b'"UP"', b'"node-1"': b'"UP"'}}
DOWN: HostStatuses = {"c0": {b'"node-0"': b'"DOWN"', b'"node-1"': b'"UP"'}}


class World:
    """An index that changes, and a searcher that is asked for the same pages all the time."""

    def __init__(self, settings: IndexSettings, runner: asyncio.Runner) -> None:
        self._settings = settings
        self._runner = runner
        self.writer: IndexWriter = open_writer(settings)
        self.writer.prepare()
        self._searcher = open_searcher(settings)
        self.host_statuses = UP
        self._versions = dict.fromkeys(range(ROWS), 0)
        self.change(*range(ROWS))

    def change(self, *numbers: int, **changes: Any) -> None:
        self._write([make_document(number, version=self._next(number), **changes) for number in numbers])

    def rename_at_random(self, rng: random.Random, count: int) -> None:
        chosen = rng.sample(range(ROWS), count)
        self._write(
            [make_document(n, version=self._next(n), display_name=f"name-{rng.randrange(1000)}") for n in chosen]
        )

    def replace_without_a_new_version(self, number: int) -> None:
        """As a repair does: the document goes, and another one comes in its place."""
        version = self._versions[number]
        self.writer.remove({make_uuid(number): version})
        self._write([make_document(number, version=version, display_name="reconciled")])

    def check(self) -> None:
        """Every page is what it is without the cache, however often it was asked for."""
        newcomer = open_searcher(self._settings.model_copy(update={"page_cache": False}))
        templates = (
            BriefTemplate(1, **BASES),
            FullTemplate(50, is_admin=False, **BASES),
            FullTemplate(104, is_admin=True, host_statuses=self.host_statuses, **BASES),
        )
        try:
            for order in (BY_CREATION, BY_NAME):
                request = PageRequest(NOT_DELETED, order, LIMIT)
                for template in templates:
                    expected = self._page(newcomer, request, template)
                    for _ in range(2):
                        assert self._page(self._searcher, request, template) == expected
        finally:
            self._runner.run(newcomer.close())

    def close(self) -> None:
        self._runner.run(self._searcher.close())
        self.writer.close()

    def _page(self, searcher: Any, request: PageRequest, template: ItemTemplate) -> FoundPage:
        page: FoundPage = self._runner.run(searcher.page(request, ["c0"], template))
        return page

    def _write(self, documents: list[Document]) -> None:
        assert not self.writer.write(documents).rejected
        self.writer.make_searchable()

    def _next(self, number: int) -> int:
        self._versions[number] += 1
        return self._versions[number]


@pytest.fixture
def world(elasticsearch_url: str, elasticsearch_prefix: str) -> Iterator[World]:
    settings = index_at(elasticsearch_url, elasticsearch_prefix, search_timeout_s=30)
    with asyncio.Runner() as runner:
        world = World(settings, runner)
        world.check()
        yield world
        world.check()
        world.close()


def test_rows_that_change_move_and_go(world: World) -> None:
    rng = random.Random(17)
    for count in (1, 3, 20, 120, 2):
        world.rename_at_random(rng, count)
        world.check()
    world.change(*range(50, 60), deleted=True)
    world.check()
    world.change(55, deleted=False)


def test_last_row_of_a_page_changes(world: World) -> None:
    # By creation, the newest first: the page ends with the row of number 40.
    world.change(40, display_name="the last one")
    world.check()
    world.change(40, deleted=True)


def test_row_that_is_replaced_without_a_new_version(world: World) -> None:
    world.replace_without_a_new_version(100)


def test_hosts_that_go_down(world: World) -> None:
    world.host_statuses = DOWN
