"""What changes instances of a native cell at once, without hosts that have to do something for it.

An action is its outcome alone, as the table of actions has it: fleetlight.manager.operations.actions.server_actions.
What callers of the API want to be done takes steps: see fleetlight.manager.operations.actions.accepting and
fleetlight.manager.operations.jobs.worker.

Each operation is one transaction: the row is locked, its state is checked, it gets revision + 1, and the change is
appended to the outbox. So revisions are in commit order, and a change and its announcement stand or fall together.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from sqlalchemy import Engine

from fleetlight.cells.database.engines import cell_failures, writing
from fleetlight.cells.errors import (
    InstanceNotFoundError,
    InvalidTransitionError,
)
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.model import NO_REQUEST, Cell
from fleetlight.manager.operations.actions.new_instance import check_values
from fleetlight.manager.operations.actions.server_actions import ACTIONS
from fleetlight.manager.operations.instances.locked_instance import LockedInstance
from fleetlight.manager.operations.jobs.model import Job, Stage, Status
from fleetlight.manager.operations.jobs.vocabulary import Task
from fleetlight.manager.operations.scheduling.allocations import allocate_on_their_nodes, release_except
from fleetlight.manager.operations.simulation.simulator import add_instances
from fleetlight.notifications import event_types
from fleetlight.resources.clock import Clock, system_clock

# What an instance takes up, and of which node, follows from these.
_OF_ITS_NODE = {"node", "flavor", "deleted"}


@dataclass(frozen=True, slots=True)
class Changed:
    """A committed change: which instance, and the revision it has now."""

    uuid: str
    revision: int


class _Tried(LockedInstance):
    """An instance on which steps are tried: what the last of them would change is kept, and not written."""

    outcome: tuple[str, Mapping[str, Any]] = "", {}

    def change(self, event_type: str, values: Mapping[str, Any], *_: object, **_options: object) -> None:
        self.outcome = event_type, values


class InstanceOperations:
    """Operations on the instances of one native cell.

    They raise InstanceNotFoundError for an unknown or deleted instance, InvalidTransitionError when its state does not
    allow the operation, CellUnreachableError and FleetUnreachableError when a database does not answer.
    """

    def __init__(self, engine: Engine, fleet: Fleet, cell: Cell, clock: Clock = system_clock) -> None:
        self._engine = engine
        self._fleet = fleet
        self._cell = cell
        self._clock = clock

    def create(self, values: Mapping[str, Any]) -> Changed:
        """Create an instance; `values` are fields of its record, the others get Nova's defaults.

        Raises what `create_many` raises.
        """
        return self.create_many([values])[0]

    def create_many(self, instances_values: Sequence[Mapping[str, Any]]) -> tuple[Changed, ...]:
        """Create instances, all or none; raises what `add_instances` raises."""
        rows = add_instances(self._engine, self._fleet, self._cell, instances_values, self._clock())
        return tuple(Changed(row.uuid, row.revision) for row in rows)

    def update(self, uuid: str, values: Mapping[str, Any]) -> Changed:
        """Rename, describe, tag …: set fields of the record. Raises what `check_values` raises."""
        check_values(values)
        return self._change(uuid, lambda _instance, _now: (event_types.INSTANCE_UPDATE, values))

    def start(self, uuid: str) -> Changed:
        return self._change(uuid, partial(self._outcome, "os-start"))

    def stop(self, uuid: str) -> Changed:
        return self._change(uuid, partial(self._outcome, "os-stop"))

    def move(self, uuid: str, host: str) -> Changed:
        """Live-migrate to another host of the same cell, whose node is called like it."""
        destination = {"host": host, "node": host}
        return self._change(uuid, partial(self._outcome, "os-migrateLive", destination=destination))

    def delete(self, uuid: str) -> Changed:
        """Delete for good. The row stays, marked."""
        try:
            changed = self._change(uuid, partial(self._outcome, "delete"))
        except InstanceNotFoundError:
            # An earlier call may have got as far as the cell, and then not to the fleet database.
            self._fleet.mark_queued_for_delete(self._cell.uuid, [uuid])
            raise
        self._fleet.mark_queued_for_delete(self._cell.uuid, [uuid])
        return changed

    def _outcome(
        self, name: str, instance: LockedInstance, now: int, *, destination: Mapping[str, str] | None = None
    ) -> tuple[str, Mapping[str, Any]]:
        """Event and values of the step of an action that leaves the instance as it is when all is done."""
        action, record = ACTIONS[name], instance.record
        if action.vm_states and record["vm_state"] not in action.vm_states:
            raise InvalidTransitionError(instance.uuid, action.word, record["vm_state"])
        notes = {"destination": destination or {}}
        job = Job(0, Status.RUNNING, Stage.STEPS, 0, 1, name, 0, {"origin": record}, notes, NO_REQUEST)
        tried = _Tried(instance.connection, self._cell, instance.row)
        task = Task(job, instance.connection, self._cell, self._fleet, now, tried)
        for step in reversed(action.steps):
            if not tried.outcome[1] and step.applies(task):
                step.run(task)
        return tried.outcome

    def _change(self, uuid: str, decide: Callable[[LockedInstance, int], tuple[str, Mapping[str, Any]]]) -> Changed:
        """decide: returns the event and the fields to set, or raises InvalidTransitionError."""
        with cell_failures(self._cell.name), writing(self._engine) as connection:
            instance = LockedInstance.lock(connection, self._cell, uuid)
            now = self._clock()
            event_type, values = decide(instance, now)
            instance.change(event_type, values, now)
            if not _OF_ITS_NODE.isdisjoint(values):
                release_except(connection, uuid, None)
                allocate_on_their_nodes(connection, [instance.record])
            return Changed(uuid, instance.row.revision)
