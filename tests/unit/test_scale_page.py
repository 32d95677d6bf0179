"""The tables of the largest fleets are made of what the bench has measured."""

import json

from bench.measure import figure
from tests.support.pages.scale_page import PAGE, page, taken_over


def test_tables_of_the_page_are_what_was_measured() -> None:
    assert page() == PAGE.read_text(encoding="utf-8"), "python -m tests.support.pages.scale_page"


def test_each_value_is_in_the_column_of_its_size_and_what_was_not_measured_is_not_made_up() -> None:
    made = page({"scale.1000000.lists.page_50": 12.345, "scale.100_cells.followers.relay.share": 0.0123})
    assert "| first page of 50, ms | - | - | 12 |" in made
    assert "| relay | 100 | 0.012 | - | - | - | - |" in made
    assert "| `fleetlight up` | 1,000 |" not in made  # it takes at most 200
    assert "| relay | 1,000 | - | - | - | - | - |" in made


def test_figures_are_taken_over_by_their_names() -> None:
    figures = [figure("scale.10.sync.time", 1.5, "s", "what it took", runs=1).as_json()]
    assert taken_over(json.dumps({"name": "10.sync", "took_s": 2, "figures": figures}) + "\n") == {
        "scale.10.sync.time": 1.5
    }
