"""The actions of servers as operations of jobs, and the recovery from their failures.

An action holds the exclusive lock of its instance from its first step to its last, so actions of one instance run one
after the other, in the order of acceptance.
"""

from collections.abc import Collection, Mapping
from functools import partial
from typing import Any

from fleetlight.cells.errors import MaxRetriesExceededError
from fleetlight.manager.operations.actions.building import WORK, Action
from fleetlight.manager.operations.actions.effects import go_to_next_host
from fleetlight.manager.operations.actions.request_spec import announce_request
from fleetlight.manager.operations.actions.server_actions import ACTIONS
from fleetlight.manager.operations.actions.steps import PublisherService, origin_of, publisher_id, values_of
from fleetlight.manager.operations.actions.values import as_before, unplaced
from fleetlight.manager.operations.instances.instance_actions import finish_event
from fleetlight.manager.operations.jobs.errors import JobCanceledError, NodeCallError, text_for_callers
from fleetlight.manager.operations.jobs.model import Lock
from fleetlight.manager.operations.jobs.undoing import begin_undoing, is_undoing, settled, undoing
from fleetlight.manager.operations.jobs.vocabulary import Operation, Task, Vocabulary
from fleetlight.manager.operations.scheduling.allocations import give_back_claims
from fleetlight.notifications.event_types import INSTANCE_UPDATE, OF_INSTANCES


def _operation(action: Action) -> Operation:
    last = () if action.undo is None else (undoing(action.undo),)
    return Operation(
        (*action.steps, *last), _locks, _is_deleted, partial(_show_failure, action), partial(_recover, action)
    )


def _locks(_parameters: Mapping[str, Any], instance_uuid: str | None) -> Collection[Lock]:
    return [] if instance_uuid is None else [Lock("instance", instance_uuid)]


def _is_deleted(task: Task) -> bool:
    """Whether the instance does not exist any more, since the simulator or an operator may have deleted it."""
    return bool(task.record["deleted"])


def _recover(action: Action, task: Task, error: Exception) -> int:
    """Undo the remains of a failed step on a host, and then try the next host; else raise the error of the job."""
    failed_at = VOCABULARY[action.name].place(task.job.next_step)
    if is_undoing(task):
        error, failed_at = settled(task, error)
    elif action.undo is not None and isinstance(error, NodeCallError) and error.needs_undo:
        begin_undoing(task, error, failed_at)
        return len(action.steps)
    return _try_next_host(action, task, error, failed_at)


def _try_next_host(action: Action, task: Task, error: Exception, failed_at: int) -> int:
    """Continue with the next alternate after a host has failed, and announce it; else raise the error of the job.

    No other host is tried if the outcome on the host is unknown, since it may run the instance.
    """
    places = [place for place, step in enumerate(action.steps) if step in action.rescheduling]
    if failed_at not in places or task.record["deleted"]:
        raise error
    if not isinstance(error, NodeCallError) or not error.is_certain:
        raise error
    _announce_failed_host(action, task)
    action_id = task.job.instance_action_id
    finish_event(task.connection, action_id, task.now, error, text_for_callers(error), goes_on=True)
    task.notes.pop(WORK, None)
    go_to_next_host(task, error)
    values = values_of(action.rescheduled, task)
    publisher = publisher_id(task, PublisherService.CONDUCTOR)
    task.instance.change(INSTANCE_UPDATE, values, task.now, publisher_id=publisher, request=task.job.request)
    return places[0]


def _announce_failed_host(action: Action, task: Task) -> None:
    publisher = publisher_id(task, PublisherService.DESTINATION)
    task.instance.change(action.reschedule_event, {}, task.now, publisher_id=publisher, request=task.job.request)


def _show_failure(action: Action, task: Task, error: Exception) -> None:
    """Set the instance's state and fault after a failure."""
    if isinstance(error, NodeCallError) and not error.is_certain:
        # The outcome is unknown: the instance may run, on either host.
        failure: Mapping[str, Any] = {"vm_state": "error"}
    elif isinstance(error, JobCanceledError) and origin_of(task)["vm_state"] != "building":
        failure = as_before(task)
    else:
        failure = values_of(action.failure, task)
    if isinstance(error, MaxRetriesExceededError):
        _announce_failed_host(action, task)
        if origin_of(task)["host"] is None:
            failure = {**failure, **unplaced(None)(task)}
    details = None if error.__cause__ is None else text_for_callers(error.__cause__)
    fault = {"code": 500, "message": text_for_callers(error), "details": details, "created_at": task.now}
    event_type = action.failure_event or INSTANCE_UPDATE
    is_of_instance = event_type.startswith(OF_INSTANCES)
    task.instance.change(
        event_type if is_of_instance else INSTANCE_UPDATE,
        {**failure, "task_state": None, "fault": fault},
        task.now,
        publisher_id=publisher_id(task, PublisherService.COMPUTE if is_of_instance else PublisherService.CONDUCTOR),
        request=task.job.request,
    )
    if not is_of_instance:
        announce_request(task, event_type, publisher_id(task, PublisherService.CONDUCTOR), error)
    give_back_claims(task.connection, task.record)


VOCABULARY: Vocabulary = {name: _operation(action) for name, action in ACTIONS.items()}
"""The operations by names of actions."""
