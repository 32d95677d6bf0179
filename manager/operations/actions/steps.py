"""The parameters and notes of a `Task` that steps read, and the service that announces a step.

Parameters are those of the request, `origin` (where the instance was at the acceptance) and `is_by_administrator`
(whether hints may name instances of other projects). Notes for later steps are `destination` (the chosen host),
`selections` (the hosts left to try), `tried` (the hosts that have failed) and `work` (the running event of the instance
action).
"""

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any

from fleetlight.manager.operations.jobs.vocabulary import Task
from fleetlight.resources.fields import Record


class PublisherService(StrEnum):
    """The service that announces an event, in its `publisher_id`."""

    COMPUTE = "nova-compute"  # of the host that the instance is on
    DESTINATION = "nova-compute of the destination"
    ORIGIN = "nova-compute of the host where the action began"
    API = "nova-api"
    CONDUCTOR = "nova-conductor"
    SCHEDULER = "nova-scheduler"


_ORIGIN = ("vm_state", "task_state", "power_state", "host", "node")


def origin_in(record: Record) -> Mapping[str, Any]:
    """Return the fields of a record to store for `origin_of`."""
    return {name: record[name] for name in _ORIGIN}


def origin_of(task: Task) -> Mapping[str, Any]:
    """Return fields of the record at the acceptance of the action, or at the begin of an operation of Ganeti."""
    origin: Mapping[str, Any] = task.notes["origin"] if "origin" in task.notes else task.parameters["origin"]
    return origin


def destination_of(task: Task) -> Mapping[str, Any]:
    """Return the chosen host as fields of a record: host, node, availability_zone."""
    destination: Mapping[str, Any] = task.notes["destination"]
    return destination


Effect = Callable[[Task], None]
Values = Mapping[str, Any] | Callable[[Task], Mapping[str, Any]]
"""Fields of the record to set, or a function that returns them when the step runs."""


def values_of(values: Values, task: Task) -> Mapping[str, Any]:
    return values(task) if callable(values) else values


def publisher_id(task: Task, source: PublisherService) -> str:
    """Return `<service>:<host>` of the service that announces a step of `task`."""
    is_on_a_host = source in {PublisherService.COMPUTE, PublisherService.DESTINATION, PublisherService.ORIGIN}
    return f"{PublisherService.COMPUTE.value if is_on_a_host else source.value}:{host_of(task, source)}"


def host_of(task: Task, source: PublisherService) -> str:
    """Return the host of the service that announces a step of `task`; the cell's own services use its name."""
    cell = task.cell.name
    match source:
        case PublisherService.COMPUTE:
            host = task.record["host"] or task.notes.get("destination", {}).get("host") or cell
        case PublisherService.DESTINATION:
            host = destination_of(task)["host"]
        case PublisherService.ORIGIN:
            host = origin_of(task)["host"] or cell
        case _:
            host = cell
    return str(host)
