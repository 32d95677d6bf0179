"""The scheduler for callers without a job: one transaction that claims and announces, or does neither."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from sqlalchemy import Engine

from fleetlight.cells.database.engines import cell_failures, writing
from fleetlight.cells.kinds.native.outbox import append_event
from fleetlight.cells.model import Cell, RequestContext
from fleetlight.manager.operations.scheduling.allocations import claimed_among
from fleetlight.manager.operations.scheduling.request_spec import RequestSpec
from fleetlight.manager.operations.scheduling.select_destinations import select_destinations
from fleetlight.notifications.payloads.request_spec import RequestSpecPayload
from fleetlight.notifications.payloads.selection import Selection
from fleetlight.resources.amount import Amount
from fleetlight.resources.clock import Clock, system_clock

_EVENT = "scheduler.select_destinations"
Selections = Sequence[Sequence[Selection]]


def tried_selection(
    engine: Engine,
    cell: Cell,
    instance_uuids: Sequence[str],
    demand: Amount,
    spec: RequestSpec,
    *,
    max_attempts: int,
) -> Selections:
    """Run `select_destinations`, and undo its claims. Raises the same errors, and CellUnreachableError."""
    with cell_failures(cell.name), writing(engine) as connection:
        attempt = connection.begin_nested()
        selections = select_destinations(connection, cell, instance_uuids, demand, spec, max_attempts=max_attempts)
        if attempt.is_active:
            attempt.rollback()
        return selections


@contextmanager
def announced_selection(
    engine: Engine,
    cell: Cell,
    instance_uuids: Sequence[str],
    demand: Amount,
    spec: RequestSpec,
    *,
    max_attempts: int,
    payload: RequestSpecPayload,
    request: RequestContext,
    clock: Clock = system_clock,
) -> Iterator[Selections]:
    """Claim hosts, and announce the request; undoes both if the block fails.

    Raises as `tried_selection`, without any effect then.
    """
    now, publisher_id = clock(), f"nova-scheduler:{cell.name}"
    with cell_failures(cell.name), writing(engine) as connection:
        announce = partial(append_event, connection, publisher_id=publisher_id, at=now, request=request)
        announce(f"{_EVENT}.start", payload)
        found = select_destinations(connection, cell, instance_uuids, demand, spec, max_attempts=max_attempts)
        announce(f"{_EVENT}.end", payload)
        yield found


def claimed_in(engine: Engine, cell: Cell, instance_uuids: Sequence[str]) -> Sequence[str]:
    """Return the instances with claims in the cell, ordered by uuid. Raises CellUnreachableError."""
    with cell_failures(cell.name), engine.connect() as connection:
        return claimed_among(connection, instance_uuids)
