"""`GET /fleetlight/changes/recent`: what changed lately in all cells, the newest first, and who did it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

import pytest
from sqlalchemy import select, update

from fleetlight.api.shared.times import with_zone
from fleetlight.cells.capabilities import CellKind
from fleetlight.cells.database.engines import create_database_engine, writing
from fleetlight.cells.fleet.journals import DetectedChange
from fleetlight.cells.fleet.tables import journals as fleet_journals
from fleetlight.cells.kinds.native.adapter import NativeAdapter
from fleetlight.cells.kinds.native.changelog_pruning import ChangelogPruning
from fleetlight.cells.model import Cell, RequestContext
from fleetlight.cells.tables import changes
from fleetlight.manager.operations.native_cells import acceptance_in
from fleetlight.notifications.envelope import decode, encode
from fleetlight.resources.clock import system_clock
from tests.contract.compute_fleet import CELLS, MEMBER, Api, ComputeFleet, hanging_pool
from tests.contract.conftest import own_fleet
from tests.support.fleets.changing_nodes import ChangingNodes
from tests.support.fleets.documents import make_record

RECENT = "/fleetlight/changes/recent"
ADA = RequestContext("req-1", "ada", "demo")
fleet = own_fleet


def recent(api: Api, headers: Mapping[str, str] | None = None, **parameters: Any) -> Any:
    given = {"all_projects": 1, **parameters} if headers is None else parameters
    answer = api.get(f"{RECENT}?{urlencode(given)}", headers or {})
    assert answer.status_code == 200, answer.text
    return answer.json()


def names(answer: Any) -> list[str]:
    return [each["instance"]["name"] for each in answer["changes"]]


def rename(fleet: ComputeFleet, cell: str, uuid: str, *new: str) -> None:
    for name in new:
        fleet.operations(cell).update(uuid, {"display_name": name})
    fleet.number_changes()


def test_changes_of_all_cells_come_newest_first_with_who_and_what(fleet: ComputeFleet) -> None:
    api = fleet.api()
    uuid = fleet.create("east", display_name="web", tags=["a"])
    fleet.create("north", display_name="db")
    acceptance_in(fleet.native, fleet.fleet, fleet.cells["east"]).update(uuid, {"display_name": "api"}, ADA)
    fleet.number_changes()
    answer = recent(api)
    assert names(answer) == ["api", "db", "web"]
    renamed, _, created = answer["changes"]
    assert renamed["instance"] == {"id": uuid, "name": "api", "project_id": "demo", "cell": "east", "deleted": False}
    assert (renamed["event"], renamed["revision"], renamed["user_id"]) == ("instance.update", 2, "ada")
    assert (renamed["request_id"], renamed["project_id"]) == ("req-1", "demo")
    assert renamed["changed"] == {"display_name": ["web", "api"]}
    assert (created["changed"], created["user_id"], created["revision"]) == (None, None, 1)
    assert (answer["marker"], answer["complete"], answer["missing"]) == (None, True, [])
    history = api.get(f"/fleetlight/servers/{uuid}/history").json()["history"]
    assert [each["at"] for each in history] == [renamed["at"], created["at"]]


@pytest.mark.parametrize("limit", [1, 3, 7])
def test_pages_by_their_markers_give_every_change_once_in_order(fleet: ComputeFleet, limit: int) -> None:
    api = fleet.api()
    made = []
    for number in range(4):
        for cell in CELLS:
            made.append(f"{cell}-{number}")
            fleet.create(cell, display_name=made[-1])
    fleet.number_changes()
    found, page = [], recent(api, limit=limit)
    while page["marker"] is not None:
        assert len(page["changes"]) == limit
        found += names(page)
        page = recent(api, limit=limit, marker=page["marker"])
    assert found + names(page) == made[::-1]


def test_filter_lets_pass_what_was_so_before_or_is_so_after(fleet: ComputeFleet) -> None:
    api = fleet.api()
    uuid = fleet.create("east", display_name="web")
    rename(fleet, "east", uuid, "db", "cache", "web-2")
    assert names(recent(api, filter='name == "db"')) == ["cache", "db"]
    assert names(recent(api, filter='name =* "web*"')) == ["web-2", "db", "web"]
    assert names(recent(api, filter='cell == "north"')) == []


def test_deleted_instances_are_among_them(fleet: ComputeFleet) -> None:
    uuid = fleet.create("east", display_name="web")
    fleet.operations("east").delete(uuid)
    fleet.number_changes()
    newest, *_ = recent(fleet.api())["changes"]
    assert newest["instance"]["deleted"] is True
    assert newest["changed"]["deleted"] == [False, True]


def test_what_is_sought_is_found_behind_much_that_is_not(fleet: ComputeFleet) -> None:
    api = fleet.api()
    fleet.create("north", display_name="sought")
    uuid = fleet.create("north", display_name="0")
    rename(fleet, "north", uuid, *map(str, range(1, 80)))
    ChangingNodes(fleet.engine("north"), fleet.fleet, fleet.cells["north"], ()).add("one")
    fleet.number_changes()
    assert names(recent(api, filter='name == "sought"', limit=2)) == ["sought"]
    assert len(recent(api, limit=200)["changes"]) == 81, "nodes are no instances"


def test_members_get_their_project_alone_and_learn_nothing_of_cells_and_hosts(fleet: ComputeFleet) -> None:
    api = fleet.api()
    fleet.create("east", display_name="theirs", project_id="other")
    uuid = fleet.create("east", display_name="mine")
    fleet.operations("east").update(uuid, {"host": "east-host1"})
    fleet.number_changes()
    answer = recent(api, MEMBER)
    assert names(answer) == ["mine", "mine"]
    assert "missing" not in answer
    assert "cell" not in answer["changes"][0]["instance"]
    assert answer["changes"][0]["changed"] == {}
    assert ":" not in answer["changes"][0]["publisher"]
    assert api.get(f"{RECENT}?all_projects=1", MEMBER).status_code == 403
    assert names(recent(api, {}, all_projects=1)) == ["mine", "mine", "theirs"]


def test_cell_that_does_not_answer_is_named_and_the_others_are_there(fleet: ComputeFleet) -> None:
    fleet.create("north", display_name="there")
    fleet.number_changes()
    with hanging_pool(fleet, "south") as pool:
        answer = recent(fleet.api(pool=pool.cells))
        pool.gate.set()
    assert (names(answer), answer["complete"]) == (["there"], False)
    [missing] = answer["missing"]
    assert missing["cell"] == "south"
    assert missing["reason"]


def add_nova(fleet: ComputeFleet, *found: Mapping[str, Any], began_at: int = 1) -> Cell:
    """A cell of Nova of which an indexer has found these records one after the other since `began_at`."""
    cell = fleet.fleet.add_cell("nova", CellKind.NOVA_DB, "sqlite:////nowhere/nova.db", "")
    journals = fleet.fleet.journals
    journals.start_over(cell.uuid)
    engine = create_database_engine(fleet.fleet_url)
    with writing(engine) as connection:
        connection.execute(update(fleet_journals).values(began_at=began_at))
    engine.dispose()
    for version, record in enumerate(found, 1):
        journals.append(cell.uuid, [DetectedChange(record["uuid"], version, dict(record))])
    journals.confirm(cell.uuid, system_clock())
    return cell


def test_cell_that_numbers_nothing_has_what_indexers_found(fleet: ComputeFleet) -> None:
    add_nova(fleet, *(make_record(number, display_name=f"nova-{number}") for number in (1, 2)))
    answer = recent(fleet.api(), filter='cell == "nova"')
    assert names(answer) == ["nova-2", "nova-1"]
    for each in answer["changes"]:
        assert (each["event"], each["user_id"], each["changed"]) == (None, None, None)


def all_pages(api: Api, most: int, **parameters: Any) -> list[list[str]]:
    """The names on each page, by the markers; fails where there are more than `most`."""
    page = recent(api, **parameters)
    pages = [names(page)]
    while page["marker"] is not None:
        assert len(pages) < most, pages
        page = recent(api, **parameters, marker=page["marker"])
        pages.append(names(page))
    assert page["complete"]
    return pages


def set_clocks(fleet: ComputeFleet, cell: str, seconds: Sequence[int]) -> None:
    """Move the time of each numbered change of a cell, in order, as a writer with another clock would have it."""
    with writing(fleet.engine(cell)) as connection:
        rows = connection.execute(select(changes.c.sequence, changes.c.message).order_by(changes.c.sequence)).all()
        for (number, message), moved in zip(rows, seconds, strict=True):
            said = decode(message)
            late = replace(said, timestamp=said.timestamp + timedelta(seconds=moved))
            connection.execute(update(changes).where(changes.c.sequence == number).values(message=encode(late)))


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 50])
def test_pages_give_every_change_once_in_the_order_of_its_cell_whatever_clocks_say(
    fleet: ComputeFleet, limit: int
) -> None:
    apart = {"north": [0, 0, -3600, 3600, 0, -7200], "east": [7200, 0, 0, 60, -60, 0]}
    for number in range(6):
        for cell in apart:
            fleet.create(cell, display_name=f"{cell}-{number}")
    fleet.number_changes()
    for cell, seconds in apart.items():
        set_clocks(fleet, cell, seconds)
    now = system_clock()
    # Nova leaves the time of a server alone when its metadata changes.
    ages_s = [5, 10**6, 4, 3, 10**5, 9000]
    records = [
        make_record(number, display_name=f"nova-{number}", created_at=now - age_s * 10**6)
        for number, age_s in enumerate(ages_s)
    ]
    add_nova(fleet, *records)
    found = [name for page in all_pages(fleet.api(), 20, limit=limit) for name in page]
    for cell in (*apart, "nova"):
        assert [each for each in found if each.startswith(cell)] == [
            f"{cell}-{number}" for number in (5, 4, 3, 2, 1, 0)
        ]
    assert len(found) == 18


def test_change_with_too_early_a_time_stands_beside_the_one_that_it_followed(fleet: ComputeFleet) -> None:
    fleet.create("north", display_name="north")
    fleet.number_changes()
    now = system_clock()
    times = {"before": now, "metadata": now - 10**12, "after": now + 1}
    add_nova(
        fleet,
        *(make_record(number, display_name=name, created_at=at) for number, (name, at) in enumerate(times.items())),
    )
    assert names(recent(fleet.api())) == ["after", "metadata", "before", "north"]


def test_changelog_is_read_in_batches_however_small_the_page_is(
    fleet: ComputeFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    uuid = fleet.create("north", display_name="0")
    rename(fleet, "north", uuid, *map(str, range(1, 100)))
    statements = []
    read = NativeAdapter.changes_after

    def counted(adapter: NativeAdapter, sequence: int, limit: int) -> Any:
        statements.append(limit)
        return read(adapter, sequence, limit)

    monkeypatch.setattr(NativeAdapter, "changes_after", counted)
    assert all_pages(fleet.api(), 1, limit=1, filter='name == "nosuch"') == [[]]
    assert len(statements) == 2


def test_journal_with_much_that_is_no_longer_there_needs_no_empty_pages(fleet: ComputeFleet) -> None:
    quiet = make_record(1, display_name="quiet")
    busy = [make_record(2, display_name="busy")] * 700
    add_nova(fleet, quiet, *busy)
    assert all_pages(fleet.api(), 1) == [["busy", "quiet"]]


def test_filter_may_say_how_long_ago(fleet: ComputeFleet) -> None:
    fleet.create("north", display_name="new")
    fleet.number_changes()
    api = fleet.api()
    assert names(recent(api, filter='mtime > "10m ago"')) == ["new"]
    assert names(recent(api, filter='mtime < "10m ago"')) == []


def change_as(fleet: ComputeFleet, uuid: str, name: str, user: str) -> None:
    acceptance = acceptance_in(fleet.native, fleet.fleet, fleet.cells["north"])
    acceptance.update(uuid, {"display_name": name}, RequestContext("req-1", user, "demo"))


def test_changes_of_one_user_are_found_behind_those_of_others(fleet: ComputeFleet) -> None:
    uuid = fleet.create("north", display_name="new")
    for name, user in (("a", "ada"), ("b", "bob"), ("c", "ada")):
        change_as(fleet, uuid, name, user)
    fleet.number_changes()
    api = fleet.api()
    assert names(recent(api, user_id="ada")) == ["c", "a"]
    assert names(recent(api, user_id="eve")) == []
    page = recent(api, user_id="ada", limit=1)
    assert (names(page), names(recent(api, user_id="ada", marker=page["marker"]))) == (["c"], ["a"])


def test_changes_are_those_from_one_moment_and_before_another(fleet: ComputeFleet) -> None:
    uuid = fleet.create("north", display_name="a")
    rename(fleet, "north", uuid, "b", "c")
    set_clocks(fleet, "north", [-3 * 3600, -2 * 3600, 0])
    api = fleet.api()
    third, second, first = (each["at"] for each in recent(api)["changes"])
    assert names(recent(api, changed_since=second)) == ["c", "b"]
    assert names(recent(api, changed_before=second)) == ["a"]
    assert names(recent(api, changed_since=second, changed_before=third)) == ["b"]
    assert names(recent(api, changed_since="150m ago")) == ["c", "b"]
    assert names(recent(api, changed_before="1h ago")) == ["b", "a"]
    answer = recent(api, changed_since=first, changed_before=first)
    assert (names(answer), answer["marker"], answer["complete"]) == ([], None, True)


def test_changes_that_no_relay_numbers_are_missing_once_they_should_have_been(fleet: ComputeFleet) -> None:
    fleet.create("east", display_name="web")
    fleet.create("south", display_name="db")
    fleet.number_changes()
    now = system_clock()
    fleet.create("east", display_name="late")
    assert recent(fleet.api(clock=lambda: now + 5_000_000))["complete"]
    api = fleet.api(clock=lambda: now + 20_000_000)
    answer = recent(api)
    assert (names(answer), answer["complete"]) == (["db", "web"], False)
    [missing] = answer["missing"]
    assert missing["cell"] == "east"
    assert missing["reason"].startswith("no relay has numbered its changes since 20")
    assert recent(api, changed_before=with_zone(now))["complete"]
    fleet.number_changes()
    assert recent(api)["complete"]


def test_what_is_not_kept_any_more_is_missing_where_it_was_asked_for(fleet: ComputeFleet) -> None:
    uuid = fleet.create("north", display_name="a")
    rename(fleet, "north", uuid, "b", "c")
    api = fleet.api()
    first, second, third = (each["at"] for each in reversed(recent(api)["changes"]))
    with writing(fleet.engine("north")) as connection:
        connection.execute(update(changes).where(changes.c.sequence < 3).values(published_at=0))
    ChangelogPruning(fleet.engine("north"), system_clock, retention_h=1).prune_when_due()
    assert (names(recent(api)), recent(api)["complete"]) == (["c"], True), "as far back as changes are kept"
    for since, is_complete in (("1960-01-01T00:00Z", False), (first, False), (second, False), (third, True)):
        answer = recent(api, changed_since=since)
        assert (names(answer), answer["complete"]) == (["c"], is_complete)
    assert recent(api, changed_since=first)["missing"] == [
        {"cell": "north", "reason": f"its changes until {second} are not kept any more"}
    ]


def test_newest_change_of_an_instance_hides_those_before_a_moment_in_a_cell_that_numbers_nothing(
    fleet: ComputeFleet,
) -> None:
    add_nova(fleet, make_record(1, display_name="nova"))
    answer = recent(fleet.api(), changed_before="10m ago")
    assert [each["reason"] for each in answer["missing"]] == ["of each instance only the newest change is known"]
    assert recent(fleet.api(), changed_since="10m ago")["complete"]


def test_changes_before_a_journal_began_or_that_it_has_dropped_are_missing(
    fleet: ComputeFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are as old as the journal has found them: Nova leaves the time of a server alone in some changes."""
    began, *minutes = 60, 40, 30, 20, 10
    now = system_clock()
    clock = iter([now - ago * 60_000_000 for ago in (began, *minutes)])
    monkeypatch.setattr("fleetlight.cells.fleet.journals.system_clock", lambda: next(clock))
    monkeypatch.setattr("fleetlight.cells.fleet.journals.KEPT", 3)
    found = [make_record(ago, display_name=str(ago), updated_at=1) for ago in minutes]
    nova = add_nova(fleet, *found[:3], began_at=now - began * 60_000_000)
    api = fleet.api()
    for since, names_since, is_complete in (
        ("70m ago", ["20", "30", "40"], False),
        ("50m ago", ["20", "30", "40"], True),
        ("25m ago", ["20"], True),
    ):
        answer = recent(api, changed_since=since)
        assert (names(answer), answer["complete"]) == (names_since, is_complete)
    fleet.fleet.journals.append(nova.uuid, [DetectedChange(found[3]["uuid"], 4, found[3])])
    for since, is_complete in (("45m ago", False), ("35m ago", True)):
        answer = recent(api, changed_since=since)
        assert (names(answer), answer["complete"]) == (["10", "20", "30"], is_complete)
    [missing] = recent(api, changed_since="45m ago")["missing"]
    assert missing["reason"].endswith("are not kept any more")


def test_what_is_older_than_wanted_is_not_looked_at_page_by_page(fleet: ComputeFleet) -> None:
    uuid = fleet.create("north", display_name="0")
    rename(fleet, "north", uuid, *map(str, range(1, 60)))
    set_clocks(fleet, "north", [-7200] * 59 + [0])
    answer = recent(fleet.api(), changed_since="30m ago", limit=5)
    assert (names(answer), answer["marker"]) == (["59"], None)


def test_headers_say_as_of_every_list_whether_it_is_complete(fleet: ComputeFleet) -> None:
    fleet.create("north", display_name="web")
    fleet.number_changes()
    api = fleet.api()
    headers = api.get(f"{RECENT}?all_projects=1").headers
    assert headers["Fleetlight-Complete"] == "true"
    assert headers["Fleetlight-Route"] == ", ".join(f"{cell}=changelog" for cell in sorted(CELLS))
    with writing(fleet.engine("north")) as connection:
        connection.execute(update(changes).values(message=b"{}"))
    headers = api.get(RECENT, MEMBER).headers
    assert (headers["Fleetlight-Complete"], headers["Fleetlight-Route"]) == ("false", "cells")


def test_who_made_a_change_is_not_known_of_cells_that_number_nothing(fleet: ComputeFleet) -> None:
    add_nova(fleet, *(make_record(number) for number in range(2)))
    answer = recent(fleet.api(), user_id="ada")
    assert (answer["complete"], [each["reason"] for each in answer["missing"]]) == (
        False,
        ["its changes do not name their users"],
    )


def test_changes_that_cannot_be_read_make_the_answer_incomplete(fleet: ComputeFleet) -> None:
    uuid = fleet.create("north", display_name="old")
    rename(fleet, "north", uuid, "damaged", "new")
    with writing(fleet.engine("north")) as connection:
        connection.execute(update(changes).where(changes.c.sequence == 2).values(message=b"{}"))
    api = fleet.api()
    answer = recent(api)
    assert (names(answer), answer["complete"]) == (["new", "old"], False)
    assert answer["missing"] == [{"cell": "north", "reason": "1 of its changes cannot be read"}]
    answer = recent(api, MEMBER)
    assert (names(answer), answer["complete"], "missing" in answer) == (["new", "old"], False, False)


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"filter": 'nonsense == "1"'}, "nonsense"),
        ({"filter": 'os == "debian"'}, "os: made of what is configured"),
        ({"limit": "0"}, "limit: 0; it is at least 1"),
        ({"changed_since": "lately"}, "changed_since: 'lately' is no time"),
        ({"changed_before": "yesterday"}, "changed_before: 'yesterday' is no time"),
        ({"marker": "nonsense"}, "marker: 'nonsense' is none that an answer had"),
        ({"after": "x"}, "there is no parameter 'after'"),
    ],
)
def test_what_cannot_be_asked_is_refused_by_name(
    fleet: ComputeFleet, parameters: Mapping[str, str], words: str
) -> None:
    answer = fleet.api().get(f"{RECENT}?{urlencode(parameters)}")
    assert answer.status_code == 400, answer.text
    (fault,) = answer.json().values()
    assert words in fault["message"]
