"""`GET /fleetlight/series`: figures of the last hour, of the process that answers."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from fleetlight.api.operating.series import KEPT, NAMES, STEP_S
from fleetlight.api.settings import ApiSettings
from tests.contract.compute_fleet import MEMBER, Api, ComputeFleet, compute_fleet
from tests.unit.cells.upstream.test_http import Answer, served

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


@contextmanager
def prometheus(answer: Answer) -> Iterator[tuple[ApiSettings, list[str]]]:
    """The settings that name what answers in its place, and what it was asked."""
    with served(answer) as (url, asked):
        yield ApiSettings(prometheus_url=url, prometheus_token=SecretStr("sesame")), asked


def body(content: bytes, status: int = 200) -> Answer:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        assert handler.headers["Authorization"] == "Bearer sesame"
        handler.send_response(status)
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content)

    return answer


def matrix(name: str, values: str) -> bytes:
    found = f'{{"metric": {{"series": "{name}"}}, "values": [{values}]}}'
    return f'{{"status": "success", "data": {{"resultType": "matrix", "result": [{found}]}}}}'.encode()


def test_figures_of_all_processes_come_from_prometheus(fleet: ComputeFleet) -> None:
    clock = Clock()
    now = BEGINS // 1_000_000
    content = matrix("latency_p99_ms", f'[{now - 20}, "12.5"], [{now - 10}, "NaN"], [{now}, "+Inf"]')
    with prometheus(body(content)) as (settings, asked):
        api = fleet.api(clock=clock, settings=settings)
        answers = [series(api) for _ in range(3)]
        assert len(asked) == 1
        clock.now += STEP_US
        series(api)
        assert len(asked) == 2
    answer = answers[2]
    assert (answer["process"], answer["problem"], answer["from"]) == (None, None, "2027-01-15T07:00:10.000000Z")
    assert answer["series"].keys() == set(NAMES)
    assert answer["series"]["latency_p99_ms"] == [None] * (KEPT - 3) + [12.5, None, None]
    assert answer["series"]["lag_total"] == [None] * KEPT


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (body(b"no", 500), "answers 500: no"),
        (body(b"<html>"), "answers what is no result of a query"),
        (body(matrix("lag_total", '[1, "many"]')), "answers what is no result of a query"),
    ],
)
def test_prometheus_that_does_not_answer_leaves_those_of_the_process(
    fleet: ComputeFleet, answer: Answer, problem: str
) -> None:
    clock = Clock()
    with prometheus(answer) as (settings, _):
        api = fleet.api(clock=clock, settings=settings)
        step(api, clock)
        found = series(api)
    assert problem in found["problem"]
    assert (found["process"], found["series"]["jobs_waiting"]) == (os.getpid(), [0])


def test_members_are_refused(fleet: ComputeFleet) -> None:
    assert fleet.api().get("/fleetlight/series", MEMBER).status_code == 403
