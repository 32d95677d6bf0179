"""The jobs of moves in one native cell: submission and progress."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from uuid import uuid4

from sqlalchemy import Engine, select

from fleetlight.cells.database.engines import cell_failures
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.job_numbers import job_number, number_in_cell
from fleetlight.cells.model import Cell, RequestContext
from fleetlight.cells.tables import job_operations, jobs
from fleetlight.manager.operations.actions.accepting import Acceptance, Order
from fleetlight.manager.operations.balancing.moves import MoveKind
from fleetlight.manager.operations.balancing.plan import PlannedMove
from fleetlight.manager.operations.jobs.model import ENDED, Status
from fleetlight.manager.operations.opcodes.instances.move import InstanceFailover, InstanceMigrate, InstanceReplaceDisks
from fleetlight.manager.operations.opcodes.instances.node_claims import node_called
from fleetlight.manager.operations.opcodes.instances.place_reservation import InstancePlace
from fleetlight.manager.operations.opcodes.opcode import OpCode
from fleetlight.manager.operations.submitting import JobSubmission
from fleetlight.resources.clock import Clock, system_clock


def operations_of(move: PlannedMove, uuid: str, *, can_migrate: bool) -> Sequence[OpCode]:
    """Make the operations that move an instance of Ganeti's, or a reservation, to its target.

    can_migrate: whether its node is up; otherwise a running guest is restarted on the other node.
    """
    target = move.target
    if move.is_forthcoming:
        return [
            InstancePlace(
                instance_name=uuid,
                instance_uuid=uuid,
                primary_node=target.primary,
                secondary_node=target.secondary,
            )
        ]
    return list(_operations(move, uuid, is_live=can_migrate and move.moved.uses_memory))


def _operations(move: PlannedMove, uuid: str, *, is_live: bool) -> Iterator[OpCode]:
    source, target = move.source, move.target

    def go_to(node: str | None) -> OpCode:
        if is_live:
            return InstanceMigrate(instance_name=uuid, instance_uuid=uuid, target_node=node, allow_failover=True)
        return InstanceFailover(instance_name=uuid, instance_uuid=uuid, target_node=node)

    def mirror_to(node: str | None) -> OpCode:
        return InstanceReplaceDisks(
            instance_name=uuid, instance_uuid=uuid, mode="replace_new_secondary", remote_node=node
        )

    match move.kind:
        case MoveKind.FAILOVER | MoveKind.FAILOVER_TO:
            yield go_to(target.primary)
        case MoveKind.REPLACE_SECONDARY:
            yield mirror_to(target.secondary)
        case MoveKind.REPLACE_AND_FAILOVER:
            yield mirror_to(target.primary)
            yield go_to(target.primary)
        case MoveKind.FAILOVER_AND_REPLACE:
            yield go_to(target.primary)
            yield mirror_to(target.secondary)
        case MoveKind.REPLACE_PRIMARY:
            yield go_to(source.secondary)
            yield mirror_to(target.primary)
            yield go_to(target.primary)
        case MoveKind.PLACE:
            raise ValueError(f"{move.instance} is no reservation, whose nodes can all be changed at once")


_REQUEST = "req-balance-"
"""Prefix of the request ids of these jobs, by which a later call finds them."""


@dataclass(frozen=True, slots=True)
class Ending:
    """The end of a job. why: the reason of a failure."""

    status: Status
    why: str | None = None


class MoveJobs:
    """The jobs of one cell, numbered as in the fleet. Calls raise CellUnreachableError if the cell does not answer."""

    def __init__(self, engine: Engine, fleet: Fleet, cell: Cell, clock: Clock = system_clock) -> None:
        self._engine = engine
        self._cell = cell
        self._acceptance = Acceptance(engine, fleet, cell, clock)
        self._submission = JobSubmission(engine, cell, clock)
        self._request = RequestContext(f"{_REQUEST}{uuid4()}")

    def submit(self, move: PlannedMove, after: Collection[int]) -> int:
        """Queue the job of a move; returns its number. after: jobs that must succeed first.

        Raises InstanceNotFoundError and StateConflictError for a server that cannot be moved any more; for other
        instances the job fails.
        """
        uuid = move.moved.uuid
        if uuid is None:
            raise ValueError(f"{move.instance} is of a text file")
        if move.moved.is_server and not move.is_forthcoming:
            in_cell = [number for other in after if (number := number_in_cell(self._cell, other)) is not None]
            to = {"node": move.target.primary}
            order = Order("os-migrateLive", {}, to, self._request, is_admin=True, depends_on=in_cell)
            return job_number(self._cell, self._acceptance.submit(uuid, order))
        operations = operations_of(move, uuid, can_migrate=self._is_up(move.source.primary))
        return self._submission.submit(_depending(operations, after), self._request)

    def unfinished(self) -> Sequence[int]:
        """Return the jobs of earlier calls that have not ended."""
        statement = (
            select(jobs.c.id)
            .where(jobs.c.ended_at.is_(None), jobs.c.request_id.startswith(_REQUEST, autoescape=True))
            .order_by(jobs.c.id)
        )
        with cell_failures(self._cell.name), self._engine.connect() as connection:
            return [job_number(self._cell, job_id) for job_id in connection.scalars(statement)]

    def ended(self, numbers: Collection[int]) -> Mapping[int, Ending]:
        """Return the ends of those jobs that have ended; a missing job has ended, with an unknown outcome."""
        by_id = {in_cell: number for number in numbers if (in_cell := number_in_cell(self._cell, number)) is not None}
        if not by_id:
            return {}
        columns = job_operations.c
        statuses = select(jobs.c.id, jobs.c.status).where(jobs.c.id.in_(by_id))
        results = (
            select(columns.job_id, columns.result)
            .where(columns.job_id.in_(by_id), columns.status.in_((Status.ERROR, Status.CANCELED)))
            .order_by(columns.job_id, columns.position.desc())
        )
        with cell_failures(self._cell.name), self._engine.connect() as connection:
            found = {row.id: Status(row.status) for row in connection.execute(statuses)}
            why = {row.job_id: row.result[1][0] for row in connection.execute(results) if row.result}
        gone = Ending(Status.CANCELED, "the job is not there any more")
        return {
            number: Ending(found[job_id], why.get(job_id)) if job_id in found else gone
            for job_id, number in by_id.items()
            if found.get(job_id, Status.CANCELED) in ENDED
        }

    def _is_up(self, node: str) -> bool:
        with cell_failures(self._cell.name), self._engine.connect() as connection:
            return not node_called(connection, node).is_offline


def _depending(operations: Sequence[OpCode], after: Collection[int]) -> Sequence[OpCode]:
    """Make the first of a job's operations wait for other jobs to succeed."""
    first, *others = operations
    depends = [(number, [Status.SUCCESS]) for number in sorted(after)]
    return [first.model_copy(update={"depends": depends or None}), *others]
