"""Nova's payloads about everything but instances (contracts/nova-notifications, section 8)."""

from typing import Any, ClassVar

from pydantic import Field

from fleetlight.notifications.payloads.parts import ExceptionPayload
from fleetlight.notifications.versioned import VersionedPayload
from fleetlight.notifications.wire_types import Int64, Uuid, WireTime


class ServiceStatusPayload(VersionedPayload):
    """A service of Nova; sent when it is disabled, enabled or forced down, never for a mere sign of life.

    1.0  first version
    1.1  + uuid
    """

    VERSION: ClassVar[str] = "1.1"
    host: str | None
    binary: str | None
    topic: str | None
    report_count: Int64
    disabled: bool
    disabled_reason: str | None
    availability_zone: str | None
    last_seen_up: WireTime | None
    forced_down: bool
    version: Int64
    uuid: Uuid = ""


class AggregatePayload(VersionedPayload):
    """A host aggregate.

    1.0  first version
    1.1  id may be null
    """

    VERSION: ClassVar[str] = "1.1"
    id: Int64 | None
    uuid: Uuid
    name: str
    hosts: list[str] | None
    metadata: dict[str, str] | None


class AggregateCachePayload(VersionedPayload):
    """How far the caching of images on the hosts of an aggregate has come.

    1.0  first version
    """

    VERSION: ClassVar[str] = "1.0"
    id: Int64
    uuid: Uuid
    name: str
    host: str
    images_cached: list[str]
    images_failed: list[str]
    index: Int64
    total: Int64


class ServerGroupPayload(VersionedPayload):
    """A server group; `policies` is superseded by `policy`.

    1.0  first version
    1.1  + policy, rules
    """

    VERSION: ClassVar[str] = "1.1"
    uuid: Uuid
    name: str | None
    user_id: str | None
    project_id: str | None
    policies: list[str] | None
    members: list[Uuid] | None
    hosts: list[str] | None
    policy: str | None = None
    rules: dict[str, Any] = Field(default={})


class VolumeUsagePayload(VersionedPayload):
    """What was read from and written to a volume.

    1.0  first version
    """

    VERSION: ClassVar[str] = "1.0"
    volume_id: Uuid
    project_id: str | None
    user_id: str | None
    availability_zone: str | None
    instance_uuid: Uuid | None
    last_refreshed: WireTime | None
    reads: Int64
    read_bytes: Int64
    writes: Int64
    write_bytes: Int64


class LibvirtErrorPayload(VersionedPayload):
    """A compute service that cannot reach its hypervisor.

    1.0  first version
    """

    VERSION: ClassVar[str] = "1.0"
    ip: str
    reason: ExceptionPayload


class MetricPayload(VersionedPayload):
    """One measured value.

    1.0  first version
    """

    VERSION: ClassVar[str] = "1.0"
    name: str
    value: Int64 | float | None
    numa_membw_values: dict[str, Int64] | None
    timestamp: WireTime
    source: str


class MetricsPayload(VersionedPayload):
    """What a compute service measured on its host.

    1.0  first version
    """

    VERSION: ClassVar[str] = "1.0"
    host: str
    host_ip: str | None
    nodename: str
    metrics: list[MetricPayload]
