"""A query that the server of the index refuses is that query's own: the cells answer it, and the index all others.

The refusals are what Elasticsearch 9.4 and OpenSearch 3.9 say, as their settings make them say it.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from structlog.testing import capture_logs

from fleetlight.indexer.backends.elasticsearch.names import Names
from tests.contract.compute_fleet import Api, ComputeFleet, compute_fleet
from tests.support.servers.index_server import index_at

pytestmark = [pytest.mark.no_rerun]

STRONG = {"Fleetlight-Consistency": "strong"}
STATUSES = ("ACTIVE", "ERROR", "SHUTOFF", "PAUSED")
PATTERN = f"/v2.1/servers?name={quote('web.*a')}"
# By settings of the index, which are its own: what they refuse, and what they do not.
REFUSED = {
    "max_result_window": (4, "/v2.1/servers?limit=5", "/v2.1/servers?limit=4"),
    "max_regex_length": (4, PATTERN, "/v2.1/servers?limit=5"),
    "max_terms_count": (3, f"/v2.1/servers?{'&'.join(f'status={name}' for name in STATUSES)}", "/v2.1/servers?limit=5"),
}
NODES = "/fleetlight/query?what=node&fields=name"
COUNTS = "/fleetlight/query/counts?by=oper_state&filter=" + quote("name =~ m/web.*a/")


@pytest.fixture
def fleet(
    tmp_path: Path, new_postgresql_database: Callable[[], str], elasticsearch_url: str, elasticsearch_prefix: str
) -> Iterator[ComputeFleet]:
    index = index_at(elasticsearch_url, elasticsearch_prefix.rstrip("-"))
    with compute_fleet(tmp_path, index, new_postgresql_database) as fleet:
        fleet.fill(6)
        yield fleet


def configure(fleet: ComputeFleet, **settings: Any) -> None:
    [url], names = fleet.index_settings.urls, Names.of(fleet.index_settings.prefix)
    httpx.put(f"{url}/{names.read},{names.items}/_settings", json={"index": settings}, timeout=30).raise_for_status()


def routes(api: Api, path: str) -> str:
    response = api.get(path)
    assert response.status_code == 200, response.text
    assert response.headers["Fleetlight-Complete"] == "true"
    return str(response.headers["Fleetlight-Route"])


@pytest.mark.elasticsearch
@pytest.mark.postgresql
@pytest.mark.night
@pytest.mark.parametrize("setting", REFUSED)
def test_query_that_a_limit_of_the_index_refuses_leaves_the_index_to_others(fleet: ComputeFleet, setting: str) -> None:
    limit, refused, taken = REFUSED[setting]
    configure(fleet, **{setting: limit})
    api = fleet.api()
    with capture_logs() as logs:
        for _ in range(2):
            assert "index" not in routes(api, refused)
            assert api.ids(refused) == api.ids(refused, STRONG)
            assert "live" not in routes(api, taken)
    assert api.index.why_not is None
    assert [log["event"] for log in logs if log["log_level"] == "warning"] == ["index_refused_query"]
    explained = api.get(f"/fleetlight/explain?request={quote('GET ' + refused)}").json()
    assert any("the index refuses this query: " in remark for remark in explained["remarks"]), explained["remarks"]


@pytest.mark.night
@pytest.mark.elasticsearch
@pytest.mark.postgresql
def test_refused_counts_and_lists_of_nodes_leave_the_index_to_others(fleet: ComputeFleet) -> None:
    """The nodes of a cell are read in pages that are longer than the index allows here."""
    api = fleet.api()
    for refused, setting in ((COUNTS, "max_regex_length"), (NODES, "max_result_window")):
        configure(fleet, max_regex_length=None, max_result_window=None)
        assert "live" not in routes(api, refused)
        configure(fleet, **{setting: 8})
        assert "index" not in routes(api, refused)
        assert api.get(refused).json() == api.get(refused, STRONG).json()
        assert "live" not in routes(api, "/v2.1/servers?limit=2")
    assert api.index.why_not is None


@pytest.mark.elasticsearch
@pytest.mark.postgresql
def test_index_that_refuses_every_query_has_failed(fleet: ComputeFleet) -> None:
    """As the probe of health finds, which asks for next to nothing: this index has none of the fields."""
    [url], names = fleet.index_settings.urls, Names.of(fleet.index_settings.prefix)
    [physical] = httpx.get(f"{url}/_alias/{names.read}", timeout=30).json()
    httpx.delete(f"{url}/{physical}", timeout=30).raise_for_status()
    httpx.put(f"{url}/{names.read}", timeout=30).raise_for_status()
    api = fleet.api()
    assert "index" not in routes(api, "/v2.1/servers")
    assert api.readiness()["index"] == "down"
    assert api.index.safe_connect.is_tripped
