"""The dashboard is one that Grafana can import, by the JSON model of its documentation."""

from itertools import combinations
from typing import Any

import msgspec

from tests.support.servers.prometheus import DASHBOARD

_WIDTH = 24


def dashboard() -> Any:
    return msgspec.json.decode(DASHBOARD.read_bytes())


def test_panels_have_names_and_places_of_their_own() -> None:
    panels = dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len({panel["title"] for panel in panels}) == len(panels)
    places = [panel["gridPos"] for panel in panels]
    assert all(place["x"] + place["w"] <= _WIDTH for place in places)
    assert not any(overlap(one, other) for one, other in combinations(places, 2))


def test_every_panel_asks_the_data_source_that_was_chosen() -> None:
    chosen = {"type": "prometheus", "uid": "${datasource}"}
    (variable,) = dashboard()["templating"]["list"]
    assert (variable["name"], variable["type"], variable["query"]) == ("datasource", "datasource", "prometheus")
    for panel in dashboard()["panels"]:
        if panel["type"] == "row":
            continue
        assert panel["type"] in {"timeseries", "stat", "table"}
        assert panel["datasource"] == chosen
        assert panel["targets"]
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])
        assert all(target["datasource"] == chosen and target["expr"] for target in panel["targets"])


def overlap(one: dict[str, int], other: dict[str, int]) -> bool:
    is_beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
    is_below = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
    return not is_beside and not is_below
