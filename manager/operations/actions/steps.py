"""What the steps of actions read of their `Task`, and which service announces them.

Its parameters are what was asked for, and `origin` (where the instance was when the action was accepted),
`is_by_administrator` (whether hints may name instances of other projects); its notes tell later steps `destination`
(the host that was chosen), `selections` (the hosts that are left to try), `tried` (those that have failed) and `work`
(the event of the instance action that is under way).
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
    """What is kept of a record for `origin_of`."""
    return {name: record[name] for name in _ORIGIN}


def origin_of(task: Task) -> Mapping[str, Any]:
    """Fields of the record as they were when the action was accepted, or when an operation of Ganeti began."""
    origin: Mapping[str, Any] = task.notes["origin"] if "origin" in task.notes else task.parameters["origin"]
    return origin


def destination_of(task: Task) -> Mapping[str, Any]:
    """The chosen host as fields of a record: host, node, availability_zone."""
    destination: Mapping[str, Any] = task.notes["destination"]
    return destination


Effect = Callable[[Task], None]
Values = Mapping[str, Any] | Callable[[Task], Mapping[str, Any]]
"""Fields of the record to set; a function, where they are known only when the step runs."""


def values_of(values: Values, task: Task) -> Mapping[str, Any]:
    return values(task) if callable(values) else values


def publisher_id(task: Task, source: PublisherService) -> str:
    """`<service>:<host>` of the service that announces a step of `task`."""
    is_on_a_host = source in {PublisherService.COMPUTE, PublisherService.DESTINATION, PublisherService.ORIGIN}
    return f"{PublisherService.COMPUTE.value if is_on_a_host else source.value}:{host_of(task, source)}"


def host_of(task: Task, source: PublisherService) -> str:
    """The host of the service that announces a step of `task`; services of the cell are on a host called like it."""
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
