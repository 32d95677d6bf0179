"""Steps of the actions of instances, each of which is one transaction with one notification.

A step names its event, what it sets, and which service announces it (contracts/nova-notifications, section 5). What has
to be decided only when it runs is a function of the `Task`. Its parameters are what was asked for, and `origin` (where
the instance was when the action was accepted), `is_by_administrator` (whether hints may name instances of other
projects); its notes tell later steps `destination` (the host that was chosen), `selections` (the hosts that are left to
try), `tried` (those that have failed) and `work` (the event of the instance action that is under way).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from fleetlight.operations.jobs.vocabulary import Task


class PublisherService(StrEnum):
    """The service that announces an event, in its `publisher_id`."""

    COMPUTE = "nova-compute"  # of the host that the instance is on
    DESTINATION = "nova-compute of the destination"
    ORIGIN = "nova-compute of the host where the action began"
    API = "nova-api"
    CONDUCTOR = "nova-conductor"
    SCHEDULER = "nova-scheduler"


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


def _always(_task: Task) -> bool:
    return True


def _nothing_more(_task: Task) -> Mapping[str, Any]:
    return {}


@dataclass(frozen=True, slots=True)
class HostCall:
    """What a host is called for.

    parameters: what it gets beside the instance. host: which one, None: none is called; unless given, that of the
        step.
    """

    name: str
    parameters: Callable[[Task], Mapping[str, Any]] = _nothing_more
    host: Callable[[Task], str | None] | None = None


@dataclass(frozen=True, slots=True)
class ActionStep:
    """One transaction of a job.

    values: fields of the record to set. effects: what else the transaction does, before the values are set.
    applies: whether the step is needed; otherwise it is passed over.
    work: the event of the instance action that it belongs to (contracts/nova-rest, 3.4); None: to none.
    call: what a host is called for before the transaction; None: for nothing.
    reschedules: whether another host is tried when the chosen one fails here.
    """

    event_type: str
    values: Values = field(default_factory=dict)
    source: PublisherService = PublisherService.COMPUTE
    effects: tuple[Effect, ...] = ()
    applies: Callable[[Task], bool] = _always
    work: str | None = None
    call: HostCall | None = None
    reschedules: bool = False

    def values_for(self, task: Task) -> Mapping[str, Any]:
        return self.values(task) if callable(self.values) else self.values


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
