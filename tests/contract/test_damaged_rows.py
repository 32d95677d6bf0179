"""A row that is damaged, by hand or by a disk, takes no list away: it alone is shown as if its cell were down.

Answers with such a row are not complete (contracts/nova-servers, section 12; docs/decisions/0002).
"""

from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update
from structlog.testing import capture_logs

from fleetlight.api.settings import ApiSettings
from fleetlight.cells.counting import count_rows
from fleetlight.cells.database.engines import writing
from fleetlight.cells.kinds.opening import open_changelog_adapter
from fleetlight.cells.model import ChangelogAdapter
from fleetlight.cells.tables import changes, instances
from fleetlight.indexer.backends.base import Document, IndexWriter
from fleetlight.indexer.backends.opening import open_writer
from fleetlight.indexer.reconcile.differences import DifferenceKind
from fleetlight.indexer.reconcile.fill import CellRows, SyncResult
from fleetlight.indexer.reconcile.native_cell import NativeComparison
from fleetlight.indexer.reconcile.reconcile import verify
from fleetlight.indexer.reconcile.recorded_sync import sync_and_record
from fleetlight.query.counts import CountRequest, Counts
from fleetlight.query.filters import EVERYTHING
from fleetlight.resources.instance import INSTANCE_FIELDS
from tests.contract.compute_fleet import MEMBER, ComputeFleet, compute_fleet, microversion, searching
from tests.contract.streams import stream

pytestmark = pytest.mark.no_rerun

SINCE = microversion("2.69")
MINIMAL = {"servers": {"id", "status", "links"}, "servers/detail": {"id", "status", "tenant_id", "created", "links"}}
DOWN = "The cell that holds what was asked for cannot be reached. Try again later."
# What each kind of damage is, as SQL of SQLite: a value that other software has written, or what a disk has left.
UNREADABLE = {
    "JSON that ends too soon": "metadata = '{'",
    "bytes in a column of JSON": "metadata = x'00ff'",
    "more JSON than one value": "metadata = '{},{}'",
    "JSON within JSON without end": "metadata = '" + "[" * 100_000 + "]" * 100_000 + "'",
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
    pages = list(fleet.api(search=searching(enabled=False)).walk(f"/v2.1/{path}?{query}", SINCE, MEMBER))
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
        pages = list(fleet.api(search=searching(enabled=False)).walk(f"/v2.1/{path}?limit={limit}", MEMBER))
        assert {server["id"] for page in pages for server in page.json()["servers"]} == set(others)
        assert "false" in [page.headers["Fleetlight-Complete"] for page in pages]
    failing = fleet.api(
        search=searching(enabled=False), settings=ApiSettings(list_records_by_skipping_down_cells=False)
    )
    response = failing.get(f"/v2.1/{path}", MEMBER)
    assert (response.status_code, response.json()["computeFault"]["message"]) == (500, DOWN)
    assert failing.get(f"/v2.1/{path}", SINCE, MEMBER).status_code == 200


def test_server_of_a_damaged_row_is_shown_as_of_a_cell_that_is_down(fleet: ComputeFleet) -> None:
    damaged, others = fill(fleet)
    damage(fleet, damaged)
    api = fleet.api(search=searching(enabled=False))
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
        api = fleet.api(search=searching(enabled=False))
        for path, members in MINIMAL.items():
            response = api.get(f"/v2.1/{path}", SINCE, MEMBER)
            assert (response.status_code, response.headers["Fleetlight-Complete"]) == (200, "false")
            servers = {server["id"]: server for server in response.json()["servers"]}
            assert servers.keys() == {damaged, *others}
            assert set(servers[damaged]) == members
        response = api.get(f"/v2.1/servers/{damaged}", SINCE, MEMBER)
        assert response.json()["server"]["status"] == "UNKNOWN"
        assert api.get(f"/v2.1/servers/{others[1]}", MEMBER).status_code == 200


PARTS = {
    "metadata": "metadata",
    "tags": "tags",
    "ips": "ip_addresses",
    "os-volume_attachments": "block_devices",
    "os-instance-actions": None,
}
"""What an address under a server shows, by the field that it needs."""


@pytest.mark.parametrize("path", PARTS)
def test_part_of_a_server_whose_row_cannot_be_read_is_shown_unless_it_is_what_is_damaged(
    tmp_path: Path, path: str
) -> None:
    with compute_fleet(tmp_path) as fleet:
        api = fleet.api(search=searching(enabled=False))
        kinds = [*UNREADABLE.values()]
        if PARTS[path] is not None:
            broken = ("'{'", "x'00ff'", "'7'", """'[{"size": 7}]'""" if path not in {"tags", "metadata"} else "'[[7]'")
            kinds += [f"{PARTS[path]} = {value}" for value in broken]
        for what in kinds:
            damaged = fleet.create("east")
            with writing(fleet.engine("east")) as connection:
                connection.exec_driver_sql(f"UPDATE instances SET {what} WHERE uuid = ?", (damaged,))  # noqa: S608
            is_readable = what.partition(" ")[0] != PARTS[path]
            with capture_logs() as logs:
                response = api.get(f"/v2.1/servers/{damaged}/{path}", SINCE, MEMBER)
            assert response.status_code == (200 if is_readable else 500), (what, response.text)
            if not is_readable:
                assert response.json()["computeFault"]["message"] == DOWN
            assert not [entry for entry in logs if "exc_info" in entry]


@pytest.mark.parametrize("what", [what for what in UNREADABLE.values() if "flavor" not in what])
def test_change_of_a_server_whose_row_cannot_be_read_fails_as_of_a_cell_that_is_down(tmp_path: Path, what: str) -> None:
    with compute_fleet(tmp_path) as fleet:
        damaged, _ = fill(fleet)
        with writing(fleet.engine("east")) as connection:
            connection.exec_driver_sql(f"UPDATE instances SET {what} WHERE uuid = ?", (damaged,))  # noqa: S608
        api = fleet.api(search=searching(enabled=False))
        server = f"/v2.1/servers/{damaged}"
        with capture_logs() as logs:
            answers = [
                api.request("DELETE", server, MEMBER),
                api.request("PUT", server, MEMBER, json={"server": {"name": "new"}}),
                api.request("POST", f"{server}/action", MEMBER, json={"lock": None}),
                api.request("PUT", f"{server}/tags", {**SINCE, **MEMBER}, json={"tags": ["a"]}),
            ]
        assert [answer.status_code for answer in answers] == [500] * 4
        assert {answer.json()["computeFault"]["message"] for answer in answers} == {DOWN}
        assert not [entry for entry in logs if "exc_info" in entry]


@pytest.mark.parametrize("what", ["flavor = '{'", "flavor = x'00ff'", "display_name = CAST(x'ff41' AS TEXT)"])
def test_usage_and_limits_leave_out_a_cell_whose_rows_cannot_be_read(tmp_path: Path, what: str) -> None:
    with compute_fleet(tmp_path) as fleet:
        damaged, _ = fill(fleet)
        with writing(fleet.engine("east")) as connection:
            connection.exec_driver_sql(f"UPDATE instances SET {what} WHERE uuid = ?", (damaged,))  # noqa: S608
        api = fleet.api(search=searching(enabled=False))
        for path in ("os-simple-tenant-usage/demo?start=2020-01-01T00:00:00", "limits"):
            response = api.get(f"/v2.1/{path}", MEMBER)
            assert response.status_code == 200, response.text
            is_needed = path != "limits" or "flavor" in what
            assert response.headers["Fleetlight-Complete"] == ("false" if is_needed else "true")


def test_list_explains_what_is_damaged_and_the_log_names_it_once(fleet: ComputeFleet) -> None:
    damaged, _ = fill(fleet)
    damage(fleet, damaged)
    api = fleet.api(search=searching(enabled=False))
    with capture_logs() as logs:
        for _ in range(3):
            explained = api.get("/fleetlight/explain?request=GET+/v2.1/servers/detail").json()
            assert (explained["rows"], explained["complete"]) == (4, False)
            assert explained["remarks"] == ["rows of cell 'east' that are damaged, as the log says: 1"]
    [logged] = [event for event in logs if event["event"] == "row_damaged"]
    assert (logged["cell"], logged["instance"]) == (fleet.cells["east"].uuid, damaged)
    assert logged["reason"] == "KeyError: 'vcpus'"


@pytest.mark.parametrize("what", ["tags = '{'", "tags = x'00ff'", "display_name = CAST(x'ff41' AS TEXT)"])
def test_damaged_row_is_in_no_group_and_the_count_says_so(tmp_path: Path, what: str) -> None:
    with compute_fleet(tmp_path) as fleet:
        damaged, _ = fill(fleet)
        with writing(fleet.engine("east")) as connection:
            connection.exec_driver_sql(f"UPDATE instances SET {what} WHERE uuid = ?", (damaged,))  # noqa: S608
        field = what.partition(" ")[0]
        with closing(open_changelog_adapter(fleet.cells["east"])) as adapter:
            assert count_rows(adapter, CountRequest(EVERYTHING, INSTANCE_FIELDS)) == Counts({(): 2})
            counts = count_rows(adapter, CountRequest(EVERYTHING, INSTANCE_FIELDS, (field,)))
            assert (sum(counts.groups.values()), counts.is_partial) == (1, True)


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
                fleet.number_changes()
                assert (await watch.next()).name == "reset"

        api.run(scenario())


def test_rows_of_a_restored_cell_are_compared_by_content(fleet: ComputeFleet) -> None:
    first, others = fill(fleet)
    assert sync(fleet).rejected == {}
    with writing(fleet.engine("east")) as connection:
        both = instances.c.uuid.in_([first, others[1]])
        connection.execute(update(instances).where(both).values(display_name="before the restore"))
    with opened(fleet) as (adapter, writer):
        compared = verify(NativeComparison(adapter, writer, catch_up_timeout_s=0, contents_at_once=2), repair=True)
        assert [each.kind for each in compared.differences] == [DifferenceKind.CHANGED] * 2
        assert compared.remaining == ()
    names = [document.record["display_name"] for document in indexed(fleet, [first, others[1]])]
    assert names == ["before the restore"] * 2


def test_sync_names_a_row_that_cannot_be_rendered_and_goes_on(fleet_of_any_store: ComputeFleet) -> None:
    fleet = fleet_of_any_store
    damaged, others = fill(fleet)
    damage(fleet, damaged)
    assert sync(fleet).rejected == {damaged: "KeyError: 'vcpus'"}
    assert [document.id for document in indexed(fleet, [damaged, others[1]])] == [others[1]]


@pytest.mark.parametrize("what", UNREADABLE.values(), ids=list(UNREADABLE))
def test_sync_and_comparison_go_on_around_a_row_that_cannot_be_read(tmp_path: Path, what: str) -> None:
    with compute_fleet(tmp_path) as fleet:
        damaged, others = fill(fleet)
        with writing(fleet.engine("east")) as connection:
            connection.exec_driver_sql(f"UPDATE instances SET {what} WHERE uuid = ?", (damaged,))  # noqa: S608
        assert list(sync(fleet).rejected) == [damaged]
        assert [document.id for document in indexed(fleet, [damaged, others[1]])] == [others[1]]
        with opened(fleet) as (adapter, writer):
            compared = verify(NativeComparison(adapter, writer, catch_up_timeout_s=0), repair=True)
        assert [difference.uuid for difference in compared.differences] == [damaged]


@contextmanager
def opened(fleet: ComputeFleet) -> Iterator[tuple[ChangelogAdapter, IndexWriter]]:
    """What reads east, and what writes the index."""
    adapter, writer = open_changelog_adapter(fleet.cells["east"]), open_writer(fleet.index_settings)
    with closing(adapter), closing(writer):
        yield adapter, writer


def sync(fleet: ComputeFleet) -> SyncResult:
    """Sync east, as `fleetlight index sync` does."""
    fleet.number_changes()
    with opened(fleet) as (adapter, writer):
        return sync_and_record(fleet.cells["east"].uuid, CellRows(adapter, batch_size=2), writer)


def indexed(fleet: ComputeFleet, uuids: Collection[str]) -> list[Document]:
    """The documents that the index has, in the order of `uuids`."""
    with opened(fleet) as (_, writer):
        known = writer.read(uuids)
    return [known[uuid] for uuid in uuids if uuid in known]
