"""The actions of servers as operations of jobs: what their steps do, and how their failures show.

An action locks its instance for itself, from its first step to its last, so those of one instance run one after the
other, in the order of acceptance.
"""

from collections.abc import Collection, Mapping
from functools import partial
from typing import Any

from fleetlight.cells.errors import MaxRetriesExceededError
from fleetlight.cells.kinds.native import outbox
from fleetlight.notifications.event_types import INSTANCE_UPDATE
from fleetlight.operations.actions.building import Action
from fleetlight.operations.actions.effects import go_to_next_host
from fleetlight.operations.actions.host_parameters import guest_of
from fleetlight.operations.actions.request_spec import to_payload
from fleetlight.operations.actions.server_actions import ACTIONS
from fleetlight.operations.actions.steps import ActionStep, HostCall, PublisherService, host_of, origin_of, publisher_id
from fleetlight.operations.actions.values import as_before, unplaced
from fleetlight.operations.instances.instance_actions import begin_event, finish_event
from fleetlight.operations.jobs import vocabulary
from fleetlight.operations.jobs.errors import JobCanceledError, NodeCallError, text_for_callers
from fleetlight.operations.jobs.model import Lock
from fleetlight.operations.jobs.nodes import NodeCall
from fleetlight.operations.jobs.undoing import begin_undoing, is_undoing, settled, undoing
from fleetlight.operations.jobs.vocabulary import Operation, Task, Vocabulary
from fleetlight.operations.scheduling.allocations import give_back_claims

_OF_AN_INSTANCE = "instance."
# The note that says which event of the instance action is under way.
_WORK = "work"


def _operation(action: Action) -> Operation:
    steps = [
        vocabulary.Step(
            partial(run_step, step), step.applies, None if step.call is None else partial(call_of, step, step.call)
        )
        for step in action.steps
    ]
    if action.undo is not None:
        steps.append(undoing(partial(call_of, None, action.undo)))
    return Operation(tuple(steps), _locks, _is_deleted, partial(_show_failure, action), partial(_recover, action))


def _locks(_parameters: Mapping[str, Any], instance_uuid: str | None) -> Collection[Lock]:
    return [] if instance_uuid is None else [Lock("instance", instance_uuid)]


def _is_deleted(task: Task) -> bool:
    """Whether there is nothing left to do, which may be so because the simulator, or an operator, has deleted it."""
    return bool(task.record["deleted"])


def call_of(step: ActionStep | None, call: HostCall, task: Task) -> NodeCall | None:
    """What a host is called for; None: no host is. step: of the call, if it belongs to one."""
    source = PublisherService.COMPUTE if step is None else step.source
    host = host_of(task, source) if call.host is None else call.host(task)
    if host is None:
        return None
    about = {"instance_uuid": task.instance.uuid, "guest": guest_of(task.record)}
    return NodeCall(host, call.name, {**about, **call.parameters(task)})


def run_step(step: ActionStep, task: Task) -> None:
    """Announce a step, with what it changes of the instance."""
    instance, job = task.instance, task.job
    if step.work is not None and step.work != task.notes.get(_WORK):
        begin_event(task.connection, job.instance_action_id, step.work, host_of(task, step.source), task.now)
        task.notes[_WORK] = step.work
    for effect in step.effects:
        effect(task)
    publisher = publisher_id(task, step.source)
    if step.event_type.startswith(_OF_AN_INSTANCE):
        values = step.values_for(task)
        instance.change(step.event_type, values, task.now, publisher_id=publisher, request=job.request)
    else:
        outbox.append_event(
            task.connection,
            step.event_type,
            to_payload(task, step.event_type),
            publisher_id=publisher,
            at=task.now,
            request=job.request,
        )
    if task.record["deleted"]:
        # Before the commit: the mapping says "deleted, or about to be", and no later step would say it.
        task.fleet.mark_queued_for_delete(task.cell.uuid, [instance.uuid])


def _recover(action: Action, task: Task, error: Exception) -> int:
    """Undo what a host has left of what failed, and then try the next one; raises what the job ends with if not."""
    failed_at = VOCABULARY[action.name].place(task.job.next_step)
    if is_undoing(task):
        error, failed_at = settled(task, error)
    elif action.undo is not None and isinstance(error, NodeCallError) and error.needs_undo:
        begin_undoing(task, error, failed_at)
        return len(action.steps)
    return _try_next_host(action, task, error, failed_at)


def _try_next_host(action: Action, task: Task, error: Exception, failed_at: int) -> int:
    """Go on with the next alternate after a host has failed, and announce it; raises what the job ends with if not.

    A host of which it is not known what it has done may run the instance, so no other one is tried.
    """
    places = [place for place, step in enumerate(action.steps) if step.reschedules]
    if failed_at not in places or task.record["deleted"]:
        raise error
    if not isinstance(error, NodeCallError) or not error.is_certain:
        raise error
    _announce_failed_host(action, task)
    action_id = task.job.instance_action_id
    finish_event(task.connection, action_id, task.now, error, text_for_callers(error), goes_on=True)
    task.notes.pop(_WORK, None)
    go_to_next_host(task, error)
    values = action.rescheduled(task) if callable(action.rescheduled) else action.rescheduled
    publisher = publisher_id(task, PublisherService.CONDUCTOR)
    task.instance.change(INSTANCE_UPDATE, values, task.now, publisher_id=publisher, request=task.job.request)
    return places[0]


def _announce_failed_host(action: Action, task: Task) -> None:
    publisher = publisher_id(task, PublisherService.DESTINATION)
    task.instance.change(action.reschedule_event, {}, task.now, publisher_id=publisher, request=task.job.request)


def _show_failure(action: Action, task: Task, error: Exception) -> None:
    """Let the instance show what happened."""
    if isinstance(error, NodeCallError) and not error.is_certain:
        # It is not known whether it runs, or where.
        failure: Mapping[str, Any] = {"vm_state": "error"}
    elif isinstance(error, JobCanceledError) and origin_of(task)["vm_state"] != "building":
        failure = as_before(task)
    else:
        failure = action.failure(task) if callable(action.failure) else action.failure
    if isinstance(error, MaxRetriesExceededError):
        _announce_failed_host(action, task)
        if origin_of(task)["host"] is None:
            failure = {**failure, **unplaced(None)(task)}
    details = None if error.__cause__ is None else text_for_callers(error.__cause__)
    fault = {"code": 500, "message": text_for_callers(error), "details": details, "created_at": task.now}
    event_type = action.failure_event or INSTANCE_UPDATE
    is_of_instance = event_type.startswith(_OF_AN_INSTANCE)
    task.instance.change(
        event_type if is_of_instance else INSTANCE_UPDATE,
        {**failure, "task_state": None, "fault": fault},
        task.now,
        publisher_id=publisher_id(task, PublisherService.COMPUTE if is_of_instance else PublisherService.CONDUCTOR),
        request=task.job.request,
    )
    if not is_of_instance:
        outbox.append_event(
            task.connection,
            event_type,
            to_payload(task, event_type, error),
            publisher_id=publisher_id(task, PublisherService.CONDUCTOR),
            at=task.now,
            request=task.job.request,
        )
    give_back_claims(task.connection, task.record)


VOCABULARY: Vocabulary = {name: _operation(action) for name, action in ACTIONS.items()}
"""By the names of actions."""
