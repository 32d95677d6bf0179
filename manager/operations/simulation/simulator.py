"""The simulator, which keeps native cells as busy as a real fleet.

It fills the cells by direct inserts. Then it creates, changes, moves and deletes instances as users do: through
fleetlight.manager.operations.actions.accepting, and workers. It counts existing instances first, so a killed simulator
continues where it was.
"""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from threading import Event
from typing import Any

import structlog
from sqlalchemy import Engine, select
from sqlalchemy.exc import IntegrityError

from fleetlight.cells.database.engines import cell_failures, writing
from fleetlight.cells.errors import (
    CellUnreachableError,
    FleetUnreachableError,
    InstanceExistsError,
    InstanceNotFoundError,
    InvalidValueError,
    StateConflictError,
)
from fleetlight.cells.fleet.fleet import Fleet, InstanceMapping
from fleetlight.cells.kinds.native import outbox
from fleetlight.cells.kinds.native.instance_rows import add_rows
from fleetlight.cells.model import FIRST_REVISION, NO_REQUEST, Cell, InstanceRow
from fleetlight.cells.retrying import retrying_until
from fleetlight.cells.tables import instances, jobs
from fleetlight.manager.operations.actions.accepting import Acceptance, Order
from fleetlight.manager.operations.actions.new_instance import new_record
from fleetlight.manager.operations.scheduling.allocations import allocate_on_their_nodes
from fleetlight.manager.operations.simulation.simulated_instances import (
    HOSTS_PER_CELL,
    LONGEST_LAUNCH_US,
    new_instance,
    new_metadata,
    new_name,
    new_tags,
)
from fleetlight.notifications import event_types
from fleetlight.resources.clock import Clock, system_clock
from fleetlight.resources.units import MICROSECONDS_PER_SECOND


def add_instances(
    engine: Engine, fleet: Fleet, cell: Cell, instances_values: Sequence[Mapping[str, Any]], now: int
) -> Sequence[InstanceRow]:
    """Add instances to a cell, all or none, in one transaction; some hundred at a time are the fastest.

    instances_values: fields of their records; the others get Nova's defaults. now: microseconds.
    Raises UnknownFieldError (fleetlight.resources.errors), InvalidValueError, PayloadError
    (fleetlight.notifications.errors), InstanceExistsError, CellUnreachableError and FleetUnreachableError.
    """
    rows = [InstanceRow(cell.uuid, FIRST_REVISION, new_record(values, now)) for values in instances_values]
    uuids = {row.uuid for row in rows}
    if len(uuids) < len(rows):
        raise InvalidValueError("uuid", [row.uuid for row in rows], "another one for each instance")
    # Make the announcements before any write, since they refuse values that the contract does not allow.
    announced = outbox.announcements(cell, event_types.INSTANCE_CREATE_END, rows, now)
    # The mappings come first, as in Nova: a mapping without an instance costs a lookup, but no API finds an instance
    # without a mapping.
    fleet.add_mappings([InstanceMapping.of(row, now) for row in rows])
    try:
        with cell_failures(cell.name), writing(engine) as connection:
            add_rows(connection, rows)
            allocate_on_their_nodes(connection, [row.record for row in rows])
            outbox.append(connection, announced)
    except IntegrityError as error:
        raise InstanceExistsError(_existing(engine, cell, uuids)) from error
    return rows


def _existing(engine: Engine, cell: Cell, uuids: Collection[str]) -> list[str]:
    with cell_failures(cell.name), engine.connect() as connection:
        return list(connection.scalars(select(instances.c.uuid).where(instances.c.uuid.in_(uuids))))


_log = structlog.get_logger(__name__)

_BATCH_SIZE = 250
_MOST_WAITING = 20
_OLDEST_US = 90 * 24 * 3600 * MICROSECONDS_PER_SECOND
_LONGEST_LAG_S = 1.0
_LONGEST_WAIT_S = 5.0
# Time between two messages of progress while the simulator fills cells.
_SAID_EACH_S = 5.0
# Weights of the kinds of changes beside creations and deletions. Quick changes need no worker.
_QUICK_CHANGES = {"rename": 3, "metadata": 5, "tags": 3}
_CHANGES = {**_QUICK_CHANGES, "power": 5, "move": 4}
_CREATE_OR_DELETE = 0.3


@dataclass(slots=True)
class _Live:
    """State of an instance by which the simulator chooses an allowed change."""

    name: str | None
    vm_state: str | None
    tags: list[str]


@dataclass(slots=True)
class SimulatedCell:
    """A native cell to keep busy. host_count: its hosts, with names by `host_name`. live: its instances by uuid."""

    cell: Cell
    engine: Engine
    fleet: Fleet
    acceptance: Acceptance
    host_count: int = HOSTS_PER_CELL
    live: dict[str, _Live] = field(default_factory=dict)

    def is_busy(self) -> bool:
        """Whether too many jobs wait for workers to add more. Raises CellUnreachableError."""
        ready = select(jobs.c.id).where(jobs.c.is_ready)
        statement = ready.order_by(jobs.c.priority, jobs.c.id).offset(_MOST_WAITING - 1).limit(1)
        with cell_failures(self.cell.name), self.engine.connect() as connection:
            return connection.execute(statement).first() is not None

    def load(self) -> None:
        """Read the living instances of the cell. Raises CellUnreachableError."""
        columns = (instances.c.uuid, instances.c.display_name, instances.c.vm_state, instances.c.tags)
        with cell_failures(self.cell.name), self.engine.connect() as connection:
            # Skip instances that are being deleted; task_state may be null.
            is_deleting = instances.c.task_state.is_not_distinct_from("deleting")
            # Skip instances and reservations of the remote API, which belong to its callers.
            is_simulated = instances.c.ganeti.is_(None), instances.c.forthcoming.is_not(True)
            rows = connection.execute(
                select(*columns).where(instances.c.deleted.is_(False), ~is_deleting, *is_simulated)
            )
            self.live = {row.uuid: _Live(row.display_name, row.vm_state, row.tags) for row in rows}


class Simulator:
    """Keeps about `instance_count` instances in `cells`, and changes `rate` of them per second.

    rate: 0: only fill the cells.
    seed: the same seed makes the same names, flavors and order of changes, but other uuids, so that it can fill a fleet
        again.
    """

    def __init__(
        self,
        cells: Sequence[SimulatedCell],
        *,
        instance_count: int,
        rate: float,
        seed: int | None = None,
        clock: Clock = system_clock,
    ) -> None:
        self._cells = cells
        self._instance_count = instance_count
        self._rate = rate
        self._random = Random(seed)  # noqa: S311 -- a simulation, not a secret
        self._clock = clock

    @property
    def live_count(self) -> int:
        """The number of living instances, as last known."""
        return sum(len(cell.live) for cell in self._cells)

    def run(self, stop: Event) -> None:
        """Fill the cells, then change them until `stop` is set; waits while a database is away."""
        away = (CellUnreachableError, FleetUnreachableError)
        retrying = retrying_until(stop, away, _log_waiting, longest_wait_s=_LONGEST_WAIT_S)
        retrying(self.fill, stop)
        if not self._rate:
            return
        due = time.monotonic()
        while not stop.wait(max(0.0, due - time.monotonic())):
            retrying(self.step)
            # Skip the changes missed in a pause of the machine.
            due = max(due, time.monotonic() - _LONGEST_LAG_S) + 1 / self._rate

    def fill(self, stop: Event) -> None:
        """Create the missing instances, always in the emptiest cell; ends early when `stop` is set.

        Raises CellUnreachableError or FleetUnreachableError.
        """
        for cell in self._cells:
            cell.load()
        before = self.live_count
        began = said_at = time.monotonic()
        while (missing := self._instance_count - self.live_count) > 0 and not stop.is_set():
            cell = min(self._cells, key=lambda candidate: len(candidate.live))
            share = -(-missing // len(self._cells))
            self._fill(cell, min(share, _BATCH_SIZE))
            now = time.monotonic()
            if now - said_at >= _SAID_EACH_S:
                said_at = now
                self._say_how_far(self.live_count - before, now - began)
        if stop.is_set():
            return
        _log.info("simulator.filled", created=self.live_count - before, instances=self.live_count)

    def _say_how_far(self, created: int, after_s: float) -> None:
        per_s = created / after_s
        left = self._instance_count - self.live_count
        _log.info(
            "simulator.filling",
            instances=self.live_count,
            of=self._instance_count,
            per_s=round(per_s),
            left_s=round(left / per_s),
        )

    def step(self) -> None:
        """Make one change in a random cell. Raises CellUnreachableError or FleetUnreachableError."""
        if not self.live_count:
            self._create(self._random.choice(self._cells))
            return
        cell = self._random.choices(self._cells, [len(cell.live) for cell in self._cells])[0]
        is_busy = cell.is_busy()
        if self._random.random() < _CREATE_OR_DELETE and not is_busy:
            self._create_or_delete(cell)
            return
        kinds = _QUICK_CHANGES if is_busy else _CHANGES
        kind = self._random.choices(tuple(kinds), tuple(kinds.values()))[0]
        self._try(cell, lambda uuid, live: self._change(kind, cell, uuid, live))

    def _create_or_delete(self, cell: SimulatedCell) -> None:
        # The larger the deviation of the count, the likelier its correction: it varies by about a tenth.
        lead = (self.live_count - self._instance_count) / max(10.0, self._instance_count / 10)
        if self._random.random() < 0.5 - lead / 2:
            self._create(min(self._cells, key=lambda candidate: len(candidate.live)))
            return
        self._try(cell, lambda uuid, live: self._delete(cell, uuid))

    def _fill(self, cell: SimulatedCell, count: int) -> None:
        # Early enough that no launch is in the future.
        newest = self._clock() - LONGEST_LAUNCH_US
        values = [
            new_instance(self._random, cell.cell.name, newest - self._random.randrange(_OLDEST_US + 1), cell.host_count)
            for _ in range(count)
        ]
        rows = add_instances(cell.engine, cell.fleet, cell.cell, values, self._clock())
        for row, given in zip(rows, values, strict=True):
            cell.live[row.uuid] = _Live(given["display_name"], "active", given["tags"])

    def _create(self, cell: SimulatedCell) -> None:
        given = new_instance(self._random, cell.cell.name, self._clock(), cell.host_count)
        del given["created_at"], given["updated_at"]
        [row] = cell.acceptance.create([given], {}, NO_REQUEST)
        cell.live[row.uuid] = _Live(given["display_name"], "active", given["tags"])

    def _delete(self, cell: SimulatedCell, uuid: str) -> None:
        cell.acceptance.accept(uuid, Order("delete", is_admin=True))
        del cell.live[uuid]

    def _try(self, cell: SimulatedCell, act: Callable[[str, _Live], None]) -> None:
        uuid = self._random.choice(list(cell.live))
        try:
            act(uuid, cell.live[uuid])
        except (InstanceNotFoundError, StateConflictError):
            # The instance is busy, or a user has changed the fleet: read it again.
            cell.load()

    def _change(self, kind: str, cell: SimulatedCell, uuid: str, live: _Live) -> None:
        acceptance = cell.acceptance
        match kind:
            case "rename":
                live.name = new_name(self._random, live.name)
                acceptance.update(uuid, {"display_name": live.name}, NO_REQUEST)
            case "tags":
                live.tags = new_tags(self._random, live.tags)
                acceptance.update(uuid, {"tags": live.tags}, NO_REQUEST)
            case "power" if live.vm_state == "active":
                acceptance.accept(uuid, Order("os-stop", is_admin=True))
                live.vm_state = "stopped"
            case "power" if live.vm_state == "stopped":
                acceptance.accept(uuid, Order("os-start", is_admin=True))
                live.vm_state = "active"
            case "move" if live.vm_state == "active":
                acceptance.accept(uuid, Order("os-migrateLive", is_admin=True))
            case _:
                acceptance.update(uuid, {"metadata": new_metadata(self._random)}, NO_REQUEST)


def _log_waiting(error: Exception, attempt: int, _wait_s: float) -> None:
    _log.warning("simulator.waiting", attempt=attempt, reason=str(error))
