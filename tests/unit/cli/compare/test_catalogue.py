"""The catalogue has every shape of request, made of what there is, and is the same for the same seed."""

import random
from itertools import islice
from typing import Any

from fleetlight.cli.compare.catalogue import Catalogue
from fleetlight.cli.compare.questions import BRIEF, DETAILED, Question

SERVER: dict[str, Any] = {
    "id": "11111111-1111-4111-8111-111111111111",
    "name": "web-1 (a)",
    "status": "ACTIVE",
    "tenant_id": "1" * 32,
    "user_id": "2" * 32,
    "updated": "2026-11-01T12:00:00Z",
    "tags": ["blue"],
    "locked": False,
    "image": {"id": "i"},
    "flavor": {"id": "1"},
    "addresses": {"private": [{"addr": "10.0.0.4", "version": 4}, {"addr": "fd00::4", "version": 6}]},
    "OS-EXT-STS:power_state": 1,
    "OS-EXT-SRV-ATTR:host": "compute1",
}


def catalogue(rows: list[dict[str, Any]], newest: int = 104, seed: int = 1) -> list[Question]:
    return list(islice(Catalogue(rows, newest, random.Random(seed)).questions(), 1000))


def test_catalogue_has_every_filter_that_servers_have_a_value_for() -> None:
    found = {pair for question in catalogue([SERVER]) for pair in question.parameters}
    names = {name for name, _ in found}
    assert {"status", "project_id", "image", "flavor", "host", "tags", "not-tags-any", "ip", "ip6", "deleted"} <= names
    assert {"all_tenants", "limit", "marker", "sort_key", "sort_dir", "changes-since", "changes-before"} <= names
    assert {("name", r"web\-1\ \(a\)"), ("ip", "10.0.0."), ("locked", "False"), ("power_state", "1")} <= found
    assert not names & {"task_state", "key_name"}


def test_catalogue_asks_lists_details_and_servers_at_every_version_and_what_is_refused() -> None:
    found = catalogue([SERVER])
    for version in ("2.1", "2.47", "2.75", "2.96", "2.104"):
        assert {each.kind for each in found if each.version == version} == {BRIEF, DETAILED, f"{BRIEF}/ID"}
    assert any(each.values("limit") == ["-1"] for each in found)
    assert any(each.pages for each in found)


def test_catalogue_asks_no_version_that_one_api_lacks_but_once() -> None:
    versions = [int(each.version.removeprefix("2.")) for each in catalogue([SERVER], 79)]
    assert [version for version in versions if version > 79] == [979]


def test_catalogue_is_drawn_anew_by_another_seed_alone() -> None:
    assert catalogue([SERVER]) == catalogue([SERVER])
    assert catalogue([SERVER]) != catalogue([SERVER], seed=2)


def test_cloud_without_servers_is_asked_too() -> None:
    assert len(catalogue([])) == 1000
