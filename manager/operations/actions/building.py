"""The elements of the table of actions: an action, and the usual forms of its steps."""

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
"""The note that says which event of the instance action is under way."""


@dataclass(frozen=True, slots=True)
class Action:
    """One action.

    word: what refusals call it. record: what instance actions call it; None: they do not mention it.
    vm_states: where it is allowed; empty: everywhere. task_states: likewise, None stands for idle.
    needs_host, needs_launch: whether the instance must be on a host, must have run once.
    respects_lock: whether a lock stops all callers but administrators.
    task: the task_state at acceptance; None: it stays. event_type: how the acceptance is announced.
    migration: type and first status of the migration that begins with it.
    continues: the status that the migration which waits to be confirmed gets.
    failure: what is set when a step fails, besides the fault; failure_event: what is announced then.
    replaces_others: whether what is under way is given up.
    rescheduling: those of the steps at which another host is tried, all of them again, when the chosen one fails.
    reschedule_event: what is announced then; rescheduled: what is set then.
    undo: what takes from hosts what a call that failed has left there; None: nothing can be left.
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
    """A step with one notification (contracts/nova-notifications, section 5).

    values: what is set. source: what announces it. effects: what else is done, before the values are set.
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
        # Before the commit: the mapping says "deleted, or about to be", and no later step would say it.
        task.fleet.mark_queued_for_delete(task.cell.uuid, [task.instance.uuid])


def start(base: str, *effects: Effect, source: PublisherService = PublisherService.COMPUTE, **values: Any) -> Step:
    return announcing(f"instance.{base}.start", values, source, effects)


def end(base: str, *effects: Effect, source: PublisherService = PublisherService.COMPUTE, **values: Any) -> Step:
    """The last of a pair. The task is over, unless `values` say something else."""
    return announcing(f"instance.{base}.end", {"task_state": None, **values}, source, effects)


def progress(**values: Any) -> Step:
    """A change of state that has no event of its own."""
    return announcing(INSTANCE_UPDATE, values)


def exists(source: PublisherService = PublisherService.COMPUTE) -> Step:
    return announcing("instance.exists", source=source)


def scheduling(*choose: Effect) -> tuple[Step, Step]:
    """The scheduler is asked for a host. choose: what claims one, or finds what was claimed before; without it, the
    instance stays where it is, and nothing is claimed.
    """
    select = "scheduler.select_destinations"
    return (
        announcing(f"{select}.start", source=PublisherService.SCHEDULER),
        announcing(f"{select}.end", source=PublisherService.SCHEDULER, effects=choose),
    )


def work(event: str, *steps: Step, source: PublisherService = PublisherService.COMPUTE) -> tuple[Step, ...]:
    """`steps` as one event of the instance action (contracts/nova-rest, 3.4). source: whose host the event names."""
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
    """`step`, once the host has done what it is called for. parameters, host: as of `host_call`."""
    return replace(step, call=host_call(name, parameters, host))


def on_destination(*steps: Step) -> tuple[Step, ...]:
    """`steps`, each of which fails unless the destination is up."""
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
    """An action that is a start and an end on one host."""
    word = word or name
    steps = work(f"compute_{word}_instance", start(base), calling(word, end(base, **result)))
    return Action(name, word, word, steps, vm_states, task=task, **options)
