"""`fleetlight compare` over Nova itself finds no difference that is not explained, and every fault that is planted."""

import os
import random
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Any

import pytest

from fleetlight.cells.upstream.credentials import Fixed
from fleetlight.cli.compare.catalogue import SAMPLED, Catalogue
from fleetlight.cli.compare.comparison import Asked, Comparison
from fleetlight.cli.compare.differences import Answer
from fleetlight.cli.compare.questions import BRIEF, DETAILED, Question
from fleetlight.cli.compare.report import example_lines
from fleetlight.cli.compare.sites import Site
from fleetlight.cli.compare.tally import Tally
from tests.nova.questions import identifier
from tests.support.fleets.nova_fleet import NovaFleet
from tests.support.played.compared_apis import NEEDING_NEUTRON, InProcess
from tests.support.played.planted_faults import PLANTED, Faulty, Late
from tests.support.servers.nova import NovaWorld
from tests.support.servers.nova_api import nova_api

pytestmark = [
    pytest.mark.night,
    pytest.mark.nova,
    pytest.mark.no_rerun,
    pytest.mark.timeout(3600),
    pytest.mark.parametrize("nova_deployment", ["mariadb"], indirect=True),
]

SEED = int(os.environ.get("FLEETLIGHT_TEST_COMPARE_SEED", "20261129"))
SETTLE_S = 0.5
LISTS = (
    Question(DETAILED, (("all_tenants", "1"), ("host", "compute1")), "2.96"),
    Question(DETAILED, (("all_tenants", "1"), ("name", "lots"), ("limit", "5")), "2.96"),
    Question(BRIEF, (("all_tenants", "1"), ("host", "compute2"), ("limit", "6")), "2.96"),
    Question(f"{BRIEF}/{identifier('web-1')}", (), "2.96"),
)


@dataclass
class Both:
    """Nova itself, and what Fleetlight answers from an index over the same databases."""

    nova: Site
    ours: InProcess

    def rows(self, newest: int) -> list[Any]:
        asked = (("all_tenants", "1"), ("limit", str(SAMPLED)))
        return [row for minor in (46, newest) for row in self.nova.ask(Question(DETAILED, asked, f"2.{minor}")).servers]


class TwiceForGood(Comparison):
    """Nova has `arrived` as build request and in its cell: elsewhere for a moment, in this world for good."""

    def _remember(self, answer: Answer, *, is_of_nova: bool) -> None:
        super()._remember(answer, is_of_nova=is_of_nova)
        self._placed.pop(identifier("arrived"), None)
        self._waiting[identifier("arrived")] = None


def compared(nova: Asked, ours: Asked, questions: Iterator[Question], most: int | None = None) -> Tally:
    tally = Tally()
    TwiceForGood(nova, ours, tally, SETTLE_S, lambda: None).run(questions, most=most, for_s=None)
    return tally


@pytest.fixture(scope="module")
def both(nova_deployment: NovaWorld, fleet: NovaFleet, nova_environment: str) -> Iterator[Both]:
    fleet.fill_index()
    with ExitStack() as stack:
        url = stack.enter_context(nova_api(nova_deployment.folder, nova_environment))
        site = stack.enter_context(closing(Site("nova", url, Fixed({}), None)))
        yield Both(site, InProcess(fleet.api(uses_index=True)))


def assert_nothing_differs(both: Both, most: int, seed: int) -> None:
    newest = both.nova.newest()
    drawn = Catalogue(both.rows(newest), newest, random.Random(seed)).questions()
    possible = (each for each in drawn if not NEEDING_NEUTRON & {name for name, _ in each.parameters})
    # Nova lists a server that it has lost the mapping of, and refuses it as a marker.
    asked = (each for each in possible if identifier("not-mapped") not in each.values("marker"))
    tally = compared(both.nova, both.ours, asked, most)
    found = tally.document("http://nova", "http://fleetlight")
    # Also where it is the marker of a further page.
    differing = [each for each in found["differences"] if identifier("not-mapped") not in each["curl"][0]]
    assert [(*example_lines(each), *each["curl"]) for each in differing] == []
    assert (tally.unanswered, tally.unsettled, tally.asked) == (0, 0, most)
    # What moves is the present moment that Nova shows for a server without an update.
    assert tally.same > most * 0.9
    assert tally.said_complete["true"] > most / 2
    assert found["not_complete"] == 0


def test_hundreds_of_requests_differ_only_where_it_is_explained(both: Both) -> None:
    assert_nothing_differs(both, 150, SEED)


def test_thousands_of_requests_differ_only_where_it_is_explained(both: Both) -> None:
    assert_nothing_differs(both, 5000, SEED + 1)


@pytest.mark.parametrize("side", ["Fleetlight", "Nova"])
@pytest.mark.parametrize("name", PLANTED)
def test_fault_that_is_planted_before_either_is_found_and_classed(both: Both, name: str, side: str) -> None:
    fault, classes = PLANTED[name]
    ours: Asked = Faulty(both.ours.ask, fault) if side == "Fleetlight" else both.ours
    nova: Asked = Faulty(both.nova.ask, fault) if side == "Nova" else both.nova
    assert set(compared(nova, ours, iter(LISTS)).differing) == {classes[side == "Nova"]}


@pytest.mark.parametrize("side", ["Fleetlight", "Nova"])
def test_value_that_is_late_before_either_is_late(both: Both, side: str) -> None:
    ours: Asked = Late(both.ours.ask, 1) if side == "Fleetlight" else both.ours
    # It is asked twice in a round.
    nova: Asked = Late(both.nova.ask, 2) if side == "Nova" else both.nova
    tally = compared(nova, ours, iter(LISTS[:1]))
    assert (tally.differing, set(tally.late)) == ({}, {"value of name"})
