"""Bodies of very many parts: refused before anything is made of them, on every face."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from fleetlight.api.limits import large_bodies
from fleetlight.api.limits.large_bodies import MAX_PARTS, MAX_PARTS_OF_CHANGE, parts_in
from fleetlight.api.query import item_query, whole_results
from fleetlight.api.query.whole_results import LookedUp
from fleetlight.api.rapi import resources
from tests.contract.compute_fleet import CELLS, Api, ComputeFleet, compute_fleet, searching
from tests.contract.test_luxi import Socket

RAPI = {"Content-Type": "application/json"}


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[ComputeFleet]:
    with compute_fleet(tmp_path) as fleet:
        for number, cell in enumerate(CELLS):
            fleet.create(cell, display_name=f"web{number}.{cell}.example.com")
        fleet.index()
        yield fleet


@pytest.fixture
def nothing_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes every test fail in which a body is decoded, or a filter built."""

    def refuse(*_arguments: Any, **_more: Any) -> Any:
        raise AssertionError("something was made of what is to be refused")

    monkeypatch.setattr(large_bodies, "_decode", refuse)
    monkeypatch.setattr(item_query, "to_filter", refuse)


def ask(api: Api, expression: Any, *, fields: Any = ("name",), path: str = "/2/query/instance") -> Any:
    body = json.dumps({"fields": fields, "qfilter": expression}).encode()
    return api.request("PUT", path, content=body, headers=RAPI)


def conditions(count: int) -> Any:
    return ["|", *(["<", "be/memory", number] for number in range(count))]


@pytest.mark.usefixtures("nothing_is_made")
def test_body_of_too_many_parts_is_refused_before_it_is_decoded(fleet: ComputeFleet) -> None:
    refused = ask(fleet.api(), conditions(150_000))
    assert refused.status_code == 400
    assert f"more than {MAX_PARTS} parts" in refused.json()["message"]


@pytest.mark.usefixtures("nothing_is_made")
def test_body_of_a_change_may_have_fewer_parts_than_one_of_a_question(fleet: ComputeFleet) -> None:
    body = json.dumps({"instances": [{}] * (MAX_PARTS_OF_CHANGE // 2 + 1)}).encode()
    refused = fleet.api().request("POST", "/2/instances-multi-alloc", content=body, headers=RAPI)
    assert refused.status_code == 400
    assert f"more than {MAX_PARTS_OF_CHANGE} parts" in refused.json()["message"]


@pytest.mark.usefixtures("nothing_is_made")
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v2.1/servers"),
        ("PUT", "/v2.1/os-quota-sets/x"),
        ("POST", "/v2.1/os-server-external-events"),
        ("POST", "/fleetlight/select-destinations"),
    ],
)
def test_body_of_the_compute_api_is_refused_before_it_is_decoded(fleet: ComputeFleet, method: str, path: str) -> None:
    body = b'{"x":[' + b"0," * MAX_PARTS_OF_CHANGE + b"0]}"
    refused = fleet.api().request(method, path, content=body)
    assert refused.status_code == 400
    assert f"more than {MAX_PARTS_OF_CHANGE} parts" in refused.text


def test_filter_of_too_many_conditions_is_refused_before_it_is_built(
    fleet: ComputeFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_arguments: Any, **_more: Any) -> Any:
        raise AssertionError("a filter was built")

    monkeypatch.setattr(item_query, "to_filter", refuse)
    refused = ask(fleet.api(), conditions(12_000))
    assert refused.status_code == 400
    assert "12000 conditions; there may be 250" in refused.json()["message"]


def test_what_is_large_is_decoded_out_of_the_event_loop(fleet: ComputeFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    loops: list[bool] = []
    decode = large_bodies._decode

    def note(text: bytes) -> Any:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            loops.append(False)
        else:
            loops.append(True)
        return decode(text)

    monkeypatch.setattr(large_bodies, "_decode", note)
    assert ask(fleet.api(), conditions(12_000)).status_code == 400
    assert ask(fleet.api(), ["=~", "name", "^web"]).status_code == 200
    assert loops == [False, True]


def test_parts_are_commas_and_brackets() -> None:
    assert parts_in(b'{"a":[1,2,{"b":[]}]}') == 6


@pytest.mark.parametrize(
    "arguments",
    [
        ("Query", "instance", ["name"], conditions(150_000)),
        ("QueryInstances", ["x"] * (MAX_PARTS + 1), ["name"], False),
        ("QueryFields", "instance", ["x"] * (MAX_PARTS + 1)),
    ],
    ids=lambda arguments: arguments[0],
)
@pytest.mark.usefixtures("nothing_is_made")
def test_local_query_of_too_many_parts_is_refused_before_it_is_decoded(
    fleet: ComputeFleet, tmp_path_factory: pytest.TempPathFactory, arguments: Any
) -> None:
    refused = Socket(fleet.api(), tmp_path_factory.mktemp("s") / "s").ask(*arguments)
    assert not refused["success"]
    assert f"more than {MAX_PARTS} parts" in refused["result"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("Query", "instance", ["x"] * 1001, None),
        ("QueryFields", "instance", ["x"] * 1001),
        ("QueryInstances", None, ["x"] * 1001, False),
        ("QueryConfigValues", ["x"] * 1001),
        ("WaitForJobChange", 7, ["x"] * 1001, None, None, 1.0),
    ],
    ids=lambda arguments: arguments[0],
)
def test_local_query_for_too_many_fields_is_refused(
    fleet: ComputeFleet, tmp_path_factory: pytest.TempPathFactory, arguments: Any
) -> None:
    refused = Socket(fleet.api(), tmp_path_factory.mktemp("s") / "s").ask(*arguments)
    assert not refused["success"]
    assert "1001 of them; there may be 1000" in str(refused["result"])


def named(count: int, *names: str) -> Any:
    return ["|", *(["=", "name", name] for name in names), *(["=", "name", f"none{number}"] for number in range(count))]


@pytest.mark.parametrize("enabled", [True, False])
def test_more_than_250_names_are_one_condition(fleet: ComputeFleet, enabled: bool) -> None:
    api = fleet.api(search=searching(enabled=enabled))
    wanted = ["&", named(3000, "web1", "WEB0.north.example.com")]
    asked = {"what": "instance", "filter": wanted, "all_projects": True}
    found = api.request("POST", "/fleetlight/query", json={**asked, "fields": ["name"]}).json()["data"]
    assert [row[0][1] for row in found] == [name_of(0), name_of(1)]
    denied = ["&", ["!=", "name", "web1"], *(["!=", "name", f"none{number}"] for number in range(3000))]
    found = api.request("POST", "/fleetlight/query", json={**asked, "filter": denied, "fields": ["name"]}).json()[
        "data"
    ]
    assert [row[0][1] for row in found] == [name_of(0), name_of(2)]
    [group] = api.request("POST", "/fleetlight/query/counts", json=asked).json()["groups"]
    assert group["count"] == 2
    assert ask(api, named(3000, "web1")).json()["message"] == "Instance name none0 not found"
    assert len(ask(api, wanted).json()["data"]) == 2


def name_of(number: int) -> str:
    return f"web{number}.{CELLS[number]}.example.com"


def test_more_than_250_numbers_of_jobs_are_looked_up(fleet: ComputeFleet) -> None:
    numbers = list(range(1, 12_001))
    answered = ask(fleet.api(), ["|", *(["=", "id", number] for number in numbers)], fields=["id"], path="/2/query/job")
    assert [row[0] for row in answered.json()["data"]] == [[0, number] for number in numbers]


def test_more_jobs_are_looked_up_than_sqlite_takes_values(
    fleet: ComputeFleet, tmp_path_factory: pytest.TempPathFactory
) -> None:
    luxi = Socket(fleet.api(), tmp_path_factory.mktemp("s") / "s")
    numbers = list(range(1, 40_001))
    assert luxi.result("QueryJobs", numbers, ["id"]) == [[number] for number in numbers]


def test_old_calls_take_more_than_250_names(fleet: ComputeFleet, tmp_path_factory: pytest.TempPathFactory) -> None:
    luxi = Socket(fleet.api(), tmp_path_factory.mktemp("s") / "s")
    names = ["web1", *(f"none{number}" for number in range(30_000)), "web2"]
    assert luxi.result("QueryInstances", names, ["name"], False) == [[name_of(1)], [name_of(2)]]


def test_name_that_is_there_often_is_searched_once_and_answered_in_pieces(
    fleet: ComputeFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces: list[int] = []
    pieces_of = whole_results.pieces_of

    async def note(found: LookedUp, to_item: Any, begin: bytes, end: bytes) -> AsyncIterator[bytes]:
        assert found.size < 200
        async for piece in pieces_of(found, to_item, begin, end):
            pieces.append(len(piece))
            yield piece

    monkeypatch.setattr(resources, "pieces_of", note)
    answered = ask(fleet.api(), ["|", *[["=", "name", "web1"]] * 10_000], fields=["name", "uuid", "tags"])
    assert len(answered.json()["data"]) == 10_000
    assert {row[0][1] for row in answered.json()["data"]} == {name_of(1)}
    assert len(pieces) > 10
    assert max(pieces) < 2 * whole_results.PIECE_BYTES


def test_items_that_are_looked_up_have_a_bound_in_bytes(fleet: ComputeFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whole_results, "MAX_LOOKED_UP_BYTES", 60)
    assert ask(fleet.api(), ["|", *[["=", "name", "web1"]] * 10]).status_code == 200
    refused = ask(fleet.api(), ["|", *[["=", "name", f"web{number}"] for number in range(3)]])
    assert refused.status_code == 400
    assert "ask for fewer names" in refused.json()["message"]
