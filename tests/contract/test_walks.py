"""A list and a query walk through no more of the product than `scripts/size_budget.toml` allows."""

import pytest

from scripts.size_ledger import BUDGET, excesses, read_budget, walk_figures
from tests.contract.walks import Walk, walks


@pytest.fixture(scope="module")
def walked() -> dict[str, Walk]:
    return walks()


def test_walks_stay_within_the_budget(walked: dict[str, Walk]) -> None:
    assert excesses(_figures(walked), read_budget(BUDGET)) == []


def test_walks_are_the_same_each_time(walked: dict[str, Walk]) -> None:
    assert _figures(walks()) == _figures(walked)


def test_walks_reach_the_merge_and_the_index(walked: dict[str, Walk]) -> None:
    for walk in walked.values():
        modules = {module for module, _ in walk.functions}
        assert {"fleetlight.listing.list_instances", "fleetlight.listing.index_gateway"} <= modules
        assert any(module.startswith("fleetlight.indexer.backends.sqlite.") for module in modules)


def _figures(walked: dict[str, Walk]) -> dict[str, float]:
    return walk_figures({name: walk.figures() for name, walk in walked.items()})
