"""Acceptance of orders: one transaction checks the instance, announces the change, and queues a job.

The transaction locks the instance's row before it checks its state, so of two concurrent callers one is refused. A
worker carries accepted orders out (fleetlight.manager.operations.cell_worker).
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import IntegrityError

from fleetlight.cells.database.engines import cell_failures, writing
from fleetlight.cells.errors import (
    CellUnreachableError,
    InstanceExistsError,
    InstanceLockedError,
    InstanceNotFoundError,
    InstanceNotReadyError,
    InstanceOfflineError,
    InvalidTransitionError,
    MirroredDisksError,
    NotResizedError,
    NoValidHostError,
    SupersededError,
)
from fleetlight.cells.fleet.fleet import Fleet, InstanceMapping
from fleetlight.cells.kinds.native import outbox
from fleetlight.cells.kinds.native.instance_rows import add_rows
from fleetlight.cells.model import FIRST_REVISION, NO_REQUEST, Cell, InstanceRow, RequestContext
from fleetlight.cells.settings import DEFAULT_MAX_ATTEMPTS
from fleetlight.manager.operations.actions.building import Action
from fleetlight.manager.operations.actions.effects import MAX_ATTEMPTS, SELECTIONS
from fleetlight.manager.operations.actions.move_actions import MOVES
from fleetlight.manager.operations.actions.new_instance import check_values, completed_flavor, new_record
from fleetlight.manager.operations.actions.server_actions import ACTIONS
from fleetlight.manager.operations.actions.steps import PublisherService, origin_in
from fleetlight.manager.operations.actions.vocabulary import VOCABULARY
from fleetlight.manager.operations.instances.instance_actions import begin_actions, begin_event, finish_event
from fleetlight.manager.operations.instances.instance_migrations import (
    begin_migration,
    finished_migration,
    give_up_migration,
    update_migration,
)
from fleetlight.manager.operations.instances.locked_instance import LockedInstance
from fleetlight.manager.operations.jobs.ending import end_jobs
from fleetlight.manager.operations.jobs.model import NewJob, NewOperation, Status
from fleetlight.manager.operations.jobs.queue import add_jobs, jobs_of, notes_of
from fleetlight.manager.operations.scheduling.allocations import give_back_claims, release_except
from fleetlight.manager.operations.scheduling.request_spec import RequestSpec, demand_of, request_spec, with_members
from fleetlight.manager.operations.scheduling.select_destinations import select_destinations
from fleetlight.notifications.event_types import INSTANCE_UPDATE
from fleetlight.notifications.versioned import Wrapped
from fleetlight.resources.clock import Clock, system_clock
from fleetlight.resources.fields import Record
from fleetlight.resources.power_states import NO_STATE
from fleetlight.resources.query_fields.ganeti import is_offline, own_value

_CREATE = "create"
_DELETING = "deleting"
_SOFT_DELETING = "soft-deleting"
# Actions that would run the guest, at least for a moment.
_RUN_THE_GUEST = frozenset({"os-start", "reboot SOFT", "reboot HARD", "rescue", "rebuild", "unshelve", "restore"})
# Actions that would leave the copies of mirrored disks behind, which must be on two nodes of one group.
_LEAVE_THE_HOST = frozenset({*(action.name for action in MOVES), "shelve", "shelveOffload"})
# Actions that a lock refuses with the general message (contracts/nova-rest, 2.3).
_WITHOUT_A_WORD_FOR_LOCKED = {"changePassword", "restore"}


@dataclass(frozen=True, slots=True)
class Order:
    """An order of a caller. action: its name in fleetlight.manager.operations.actions.server_actions.

    values: fields of the record to set at once. parameters: JSON for the steps. request: of the caller.
    is_admin: whether locks are ignored, and hints may name instances of any project.
    depends_on: numbers of the cell's jobs that must succeed first.
    """

    action: str
    values: Mapping[str, Any] = field(default_factory=dict)
    parameters: Mapping[str, Any] = field(default_factory=dict)
    request: RequestContext = NO_REQUEST
    is_admin: bool = False
    depends_on: Collection[int] = ()


class Acceptance:
    """Accepts orders for one native cell.

    Every call raises CellUnreachableError when the cell's database does not answer. Calls about an instance raise
    InstanceNotFoundError if it does not exist (any more), and StateConflictError if its state forbids the action.
    """

    def __init__(
        self,
        engine: Engine,
        fleet: Fleet,
        cell: Cell,
        clock: Clock = system_clock,
        *,
        max_attempts: int = DEFAULT_MAX_ATTEMPTS,
    ) -> None:
        """max_attempts: number of hosts that a creation or a cold move may try."""
        self._engine = engine
        self._fleet = fleet
        self.cell = cell
        self._clock = clock
        self._max_attempts = max_attempts

    def create(
        self,
        instances_values: Sequence[Mapping[str, Any]],
        parameters: Mapping[str, Any],
        request: RequestContext,
        *,
        needs_hosts: bool = False,
    ) -> Sequence[InstanceRow]:
        """Accept the creation of instances, all or none; they exist at once, with their hosts, in state `building`.

        instances_values: fields of their records, see `new_record`; equal in all fields that the scheduler uses.
        parameters: JSON for the steps of each. needs_hosts: accept none if not all find a host, instead of instances
        that end in error.
        Raises InvalidValueError, UnknownFieldError (fleetlight.resources.errors), PayloadError
        (fleetlight.notifications.errors), InstanceExistsError, FleetUnreachableError, and NoValidHostError as
        `needs_hosts` says.
        """
        with self.creating(instances_values, parameters, request, needs_hosts=needs_hosts) as write:
            return write()

    @contextmanager
    def creating(
        self,
        instances_values: Sequence[Mapping[str, Any]],
        parameters: Mapping[str, Any],
        request: RequestContext,
        *,
        needs_hosts: bool,
    ) -> Iterator[Callable[[], Sequence[InstanceRow]]]:
        """As `create`, in a transaction around the block, which claims hosts before the block begins.

        Yields the function that accepts the instances; if the block fails, nothing is accepted.
        Raises InstanceExistsError.
        """
        now = self._clock()
        unbuilt = {
            "vm_state": "building",
            "task_state": "scheduling",
            "power_state": NO_STATE,
            "launched_at": None,
            "launched_on": None,
            "host": None,
            "node": None,
        }
        wanted = [new_record({**values, **unbuilt}, now) for values in instances_values]
        # The host sets up the network later, and with it the addresses.
        addresses = {record["uuid"]: record["ip_addresses"] for record in wanted}
        rows = [InstanceRow(self.cell.uuid, FIRST_REVISION, {**record, "ip_addresses": []}) for record in wanted]
        announced = outbox.announcements(
            self.cell,
            INSTANCE_UPDATE,
            rows,
            now,
            publisher_id=self._publisher(PublisherService.CONDUCTOR),
            request=request,
        )
        spec = with_members(request_spec(self._fleet, rows[0].record, parameters), [row.uuid for row in rows])
        may_be_mapped = may_be_there = False

        def write() -> Sequence[InstanceRow]:
            nonlocal may_be_mapped
            may_be_mapped = True
            # Like Nova, write mappings before rows: without one no API would find the instance.
            self._fleet.add_mappings([InstanceMapping.of(row, now) for row in rows])
            add_rows(connection, rows)
            outbox.append(connection, announced)
            action_ids = begin_actions(connection, [row.uuid for row in rows], _CREATE, request, now)
            queued = [
                NewOperation(
                    _CREATE,
                    {
                        **parameters,
                        SELECTIONS: selected,
                        "ip_addresses": addresses[row.uuid],
                        "origin": origin_in(row.record),
                    },
                    row.uuid,
                    action_id,
                )
                for row, action_id, selected in zip(rows, action_ids, selections, strict=True)
            ]
            add_jobs(connection, VOCABULARY, [NewJob([operation], request) for operation in queued], now)
            return rows

        try:
            with cell_failures(self.cell.name), writing(self._engine) as connection:
                selections = self._select_destinations(connection, rows, spec, needs_hosts=needs_hosts)
                yield write
                # If the cell fails from here on, it may still have the rows.
                may_be_there = True
        except IntegrityError as error:
            raise InstanceExistsError([row.uuid for row in rows]) from error
        except CellUnreachableError:
            if may_be_mapped and not may_be_there:
                self._fleet.mark_queued_for_delete(self.cell.uuid, [row.uuid for row in rows])
            raise

    def _select_destinations(
        self, connection: Connection, rows: Sequence[InstanceRow], spec: RequestSpec, *, needs_hosts: bool
    ) -> Sequence[Sequence[Wrapped]]:
        """Claim hosts; returns each instance's wrapped Selections, the claimed one first; empty if some find none."""
        demand = demand_of(rows[0].record["flavor"])
        uuids = [row.uuid for row in rows]
        try:
            found = select_destinations(connection, self.cell, uuids, demand, spec, max_attempts=self._max_attempts)
        except NoValidHostError:
            if needs_hosts:
                raise
            return [()] * len(rows)
        return [[selection.wrap() for selection in selections] for selections in found]

    def accept(self, uuid: str, order: Order, check: Callable[[Record], None] = lambda _record: None) -> InstanceRow:
        """Accept an action; returns the instance afterwards.

        Deleting an instance that is being deleted changes nothing, nor does evacuating it, or one being evacuated.
        check: see `unlock`; called only if the instance's state permits the action.
        Raises NotResizedError when there is nothing to confirm or revert, and the errors of `check_values`.
        """
        row, _ = self._accept(uuid, order, check)
        return row

    def submit(self, uuid: str, order: Order) -> int:
        """As `accept`, for an action that never meets itself; returns the number of its job in the cell."""
        _, job_id = self._accept(uuid, order, lambda _record: None)
        if job_id is None:
            raise ValueError(f"{order.action} on {uuid} needs no job")
        return job_id

    def _accept(self, uuid: str, order: Order, check: Callable[[Record], None]) -> tuple[InstanceRow, int | None]:
        """Accept an action; returns the instance, and the number of the job, None if there is nothing to do."""
        action = ACTIONS[order.action]
        check_values(order.values)
        parameters = dict(order.parameters)
        if parameters.get("flavor"):
            parameters["flavor"] = completed_flavor(parameters["flavor"])
        with cell_failures(self.cell.name), writing(self._engine) as connection:
            instance = _locked_server(connection, self.cell, uuid)
            record = instance.record
            refuse_unless_allowed(action, record, is_admin=order.is_admin)
            check(record)
            if action.replaces_others and _is_done_anyway(action, record, jobs_of(connection, uuid).values()):
                return instance.row, None
            now = self._clock()
            if action.replaces_others:
                # The jobs that are given up may have left parts of the instance on hosts.
                notes = notes_of(connection, uuid)
                parameters["other_hosts"] = [each["destination"]["host"] for each in notes if "destination" in each]
                self._give_up_jobs(instance, action, now)
            migration_id = self._migration_of(action, instance, order, now)
            task: dict[str, str | int] = {} if action.task is None else {"task_state": action.task}
            if action.task == _SOFT_DELETING:
                task["deleted_at"] = now
            if task or order.values or action.event_type != INSTANCE_UPDATE:
                instance.change(
                    action.event_type,
                    {**order.values, **task},
                    now,
                    publisher_id=self._publisher(action.source),
                    request=order.request,
                )
            action_id = None
            if action.record is not None:
                [action_id] = begin_actions(connection, [uuid], action.record, order.request, now)
            parameters |= {
                "origin": origin_in(record),
                "is_by_administrator": order.is_admin,
                MAX_ATTEMPTS: self._max_attempts,
            }
            operation = NewOperation(action.name, parameters, uuid, action_id, migration_id)
            depends_on = dict.fromkeys(order.depends_on, (Status.SUCCESS,))
            job = NewJob([operation], order.request, depends_on=depends_on)
            [job_id] = add_jobs(connection, VOCABULARY, [job], now)
            return instance.row, job_id

    def update(self, uuid: str, values: Mapping[str, Any], request: RequestContext) -> InstanceRow:
        """Set fields of the record, in any state, even if locked. Raises the errors of `check_values`."""
        return self.revise(uuid, lambda _record: values, request)

    def revise(
        self,
        uuid: str,
        decide: Callable[[Record], Mapping[str, Any]],
        request: RequestContext,
        *,
        announces_always: bool = False,
    ) -> InstanceRow:
        """Set the fields that `decide` returns for the locked record. An error of `decide` leaves it unchanged.

        announces_always: announce the instance even if it has these values already; by default, like in Nova, that
        changes nothing. Raises the errors of `decide` and `check_values`.
        """
        with cell_failures(self.cell.name), writing(self._engine) as connection:
            instance = _locked_server(connection, self.cell, uuid)
            values = decide(instance.record)
            check_values(values)
            if not announces_always and all(instance.record[name] == value for name, value in values.items()):
                return instance.row
            instance.change(
                INSTANCE_UPDATE,
                values,
                self._clock(),
                publisher_id=self._publisher(PublisherService.API),
                request=request,
            )
            return instance.row

    def lock(self, uuid: str, *, by: str, reason: str | None, request: RequestContext) -> InstanceRow:
        """Lock an instance. by: "owner" or "admin". An owner's lock on a locked instance changes nothing."""
        with cell_failures(self.cell.name), writing(self._engine) as connection:
            instance = _locked_server(connection, self.cell, uuid)
            if instance.record["locked"] and by == "owner":
                return instance.row
            values = {"locked": True, "locked_by": by, "locked_reason": reason or instance.record["locked_reason"]}
            return self._change_at_once(instance, "instance.lock", values, request, record="lock", work="api_lock")

    def unlock(
        self, uuid: str, *, request: RequestContext, check: Callable[[Record], None] = lambda _record: None
    ) -> InstanceRow:
        """Unlock an instance. check: gets the locked record, and may raise as `decide` of `revise`."""
        with cell_failures(self.cell.name), writing(self._engine) as connection:
            instance = _locked_server(connection, self.cell, uuid)
            check(instance.record)
            values = {"locked": False, "locked_by": None, "locked_reason": None}
            return self._change_at_once(
                instance, "instance.unlock", values, request, record="unlock", work="api_unlock"
            )

    def reset_state(self, uuid: str, vm_state: str, *, request: RequestContext) -> InstanceRow:
        """Set the state to "active" or "error" for an administrator, and give up the instance's jobs."""
        with cell_failures(self.cell.name), writing(self._engine) as connection:
            instance = _locked_server(connection, self.cell, uuid)
            self._give_up_jobs(instance, None, self._clock())
            self._give_up_resize(instance, self._clock())
            values = {"vm_state": vm_state, "task_state": None}
            return self._change_at_once(instance, INSTANCE_UPDATE, values, request, record="resetState")

    def _change_at_once(
        self,
        instance: LockedInstance,
        event_type: str,
        values: Mapping[str, Any],
        request: RequestContext,
        *,
        record: str,
        work: str | None = None,
    ) -> InstanceRow:
        """Make a change without a job, and record its instance action. work: the event of that, if it has one."""
        now = self._clock()
        instance.change(event_type, values, now, publisher_id=self._publisher(PublisherService.API), request=request)
        [action_id] = begin_actions(instance.connection, [instance.uuid], record, request, now)
        if work is not None:
            begin_event(instance.connection, action_id, work, instance.record["host"], now)
            finish_event(instance.connection, action_id, now)
        return instance.row

    def _give_up_jobs(self, instance: LockedInstance, action: Action | None, now: int) -> None:
        connection = instance.connection
        error = SupersededError("resetState" if action is None else action.word)
        end_jobs(connection, list(jobs_of(connection, instance.uuid)), Status.CANCELED, error, now)
        give_back_claims(connection, instance.record)

    def _give_up_resize(self, instance: LockedInstance, now: int) -> None:
        """Give up the resize of an instance that is not resized any more: nothing can confirm or revert it."""
        with suppress(NotResizedError):
            give_up_migration(instance.connection, finished_migration(instance.connection, instance.uuid).id, now)
        release_except(instance.connection, instance.uuid, instance.record["node"])

    def _migration_of(self, action: Action, instance: LockedInstance, order: Order, now: int) -> int | None:
        connection = instance.connection
        if action.migration is not None:
            return begin_migration(
                connection,
                instance.record,
                action.migration,
                order.request,
                now,
                new_instance_type_id=order.parameters.get("flavor_number"),
            )
        if action.continues is not None:
            migration = finished_migration(connection, instance.uuid)
            update_migration(connection, migration.id, now, status=action.continues)
            return migration.id
        return None

    def _publisher(self, source: PublisherService) -> str:
        return f"{source.value}:{self.cell.name}"


def create_in_several(
    parts: Sequence[tuple[Acceptance, Sequence[Mapping[str, Any]]]],
    parameters: Mapping[str, Any],
    request: RequestContext,
) -> Sequence[InstanceRow]:
    """As `Acceptance.create` with `needs_hosts`, in several cells: all instances get hosts, or none is accepted.

    Raises the same errors. A cell whose commit fails after that of another cell gets none of its instances.
    """
    with ExitStack() as transactions:
        # In a fixed order of cells, to avoid deadlocks.
        writes = {
            acceptance.cell.name: transactions.enter_context(
                acceptance.creating(values, parameters, request, needs_hosts=True)
            )
            for acceptance, values in sorted(parts, key=lambda part: part[0].cell.uuid)
        }
        rows: dict[str, InstanceRow] = {}
        for cell, write in writes.items():
            with cell_failures(cell):  # or the error would seem to be of the last cell, whose transaction ends first
                rows |= {row.uuid: row for row in write()}
    return [rows[each["uuid"]] for _, values in parts for each in values]


def _locked_server(connection: Connection, cell: Cell, uuid: str) -> LockedInstance:
    """Lock an instance. Raises InstanceNotFoundError also for a reservation, which is no server."""
    instance = LockedInstance.lock(connection, cell, uuid)
    if instance.record["forthcoming"]:
        raise InstanceNotFoundError(uuid)
    return instance


def refuse_unless_allowed(action: Action, record: Record, *, is_admin: bool) -> None:
    """Raise StateConflictError if the state or lock of an instance forbids `action`, checked in Nova's order.

    Raises InstanceNotFoundError while it is being scheduled.
    """
    uuid, vm_state, task_state = record["uuid"], record["vm_state"], record["task_state"]
    if action.respects_lock and record["locked"] and not is_admin:
        if action.name in _WITHOUT_A_WORD_FOR_LOCKED:
            raise InvalidTransitionError(uuid, action.word, None)
        raise InstanceLockedError(uuid)
    if vm_state == "building" and task_state == "scheduling" and not action.replaces_others:
        # Nova would not have the instance in a cell yet.
        raise InstanceNotFoundError(uuid)
    if action.needs_host and record["host"] is None:
        raise InstanceNotReadyError(uuid)
    if action.name in _LEAVE_THE_HOST and own_value(record, "snodes"):
        raise MirroredDisksError(uuid)
    if action.name in _RUN_THE_GUEST and is_offline(record):
        raise InstanceOfflineError(uuid)
    if action.vm_states and vm_state not in action.vm_states:
        raise InvalidTransitionError(uuid, action.word, vm_state)
    if action.task_states and task_state not in action.task_states:
        raise InvalidTransitionError(uuid, action.word, task_state, attribute="task_state")
    if action.needs_launch and record["launched_at"] is None:
        raise InvalidTransitionError(uuid, action.word, None)


def _is_done_anyway(action: Action, record: Record, under_way: Collection[str]) -> bool:
    """Whether a replacing action is running already, or a deletion is, which no other action replaces."""
    if record["task_state"] == _DELETING or action.name in under_way:
        return True
    return record["task_state"] == _SOFT_DELETING and action.task != _DELETING
