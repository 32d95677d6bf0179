"""The scheduler's answer for one instance and one host (contracts/nova-selection).

It travels from the scheduler to what builds the instance only, and is in no notification. A request for one instance is
answered with a list of these: the chosen host first, then alternates.
"""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, WithJsonSchema
from pydantic.json_schema import SkipJsonSchema

from fleetlight.notifications.versioned import VersionedPayload, parse_version
from fleetlight.notifications.wire_types import Int64, Uuid

PLACEMENT_VERSION = "1.36"
"""The microversion of placement whose form our allocation requests have."""
_ResourceClass = Annotated[str, Field(pattern=r"^[A-Z0-9_]+$", max_length=255)]
_Amount = Annotated[int, Field(ge=1, lt=2**63)]


class ProviderAllocation(BaseModel):
    """What is taken of one resource provider: amounts by resource class, `VCPU`, `MEMORY_MB` (MiB), `DISK_GB` …"""

    model_config = ConfigDict(strict=True, extra="allow", frozen=True, defer_build=True)

    resources: dict[_ResourceClass, _Amount] = Field(min_length=1)


class AllocationRequest(BaseModel):
    """One allocation candidate of placement (contracts/nova-selection, 2).

    allocations: by the uuid of the provider. mappings: group of the request (`""`: the unnumbered one) -> the uuids of
        the providers that fulfil it; absent before placement 1.34.
    """

    model_config = ConfigDict(strict=True, extra="allow", frozen=True, defer_build=True)

    allocations: dict[Uuid, ProviderAllocation] = Field(min_length=1)
    mappings: dict[str, list[Uuid]] | None = None

    def as_text(self) -> str:
        return self.model_dump_json(exclude_unset=True)


NO_ALLOCATION_REQUEST = "null"
"""What the text is when there is nothing to claim: four characters, and not a null field."""


def _checked(text: str) -> str:
    read_allocation_request(text)
    return text


def read_allocation_request(text: str) -> AllocationRequest | None:
    """None of the text `null`. Raises ValueError for anything else than an allocation request in JSON."""
    if text.strip() == NO_ALLOCATION_REQUEST:
        return None
    try:
        return AllocationRequest.model_validate_json(text)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        where = ".".join(map(str, problem["loc"]))
        raise ValueError(f"is no allocation request: {where + ': ' if where else ''}{problem['msg']}") from None


def _checked_version(text: str) -> str:
    parse_version(text)
    return text


_PROVIDER = "7a1d5a0a-90b1-4f36-8f6e-1e2d3c4b5a69"
_EXAMPLE = AllocationRequest(
    allocations={_PROVIDER: ProviderAllocation(resources={"VCPU": 1, "MEMORY_MB": 512})}, mappings={"": [_PROVIDER]}
)


def _content_schema() -> dict[str, Any]:
    """The JSON Schema of the text's content, in one piece: pydantic takes every `$ref` for one of its own."""
    schema = AllocationRequest.model_json_schema()
    provider = schema.pop("$defs")[ProviderAllocation.__name__]
    providers = schema["properties"]["allocations"]
    providers["patternProperties"] = dict.fromkeys(providers["patternProperties"], provider)
    return {"anyOf": [schema, {"type": "null"}]}


_AllocationRequestText = Annotated[
    str,
    AfterValidator(_checked),
    WithJsonSchema(
        {
            "type": "string",
            "contentMediaType": "application/json",
            "contentSchema": _content_schema(),
            "examples": [NO_ALLOCATION_REQUEST, _EXAMPLE.as_text()],
        }
    ),
]
_MicroversionText = Annotated[
    str,
    AfterValidator(_checked_version),
    WithJsonSchema({"type": "string", "pattern": r"^[0-9]+\.[0-9]+$", "examples": [PLACEMENT_VERSION, "1.10"]}),
]


class NetworkMetadata(VersionedPayload):
    """Networks that a host can reach without leaving a NUMA node; `physnets` is a set.

    1.0  first version
    """

    VERSION: ClassVar[str] = "1.0"
    physnets: list[str]
    tunneled: bool


def _not_null(value: object) -> object:
    if value is None:
        raise ValueError("it may be absent, but not null")
    return value


class NUMATopologyLimits(VersionedPayload):
    """How far the nodes of a host may be overcommitted.

    network_metadata: absent where the host has none, and never null: Nova refuses such an object.

    1.0  first version
    1.1  + network_metadata
    """

    VERSION: ClassVar[str] = "1.1"
    MAY_BE_ABSENT: ClassVar[frozenset[str]] = frozenset({"network_metadata"})
    cpu_allocation_ratio: float
    ram_allocation_ratio: float
    network_metadata: Annotated[NetworkMetadata | SkipJsonSchema[None], BeforeValidator(_not_null)] = None


class SchedulerLimits(VersionedPayload):
    """What the host may use at most when the instance is claimed there; today only `numa_topology` is ever set.

    1.0  first version
    """

    VERSION: ClassVar[str] = "1.0"
    MAY_BE_ABSENT: ClassVar[frozenset[str]] = frozenset({"numa_topology", "vcpu", "disk_gb", "memory_mb"})
    numa_topology: NUMATopologyLimits | None = None
    vcpu: Int64 | None = None
    disk_gb: Int64 | None = None
    memory_mb: Int64 | None = None

    @classmethod
    def of(cls, limits: Mapping[str, Any]) -> Self:
        """From the limits of a host by name; those that it has not are null. Raises PayloadError."""
        return cls(**{**dict.fromkeys(cls.model_fields), **limits})

    def as_legacy(self) -> dict[str, Any]:
        """As very old conductors want it: without nulls, a NUMA topology as it is wrapped."""
        values = {name: getattr(self, name) for name in type(self).model_fields}
        return {
            name: value.wrap() if isinstance(value, VersionedPayload) else value
            for name, value in values.items()
            if value is not None
        }


class Selection(VersionedPayload):
    """A host with everything that is needed to claim it.

    allocation_request: JSON text of one allocation candidate; the text `null` when there is nothing to claim.
    allocation_request_version: the placement microversion of that text.
    availability_zone: absent, and not null, from senders of 1.0; then it is that of the host.

    1.0  first version
    1.1  + availability_zone
    """

    VERSION: ClassVar[str] = "1.1"
    compute_node_uuid: Uuid
    service_host: str
    nodename: str
    cell_uuid: Uuid
    limits: SchedulerLimits | None
    allocation_request: _AllocationRequestText | None
    allocation_request_version: _MicroversionText | None
    availability_zone: str | None = None

    @property
    def requested_allocations(self) -> AllocationRequest | None:
        """None when there is nothing to claim."""
        return None if self.allocation_request is None else read_allocation_request(self.allocation_request)

    @property
    def has_zone(self) -> bool:
        """Whether the sender has said in which zone the host is, even if in none."""
        return "availability_zone" in self.model_fields_set

    def with_zone(self, zone: str | None) -> Self:
        """This Selection in the newest version, in `zone` unless its sender has named one."""
        if self.has_zone:
            return self
        return type(self)(**{name: getattr(self, name) for name in self.model_fields_set}, availability_zone=zone)

    def as_legacy(self) -> dict[str, Any]:
        """The dict that very old conductors take instead (contracts/nova-selection, 1)."""
        limits = {} if self.limits is None else self.limits.as_legacy()
        return {"host": self.service_host, "nodename": self.nodename, "limits": limits}
