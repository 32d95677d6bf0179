"""What calls the agents of a cell, as the settings of a process say."""

from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from pydantic import ValidationError

from fleetlight.cells.capabilities import CellKind
from fleetlight.cells.model import Cell
from fleetlight.cells.settings import NodesSettings
from fleetlight.manager.agents.certificates import Role
from fleetlight.manager.operations.nodes.errors import NoCertificateError
from fleetlight.manager.operations.nodes.opening import NodeRpcs, opened_nodes
from fleetlight.manager.operations.nodes.stores.store import NoStore
from tests.support.played.agents import Certificates

CELL = Cell("c0a5b6a2-5a0d-4f3e-9a64-0f9d3c0d1e2f", "cell1", CellKind.NATIVE, "sqlite://", "memory://")


@pytest.fixture
def settings(tmp_path: Path) -> NodesSettings:
    Certificates(tmp_path / "cell1").files(Role.WORKER, "worker")
    return NodesSettings(certificates_dir=tmp_path)


def test_each_cell_is_opened_once(settings: NodesSettings) -> None:
    registry = CollectorRegistry()
    with opened_nodes(settings, registry) as rpcs:
        assert rpcs.of(CELL) is rpcs.of(CELL)
        rpcs.of(CELL).cache.counts.bypassed()
    assert registry.get_sample_value("fleetlight_node_cache_events_total", {"event": "bypasses"}) == 1


def test_without_a_server_that_processes_share_nothing_is_remembered(settings: NodesSettings) -> None:
    rpcs = NodeRpcs(settings)
    assert isinstance(rpcs.of(CELL).cache.store, NoStore)
    rpcs.close()


@pytest.mark.parametrize("name", ["../cell1", "other", "a/../cell1", ".."])
def test_certificates_are_those_of_the_cell(settings: NodesSettings, name: str) -> None:
    with pytest.raises(NoCertificateError, match=f"the agents of cell {name} cannot be called: "):
        NodeRpcs(settings).of(replace(CELL, name=name))


def test_certificate_that_comes_later_is_found(tmp_path: Path) -> None:
    rpcs = NodeRpcs(NodesSettings(certificates_dir=tmp_path))
    with pytest.raises(NoCertificateError, match="cannot read"):
        rpcs.of(CELL)
    Certificates(tmp_path / "cell1").files(Role.WORKER, "worker")
    rpcs.of(CELL)
    rpcs.close()


@pytest.mark.parametrize("url", ["http://cache1", "cache1:6379", ""])
def test_cache_has_to_be_a_redis(url: str) -> None:
    with pytest.raises(ValidationError, match="must be the URL of a Redis or Valkey"):
        NodesSettings(cache_url=url)
