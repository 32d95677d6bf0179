"""`scripts/bench usage`: hours of many instances with a month of changes, and how much memory an export of them takes.

One cell in SQLite, without an index. The bare loop reads the same columns of rows and changes, and decodes their JSON.
"""

import json
import os
import random
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sqlalchemy import insert

from bench.fleet import records
from bench.measure import Figure, at_most, figure
from fleetlight.cells.batched import batched
from fleetlight.cells.database.engines import writing
from fleetlight.cells.kinds.native.instance_rows import add_rows
from fleetlight.cells.kinds.opening import open_adapter
from fleetlight.cells.model import InstanceRow
from fleetlight.cells.tables import changes
from fleetlight.cells.usage import UsageRequest, read_usage
from fleetlight.query.filters import EVERYTHING
from fleetlight.resources.units import MICROSECONDS_PER_HOUR
from tests.contract.compute_fleet import ComputeFleet, compute_fleet

_CELL = "north"
_CHANGES = 10
_START = 1_740_000_000_000_000
_MONTH = 30 * 24 * MICROSECONDS_PER_HOUR
_BATCH = 5000
# The command, which says at its end what memory it had at its highest, in KiB (proc(5)).
_EXPORT = """
import atexit, pathlib
status = pathlib.Path("/proc/self/status")
atexit.register(lambda: print(status.read_text().partition("VmHWM:")[2].split()[0]))
from fleetlight.cli.main import main
main()
"""
_SMALL = {"vcpus": 1, "memory_mb": 2048, "root_gb": 20, "ephemeral_gb": 0, "name": "m1.small"}


def run(directory: Path, quick: bool) -> Iterator[Figure]:
    """quick: a tenth of the instances, which are 100,000 for usage and 200,000 for exports."""
    yield _usage(directory / "usage", 10_000 if quick else 100_000)
    yield _export(directory / "export", 2_000 if quick else 20_000)


def _usage(directory: Path, count: int) -> Figure:
    directory.mkdir()
    with compute_fleet(directory) as fleet:
        _fill(fleet, count, _CHANGES)
        bare_s = min(_timed(lambda: _read_bare(directory / f"{_CELL}.db")) for _ in range(3))
        whole_s = min(_timed(lambda: _add_up(fleet)) for _ in range(3))
    size = f"{count:,} instances and {count * _CHANGES:,} changes of a month"
    what = f"{size}: {whole_s:.1f} s of the processor / a bare loop"
    return figure("usage.time", whole_s / bare_s, "ratio", what, runs=3, goal=at_most(3))


def _export(directory: Path, few: int) -> Figure:
    directory.mkdir()
    many = 10 * few
    with compute_fleet(directory) as fleet:
        _fill(fleet, few, 0)
        before = _export_peak(fleet, directory)
        _fill(fleet, many - few, 0, seed=3)
        after = _export_peak(fleet, directory)
    what = f"memory of an export to CSV at its highest: {many:,} instances / {few:,} ({before / 2**20:.0f} MiB)"
    return figure("export.memory", after / before, "ratio", what, runs=1, goal=at_most(1.25))


def _timed(work: Any) -> float:
    begin = time.process_time()
    work()
    return time.process_time() - begin


def _add_up(fleet: ComputeFleet) -> None:
    request = UsageRequest(_START, _START + _MONTH, EVERYTHING, ("project", "flavor"))
    adapter = open_adapter(fleet.cells[_CELL])
    after: tuple[Any, ...] | None = None
    while True:
        part = read_usage(adapter, request, after)
        after = part.after
        if after is None:
            break
    adapter.close()


def _read_bare(path: Path) -> None:
    connection = sqlite3.connect(path)
    for *_, flavor in connection.execute("SELECT uuid, project_id, launched_at, terminated_at, flavor FROM instances"):
        json.loads(flavor)
    statement = "SELECT instance_uuid, revision, committed_at, previous FROM changes ORDER BY instance_uuid, revision"
    for *_, previous in connection.execute(statement):
        json.loads(previous)
    connection.close()


def _export_peak(fleet: ComputeFleet, directory: Path) -> int:
    """The highest memory of a process that exports everything, in bytes."""
    command = (sys.executable, "-c", _EXPORT, "export", "instances", "-o", "name,uuid,status")
    environment = os.environ | {
        "FLEETLIGHT_FLEET_DATABASE_URL": fleet.fleet_url,
        "FLEETLIGHT_SEARCH_CELL_TIMEOUT_S": "60",
    }
    done = subprocess.run(command, cwd=directory, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return int(done.stdout) * 1024


def _fill(fleet: ComputeFleet, count: int, changed: int, seed: int = 2) -> None:
    generator = random.Random(seed)
    cell = fleet.cells[_CELL]
    rows = (InstanceRow(cell.uuid, changed + 1, record) for record in records(count, seed))
    for number, batch in enumerate(batched(rows, _BATCH)):
        with writing(fleet.engine(_CELL)) as connection:
            add_rows(connection, batch)
            first = number * _BATCH * changed
            if changed:
                connection.execute(insert(changes), list(_changes_of(batch, changed, first, generator)))


def _changes_of(
    rows: list[InstanceRow], changed: int, first: int, generator: random.Random
) -> Iterator[dict[str, Any]]:
    """Of each row as many changes as `changed`, one of them a resize."""
    for row in rows:
        moments = sorted(_START + generator.randrange(_MONTH) for _ in range(changed))
        for number, moment in enumerate(moments):
            first += 1
            resized = {"flavor": {**row.record["flavor"], **_SMALL}} if number == 0 else {}
            yield {
                "instance_uuid": row.uuid,
                "revision": number + 2,
                "event_type": "instance.update",
                "routing_key": "versioned_notifications.info",
                "message": b"{}",
                "committed_at": moment,
                "sequence": first,
                "published_at": moment,
                "previous": {"updated_at": moment - 1, "task_state": None, **resized},
            }
