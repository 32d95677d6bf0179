"""`GET /fleetlight/findings`: what is not as it should be, with the remedy, as one list and as metrics."""

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from sqlalchemy import delete, insert, select, update

from fleetlight.api.operating.findings import KEPT_S
from fleetlight.cells.database.engines import writing
from fleetlight.cells.errors import FleetUnreachableError
from fleetlight.cells.findings import FindingKind
from fleetlight.cells.fleet.audit_rounds import AuditRound
from fleetlight.cells.fleet.restored_cells import RestoredCell
from fleetlight.cells.tables import allocations, compute_nodes, instances, observed_statuses
from fleetlight.listing import findings
from fleetlight.manager.operations.hosts.agent_addresses import AgentAddresses
from fleetlight.resources.clock import system_clock
from fleetlight.resources.power_states import RUNNING, SHUT_DOWN
from tests.contract.compute_fleet import MEMBER, Api, BrokenCells, ComputeFleet, compute_fleet, searching
from tests.contract.test_series import Clock

HOUR_US = 3600 * 1_000_000
OFF: Mapping[str, Any] = {"vm_state": "active", "power_state": SHUT_DOWN}
METRICS = "/fleetlight/metrics/findings"


@pytest.fixture(scope="module")
def well(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ComputeFleet]:
    """Two hosts in each cell, and instances that are as they should be."""
    with compute_fleet(tmp_path_factory.mktemp("well")) as fleet:
        fleet.add_hosts()
        fleet.create("north", **on_host("north"))
        fleet.create("north", vm_state="building", task_state="spawning")
        fleet.create("north", vm_state="stopped", power_state=SHUT_DOWN)
        fleet.create("north", **OFF, task_state="powering-on")
        fleet.create("north", vm_state="building", forthcoming=True, created_at=1)
        fleet.operations("north").delete(fleet.create("north", vm_state="active", host="gone", node="gone"))
        yield fleet


class Wrong(NamedTuple):
    """subjects: what the findings of the fleet are about, by a name each."""

    fleet: ComputeFleet
    subjects: Mapping[str, str]


@pytest.fixture(scope="module")
def wrong(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wrong]:
    with compute_fleet(tmp_path_factory.mktemp("wrong")) as fleet:
        yield Wrong(fleet, let_everything_be_wrong(fleet))


def let_everything_be_wrong(fleet: ComputeFleet) -> Mapping[str, str]:
    """All that is looked for; what nodes and audits said, they said two hours ago. Returns as of Wrong."""
    subjects: dict[str, str] = {}
    fleet.add_hosts()
    uuid, now = fleet.cells["north"].uuid, system_clock()
    for status in ("ERROR_wrongnode", "ERROR_down", "ERROR_nodedown", "ERROR_up"):
        subjects[status] = fleet.create("north", **on_host("north"))
        see(fleet, "north", "instance", subjects[status], status)
    subjects["both"] = fleet.create("north", **{**on_host("north"), **OFF})
    see(fleet, "north", "instance", subjects["both"], "ERROR_down")
    subjects["unknown host"] = fleet.create("north", vm_state="active", host="gone", node="gone-1")
    subjects["off"] = fleet.create("east", **OFF)
    subjects["on"] = fleet.create("east", vm_state="stopped", power_state=RUNNING)
    subjects["moving"] = fleet.create("east", vm_state="active", task_state="rebooting")
    subjects["loose"] = fleet.create("south")
    allocate(fleet, subjects["loose"], 512)
    allocate(fleet, fleet.create("south"), 10_000_000)
    with writing(fleet.engine("east")) as connection:
        is_moving = instances.c.uuid == subjects["moving"]
        connection.execute(update(instances).where(is_moving).values(created_at=now - 2 * HOUR_US, updated_at=None))
    with writing(fleet.engine("south")) as connection:
        connection.execute(delete(instances).where(instances.c.uuid == subjects["loose"]))
    AgentAddresses(fleet.engine("north"), fleet.cells["north"]).set("north-host0", "10.0.0.1:1811")
    see(fleet, "north", "node", "north-host0", "down")
    fleet.fleet.compared_mappings.record(uuid, compared_at=now - 2 * HOUR_US, repaired=4, elsewhere=0)
    fleet.fleet.compared_mappings.record(uuid, compared_at=now, repaired=0, elsewhere=3)
    fleet.fleet.compared_mappings.record(
        fleet.cells["south"].uuid, compared_at=now - 2 * HOUR_US, repaired=0, elsewhere=0
    )
    fleet.fleet.restored_cells.record(uuid, RestoredCell(now - 2 * HOUR_US, 6743, 8))
    fleet.fleet.audit_rounds.record(uuid, AuditRound(now - 2 * HOUR_US, 10, 2, 1))
    fleet.index()
    return subjects


def on_host(cell: str) -> Mapping[str, Any]:
    return {"host": f"{cell}-host0", "node": f"{cell}-host0", "vm_state": "active", "power_state": RUNNING}


def see(fleet: ComputeFleet, cell: str, kind: str, name: str, status: str) -> None:
    values = {"kind": kind, "name": name, "status": status, "observed_at": system_clock() - 2 * HOUR_US}
    with writing(fleet.engine(cell)) as connection:
        connection.execute(insert(observed_statuses).values(values))


def allocate(fleet: ComputeFleet, uuid: str, memory_mib: int) -> None:
    node_id = select(compute_nodes.c.id).where(compute_nodes.c.hypervisor_hostname == "south-host0").scalar_subquery()
    values = {"instance_uuid": uuid, "node_id": node_id, "vcpus": 1, "memory_mib": memory_mib, "disk_gib": 1}
    with writing(fleet.engine("south")) as connection:
        connection.execute(insert(allocations).values(values))


def found(api: Api, query: str = "") -> Any:
    response = api.get(f"/fleetlight/findings{query}")
    assert response.status_code == 200, response.text
    return response.json()


def kinds_and_cells(api: Api, query: str) -> list[tuple[str, str]]:
    return [(each["kind"], each["cell"]) for each in found(api, query)["findings"]]


# By kind, cell and subject (of `wrong`, or as it is): what is said, whether since when is known, and the remedy.
EXPECTED: Mapping[tuple[str, str, str], tuple[str, bool, str]] = {
    ("unknown-host", "north", "unknown host"): ("'gone', node 'gone-1'", False, "`fleetlight host add north gone`"),
    ("wrong-host", "north", "ERROR_wrongnode"): ("another node has it", True, "shut it down on the node"),
    ("not-running", "north", "ERROR_down"): ("node 'north-host0', ERROR_down", True, "reboot --hard {}`"),
    ("not-running", "north", "ERROR_nodedown"): ("does not answer", True, "`openstack server evacuate {}`"),
    ("not-running", "north", "both"): ("ERROR_down", True, "reboot --hard {}`"),
    ("not-running", "east", "off"): ("reported power state 4", False, "`openstack server reboot --hard {}`"),
    ("running-though-off", "north", "ERROR_up"): ("has it running", True, "`openstack server start {}`"),
    ("running-though-off", "east", "on"): ("reported power state 1", False, "`openstack server start {}`"),
    ("long-transition", "east", "moving"): ("'rebooting' goes on", True, "set --state active {}`"),
    ("allocation-without-instance", "south", "loose"): ("512 MiB of node 'south-host0'", False, "`allocations`"),
    ("node-overallocated", "south", "south-host0"): ("MiB of memory more", False, "balance south --execute`"),
    ("host-without-agent", "north", "north-host0"): ("10.0.0.1:1811 does not", True, "refresh --cell north"),
    ("host-without-agent", "north", "north-host1"): ("no agent", False, "`fleetlight host agent north north-host1"),
    ("cell-restored", "north", "north"): ("change 6743, its log ended at 8", True, "cell acknowledge north`"),
    ("mapping-elsewhere", "north", "north"): ("3 of its instances", False, "index verify --cell north`"),
    ("mapping-not-compared", "south", "south"): ("120 minutes ago", True, "`fleetlight worker` runs"),
    ("mapping-repaired", "north", "north"): ("4 mappings", True, "nothing is left"),
    ("document-repaired", "north", "north"): ("2 documents", True, "--cell north --repair`"),
}


def test_every_kind_of_finding_is_expected() -> None:
    assert {kind for kind, _, _ in EXPECTED} == set(FindingKind)


def test_nothing_is_found_where_all_is_as_it_should_be(well: ComputeFleet) -> None:
    answer = found(well.api())
    assert (answer["findings"], answer["complete"], answer["missing"]) == ([], True, [])
    assert answer["counts"] == dict.fromkeys(FindingKind, 0)


@pytest.mark.parametrize("by_index", [True, False])
def test_each_finding_has_evidence_an_age_and_a_remedy(wrong: Wrong, *, by_index: bool) -> None:
    check(found(wrong.fleet.api(search=searching(enabled=by_index))), wrong.subjects)


@pytest.mark.postgresql
def test_same_is_found_of_cells_on_postgresql(tmp_path: Path, new_postgresql_database: Callable[[], str]) -> None:
    with compute_fleet(tmp_path, new_database=new_postgresql_database) as fleet:
        subjects = let_everything_be_wrong(fleet)
        check(found(fleet.api(search=searching(enabled=False))), subjects)


def check(answer: Any, subjects: Mapping[str, str]) -> None:
    """Exactly what is expected is found."""
    assert answer["complete"]
    by_subject = {(each["kind"], each["cell"], each["subject"]): each for each in answer["findings"]}
    expected = {(kind, cell, subjects.get(name, name)): said for (kind, cell, name), said in EXPECTED.items()}
    assert sorted(by_subject) == sorted(expected)
    assert len(answer["findings"]) == len(expected)
    for key, (evidence, has_age, remedy) in expected.items():
        finding = by_subject[key]
        assert evidence in finding["evidence"], key
        assert remedy.format(finding["subject"]) in finding["remedy"], key
        assert (finding["since"] is not None) == (finding["age_s"] is not None) == has_age, key
        if has_age:
            began = datetime.fromisoformat(finding["since"])
            assert 7000 < (datetime.now(UTC) - began).total_seconds() < 9000
            assert 7000 < finding["age_s"] < 9000


def test_findings_are_chosen_by_kind_cell_and_length_of_a_transition(wrong: Wrong) -> None:
    api = wrong.fleet.api()
    assert kinds_and_cells(api, "?kind=long-transition") == [("long-transition", "east")]
    of_east = [("not-running", "east"), ("running-though-off", "east"), ("long-transition", "east")]
    assert kinds_and_cells(api, "?cell=east") == of_east
    assert kinds_and_cells(api, f"?cell={wrong.fleet.cells['east'].uuid}&transition_s=90000") == of_east[:2]
    assert kinds_and_cells(api, "?cell=east&transition_s=999999999") == of_east[:2]
    answer = found(api, "?kind=not-running")
    assert answer["counts"] == {"not-running": 4}


def test_cell_that_cannot_be_asked_is_named_and_the_others_are_there(wrong: Wrong) -> None:
    api = wrong.fleet.api(pool=BrokenCells(wrong.fleet, failing_after={"east": 0}), search=searching(enabled=False))
    answer = found(api)
    assert ({each["cell"] for each in answer["findings"]}, answer["complete"]) == ({"north", "south"}, False)
    assert {each["cell"] for each in answer["missing"]} == {"east"}
    assert {each["source"] for each in answer["missing"]} >= {"cell", "instances for 'long-transition'"}
    assert "fleetlight_findings_complete 0.0" in api.get(METRICS).text


def test_fleet_database_that_may_not_be_read_is_named(well: ComputeFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_self: object) -> None:
        raise FleetUnreachableError("it may not be read")

    monkeypatch.setattr(type(well.fleet.audit_rounds), "all", refuse)
    [missing] = found(well.api())["missing"]
    assert (missing["source"], missing["cell"]) == ("fleet database", None)
    assert "it may not be read" in missing["reason"]


def test_more_than_an_answer_has_is_said(wrong: Wrong, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(findings, "MAX_OF_KIND", 2)
    answer = found(wrong.fleet.api(), "?cell=north")
    reasons = {each["reason"] for each in answer["missing"]}
    assert (answer["complete"], "there may be more of 'host-without-agent'" in reasons) == (False, True)


@pytest.mark.parametrize(
    ("query", "status", "says"),
    [
        ("?kind=wrong", 400, "wrong-host"),
        ("?transition_s=0", 400, "at least 1"),
        ("?transition_s=x", 400, "whole number"),
        ("?cell=west", 404, "west"),
        ("?limit=1", 400, "limit"),
    ],
)
def test_what_cannot_be_looked_for_is_refused(well: ComputeFleet, query: str, status: int, says: str) -> None:
    response = well.api().get(f"/fleetlight/findings{query}")
    assert (response.status_code, says in response.text) == (status, True), response.text


def test_findings_are_for_administrators(well: ComputeFleet) -> None:
    for path in ("/fleetlight/findings", METRICS):
        assert well.api().get(path, MEMBER).status_code == 403


def test_metrics_count_findings_by_kind_and_look_once_for_all(wrong: Wrong) -> None:
    clock = Clock(system_clock())
    api = wrong.fleet.api(clock=clock, search=searching(staleness_limit_s=1e12))
    text = api.get(METRICS).text
    assert 'fleetlight_findings{kind="not-running"} 4.0' in text
    assert 'fleetlight_findings{kind="mapping-elsewhere"} 1.0' in text
    assert "fleetlight_findings_complete 1.0" in text
    asked = wrong.fleet.searcher.asked
    assert {answer.text for answer in api.at_once(3, "GET", METRICS)} == {text}
    assert wrong.fleet.searcher.asked == asked
    clock.now += (KEPT_S + 1) * 1_000_000
    api.get(METRICS)
    assert wrong.fleet.searcher.asked > asked
