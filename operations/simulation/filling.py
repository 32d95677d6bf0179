"""Instances that are in a native cell at once, as if hosts had made them: what the simulator fills cells with."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import Engine, select
from sqlalchemy.exc import IntegrityError

from fleetlight.cells.database.engines import cell_failures, writing
from fleetlight.cells.errors import InstanceExistsError, InvalidValueError
from fleetlight.cells.fleet.fleet import Fleet, InstanceMapping
from fleetlight.cells.kinds.native import outbox
from fleetlight.cells.kinds.native.instance_rows import add_rows
from fleetlight.cells.model import FIRST_REVISION, Cell, InstanceRow
from fleetlight.cells.tables import instances
from fleetlight.notifications import event_types
from fleetlight.operations.actions.new_instance import new_record
from fleetlight.operations.scheduling.allocations import allocate_on_their_nodes


def add_instances(
    engine: Engine, fleet: Fleet, cell: Cell, instances_values: Sequence[Mapping[str, Any]], now: int
) -> Sequence[InstanceRow]:
    """Add instances to a cell, all or none, in one transaction: some hundred at a time are the fastest.

    instances_values: fields of their records; the others get Nova's defaults. now: microseconds.
    Raises UnknownFieldError (fleetlight.resources.errors), InvalidValueError, PayloadError
    (fleetlight.notifications.errors), InstanceExistsError, CellUnreachableError and FleetUnreachableError.
    """
    rows = [InstanceRow(cell.uuid, FIRST_REVISION, new_record(values, now)) for values in instances_values]
    uuids = {row.uuid for row in rows}
    if len(uuids) < len(rows):
        raise InvalidValueError("uuid", [row.uuid for row in rows], "another one for each instance")
    # Before anything is written, since it refuses what the contract does not allow.
    announced = outbox.announcements(cell, event_types.INSTANCE_CREATE_END, rows, now)
    # The mapping comes first, as in Nova: one without an instance is only looked up in vain, while an instance
    # without a mapping could not be found at all.
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
