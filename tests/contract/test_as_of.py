"""The list of instances as of a moment, as far back as cells keep what their changes have replaced."""

from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest
from sqlalchemy import select, update

from fleetlight.api.settings import ApiSettings
from fleetlight.cells.database.engines import writing
from fleetlight.cells.kinds.native import past_instances
from fleetlight.cells.kinds.native.relay import Relay
from fleetlight.cells.settings import RelaySettings
from fleetlight.cells.tables import changes
from fleetlight.resources.clock import system_clock
from tests.contract.compute_fleet import CELLS, MEMBER, Api, BrokenCells, ComputeFleet
from tests.contract.conftest import fleet_of_any_database, own_fleet
from tests.contract.test_query import LARGE, SMALL

HOUR = 3600 * 1_000_000
fleet = fleet_of_any_database
files = own_fleet


def text(moment: int) -> str:
    return datetime.fromtimestamp(moment / 1e6, UTC).isoformat()


def asked(api: Api, moment: int | str, *headers: dict[str, str], **parameters: str) -> httpx.Response:
    as_of = moment if isinstance(moment, str) else text(moment)
    everybody = {} if headers else {"all_projects": "1"}
    query = urlencode({"fields": "name", "as_of": as_of} | everybody | parameters)
    return api.get(f"/fleetlight/query?{query}", *headers)


def rows(response: httpx.Response) -> list[list[Any]]:
    assert response.status_code == 200, response.text
    assert response.headers["fleetlight-complete"] == "true"
    return [[value for _, value in row] for row in response.json()["data"]]


def names(api: Api, moment: int | str, **parameters: str) -> list[str]:
    return [row[0] for row in rows(asked(api, moment, **parameters))]


def test_instances_are_as_they_were_before_later_changes(fleet: ComputeFleet) -> None:
    api = fleet.api()
    start = system_clock()
    kept = fleet.create("north", display_name="kept", tags=["a"], node="node1", **SMALL)
    gone = fleet.create("east", display_name="gone", **LARGE)
    between = system_clock()
    fleet.operations("north").update(kept, {"display_name": "renamed", "tags": ["a", "b"]})
    fleet.operations("north").update(kept, {"display_name": "renamed again", "node": "node2"})
    fleet.operations("east").delete(gone)
    fleet.create("south", display_name="new")
    now = system_clock()
    assert rows(asked(api, start)) == []
    fields = "name,tags,pnode,be/memory,cell"
    assert rows(asked(api, between, fields=fields)) == [
        ["gone", [], None, 8192, "east"],
        ["kept", ["a"], "node1", 512, "north"],
    ]
    assert rows(asked(api, now, fields="name,tags,pnode")) == [
        ["new", [], None],
        ["renamed again", ["a", "b"], "node2"],
    ]


def test_filter_order_and_pages_are_about_what_was_then(fleet: ComputeFleet) -> None:
    for number in range(9):
        fleet.create(CELLS[number % 3], display_name=f"web{number}", **(LARGE if number % 2 else SMALL))
    moment = system_clock()
    for cell in CELLS:
        operations = fleet.operations(cell)
        found = [row[1] for row in rows(asked(fleet.api(), moment, fields="name,uuid", filter=f'cell == "{cell}"'))]
        operations.update(found[0], {"display_name": "zz"})
        operations.delete(found[2])
    api = fleet.api(settings=ApiSettings(max_limit=4))
    assert names(api, moment, filter='name =* "web*" and be/memory > 1024') == ["web1", "web3", "web5", "web7"]
    walked: list[str] = []
    marker: str | None = None
    while True:
        more = {} if marker is None else {"marker": marker}
        page = asked(api, moment, order="-name", limit="2", **more)
        walked += [row[0] for row in rows(page)]
        marker = page.json()["marker"]
        if marker is None:
            break
    assert walked == [f"web{number}" for number in reversed(range(9))]
    assert names(api, moment, order="ctime", filter='cell == "east"') == ["web1", "web4", "web7"]


def test_what_was_never_stored_is_not_known_of_the_past(files: ComputeFleet) -> None:
    files.create("north", display_name="web", power_state=1)
    answer = asked(files.api(), system_clock(), fields="name,vm_state,status,oper_state,oper_ram,console").json()
    assert answer["data"] == [[[0, "web"], [0, "active"], [2, None], [2, None], [2, None], [3, None]]]


def test_routes_say_that_cells_and_their_changelogs_have_answered(files: ComputeFleet) -> None:
    files.fill(3)
    response = asked(files.api(), system_clock())
    assert response.headers["fleetlight-route"] == "east=changelog, north=changelog, south=changelog"
    response = asked(files.api(), system_clock(), MEMBER | {"X-Project-Id": "demo"})
    assert response.headers["fleetlight-route"] == "cells"


def test_cell_that_is_down_is_missing_and_the_answer_says_so(files: ComputeFleet) -> None:
    files.fill(3)
    api = files.api(pool=BrokenCells(files, failing_after={"east": 0}))
    response = asked(api, system_clock())
    assert response.headers["fleetlight-complete"] == "false"
    assert "east=skipped" in response.headers["fleetlight-route"]
    assert len(response.json()["data"]) == 2


def test_members_see_what_was_theirs(files: ComputeFleet) -> None:
    own = files.create("east", display_name="own", project_id="demo", user_id="ada")
    files.create("east", display_name="other", project_id="other")
    moment = system_clock()
    files.operations("east").update(own, {"display_name": "later"})
    member = {**MEMBER, "X-Project-Id": "demo", "X-User-Id": "ada"}
    response = asked(files.api(), moment, member, fields="name,cell,pnode")
    assert response.json()["data"] == [[[0, "own"], [1, None], [1, None]]]
    assert asked(files.api(), moment, member, all_projects="1").status_code == 403


def test_counts_are_of_that_moment_too(files: ComputeFleet) -> None:
    uuid = files.create("east", display_name="web", vm_state="active")
    moment = system_clock()
    files.operations("east").delete(uuid)
    query = urlencode({"by": "vm_state", "as_of": text(moment), "all_projects": "1"})
    counted = files.api().get(f"/fleetlight/query/counts?{query}").json()
    assert [(group["by"], group["count"]) for group in counted["groups"]] == [({"vm_state": "active"}, 1)]


def prune(fleet: ComputeFleet, cell: str) -> None:
    """Let the relay of a cell publish all changes, and forget them when they are an hour old: all of them."""
    later = system_clock() + 2 * HOUR
    settings = RelaySettings(changelog_retention_h=1)
    relay = Relay(fleet.engine(cell), fleet.cells[cell], _Nobody(), settings)
    while relay.run_once():
        pass
    relay.close()
    relay = Relay(fleet.engine(cell), fleet.cells[cell], _Nobody(), settings, clock=lambda: later)
    while fleet_changes(fleet, cell):
        relay.run_once()
    relay.close()


def fleet_changes(fleet: ComputeFleet, cell: str) -> int:
    with fleet.engine(cell).connect() as connection:
        return len(connection.execute(select(changes.c.id)).all())


class _Nobody:
    """A publisher to nobody."""

    def publish(self, _messages: Any) -> None: ...

    def close(self) -> None: ...


def test_moment_before_the_changes_that_are_kept_is_refused_with_the_earliest_and_its_cell(fleet: ComputeFleet) -> None:
    before = system_clock()
    uuid = fleet.create("east", display_name="old")
    created = system_clock()
    prune(fleet, "east")
    fleet.operations("east").update(uuid, {"display_name": "new"})
    api = fleet.api()
    refused = asked(api, before)
    assert refused.status_code == 400
    message = refused.json()["badRequest"]["message"]
    assert "as_of: the earliest moment that can be answered is 20" in message
    assert "because of cell 'east': the changes before that are not kept any more" in message
    earliest = message.split(" is ")[1].split(",")[0]
    assert names(api, earliest) == ["old"]
    assert names(api, created) == ["old"]
    assert names(api, before, filter='cell != "east"') == []
    of_member = asked(api, before, MEMBER | {"X-Project-Id": "demo"}).json()["badRequest"]["message"]
    assert "east" not in of_member
    assert earliest in of_member


def test_more_changes_than_one_request_may_undo_are_refused_with_the_limit(
    files: ComputeFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(past_instances, "MAX_UNDONE", 3)
    uuid = files.create("east", display_name="0")
    moments = [system_clock()]
    for number in range(1, 6):
        files.operations("east").update(uuid, {"display_name": str(number)})
        moments.append(system_clock())
    assert [names(files.api(), moment) for moment in moments[2:]] == [["2"], ["3"], ["4"], ["5"]]
    refused = asked(files.api(), moments[1])
    assert refused.status_code == 400
    assert "one request undoes at most 3 changes of a cell" in refused.text


@pytest.mark.parametrize(
    ("as_of", "says"),
    [
        ("yesterday", "as_of: 'yesterday' is no time with its zone, such as 2026-11-24T10:00:00Z"),
        ("2026-11-24T10:00:00", "is no time with its zone"),
        ("", "is no time with its zone"),
        ("0001-01-01T00:00:00+23:59", "as_of: "),
        ("9999-12-31T23:59:59Z", "as_of: 9999-12-31T23:59:59.000000Z is still to come"),
    ],
)
def test_what_is_no_moment_of_the_past_is_refused(files: ComputeFleet, as_of: str, says: str) -> None:
    files.create("east")
    response = asked(files.api(), as_of)
    if as_of.startswith("0001"):
        assert rows(response) == []
        return
    assert response.status_code == 400
    assert says in response.text


def test_only_instances_have_a_past(files: ComputeFleet) -> None:
    response = asked(files.api(), system_clock(), what="node")
    assert response.status_code == 400
    assert "as_of: only instances are known as they were, and not items of type 'node'" in response.text


def test_clock_that_was_ahead_does_not_mix_two_states(files: ComputeFleet) -> None:
    uuid = files.create("east", display_name="first")
    files.operations("east").update(uuid, {"display_name": "second"})
    files.operations("east").update(uuid, {"display_name": "third"})
    moment = system_clock()
    with writing(files.engine("east")) as connection:
        connection.execute(update(changes).where(changes.c.revision == 2).values(committed_at=moment + HOUR))
    assert names(files.api(), moment) == ["third"]


def test_explanation_says_that_no_index_is_asked_for_the_past(files: ComputeFleet) -> None:
    files.fill(3)
    query = urlencode({"fields": "name", "all_projects": "1", "as_of": text(system_clock())})
    request = urlencode({"request": f"GET /fleetlight/query?{query}"})
    explained = files.api().get(f"/fleetlight/explain?{request}").json()
    assert explained["rows"] == 3
    assert {(cell["route"], cell["why"].partition(":")[0]) for cell in explained["cells"]} == {
        ("changelog", "only cells know what they were like then")
    }
