"""The elements of the table of actions: an action, and common forms of steps."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Any

from fleetlight.manager.operations.actions.effects import require_destination_up
from fleetlight.manager.operations.actions.host_parameters import current_host, host_call
from fleetlight.manager.operations.actions.request_spec import announce_request
from fleetlight.manager.operations.actions.steps import (
    Effect,
    PublisherService,
    Values,
    host_of,
    publisher_id,
    values_of,
)
from fleetlight.manager.operations.instances.instance_actions import begin_event
from fleetlight.manager.operations.jobs.vocabulary import MakeCall, Step, Task
from fleetlight.notifications.event_types import INSTANCE_UPDATE, OF_INSTANCES

IDLE: Collection[str | None] = (None,)
ANY_TASK: Collection[str | None] = ()
WORK = "work"
"""The note with the running event of the instance action."""


@dataclass(frozen=True, slots=True)
class Action:
    """One action.

    word: its name in refusals. record: its name in instance actions; None: not recorded.
    vm_states: where it is allowed; empty: everywhere. task_states: likewise; None stands for idle.
    needs_host, needs_launch: whether the instance must be on a host, must have run once.
    respects_lock: whether a lock stops callers that are no administrators.
    task: the task_state at acceptance; None keeps it. event_type: the notification of the acceptance.
    migration: type and first status of the migration that it begins.
    continues: the new status of the migration that waits to be confirmed.
    failure: fields to set when a step fails, besides the fault; failure_event: the notification then.
    replaces_others: whether it cancels running actions.
    rescheduling: the steps that are repeated with another host when they fail on the chosen one.
    reschedule_event: the notification then; rescheduled: fields to set then.
    undo: step that removes the remains of a failed call from hosts; None: nothing can remain.
    """

    name: str
    word: str
    record: str | None
    steps: tuple[Step, ...]
    vm_states: Collection[str] = ()
    task_states: Collection[str | None] = IDLE
    needs_host: bool = False
    needs_launch: bool = True
    respects_lock: bool = True
    task: str | None = None
    event_type: str = INSTANCE_UPDATE
    source: PublisherService = PublisherService.API
    migration: tuple[str, str] | None = None
    continues: str | None = None
    failure: Values = field(default_factory=lambda: {"vm_state": "error"})
    failure_event: str | None = None
    replaces_others: bool = False
    reschedule_event: str = INSTANCE_UPDATE
    rescheduled: Values = field(default_factory=dict)
    rescheduling: tuple[Step, ...] = ()
    undo: MakeCall | None = None


def announcing(
    event_type: str,
    values: Values = MappingProxyType({}),
    source: PublisherService = PublisherService.COMPUTE,
    effects: Collection[Effect] = (),
) -> Step:
    """Make a step with one notification (contracts/nova-notifications, section 5).

    values: fields to set. source: the announcing service. effects: further effects, before the values are set.
    """
    return Step(partial(_announce, event_type, values, source, effects))


def _announce(
    event_type: str, values: Values, source: PublisherService, effects: Collection[Effect], task: Task
) -> None:
    for effect in effects:
        effect(task)
    publisher = publisher_id(task, source)
    if event_type.startswith(OF_INSTANCES):
        task.instance.change(
            event_type, values_of(values, task), task.now, publisher_id=publisher, request=task.job.request
        )
    else:
        announce_request(task, event_type, publisher)
    if task.record["deleted"]:
        # Before the commit: the mapping means "deleted, or about to be", and no later step would set it.
        task.fleet.mark_queued_for_delete(task.cell.uuid, [task.instance.uuid])


def start(base: str, *effects: Effect, source: PublisherService = PublisherService.COMPUTE, **values: Any) -> Step:
    return announcing(f"instance.{base}.start", values, source, effects)


def end(base: str, *effects: Effect, source: PublisherService = PublisherService.COMPUTE, **values: Any) -> Step:
    """Make the last step of a pair, which ends the task unless `values` set another one."""
    return announcing(f"instance.{base}.end", {"task_state": None, **values}, source, effects)


def progress(**values: Any) -> Step:
    """Make a step that changes the state without an event of its own."""
    return announcing(INSTANCE_UPDATE, values)


def exists(source: PublisherService = PublisherService.COMPUTE) -> Step:
    return announcing("instance.exists", source=source)


def scheduling(*choose: Effect) -> tuple[Step, Step]:
    """Make the steps that schedule. choose: claims a host, or reads an earlier claim; without it the instance stays on
    its host, without a claim.
    """
    select = "scheduler.select_destinations"
    return (
        announcing(f"{select}.start", source=PublisherService.SCHEDULER),
        announcing(f"{select}.end", source=PublisherService.SCHEDULER, effects=choose),
    )


def work(event: str, *steps: Step, source: PublisherService = PublisherService.COMPUTE) -> tuple[Step, ...]:
    """Wrap `steps` as one event of the instance action (contracts/nova-rest, 3.4). source: the event has its host."""
    return tuple(replace(step, run=partial(_run_in_event, event, source, step.run)) for step in steps)


def _run_in_event(event: str, source: PublisherService, run: Callable[[Task], None], task: Task) -> None:
    if event != task.notes.get(WORK):
        begin_event(task.connection, task.job.instance_action_id, event, host_of(task, source), task.now)
        task.notes[WORK] = event
    run(task)


def calling(
    name: str,
    step: Step,
    parameters: Callable[[Task], Mapping[str, Any]] = lambda _task: {},
    *,
    host: Callable[[Task], str | None] = current_host,
) -> Step:
    """Make `step` wait for a call of the host to succeed. parameters, host: see `host_call`."""
    return replace(step, call=host_call(name, parameters, host))


def on_destination(*steps: Step) -> tuple[Step, ...]:
    """Make each of `steps` fail unless the destination is up."""
    return tuple(replace(step, run=partial(_run_on_destination, step.run)) for step in steps)


def _run_on_destination(run: Callable[[Task], None], task: Task) -> None:
    require_destination_up(task)
    run(task)


def start_and_end(
    name: str,
    base: str,
    vm_states: Collection[str],
    task: str | None,
    result: Mapping[str, Any],
    *,
    word: str | None = None,
    **options: Any,
) -> Action:
    """Make an action of two steps, start and end, on one host."""
    word = word or name
    steps = work(f"compute_{word}_instance", start(base), calling(word, end(base, **result)))
    return Action(name, word, word, steps, vm_states, task=task, **options)
