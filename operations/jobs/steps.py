"""What the actions of instances are made of: steps, each of which is one transaction with one notification.

A step names its event, what it sets, and who announces it (contracts/nova-notifications, section 5). What has to be
decided only when it runs is a function of the `Task`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from cells.fleet.fleet import Fleet
from cells.kinds.native.locked_instance import LockedInstance
from cells.model import Request
from resources.fields import Record


class PublisherService(StrEnum):
    """Who announces an event: the service in its `publisher_id`."""

    COMPUTE = "nova-compute"  # of the host that the instance is on
    DESTINATION = "nova-compute of the destination"
    ORIGIN = "nova-compute of the host where the action began"
    API = "nova-api"
    CONDUCTOR = "nova-conductor"
    SCHEDULER = "nova-scheduler"


@dataclass(slots=True)
class Job:
    """An accepted action that is not finished.

    position: the step that comes next. parameters: JSON; what was asked for, and what steps tell later ones: `origin`
        (where the instance was when the action was accepted), `destination` (the host that was chosen for it),
        `is_by_administrator` (whether hints may name instances of other projects).
    """

    id: int
    action: str
    position: int
    parameters: dict[str, Any]
    request: Request
    instance_action_id: int | None
    migration_id: int | None


@dataclass(frozen=True, slots=True)
class Task:
    """A step that runs: the job, and its instance, locked. now: microseconds since the epoch."""

    job: Job
    instance: LockedInstance
    now: int
    fleet: Fleet

    @property
    def record(self) -> Record:
        return self.instance.record

    @property
    def parameters(self) -> dict[str, Any]:
        return self.job.parameters

    @property
    def origin(self) -> Mapping[str, Any]:
        """Fields of the record as they were when the action was accepted."""
        origin: Mapping[str, Any] = self.job.parameters["origin"]
        return origin

    @property
    def destination(self) -> Mapping[str, Any]:
        """The chosen host as fields of a record: host, node, availability_zone."""
        destination: Mapping[str, Any] = self.job.parameters["destination"]
        return destination


Effect = Callable[[Task], None]
Values = Mapping[str, Any] | Callable[[Task], Mapping[str, Any]]


def _always(_task: Task) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Step:
    """One transaction of a job.

    values: fields of the record to set. effects: what else the transaction does, before the values are set.
    applies: whether the step is needed; otherwise it is passed over.
    work: the event of the instance action that it belongs to (contracts/nova-rest, 3.4); None: to none.
    """

    event_type: str
    values: Values = field(default_factory=dict)
    source: PublisherService = PublisherService.COMPUTE
    effects: tuple[Effect, ...] = ()
    applies: Callable[[Task], bool] = _always
    work: str | None = None

    def values_for(self, task: Task) -> Mapping[str, Any]:
        return self.values(task) if callable(self.values) else self.values


def publisher_id(task: Task, source: PublisherService) -> str:
    """`<service>:<host>` of whoever announces a step of `task`."""
    is_on_a_host = source in {PublisherService.COMPUTE, PublisherService.DESTINATION, PublisherService.ORIGIN}
    return f"{PublisherService.COMPUTE.value if is_on_a_host else source.value}:{host_of(task, source)}"


def host_of(task: Task, source: PublisherService) -> str:
    """The host of whoever announces a step of `task`; services of the cell are on a host called like it."""
    cell = task.instance.cell.name
    match source:
        case PublisherService.COMPUTE:
            host = task.record["host"] or task.parameters.get("destination", {}).get("host") or cell
        case PublisherService.DESTINATION:
            host = task.destination["host"]
        case PublisherService.ORIGIN:
            host = task.origin["host"] or cell
        case _:
            host = cell
    return str(host)
