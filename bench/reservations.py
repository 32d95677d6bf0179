"""`scripts/bench reservations`: what jobs cost: reservations by many at once, a job that does nothing, a long queue.

A fleet on PostgreSQL, of which one cell is used. Without its URL reservations are not measured, and the rest in SQLite.
"""

import statistics
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

from sqlalchemy import Engine, Table, delete, func, insert, select, update

from bench.measure import Figure, MeasuredPair, at_least, at_most, figure, interleaved
from fleetlight.cells.database.engines import create_database_engine, writing
from fleetlight.cells.fleet.tables import instance_mappings
from fleetlight.cells.model import NO_REQUEST
from fleetlight.cells.tables import allocations, changes, instances, job_locks, job_operations, jobs
from fleetlight.manager.operations.cell_worker import new_worker
from fleetlight.manager.operations.hosts.cell_nodes import NewHost
from fleetlight.manager.operations.jobs.model import NewJob, Status
from fleetlight.manager.operations.jobs.queue import add_jobs
from fleetlight.manager.operations.jobs.worker import POLL_INTERVAL_S
from fleetlight.manager.operations.native_cells import nodes_in
from fleetlight.manager.operations.opcodes.instances.create_parameters import InstanceCreate
from fleetlight.manager.operations.opcodes.tags import TagsSet
from fleetlight.manager.operations.submitting import JobSubmission
from fleetlight.manager.operations.vocabulary import ALL_OPERATIONS
from fleetlight.resources.amount import Amount
from fleetlight.resources.clock import system_clock
from tests.contract.compute_fleet import Api, ComputeFleet, compute_fleet
from tests.support.servers.real_servers import new_databases
from tests.support.session.requirements import POSTGRESQL

_CELL = "north"
_CLIENTS = 16
_WORKERS = 8
_HOSTS = 40
_SIZE = Amount.of_gib(vcpus=6400, memory_mib=26_214_400, disk_gib=400_000)
_RESERVED = InstanceCreate.read(
    {
        "forthcoming": True,
        "disk_template": "plain",
        "disks": [{"size": 1024}],
        "os_type": "debian-12",
        "beparams": {"memory": 128, "vcpus": 1},
    }
)
_TAGGING_CELL = TagsSet.read({"kind": "cluster", "tags": ["a"]})
_TAGGING_GROUP = TagsSet.read({"kind": "nodegroup", "name": "default", "tags": ["a"]})
_FEW, _MANY = 100, 10_000
_LOOKS_AFTER_S = 0.005


def run(directory: Path, quick: bool) -> Iterator[Figure]:
    """quick: a tenth of the reservations and jobs."""
    url = POSTGRESQL.locate()
    with ExitStack() as stack:
        new_database = stack.enter_context(new_databases(url)) if url else None
        fleet = stack.enter_context(compute_fleet(directory, new_database=new_database))
        nodes_in(fleet.native, fleet.cells[_CELL]).add_hosts(
            [NewHost(f"host{number}", _SIZE) for number in range(_HOSTS)]
        )
        database = "PostgreSQL" if url else "SQLite"
        if url:
            yield _reserving(fleet, count=32 if quick else 320, runs=3 if quick else 5)
        yield _doing_nothing(fleet, database, runs=20 if quick else 200)
        yield from _behind_others(fleet, database, _MANY // 10 if quick else _MANY, runs=20 if quick else 90)


def _reserving(fleet: ComputeFleet, count: int, runs: int) -> Figure:
    """count: how many in one run, by all clients together."""
    with _wide_engines(fleet) as (cell_engine, fleet_engine):
        ours = partial(_reserve, fleet, cell_engine, count)
        bare = _BareReservations(cell_engine, fleet_engine, _rows_of_one(fleet, cell_engine, fleet_engine))
        pair = interleaved(partial(_share, bare.write, count), ours, runs)
    what = (
        f"transactions that only write the same rows ({count / pair.ours_s:.0f} a second, {_CLIENTS} connections) / "
        f"reservations ({count / pair.bare_s:.0f} a second, {_CLIENTS} clients, {_WORKERS} workers)"
    )
    return figure("reservations.rate", pair.ratio, "ratio", what, runs=runs, goal=at_least(0.5))


def _reserve(fleet: ComputeFleet, engine: Engine, count: int) -> None:
    """Clients submit, each waiting for one answer at a time, while workers carry out what was submitted."""
    submission = JobSubmission(engine, fleet.cells[_CELL])
    all_submitted = threading.Event()

    def work(_number: int) -> None:
        worker = new_worker(engine, fleet.fleet, fleet.cells[_CELL])
        while worker.run_once() or not all_submitted.is_set():
            pass

    with ThreadPoolExecutor(_WORKERS) as workers:
        working = workers.map(work, range(_WORKERS))
        try:
            _share(lambda: submission.submit([_RESERVED], NO_REQUEST), count)
        finally:
            all_submitted.set()
        list(working)


def _share(action: Callable[[], object], count: int) -> None:
    """`count` calls by as many threads as there are clients."""

    def call(_number: int) -> None:
        for _ in range(count // _CLIENTS):
            action()

    with ThreadPoolExecutor(_CLIENTS) as clients:
        list(clients.map(call, range(_CLIENTS)))


@contextmanager
def _wide_engines(fleet: ComputeFleet) -> Iterator[tuple[Engine, Engine]]:
    """Of the cell and of the fleet database, with a connection for everybody."""
    urls = (fleet.cells[_CELL].database_url, fleet.fleet_url)
    engines = [create_database_engine(url, pool_size=_CLIENTS + _WORKERS) for url in urls]
    try:
        yield engines[0], engines[1]
    finally:
        for engine in engines:
            engine.dispose()


@dataclass(frozen=True, slots=True)
class _Rows:
    """What one reservation has written, by table, and what its job held while it ran."""

    written: Mapping[str, Mapping[str, Any]]
    lock: Mapping[str, Any]


def _rows_of_one(fleet: ComputeFleet, cell_engine: Engine, fleet_engine: Engine) -> _Rows:
    JobSubmission(cell_engine, fleet.cells[_CELL]).submit([_RESERVED], NO_REQUEST)
    with cell_engine.connect() as connection:
        lock = dict(connection.execute(select(job_locks)).one()._mapping)
    fleet.work()
    written = {}
    for table in (jobs, job_operations, instances, changes, allocations, instance_mappings):
        engine = fleet_engine if table is instance_mappings else cell_engine
        with engine.connect() as connection:
            [row] = connection.execute(select(table).order_by(*table.primary_key).limit(1)).all()
        written[table.name] = dict(row._mapping)
    return _Rows(written, lock)


class _BareReservations:
    """Writes the rows of reservations in as few transactions: acceptance, mapping, and what the worker does."""

    def __init__(self, cell_engine: Engine, fleet_engine: Engine, rows: _Rows) -> None:
        self._cell_engine = cell_engine
        self._fleet_engine = fleet_engine
        self._rows = rows

    def write(self) -> None:
        """The rows of one."""
        uuid = str(uuid4())
        queued = {"status": Status.QUEUED, "ended_at": None}
        with writing(self._cell_engine) as connection:
            job = self._row(jobs, "id", **queued, is_ready=True)
            job_id = connection.execute(insert(jobs).returning(jobs.c.id), job).scalar_one()
            connection.execute(insert(job_operations), self._row(job_operations, job_id=job_id, **queued))
            connection.execute(insert(job_locks), {**self._rows.lock, "job_id": job_id, "name": uuid})
        with writing(self._fleet_engine) as connection:
            connection.execute(insert(instance_mappings), self._row(instance_mappings, instance_uuid=uuid))
        with writing(self._cell_engine) as connection:
            connection.execute(insert(instances), self._row(instances, uuid=uuid))
            connection.execute(insert(changes), self._row(changes, "id", instance_uuid=uuid))
            connection.execute(insert(allocations), self._row(allocations, instance_uuid=uuid))
            ended = {"status": Status.SUCCESS, "ended_at": system_clock()}
            connection.execute(delete(job_locks).where(job_locks.c.job_id == job_id))
            connection.execute(update(job_operations).where(job_operations.c.job_id == job_id).values(**ended))
            connection.execute(update(jobs).where(jobs.c.id == job_id).values(**ended, is_ready=False))

    def _row(self, table: Table, *without: str, **values: Any) -> Mapping[str, Any]:
        row = self._rows.written[table.name]
        return {**{name: value for name, value in row.items() if name not in without}, **values}


def _doing_nothing(fleet: ComputeFleet, database: str, runs: int) -> Figure:
    """Every node has every configuration already, so the operation that distributes it does nothing."""
    api = fleet.api()
    stop = threading.Event()
    worker = threading.Thread(target=new_worker(fleet.engine(_CELL), fleet.fleet, fleet.cells[_CELL]).run, args=(stop,))
    worker.start()
    try:
        waits_s = [_until_it_has_ended(api) for _ in range(runs)]
    finally:
        stop.set()
        worker.join()
    p50_s = statistics.median(waits_s)
    what = f"from the request to its end being seen, {p50_s * 1000:.0f} ms, over the remote API, {database}"
    return figure("reservations.no_op.p50", p50_s / POLL_INTERVAL_S, "polls", what, runs=runs, goal=at_most(2))


def _until_it_has_ended(api: Api) -> float:
    begin = time.perf_counter()
    number = api.request("PUT", f"/cells/{_CELL}/2/redistribute-config").json()
    while True:
        job = api.get(f"/2/jobs/{number}").json()
        if job["status"] not in {Status.QUEUED, Status.WAITING, Status.RUNNING}:
            assert job["status"] == Status.SUCCESS, job
            return time.perf_counter() - begin
        time.sleep(_LOOKS_AFTER_S)


def _behind_others(fleet: ComputeFleet, database: str, many: int, runs: int) -> Iterator[Figure]:
    """Jobs that want what another one holds: few of them in one cell, and many in another."""
    few_of_them, many_of_them = _Queue(fleet, "east", _FEW), _Queue(fleet, "south", many)
    pair = interleaved(many_of_them.do_something_else, few_of_them.do_something_else, runs)
    yield _slowed("others", "a job that wants something else", pair, many, database)
    for queue in (few_of_them, many_of_them):
        queue.let_go_on()
    pair = interleaved(many_of_them.end_first, few_of_them.end_first, runs)
    yield _slowed("line", "the next one in line", pair, many, database)


def _slowed(name: str, what: str, pair: MeasuredPair, many: int, database: str) -> Figure:
    return figure(
        f"reservations.waiting.{name}",
        pair.ratio,
        "ratio",
        f"{what}, while {many:,} jobs wait ({pair.ours_s * 1000:.1f} ms), to {_FEW} that wait, {database}",
        runs=pair.runs,
        goal=at_most(1.3),
    )


class _Queue:
    """Jobs of a cell that want one lock, which the first of them holds, and that no worker looks at."""

    def __init__(self, fleet: ComputeFleet, cell: str, count: int) -> None:
        self._engine = fleet.engine(cell)
        self._worker = new_worker(self._engine, fleet.fleet, fleet.cells[cell])
        self._submission = JobSubmission(self._engine, fleet.cells[cell])
        with writing(self._engine) as connection:
            new = [NewJob([_TAGGING_GROUP.to_operation()]) for _ in range(count)]
            add_jobs(connection, ALL_OPERATIONS, new, system_clock())
            connection.execute(update(jobs).values(status=Status.WAITING, is_ready=False))

    def do_something_else(self) -> None:
        """A job that wants something else is submitted, and ends."""
        self._submission.submit([_TAGGING_CELL], NO_REQUEST)
        self.end_first()

    def let_go_on(self) -> None:
        """The first one may run, and so lets the next one go on, and so forth."""
        with writing(self._engine) as connection:
            first = select(func.min(job_locks.c.job_id)).scalar_subquery()
            connection.execute(update(jobs).where(jobs.c.id == first).values(is_ready=True))

    def end_first(self) -> None:
        """The two transactions of an operation that tags something."""
        for _ in range(2):
            assert self._worker.run_once()
