"""What each face says of each fault that a fleet on SQLite, without a broker, can have: one row for each.

A face that says nothing of a fault has no entry in its row, so that a finding more, or one less, fails here.
"""

import json
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from pydantic import SecretStr
from sqlalchemy import update

from fleetlight.cells.database.engines import writing
from fleetlight.cells.fan_out.cell_pool import CellPool
from fleetlight.cells.findings import FindingKind
from fleetlight.cells.fleet.audit_rounds import AuditRound
from fleetlight.cells.fleet.failures import Failure, FailureSummary
from fleetlight.cells.fleet.restored_cells import RestoredCell
from fleetlight.cells.fleet.subscriptions import SubscriptionContent, SubscriptionState
from fleetlight.cells.kinds.opening import open_adapter
from fleetlight.cells.tables import cell_state
from fleetlight.cli.doctor import checks
from fleetlight.cli.doctor.examination import examined
from fleetlight.cli.settings import load_settings
from fleetlight.cli.status import screen
from fleetlight.indexer.backends.base import REPAIRS
from fleetlight.indexer.backends.opening import open_writer
from fleetlight.indexer.status import IndexHealth
from fleetlight.listing.cell_board import CellHealth
from fleetlight.resources.clock import system_clock
from tests.contract.compute_fleet import CELLS, ComputeFleet, compute_fleet, searching
from tests.contract.test_findings import EXPECTED, let_everything_be_wrong
from tests.unit.cli.conftest import run_command

EAST = "east"
UNCERTAIN = ("uncertain", "live")


class Says(NamedTuple):
    """What the faces say; what each says of a fleet that is well, unless given.

    doctor: what is wrong, with the beginning of the remedy. readyz: of lists, the index and the fleet database; down:
    cells that do not answer there. board: health and route of cells; None where it cannot be looked at. findings: kind,
    cell, and a part of the remedy; missing: source and cell. followed: health of cells by `index status`; None where it
    fails as a whole.
    """

    doctor: Mapping[str, str] = {}
    readyz: tuple[str, str, str] = ("ready", "ok", "ok")
    down: tuple[str, ...] = ()
    board: Mapping[str, tuple[str, str]] | None = {}
    findings: tuple[tuple[str, str, str], ...] = ()
    missing: tuple[tuple[str, str | None], ...] = ()
    followed: Mapping[str, str] | None = {}
    is_followed_well: bool = True


START = "see that the server runs"
INDEXER = "run `fleetlight indexer` or `fleetlight up`"
UPGRADE = "`fleetlight database upgrade`"
ANSWERS_FIRST = "its database and its bus have to answer first"
AWAY = Says(
    doctor={"cell east": START, "index of east": ANSWERS_FIRST},
    readyz=("degraded", "ok", "ok"),
    down=(EAST,),
    board={EAST: ("down", "index")},
    missing=(("cell", EAST),),
    followed={EAST: "unreachable"},
)
NO_INDEX = Says(
    doctor={"progress of the index": INDEXER},
    readyz=("degraded", "down", "ok"),
    board=dict.fromkeys(CELLS, UNCERTAIN),
    followed=dict.fromkeys(CELLS, "unknown"),
)
FOLLOW = Says(
    doctor={"index of east": checks.FOLLOW}, board={EAST: ("behind", "live")}, followed={EAST: IndexHealth.STALE}
)
NO_FLEET = Says(
    readyz=("unavailable", "ok", "down"),
    board=None,
    missing=(("findings", None),),
    followed=None,
    is_followed_well=False,
)


def _of_east(fleet: ComputeFleet) -> str:
    return fleet.cells[EAST].uuid


def _run(database: Path, statements: str) -> None:
    with closing(sqlite3.connect(database)) as connection:
        connection.executescript(statements)


def _exchange(database: Path) -> None:
    """A file that is no database is in its place."""
    for file in database.parent.glob(f"{database.name}*"):
        file.unlink()
    database.write_bytes(b"no database " * 1000)


def _suspect(fleet: ComputeFleet) -> None:
    with closing(open_writer(fleet.index_settings)) as writer:
        writer.prepare()
        writer.save_state(REPAIRS, {_of_east(fleet): 1})


def _fail(fleet: ComputeFleet) -> None:
    summary = FailureSummary("6f1c0b6a-1f3e-4a7e-9a55-1de2f0c2a9b4", _of_east(fleet), "malformed", "x", None, 1, 1)
    fleet.fleet.failures.add([Failure(summary, "key", {}, b"{}")])


def _become_another(fleet: ComputeFleet) -> None:
    with writing(fleet.engine(EAST)) as connection:
        connection.execute(update(cell_state).values(uuid=fleet.cells["north"].uuid))


def _remove_cells(fleet: ComputeFleet) -> None:
    for name in CELLS:
        fleet.remove_cell(name)


def _suspend(fleet: ComputeFleet) -> None:
    content = SubscriptionContent(None, None, (), "all", "instance", "", ("name",), True, "https://192.0.2.1/")
    made = fleet.fleet.subscriptions.add(content, SecretStr("key"), system_clock())
    fleet.fleet.subscriptions.change_state(made.id, SubscriptionState.SUSPENDED, "it does not answer")


def _compare(fleet: ComputeFleet, **found: int) -> None:
    fleet.fleet.compared_mappings.record(_of_east(fleet), **{"compared_at": system_clock(), **found})


FAULTS: Mapping[str, tuple[Callable[[ComputeFleet], object], Says]] = {
    "none": (lambda _: None, Says()),
    "a cell without its database": (lambda fleet: (fleet.folder / "east.db").unlink(), AWAY),
    "a cell with the database of another one": (_become_another, AWAY),
    "a cell with a damaged database": (lambda fleet: _exchange(fleet.folder / "east.db"), AWAY),
    "tables of a cell that are newer": (
        lambda fleet: _run(fleet.folder / "east.db", "UPDATE fleetlight_cell_version SET version_num = 'cell_9999'"),
        Says(doctor={"cell east": "run the newer version"}),
    ),
    "tables of the fleet that are newer": (
        lambda fleet: _run(fleet.folder / "fleet.db", "UPDATE fleetlight_fleet_version SET version_num = 'fleet_9999'"),
        Says(doctor={"fleet database": "run the newer version"}),
    ),
    "a fleet database without tables": (
        lambda fleet: _run(fleet.folder / "fleet.db", "DROP TABLE cells; DROP TABLE fleetlight_fleet_version"),
        NO_FLEET._replace(doctor={"fleet database": UPGRADE, "cells": "the fleet database has to answer first"}),
    ),
    "no cells": (
        _remove_cells,
        Says(doctor={"cells": "`fleetlight cell add native NAME`"}),
    ),
    "no index": (
        ComputeFleet.take_index_away,
        NO_INDEX._replace(
            doctor={
                **NO_INDEX.doctor,
                "index": "run `fleetlight indexer`, which makes and fills it",
                "disk of index": "see that the folder is there",
            }
        ),
    ),
    "a damaged index": (
        lambda fleet: _exchange(fleet.folder / "index" / "index.db"),
        NO_INDEX._replace(followed=None, is_followed_well=False),
    ),
    "an index that another program has written to": (
        lambda fleet: _run(fleet.folder / "index" / "index.db", "DELETE FROM documents"),
        NO_INDEX,
    ),
    "a cell that nothing follows": (lambda fleet: fleet.index(EAST, age_s=5000), FOLLOW),
    "a cell that was followed in the future": (lambda fleet: fleet.index(EAST, age_s=-5000), FOLLOW),
    "a cell that the index lacks rows of": (
        lambda fleet: fleet.index(EAST, is_complete=False),
        FOLLOW._replace(doctor={"index of east": "an indexer fills it in"}, followed={EAST: "incomplete"}),
    ),
    "a cell that the index does not know": (
        lambda fleet: fleet.add_cell("west"),
        Says(
            {"index of west": "run `fleetlight indexer`"},
            board={"west": ("behind", "live")},
            followed={"west": "unknown"},
        ),
    ),
    "a cell that the index may be wrong of": (
        _suspect,
        Says(
            doctor={"index of east": "an indexer fills it in"}, board={EAST: UNCERTAIN}, followed={EAST: "incomplete"}
        ),
    ),
    "a message that could not be indexed": (
        _fail,
        Says(doctor={"index of east": "`fleetlight index failures list`"}, followed={EAST: "dead letters"}),
    ),
    "a disabled cell": (
        lambda fleet: fleet.fleet.set_disabled(_of_east(fleet), True),
        Says(board={EAST: ("disabled", "index")}),
    ),
    "a cell that went back to a backup": (
        lambda fleet: fleet.fleet.restored_cells.record(_of_east(fleet), RestoredCell(system_clock(), 6743, 8)),
        Says(
            doctor={"database of east": "restore a newer one, or"},
            findings=(("cell-restored", EAST, "`fleetlight cell acknowledge east`"),),
        ),
    ),
    "mappings to another cell": (
        lambda fleet: _compare(fleet, repaired=0, elsewhere=3),
        Says(
            {"mappings of east": "`fleetlight index verify --cell east`"},
            findings=(("mapping-elsewhere", EAST, "`fleetlight index verify --cell east`"),),
            is_followed_well=False,
        ),
    ),
    "mappings that nobody compares": (
        lambda fleet: _compare(fleet, compared_at=system_clock() - 3600 * 1_000_000, repaired=0, elsewhere=0),
        Says(
            {"mappings of east": "see that `fleetlight worker` runs"},
            findings=(("mapping-not-compared", EAST, "`fleetlight worker` runs"),),
            is_followed_well=False,
        ),
    ),
    "mappings that were repaired": (
        lambda fleet: _compare(fleet, repaired=3, elsewhere=0),
        Says(findings=(("mapping-repaired", EAST, "nothing is left to do"),)),
    ),
    "documents that were repaired": (
        lambda fleet: fleet.fleet.audit_rounds.record(_of_east(fleet), AuditRound(system_clock(), 10, 2, 1)),
        Says(findings=(("document-repaired", EAST, "`fleetlight index verify --cell east --repair`"),)),
    ),
    "instances that are not as their cells say": (
        let_everything_be_wrong,
        Says(
            doctor={
                "database of north": "restore a newer one, or",
                "mappings of north": "`fleetlight index verify --cell north`",
                "mappings of south": "see that `fleetlight worker` runs",
            },
            findings=tuple((kind, cell, said[2].partition("{}")[0]) for (kind, cell, _), said in EXPECTED.items()),
            is_followed_well=False,
        ),
    ),
    # The metrics of the deliverer say it, and `fleetlight subscribe list`.
    "a subscription that is suspended": (_suspend, Says()),
    "a disk that is full": (lambda _: None, Says(doctor=dict.fromkeys(("disk of .", "disk of index"), "make room"))),
}


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[ComputeFleet]:
    """Instances and hosts in three cells, all indexed."""
    with compute_fleet(tmp_path) as fleet:
        fleet.add_hosts()
        fleet.fill(3)
        fleet.number_changes()
        fleet.index(watermark=10_000)
        yield fleet


@pytest.mark.parametrize("fault", FAULTS)
def test_each_face_says_of_a_fault_what_its_row_says(
    fault: str, fleet: ComputeFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant, expected = FAULTS[fault]
    plant(fleet)
    if fault == "a disk that is full":
        monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(total=100, used=99, free=1))
    # Connections that were opened before look only a second later whose database it is.
    pool = CellPool(fleet.fleet.cells, open_adapter)
    try:
        assert _said(fleet, pool, expected) == expected
    finally:
        fleet.close_pool(pool)


def _said(fleet: ComputeFleet, pool: CellPool, expected: Says) -> Says:
    """What the faces say, as the row of `expected` has it: of each remedy as much as that has, if it begins so."""
    config = fleet.folder / "fleetlight.toml"
    path = fleet.index_settings.path
    config.write_text(
        f'fleet.database_url = "{fleet.fleet_url}"\nindex = {{backend = "sqlite", path = "{path}"}}\n'
        "search = {enabled = true, staleness_limit_s = 60}"
    )
    api = fleet.api(search=searching(staleness_limit_s=60), pool=pool)
    ready, board, findings = api.readiness(), api.get("/fleetlight/cells"), api.get("/fleetlight/findings")
    found = examined(load_settings(config, None))
    wrong = {each.about.replace(str(fleet.folder), "."): str(each.remedy) for each in found.wrong}
    doctor = {about.replace("./", ""): remedy for about, remedy in wrong.items()}
    remedies = {
        about: begin if remedy.startswith(begin := expected.doctor.get(about, "?")) else remedy
        for about, remedy in doctor.items()
    }
    assert (screen(found)[0] == "Everything is well.") == (not doctor and found.board is not None)
    status = run_command("index", "status", "--config", config, "--output", "json")
    index = json.loads(status.stdout) if status.stdout.startswith("[") else None
    assert (status.exit_code == 0) == (not expected.followed and expected.is_followed_well)
    document: Any = findings.json() if findings.status_code == 200 else None
    if document is not None and document["complete"]:
        _check_metrics(api.get("/fleetlight/metrics/findings").text, document["counts"])
    return Says(
        remedies,
        (ready["status"], ready["index"], ready["fleet"]),
        tuple(name for name, state in ready["cells"].items() if state != "ok"),
        {
            each["name"]: (each["health"], each["route"])
            for each in board.json()["cells"]
            if (each["health"], each["route"]) != ("ok", "index")
        }
        if board.status_code == 200
        else None,
        _as_expected(expected.findings, document["findings"]) if document else (),
        tuple((each["source"], each["cell"]) for each in document["missing"]) if document else (("findings", None),),
        None if index is None else {each["cell"]: each["health"] for each in index if each["health"] != "ok"},
        expected.is_followed_well,
    )


def _as_expected(expected: Sequence[tuple[str, str, str]], found: Sequence[Any]) -> tuple[tuple[str, str, str], ...]:
    """Findings in the order of the row that expects them, with as much of the remedy as it has; others behind those."""
    left = [(each["kind"], each["cell"], each["remedy"]) for each in found]
    matched = []
    for kind, cell, part in expected:
        its = next((each for each in left if each[:2] == (kind, cell) and part in each[2]), None)
        if its is not None:
            left.remove(its)
            matched.append((kind, cell, part))
    return (*matched, *left)


def _check_metrics(text: str, counts: Mapping[str, int]) -> None:
    for kind, count in counts.items():
        assert f'fleetlight_findings{{kind="{kind}"}} {float(count)}' in text


def test_every_kind_of_finding_and_every_health_has_a_row() -> None:
    rows = [says for _, says in FAULTS.values()]
    assert {kind for says in rows for kind, _, _ in says.findings} == set(FindingKind)
    assert {health for says in rows for health, _ in (says.board or {}).values()} == set(CellHealth) - {CellHealth.OK}
    assert {health for says in rows for health in (says.followed or {}).values()} == set(IndexHealth) - {IndexHealth.OK}


def test_every_check_of_the_doctor_has_a_row() -> None:
    about = {name.split(" of ")[0].split(" east")[0] for _, says in FAULTS.values() for name in says.doctor}
    made = {name for name in vars(checks) if name.endswith(("_check", "_checks"))}
    rows = {
        "fleet_check": "fleet database",
        "cell_check": "cell",
        "index_check": "index",
        "progress_check": "progress",
        "following_check": "index",
        "disk_checks": "disk",
    }
    assert made - rows.keys() == {"bus_check"}  # it needs a broker
    assert set(rows.values()) <= about
