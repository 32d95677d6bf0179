"""What the scheduler and the conductor announce: which host was looked for, and that there was none."""

from collections.abc import Mapping
from typing import Any

from notifications.payloads.parts import ExceptionPayload, FlavorPayload
from notifications.payloads.request_spec import ComputeTaskPayload, RequestSpecPayload
from notifications.versioned import VersionedPayload
from operations.jobs.vocabulary import Task


def to_payload(task: Task, event_type: str, failure: BaseException | None = None) -> VersionedPayload:
    """The payload of a `scheduler.*` event, or of a `compute_task.*` one for which there is a `failure`."""
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


def _request_spec(task: Task) -> RequestSpecPayload:
    record, parameters = task.record, task.parameters
    flavor = parameters.get("flavor") or record["flavor"]
    return RequestSpecPayload(
        instance_uuid=record["uuid"],
        project_id=record["project_id"],
        user_id=record["user_id"],
        availability_zone=record["pinned_availability_zone"],
        flavor=None if flavor is None else FlavorPayload(**flavor),
        image=None,
        numa_topology=None,
        pci_requests=None,
        num_instances=parameters.get("count", 1),
        force_hosts=parameters.get("host"),
        force_nodes=parameters.get("node"),
        ignore_hosts=None,
        instance_group=None,
        requested_destination=None,
        retry=None,
        scheduler_hints=hints_as_lists(record["scheduler_hints"]),
        security_groups=record["security_groups"] or [],
    )


def hints_as_lists(hints: Mapping[str, Any] | None) -> dict[str, list[str]]:
    """Hints as they are kept and shown: each value is a list of texts, also a single one."""
    return {
        name: [str(item) for item in (value if isinstance(value, list) else [value])]
        for name, value in (hints or {}).items()
        if value is not None
    }
