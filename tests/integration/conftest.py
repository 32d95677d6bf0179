"""One native cell from its database to the index, over each kind of bus and index; a PostgreSQL that can be cut off."""

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from sqlalchemy.engine import make_url

from bench.faults.proxy import TcpProxy, tcp_proxy
from fleetlight.indexer.backends.settings import IndexSettings
from tests.support.fleets.indexer_worlds import World, new_world
from tests.support.servers.index_server import index_at


def _of_elasticsearch(request: pytest.FixtureRequest) -> IndexSettings:
    url, prefix = request.getfixturevalue("elasticsearch_url"), request.getfixturevalue("elasticsearch_prefix")
    return index_at(url, prefix.rstrip("-"), search_timeout_s=30)


@pytest.fixture(params=["sqlite", pytest.param("elasticsearch", marks=pytest.mark.elasticsearch)])
def index(request: pytest.FixtureRequest, tmp_path: Path) -> IndexSettings:
    return IndexSettings(path=tmp_path / "index.db") if request.param == "sqlite" else _of_elasticsearch(request)


@pytest.fixture(
    params=["embedded", pytest.param("servers", marks=[pytest.mark.rabbitmq, pytest.mark.elasticsearch])],
)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """Each kind of bus and each kind of index once: neither knows of the other."""
    if request.param == "embedded":
        url, cell_uuid, index = "memory://", str(uuid4()), IndexSettings(path=tmp_path / "index.db")
    else:
        url, cell_uuid = request.getfixturevalue("amqp_url"), request.getfixturevalue("amqp_cell")
        index = _of_elasticsearch(request)
    with new_world(tmp_path, url, cell_uuid, index) as world:
        yield world


@pytest.fixture
def proxy(postgresql_url: str) -> Iterator[TcpProxy]:
    """In front of PostgreSQL; lets everything through again at the end, so that nobody waits for what it holds."""
    server = make_url(postgresql_url)
    with tcp_proxy(server.host or "127.0.0.1", server.port or 5432) as proxy:
        yield proxy
        proxy.restore()
