"""The elements of the table of actions: an action, and the usual forms of its steps."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from fleetlight.notifications.event_types import INSTANCE_UPDATE
from fleetlight.operations.actions.effects import choose_host, require_destination_up
from fleetlight.operations.actions.steps import ActionStep, Effect, HostCall, PublisherService, Values
from fleetlight.operations.jobs.vocabulary import Task

IDLE: Collection[str | None] = (None,)
ANY_TASK: Collection[str | None] = ()


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
    reschedule_event: what is announced when another host is tried; rescheduled: what is set then.
    undo: what takes from hosts what a call that failed has left there; None: nothing can be left.
    """

    name: str
    word: str
    record: str | None
    steps: tuple[ActionStep, ...]
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
    undo: HostCall | None = None


def start(
    base: str, *effects: Effect, source: PublisherService = PublisherService.COMPUTE, **values: Any
) -> ActionStep:
    return ActionStep(f"instance.{base}.start", values, source, effects)


def end(base: str, *effects: Effect, source: PublisherService = PublisherService.COMPUTE, **values: Any) -> ActionStep:
    """The last of a pair. The task is over, unless `values` say something else."""
    return ActionStep(f"instance.{base}.end", {"task_state": None, **values}, source, effects)


def progress(**values: Any) -> ActionStep:
    """A change of state that has no event of its own."""
    return ActionStep(INSTANCE_UPDATE, values)


def exists(source: PublisherService = PublisherService.COMPUTE) -> ActionStep:
    return ActionStep("instance.exists", source=source)


def scheduling(choose: Effect = choose_host) -> tuple[ActionStep, ActionStep]:
    """A host is looked for, and claimed. choose: what does so, or finds what was claimed before."""
    select = "scheduler.select_destinations"
    return (
        ActionStep(f"{select}.start", source=PublisherService.SCHEDULER),
        ActionStep(f"{select}.end", source=PublisherService.SCHEDULER, effects=(choose,)),
    )


def scheduling_in_place() -> tuple[ActionStep, ActionStep]:
    """The scheduler is asked whether the instance may stay where it is; nothing is claimed."""
    select = "scheduler.select_destinations"
    return ActionStep(f"{select}.start", source=PublisherService.SCHEDULER), ActionStep(
        f"{select}.end", source=PublisherService.SCHEDULER
    )


def work(event: str, *steps: ActionStep) -> tuple[ActionStep, ...]:
    """`steps` as one event of the instance action."""
    return tuple(replace(step, work=event) for step in steps)


def calling(
    name: str,
    step: ActionStep,
    parameters: Callable[[Task], Mapping[str, Any]] | None = None,
    *,
    host: Callable[[Task], str | None] | None = None,
) -> ActionStep:
    """`step`, once the host has done what it is called for. parameters, host: as of HostCall."""
    call = HostCall(name, host=host) if parameters is None else HostCall(name, parameters, host)
    return replace(step, call=call)


def rescheduling(*steps: ActionStep) -> tuple[ActionStep, ...]:
    """`steps` on a destination that has to be up; when it fails, all of them begin again on the next alternate."""
    return tuple(replace(step, effects=(require_destination_up, *step.effects), reschedules=True) for step in steps)


def only_if(applies: Callable[[Task], bool], *steps: ActionStep) -> tuple[ActionStep, ...]:
    return tuple(replace(step, applies=applies) for step in steps)


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
