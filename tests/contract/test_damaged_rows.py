"""A row that is damaged, by hand or by a disk, takes no list away: it alone is shown as if its cell were down.

Answers with such a row are not complete (contracts/nova-servers, section 12; docs/decisions/0055).
"""

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete, update
from structlog.testing import capture_logs

from cells.database import writing
from cells.tables import changes, instances, kept_texts
from tests.contract.compute_fleet import MEMBER, ComputeFleet, compute_fleet, microversion
from tests.contract.streams import stream

SINCE = microversion("2.69")
MINIMAL = {"servers": {"id", "status", "links"}, "servers/detail": {"id", "status", "tenant_id", "created", "links"}}
DOWN = "The cell that holds what was asked for cannot be reached. Try again later."
# What each kind of damage is, as SQL of SQLite: a value that other software has written, or what a disk has left.
UNREADABLE = {
    "JSON that ends too soon": "metadata = '{'",
    "bytes in a column of JSON": "metadata = x'00ff'",
    "more JSON than one value": "metadata = '{},{}'",
    "JSON within JSON without end": "metadata = '" + "[" * 5000 + "]" * 5000 + "'",
    "text that is no Unicode": "display_name = CAST(x'ff41' AS TEXT)",
    "bytes in a column of text": "display_name = x'ff41'",
    "text in a column of numbers": "launched_at = 'yesterday'",
    "a number in the place of a flavor": "flavor = '7'",
}


@pytest.fixture
def fleet(fleet_of_any_database: ComputeFleet) -> ComputeFleet:
    return fleet_of_any_database


def damage(fleet: ComputeFleet, uuid: str, **values: Any) -> None:
    """Change the row of an instance in east as nobody should, without a new revision."""
    with writing(fleet.engine("east")) as connection:
        connection.execute(update(instances).where(instances.c.uuid == uuid).values(**values or WITHOUT_SIZES))
        connection.execute(delete(kept_texts).where(kept_texts.c.instance_uuid == uuid))


WITHOUT_SIZES = {"flavor": {"name": "x"}}


def fill(fleet: ComputeFleet) -> tuple[str, list[str]]:
    """Servers of the project in each cell; one in east is damaged. Returns it and the others."""
    damaged = fleet.create("east")
    return damaged, [fleet.create(cell) for cell in ("north", "east", "south")]


@pytest.mark.parametrize("path", MINIMAL)
@pytest.mark.parametrize("query", ["", "sort_key=uuid&sort_dir=asc", "name=server", "limit=2"])
def test_damaged_row_alone_is_shown_as_of_a_cell_that_is_down(fleet: ComputeFleet, path: str, query: str) -> None:
    damaged, others = fill(fleet)
    damage(fleet, damaged)
    pages = list(fleet.api(enabled=False).walk(f"/v2.1/{path}?{query}", SINCE, MEMBER))
    servers = {server["id"]: server for page in pages for server in page.json()["servers"]}
    assert servers.keys() == {damaged, *others}
    assert (set(servers[damaged]), servers[damaged]["status"]) == (MINIMAL[path], "UNKNOWN")
    assert all("name" in servers[other] for other in others)
    for page in pages:
        has_it = damaged in [server["id"] for server in page.json()["servers"]]
        assert page.headers["Fleetlight-Complete"] == ("false" if has_it else "true")


@pytest.mark.parametrize("path", MINIMAL)
def test_older_microversions_leave_it_out_or_fail_if_that_is_configured(fleet: ComputeFleet, path: str) -> None:
    damaged, others = fill(fleet)
    damage(fleet, damaged)
    for limit in (1, 1000):
        pages = list(fleet.api(enabled=False).walk(f"/v2.1/{path}?limit={limit}", MEMBER))
        assert {server["id"] for page in pages for server in page.json()["servers"]} == set(others)
        assert "false" in [page.headers["Fleetlight-Complete"] for page in pages]
    failing = fleet.api(enabled=False, skips_down_cells=False)
    response = failing.get(f"/v2.1/{path}", MEMBER)
    assert (response.status_code, response.json()["computeFault"]["message"]) == (500, DOWN)
    assert failing.get(f"/v2.1/{path}", SINCE, MEMBER).status_code == 200


def test_server_of_a_damaged_row_is_shown_as_of_a_cell_that_is_down(fleet: ComputeFleet) -> None:
    damaged, others = fill(fleet)
    damage(fleet, damaged)
    api = fleet.api(enabled=False)
    response = api.get(f"/v2.1/servers/{damaged}", SINCE, MEMBER)
    assert (response.status_code, response.headers["Fleetlight-Complete"]) == (200, "false")
    assert response.json()["server"]["status"] == "UNKNOWN"
    older = api.get(f"/v2.1/servers/{damaged}", MEMBER)
    assert (older.status_code, older.json()["computeFault"]["message"]) == (500, DOWN)
    assert api.get(f"/v2.1/servers/{others[1]}", MEMBER).status_code == 200


@pytest.mark.parametrize("what", UNREADABLE.values(), ids=list(UNREADABLE))
def test_row_that_cannot_even_be_read_is_shown_in_the_same_way(tmp_path: Path, what: str) -> None:
    """Only SQLite has such rows: in PostgreSQL JSON, text and numbers are types."""
    with compute_fleet(tmp_path) as fleet:
        damaged, others = fill(fleet)
        deleted = fleet.create("east")
        fleet.operations("east").delete(deleted)
        with writing(fleet.engine("east")) as connection:
            connection.exec_driver_sql(f"UPDATE instances SET {what} WHERE uuid = ?", (damaged,))  # noqa: S608
            connection.execute(delete(kept_texts).where(kept_texts.c.instance_uuid == damaged))
        api = fleet.api(enabled=False)
        for path, members in MINIMAL.items():
            response = api.get(f"/v2.1/{path}", SINCE, MEMBER)
            assert (response.status_code, response.headers["Fleetlight-Complete"]) == (200, "false")
            servers = {server["id"]: server for server in response.json()["servers"]}
            assert servers.keys() == {damaged, *others}
            assert set(servers[damaged]) == members
        response = api.get(f"/v2.1/servers/{damaged}", SINCE, MEMBER)
        assert response.json()["server"]["status"] == "UNKNOWN"
        assert api.get(f"/v2.1/servers/{others[1]}", MEMBER).status_code == 200


def test_list_explains_what_is_damaged_and_the_log_names_it_once(fleet: ComputeFleet) -> None:
    damaged, _ = fill(fleet)
    damage(fleet, damaged)
    api = fleet.api(enabled=False)
    with capture_logs() as logs:
        for _ in range(3):
            explained = api.get("/fleetlight/explain?request=GET+/v2.1/servers/detail").json()
            assert (explained["rows"], explained["complete"]) == (4, False)
            assert explained["remarks"] == ["rows of cell 'east' that are damaged, as the log says: 1"]
    [logged] = [event for event in logs if event["event"] == "row_damaged"]
    assert (logged["cell"], logged["instance"]) == (fleet.cells["east"].uuid, damaged)
    assert logged["reason"] == "KeyError: 'vcpus'"


def test_watch_shows_a_damaged_row_as_of_a_cell_that_is_down(fleet: ComputeFleet) -> None:
    damaged, _ = fill(fleet)
    fleet.number_changes()
    api = fleet.api()

    async def scenario() -> None:
        async with stream(api, "", MEMBER) as watch:
            assert (await watch.next()).name == "ready"
            fleet.operations("east").update(damaged, {"display_name": "changed"})
            damage(fleet, damaged)
            # What nobody here can read of an announcement is read from the row.
            with writing(fleet.engine("east")) as connection:
                connection.execute(update(changes).where(changes.c.sequence.is_(None)).values(message=b"{}"))
            later = fleet.create("east")
            fleet.number_changes()
            changed = await watch.next()
            assert (changed.name, changed.data["server"]["id"]) == ("changed", damaged)
            assert set(changed.data["server"]) == MINIMAL["servers/detail"]
            assert (await watch.next()).data["server"]["id"] == later

    api.run(scenario())


def test_watch_lists_again_when_nobody_can_say_whom_a_damaged_row_concerns(tmp_path: Path) -> None:
    with compute_fleet(tmp_path) as fleet:
        damaged, _ = fill(fleet)
        fleet.number_changes()
        api = fleet.api()

        async def scenario() -> None:
            async with stream(api, "", MEMBER) as watch:
                assert (await watch.next()).name == "ready"
                fleet.operations("east").update(damaged, {"display_name": "changed"})
                with writing(fleet.engine("east")) as connection:
                    connection.execute(update(changes).where(changes.c.sequence.is_(None)).values(message=b"{}"))
                    connection.exec_driver_sql("UPDATE instances SET project_id = x'ff' WHERE uuid = ?", (damaged,))
                    connection.execute(delete(kept_texts).where(kept_texts.c.instance_uuid == damaged))
                fleet.number_changes()
                assert (await watch.next()).name == "reset"

        api.run(scenario())
