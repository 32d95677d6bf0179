"""Carries out the jobs of a native cell, step by step.

Each step is one transaction: what it changes, its announcement, and the place of the job. So a worker that is killed
anywhere leaves every job between two steps, and another one goes on there. Any number of workers may run.
"""

from collections.abc import Callable, Sequence
from threading import Event

import structlog
from sqlalchemy import Connection, Engine
from tenacity import RetryCallState, Retrying, retry_if_exception_type
from tenacity.nap import sleep_using_event
from tenacity.stop import stop_when_event_set
from tenacity.wait import wait_random_exponential

from cells.database.engines import cell_failures, writing
from cells.errors import (
    CellUnreachableError,
    FleetUnreachableError,
    InstanceNotFoundError,
    NoValidHostError,
    UnreadableRowError,
)
from cells.fleet.fleet import Fleet
from cells.kinds.native import outbox
from cells.kinds.native.instance_actions import begin_event, finish_event
from cells.kinds.native.instance_migrations import give_up_migration
from cells.kinds.native.instance_rows import is_damage, read_row
from cells.kinds.native.locked_instance import LockedInstance
from cells.model import Cell
from notifications.event_types import INSTANCE_UPDATE
from operations.actions.building import Action
from operations.actions.request_spec import to_payload
from operations.actions.server_actions import ACTIONS
from operations.jobs.failures import ends_alone
from operations.jobs.queue import first_job, has_jobs, lock_next, remove_first_job, remove_job, save_job
from operations.jobs.steps import Job, PublisherService, Step, Task, host_of, publisher_id
from operations.scheduling.placement import give_back_claims
from resources.clock import Clock, system_clock

_log = structlog.get_logger(__name__)

_LONGEST_WAIT_S = 10.0
# Between two looks at a queue without jobs.
_POLL_INTERVAL_S = 0.1
_UNREACHABLE = (CellUnreachableError, FleetUnreachableError)
# What the text says all of; no mistake of this program, and callers could fill logs with tracebacks.
_EXPLAINED = (NoValidHostError, UnreadableRowError)
_OF_AN_INSTANCE = "instance."
# The parameter that says which event of the instance action is under way.
_WORK = "work"


class Worker:
    """One worker of one cell. `run` until told to stop, or `run_once` for a single step.

    reclaim: called between jobs; deletes what can no longer be restored (operations.actions.reclaiming).
    beat: called by `run` after each step, and before each wait for what is away.
    """

    def __init__(
        self,
        engine: Engine,
        fleet: Fleet,
        cell: Cell,
        *,
        clock: Clock = system_clock,
        reclaim: Callable[[], object] | None = None,
        beat: Callable[[], None] = lambda: None,
    ) -> None:
        self._engine = engine
        self._fleet = fleet
        self._cell = cell
        self._clock = clock
        self._reclaim = reclaim
        self._beat = beat
        self._is_waiting = False

    def run(self, stop: Event) -> None:
        """Work until `stop` is set; waits, longer and longer, while a database is away."""
        retrying = Retrying(
            retry=retry_if_exception_type(_UNREACHABLE),
            wait=wait_random_exponential(multiplier=0.2, max=_LONGEST_WAIT_S),
            sleep=sleep_using_event(stop),
            stop=stop_when_event_set(stop),
            before_sleep=self._before_retry,
            retry_error_callback=lambda _: False,
        )
        while not stop.is_set():
            if self._reclaim is not None:
                retrying(self._reclaim)
            has_worked = retrying(self.run_once)
            if self._is_waiting and not stop.is_set():
                _log.info("worker.cell_worked_again", cell=self._cell.name)
                self._is_waiting = False
            self._beat()
            if not has_worked:
                stop.wait(_POLL_INTERVAL_S)

    def run_once(self) -> bool:
        """One step of one job; False when there is none, or somebody else works on all there are.

        Raises CellUnreachableError and FleetUnreachableError; the job is then where it was before.
        """
        with cell_failures(self._cell.name):
            # Looked at without the lock for writing, of which SQLite has only one.
            with self._engine.connect() as connection:
                if not has_jobs(connection):
                    return False
            with writing(self._engine) as connection:
                uuid = lock_next(connection)
                if uuid is None:
                    return False
                return self._work(connection, uuid)

    def _work(self, connection: Connection, uuid: str) -> bool:
        """One step of the job that is first in line for an instance, or its failure; nothing else is undone by that.

        False when another worker finished it while this one waited for the row.
        """
        try:
            job = first_job(connection, uuid)
        except Exception as error:
            if not is_damage(error):
                raise
            _log.error("job.unreadable", cell=self._cell.name, instance=uuid, reason=type(error).__name__)
            finish_event(connection, remove_first_job(connection, uuid), self._clock(), error)
            return True
        if job is None:
            return False
        attempt = connection.begin_nested()
        try:
            self._advance(self._task(connection, uuid, job))
            attempt.commit()
        except Exception as error:
            if not ends_alone(error):
                raise
            attempt.rollback()
            self._log_failure(_log.warning, "job.failed", uuid, job, error)
            self._end_failed(connection, uuid, error)
        return True

    def _end_failed(self, connection: Connection, uuid: str, error: Exception) -> None:
        """End the job that is first in line for an instance, whose step has failed with `error`."""
        job = first_job(connection, uuid)
        if job is None:
            return
        now = self._clock()
        attempt = connection.begin_nested()
        try:
            self._fail(self._task(connection, uuid, job), ACTIONS[job.action], error)
            attempt.commit()
        except Exception as failure:
            if not ends_alone(failure):
                raise
            # Such an instance can only be left as it is. Its job must not come back for ever.
            attempt.rollback()
            self._log_failure(_log.error, "job.failure_not_shown", uuid, job, failure)
        if job.migration_id is not None:
            give_up_migration(connection, job.migration_id, now)
        finish_event(connection, job.instance_action_id, now, error)
        remove_job(connection, job)

    def _task(self, connection: Connection, uuid: str, job: Job) -> Task:
        row = read_row(connection, self._cell, uuid)
        if row is None:
            raise InstanceNotFoundError(uuid)
        return Task(job, LockedInstance(connection, self._cell, row), self._clock(), self._fleet)

    def _advance(self, task: Task) -> None:
        """The next step that applies, and the end of the job if there is none behind it."""
        if task.record["deleted"]:
            # By somebody who did not ask us: there is nothing left to do.
            remove_job(task.instance.connection, task.job)
            return
        steps = ACTIONS[task.job.action].steps
        position = _next_position(task, steps, task.job.position)
        if position is not None:
            self._run(task, steps[position])
            task.job.position = position + 1
        if task.record["deleted"]:
            # Before the commit: the mapping says "deleted, or about to be", and nobody would come back to say it.
            self._fleet.mark_queued_for_delete(self._cell.uuid, [task.instance.uuid])
        connection = task.instance.connection
        if _next_position(task, steps, task.job.position) is None:
            finish_event(connection, task.job.instance_action_id, task.now)
            remove_job(connection, task.job)
        else:
            save_job(connection, task.job)

    def _run(self, task: Task, step: Step) -> None:
        instance, job = task.instance, task.job
        if step.work is not None and step.work != job.parameters.get(_WORK):
            begin_event(instance.connection, job.instance_action_id, step.work, host_of(task, step.source), task.now)
            job.parameters[_WORK] = step.work
        for effect in step.effects:
            effect(task)
        publisher = publisher_id(task, step.source)
        if step.event_type.startswith(_OF_AN_INSTANCE):
            values = step.values_for(task)
            instance.change(step.event_type, values, task.now, publisher_id=publisher, request=job.request)
        else:
            outbox.append_event(
                instance.connection,
                step.event_type,
                to_payload(task, step.event_type),
                publisher_id=publisher,
                at=task.now,
                request=job.request,
            )

    def _fail(self, task: Task, action: Action, error: Exception) -> None:
        """Let the instance show what happened."""
        instance, job, connection = task.instance, task.job, task.instance.connection
        failure = action.failure(task) if callable(action.failure) else action.failure
        fault = {"code": 500, "message": str(error), "details": None, "created_at": task.now}
        values = {**failure, "task_state": None, "fault": fault}
        event_type = action.failure_event or INSTANCE_UPDATE
        is_of_instance = event_type.startswith(_OF_AN_INSTANCE)
        instance.change(
            event_type if is_of_instance else INSTANCE_UPDATE,
            values,
            task.now,
            publisher_id=publisher_id(task, PublisherService.COMPUTE if is_of_instance else PublisherService.CONDUCTOR),
            request=job.request,
        )
        if not is_of_instance:
            outbox.append_event(
                connection,
                event_type,
                to_payload(task, event_type, error),
                publisher_id=publisher_id(task, PublisherService.CONDUCTOR),
                at=task.now,
                request=job.request,
            )
        give_back_claims(connection, task.record)

    def _log_failure(self, log: Callable[..., object], event: str, uuid: str, job: Job, error: Exception) -> None:
        trace = None if isinstance(error, _EXPLAINED) else error
        fields = {"cell": self._cell.name, "instance": uuid, "action": job.action, "reason": str(error)}
        log(event, **fields, exc_info=trace)

    def _before_retry(self, state: RetryCallState) -> None:
        self._is_waiting = True
        self._beat()
        error = state.outcome.exception() if state.outcome else None
        _log.warning("worker.waiting", cell=self._cell.name, attempt=state.attempt_number, reason=str(error))


def _next_position(task: Task, steps: Sequence[Step], position: int) -> int | None:
    return next((each for each in range(position, len(steps)) if steps[each].applies(task)), None)
