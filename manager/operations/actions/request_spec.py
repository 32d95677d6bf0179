"""Notifications of the scheduler and the conductor: the request for a host, and its failure."""

from collections.abc import Mapping, Sequence
from typing import Any

from fleetlight.cells.fleet.compute.server_groups import ServerGroup
from fleetlight.cells.kinds.native import outbox
from fleetlight.manager.operations.actions.effects import TRIED
from fleetlight.manager.operations.jobs.vocabulary import Task
from fleetlight.manager.operations.scheduling.request_spec import group_of
from fleetlight.notifications.payloads.parts import ExceptionPayload, FlavorPayload
from fleetlight.notifications.payloads.request_spec import (
    ComputeTaskPayload,
    RequestSpecPayload,
    SchedulerRetriesPayload,
)
from fleetlight.notifications.payloads.resources import ServerGroupPayload
from fleetlight.notifications.versioned import VersionedPayload


def to_payload(task: Task, event_type: str, failure: BaseException | None = None) -> VersionedPayload:
    """Make the payload of a `scheduler.*` event, or of a `compute_task.*` event with its `failure`."""
    spec = _request_spec(task)
    if failure is None:
        return spec
    module = type(failure).__module__
    reason = ExceptionPayload(
        module_name=module,
        function_name=event_type,
        exception=type(failure).__name__,
        exception_message=str(failure),
        traceback="",
    )
    return ComputeTaskPayload(
        instance_uuid=task.instance.uuid, request_spec=spec, vm_state=task.record["vm_state"], reason=reason
    )


def announce_request(task: Task, event_type: str, publisher: str, failure: BaseException | None = None) -> None:
    """Announce an event with the payload of `to_payload`."""
    payload = to_payload(task, event_type, failure)
    outbox.append_event(
        task.connection, event_type, payload, publisher_id=publisher, at=task.now, request=task.job.request
    )


def _request_spec(task: Task) -> RequestSpecPayload:
    record, parameters = task.record, task.parameters
    tried: Sequence[str] = task.notes.get(TRIED, ())
    return request_spec_payload(
        record,
        parameters.get("flavor") or record["flavor"],
        group=group_of(task.fleet, record),
        num_instances=parameters.get("count", 1),
        force_hosts=parameters.get("host"),
        force_nodes=parameters.get("node"),
        # `tried` lacks the host of the last attempt.
        retry=SchedulerRetriesPayload(num_attempts=len(tried) + 1, hosts=list(tried)) if tried else None,
    )


def request_spec_payload(
    record: Mapping[str, Any], flavor: Mapping[str, Any] | None, *, group: ServerGroup | None = None, **fields: Any
) -> RequestSpecPayload:
    """Make the payload of a request spec. record: fields of the instance, or those that a request has.

    fields: further fields of the payload.
    """
    given: dict[str, Any] = {
        "instance_uuid": record["uuid"],
        "project_id": record["project_id"],
        "user_id": record["user_id"],
        "availability_zone": record["pinned_availability_zone"],
        "flavor": None if flavor is None else FlavorPayload(**flavor),
        "image": None,
        "numa_topology": None,
        "pci_requests": None,
        "num_instances": 1,
        "force_hosts": None,
        "force_nodes": None,
        "ignore_hosts": None,
        "instance_group": None if group is None else _group_payload(group),
        "requested_destination": None,
        "retry": None,
        "scheduler_hints": hints_as_lists(record["scheduler_hints"]),
        "security_groups": record["security_groups"] or [],
    }
    return RequestSpecPayload(**{**given, **fields})


def _group_payload(group: ServerGroup) -> ServerGroupPayload:
    limit = group.max_server_per_host
    return ServerGroupPayload(
        uuid=group.uuid,
        name=group.name,
        user_id=group.user_id,
        project_id=group.project_id,
        policies=[group.policy],
        members=list(group.members),
        hosts=None,
        policy=group.policy,
        rules={} if limit is None else {"max_server_per_host": limit},
    )


def hints_as_lists(hints: Mapping[str, Any] | None) -> dict[str, list[str]]:
    """Convert hints to the stored and shown form: each value is a list of texts, even a single one."""
    return {
        name: [str(item) for item in (value if isinstance(value, list) else [value])]
        for name, value in (hints or {}).items()
        if value is not None
    }
