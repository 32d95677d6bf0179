"""`GET /fleetlight/series`: figures of the last hour, of the process that answers."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fleetlight.api.operating.series import KEPT, NAMES, STEP_S
from tests.contract.compute_fleet import MEMBER, Api, ComputeFleet, compute_fleet

STEP_US = STEP_S * 1_000_000
BEGINS = 1_800_000_000_000_000


@dataclass
class Clock:
    now: int = BEGINS

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[ComputeFleet]:
    with compute_fleet(tmp_path) as fleet:
        fleet.fill(6)
        fleet.index(fresh_as_of=BEGINS - 3_000_000, watermark=2)
        yield fleet


def step(api: Api, clock: Clock, steps: int = 1) -> None:
    """So much later, figures are taken."""
    clock.now += steps * STEP_US
    api.run(api.application.series.take())


def series(api: Api) -> Any:
    response = api.get("/fleetlight/series")
    assert response.status_code == 200, response.text
    return response.json()


def test_nothing_was_measured_before_the_first_step(fleet: ComputeFleet) -> None:
    answer = series(fleet.api())
    assert (answer["step_s"], answer["from"], answer["series"]) == (10, None, {name: [] for name in NAMES})


def test_figures_are_of_what_happened_in_a_step(fleet: ComputeFleet) -> None:
    clock = Clock()
    api = fleet.api(clock=clock)
    step(api, clock)
    for _ in range(20):
        assert api.get("/v2.1/servers?all_tenants=1").status_code == 200
    fleet.index("east", fresh_as_of=BEGINS, watermark=52)
    api.run(api.index.followed(0))  # what is remembered of the index is of now
    step(api, clock)
    answer = series(api)
    assert answer["from"] == "2027-01-15T08:00:10.000000Z"
    found = answer["series"]
    assert found["requests_per_s"] == [None, 2.0]
    assert (found["route_index"], found["route_live"], found["route_skipped"]) == ([None, 2.0], [None, 0], [None, 0])
    assert 0 < found["latency_p50_ms"][1] <= found["latency_p99_ms"][1]
    assert found["age_max_s"] == [13.0, 23.0]
    assert found["messages_per_s"] == [None, 5.0]
    assert found["jobs_waiting"] == [0, 0]


def test_steps_that_were_missed_are_gaps(fleet: ComputeFleet) -> None:
    clock = Clock()
    api = fleet.api(clock=clock)
    step(api, clock)
    step(api, clock, steps=3)
    assert series(api)["series"]["jobs_waiting"] == [0, None, None, 0]


def test_an_hour_is_kept_also_after_a_gap_of_a_day(fleet: ComputeFleet) -> None:
    clock = Clock()
    api = fleet.api(clock=clock)
    step(api, clock)
    step(api, clock, steps=8640)
    kept = series(api)["series"]["jobs_waiting"]
    assert (len(kept), kept[-1], set(kept[:-1])) == (KEPT, 0, {None})


def test_members_are_refused(fleet: ComputeFleet) -> None:
    assert fleet.api().get("/fleetlight/series", MEMBER).status_code == 403
