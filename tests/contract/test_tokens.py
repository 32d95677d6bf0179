"""A list that is asked for `at-least` a token includes what the operation did that handed it out."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from fleetlight.cells.kinds.native.adapter import NativeAdapter
from tests.contract.compute_fleet import (
    CELLS,
    MEMBER,
    Api,
    BrokenCells,
    ComputeFleet,
    compute_fleet,
    hanging_pool,
    microversion,
    searching,
)
from tests.support.servers.backups import Backup
from tests.support.waiting import wait_until

pytestmark = pytest.mark.no_rerun

BODY: dict[str, Any] = {"server": {"name": "new", "flavorRef": "1", "imageRef": str(uuid4()), "networks": "none"}}
UNKNOWN = "3f0c1d52-7a54-4c3e-9a3f-0d8f6f3f7c11"
NEW = microversion("2.90")


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[ComputeFleet]:
    with compute_fleet(tmp_path) as fleet:
        fleet.add_hosts()
        yield fleet


@pytest.fixture
def any_fleet(fleet_of_any_store: ComputeFleet) -> ComputeFleet:
    fleet_of_any_store.add_hosts()
    return fleet_of_any_store


def at_least(*tokens: str) -> dict[str, str]:
    return {"Fleetlight-Consistency": f"at-least {','.join(tokens)}"}


def create(api: Api) -> tuple[str, str]:
    """Uuid and token of a new server."""
    response = api.request("POST", "/v2.1/servers", NEW, json=BODY)
    assert response.status_code == 202, response.text
    return response.json()["server"]["id"], response.headers["Fleetlight-Token"]


def cell_of(fleet: ComputeFleet, uuid: str) -> str:
    mapping = fleet.fleet.mapping_of(uuid)
    assert mapping is not None
    return next(name for name, cell in fleet.cells.items() if cell.uuid == mapping.cell_uuid)


def published(fleet: ComputeFleet, cell: str) -> int:
    adapter = NativeAdapter(fleet.cells[cell])
    sequence = adapter.published_sequence()
    adapter.close()
    return sequence


def test_every_operation_hands_out_a_token_that_a_list_honours(any_fleet: ComputeFleet) -> None:
    any_fleet.fill(3)
    api = any_fleet.api()
    uuid, token = create(api)
    cell = cell_of(any_fleet, uuid)
    assert uuid not in api.ids("/v2.1/servers", {"Fleetlight-Consistency": "any"}), "the index says that it is fresh"
    response = api.get("/v2.1/servers", at_least(token))
    assert uuid in [server["id"] for server in response.json()["servers"]]
    assert f"{cell}=live" in response.headers["Fleetlight-Route"]
    any_fleet.work()

    one = f"/v2.1/servers/{uuid}"
    shown = api.get(one)
    operations: list[tuple[str, str, Any]] = [
        ("PUT", one, {"server": {"name": "renamed"}}),
        ("POST", f"{one}/metadata", {"metadata": {"a": "b"}}),
        ("PUT", f"{one}/tags", {"tags": ["red"]}),
        ("POST", f"{one}/action", {"lock": None}),
        ("POST", f"{one}/action", {"unlock": None}),
        ("POST", f"{one}/action", {"os-stop": None}),
        ("POST", f"{one}/action", {"os-resetState": {"state": "active"}}),
        ("POST", f"{one}/action", {"resize": {"flavorRef": "2"}}),
        ("DELETE", one, None),
    ]
    tokens = [token, shown.headers["Fleetlight-Token"]]
    for method, url, body in operations:
        response = api.request(method, url, NEW, **({} if body is None else {"json": body}))
        assert response.status_code < 300, response.text
        tokens.append(response.headers["Fleetlight-Token"])
    revisions = [int(token.removeprefix(f"{uuid}:")) for token in tokens]
    assert revisions == sorted(set(revisions))
    seen = api.get(f"/v2.1/servers/detail?uuid={uuid}", at_least(tokens[-1])).json()["servers"]
    assert [server["OS-EXT-STS:task_state"] for server in seen] == ["deleting"]


def test_index_answers_as_soon_as_it_has_reached_the_change(any_fleet: ComputeFleet) -> None:
    api = any_fleet.api()
    uuid, token = create(api)
    cell = cell_of(any_fleet, uuid)
    any_fleet.index(watermark=0)
    assert f"{cell}=live" in api.get("/v2.1/servers", at_least(token)).headers["Fleetlight-Route"], "no number yet"
    any_fleet.number_changes()
    assert f"{cell}=live" in api.get("/v2.1/servers", at_least(token)).headers["Fleetlight-Route"]
    any_fleet.index(cell, watermark=published(any_fleet, cell))
    # How far the index is counts for a moment.
    wait_until(lambda: f"{cell}=index" in api.get("/v2.1/servers", at_least(token)).headers["Fleetlight-Route"])
    assert api.ids("/v2.1/servers", at_least(token)) == [uuid]


def test_list_waits_for_the_index_to_reach_the_change(fleet: ComputeFleet) -> None:
    api = fleet.api(search=searching(token_wait_s=60))
    uuid, token = create(api)
    cell = cell_of(fleet, uuid)
    fleet.index(watermark=0)

    def index_soon() -> None:
        fleet.number_changes()
        fleet.index(cell, watermark=published(fleet, cell))

    indexing = threading.Timer(0.2, index_soon)
    indexing.start()
    response = api.get("/v2.1/servers", at_least(token))
    indexing.join()
    assert f"{cell}=index" in response.headers["Fleetlight-Route"]
    assert [server["id"] for server in response.json()["servers"]] == [uuid]


def test_several_tokens_are_honoured_together_and_each_cell_for_itself(any_fleet: ComputeFleet) -> None:
    uuids = any_fleet.fill(6)
    api = any_fleet.api()
    tokens, names = [], {}
    for cell in CELLS[:2]:
        uuid = next(uuid for uuid in uuids if cell_of(any_fleet, uuid) == cell)
        names[uuid] = f"renamed-in-{cell}"
        response = api.request("PUT", f"/v2.1/servers/{uuid}", json={"server": {"name": names[uuid]}})
        tokens.append(response.headers["Fleetlight-Token"])
    for joined in (",".join(tokens), ", ".join(tokens), " ".join(tokens)):
        response = api.get("/v2.1/servers", {"Fleetlight-Consistency": f"at-least {joined}"})
        shown = {server["id"]: server["name"] for server in response.json()["servers"]}
        assert shown | names == shown
        route = response.headers["Fleetlight-Route"]
        assert [f"{cell}=live" in route for cell in CELLS] == [True, True, False]


def test_several_servers_of_one_request_have_one_token_for_all(fleet: ComputeFleet) -> None:
    api = fleet.api()
    body = {"server": BODY["server"] | {"min_count": 5, "return_reservation_id": True}}
    response = api.request("POST", "/v2.1/servers", NEW, json=body)
    assert response.status_code == 202, response.text
    token = response.headers["Fleetlight-Token"]
    fleet.number_changes()
    cell = cell_of(fleet, token.partition(":")[0])
    adapter = NativeAdapter(fleet.cells[cell])
    last = adapter.changes_after(0, 100)[-1]
    adapter.close()
    assert token == f"{last.instance_uuid}:{last.revision}"


def test_change_that_the_changelog_has_forgotten_was_indexed_long_ago(fleet: ComputeFleet) -> None:
    api = fleet.api()
    _, token = create(api)
    fleet.number_changes()
    fleet.forget_changes()
    fleet.index(watermark=1000)
    assert api.get("/v2.1/servers", MEMBER, at_least(token)).headers["Fleetlight-Route"] == "index"


@pytest.mark.parametrize(
    "header",
    [
        "at-least",
        "at-least ",
        "at-least nonsense",
        f"at-least {UNKNOWN}",
        f"at-least {UNKNOWN}:0",
        f"at-least {UNKNOWN}:-1",
        f"at-least {UNKNOWN}:1",
        f"at-least {UNKNOWN}:{'9' * 40}",
        "at-least-token",
        "bounded please",
        "at-least " + ",".join(f"{UNKNOWN}:{number}" for number in range(1, 52)),
    ],
)
def test_what_is_no_token_is_refused(fleet: ComputeFleet, header: str) -> None:
    response = fleet.api().get("/v2.1/servers", {"Fleetlight-Consistency": header})
    assert response.status_code == 400
    assert "token" in response.json()["badRequest"]["message"].lower()


def test_token_of_a_revision_that_never_was_is_refused_and_so_is_that_of_somebody_else(fleet: ComputeFleet) -> None:
    uuid = fleet.create("north")
    others = fleet.create("north", project_id="other")
    api = fleet.api()
    texts = []
    for token in (f"{uuid}:77", f"{others}:1", f"{UNKNOWN}:1"):
        response = api.get("/v2.1/servers", MEMBER, at_least(token))
        assert response.status_code == 400
        texts.append(response.json()["badRequest"]["message"].replace(token, "…"))
    assert len(set(texts)) == 1, "they look the same"
    assert api.get("/v2.1/servers", at_least(f"{others}:1")).status_code == 200, "an administrator may see it"


def test_token_of_a_cell_that_is_down_makes_the_answer_incomplete(fleet: ComputeFleet) -> None:
    fleet.fill(6)
    uuid = fleet.create("south")
    with hanging_pool(fleet, "south") as pool:
        api = fleet.api(search=searching(cell_timeout_s=0.2), pool=pool.cells)
        response = api.get("/v2.1/servers", at_least(f"{uuid}:1"))
    assert "south=index-while-down" in response.headers["Fleetlight-Route"]
    assert response.headers["Fleetlight-Complete"] == "false"


def test_token_of_a_cell_that_has_just_joined_is_honoured(fleet: ComputeFleet) -> None:
    fleet.fill(3)
    api = fleet.api()
    assert len(api.ids("/v2.1/servers")) == 3
    fleet.add_cell("west")
    uuid = fleet.create("west")
    assert api.get(f"/v2.1/servers/{uuid}").json()["server"]["name"] == "server"
    fleet.add_cell("far-west")
    uuid = fleet.create("far-west")
    assert uuid in api.ids("/v2.1/servers", at_least(f"{uuid}:1"))


def test_token_of_a_cell_that_has_just_joined_and_is_in_the_index_is_honoured(fleet: ComputeFleet) -> None:
    fleet.fill(3)
    api = fleet.api()
    assert len(api.ids("/v2.1/servers")) == 3
    fleet.add_cell("west")
    uuid = fleet.create("west")
    fleet.number_changes()
    fleet.index("west", watermark=published(fleet, "west"))
    assert uuid in api.ids("/v2.1/servers", at_least(f"{uuid}:1"))


def test_token_counts_without_an_index_too(fleet: ComputeFleet) -> None:
    uuid = fleet.create("south")
    api = fleet.api(search=searching(enabled=False), pool=BrokenCells(fleet))
    assert api.ids("/v2.1/servers", at_least(f"{uuid}:1")) == [uuid]


def test_number_of_a_restored_cell_is_not_taken_for_the_one_that_the_index_has_reached(
    any_fleet: ComputeFleet, tmp_path: Path
) -> None:
    any_fleet.fill(3)
    any_fleet.number_changes()
    backup = Backup(any_fleet.engine("south"), tmp_path)
    lost = {any_fleet.create("south") for _ in range(3)}
    any_fleet.number_changes()
    any_fleet.index(watermark=published(any_fleet, "south"))
    api = any_fleet.api()
    assert lost <= set(api.ids("/v2.1/servers"))
    backup.restore()
    # Before an indexer has noticed, the cell has given out the same numbers again, and more.
    later = [any_fleet.create("south") for _ in range(6)]
    any_fleet.number_changes()
    for uuid in later:
        response = api.get("/v2.1/servers", at_least(f"{uuid}:1"))
        shown = {server["id"] for server in response.json()["servers"]}
        assert set(later) <= shown
        assert not lost & shown
        assert "south=live" in response.headers["Fleetlight-Route"]
