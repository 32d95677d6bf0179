"""Small fleets for tests that hold for every kind of store."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from fleetlight.indexer.backends.base import IndexWriter
from fleetlight.indexer.backends.opening import open_writer
from fleetlight.indexer.backends.settings import IndexSettings
from tests.contract.answering import WAYS, Asked, asked_by
from tests.contract.compute_fleet import Api, ComputeFleet, compute_fleet
from tests.contract.identity_site import Site, Time
from tests.support.played.played_hosts import PlayedHosts
from tests.support.servers.index_server import index_at

_SERVERS = pytest.param("servers", marks=[pytest.mark.postgresql, pytest.mark.elasticsearch])


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ComputeFleet]:
    """An empty fleet that the tests of a module share; a module that wants something in it overrides this."""
    with compute_fleet(tmp_path_factory.mktemp("fleet")) as fleet:
        yield fleet


@pytest.fixture
def own_fleet(tmp_path: Path) -> Iterator[ComputeFleet]:
    """An empty fleet that no other test has; a module may call it `fleet`, in place of the one that its tests share."""
    with compute_fleet(tmp_path) as fleet:
        yield fleet


@pytest.fixture(scope="module")
def api(fleet: ComputeFleet) -> Api:
    """An application over the fleet of the module."""
    return fleet.api()


@pytest.fixture(params=["files", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def fleet_of_any_database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ComputeFleet]:
    """A fleet of SQLite files, and one of PostgreSQL databases."""
    new_database = None if request.param == "files" else request.getfixturevalue("new_postgresql_database")
    with compute_fleet(tmp_path, new_database=new_database) as fleet:
        yield fleet


@pytest.fixture(params=["files", _SERVERS])
def fleet_of_any_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ComputeFleet]:
    """A fleet of SQLite files, and one of PostgreSQL databases and an Elasticsearch index."""
    if request.param == "files":
        with compute_fleet(tmp_path) as fleet:
            yield fleet
        return
    url, prefix = map(request.getfixturevalue, ("elasticsearch_url", "elasticsearch_prefix"))
    index = index_at(url, prefix.rstrip("-"))
    with compute_fleet(tmp_path, index, request.getfixturevalue("new_postgresql_database")) as fleet:
        yield fleet


@pytest.fixture(params=["sqlite", pytest.param("elasticsearch", marks=pytest.mark.elasticsearch)])
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> IndexSettings:
    """Of an empty index of each backend; a module that has its own overrides this."""
    if request.param == "sqlite":
        return IndexSettings(backend="sqlite", path=tmp_path / "index.db")
    url, prefix = map(request.getfixturevalue, ("elasticsearch_url", "elasticsearch_prefix"))
    return index_at(url, prefix)


@pytest.fixture
def writer(settings: IndexSettings) -> Iterator[IndexWriter]:
    """The writing side of the index of `settings`."""
    with closing(open_writer(settings)) as writer:
        writer.prepare()
        yield writer


@pytest.fixture(scope="module", params=WAYS)
def asked(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    """A fleet that `fill` of the module has filled, asked in each way."""
    with asked_by(request.param, tmp_path_factory.mktemp("fleet"), request, request.module.fill) as asked:
        yield asked


@pytest.fixture
def hosts() -> Iterator[PlayedHosts]:
    with closing(PlayedHosts()) as hosts:
        yield hosts


@pytest.fixture
def time() -> Time:
    """The clock of `site`."""
    return Time()


@pytest.fixture
def site(fleet: ComputeFleet, tmp_path: Path, time: Time) -> Site:
    """An API over the fleet of the test that takes tokens."""
    return Site(fleet, tmp_path, time)
