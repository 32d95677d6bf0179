"""Arguments of calls, which pydantic checks before the driver acts."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

MOST_DISKS = 64
Name = Annotated[str, Field(min_length=1, max_length=255)]
# A name that may become a file name on a host.
FileName = Annotated[str, Field(min_length=1, max_length=255, pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.+-]*$")]
# Up to an exbibyte: more than any host has, and still within a 64-bit integer of bytes.
Mebibytes = Annotated[int, Field(gt=0, le=2**40)]
Processors = Annotated[int, Field(gt=0, le=2**20)]
HypervisorSpec = tuple[Name, dict[str, Any]]
"""A hypervisor with its parameters."""


class Arguments(BaseModel):
    """The arguments of calls without any."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class SnapshotRequest(Arguments):
    hv: list[HypervisorSpec] | None = None
    diskinfo: list[Name] | None = None
    bootid: bool = False


class SnapshotArguments(Arguments):
    request: SnapshotRequest


class NodeInfoArguments(Arguments):
    """storage_units: their types, names and parameters."""

    storage_units: list[tuple[Name, Name, list[Any]]] | None = None
    hv_specs: list[HypervisorSpec] | None = None


class InstanceInfoArguments(Arguments):
    instance: FileName
    hname: Name
    hvparams: dict[str, Any] = Field(default_factory=dict)


class AllInstancesArguments(Arguments):
    hypervisor_list: list[Name]
    all_hvparams: dict[str, dict[str, Any]] = Field(default_factory=dict)


class HypervisorListArguments(Arguments):
    hypervisor_list: list[Name]


class InstanceArguments(Arguments):
    instance: FileName


class GuestArguments(InstanceArguments):
    """hypervisor: None for the host's default. memory: MiB."""

    hypervisor: Name | None = None
    memory: Mebibytes
    vcpus: Processors


class NewGuestArguments(GuestArguments):
    """disks: sizes in MiB. start: whether the guest runs afterwards.

    moved: whether its disks must get the contents of those on another host.
    """

    disks: Annotated[list[Mebibytes], Field(max_length=MOST_DISKS)] = Field(default_factory=list)
    start: bool = True
    moved: bool = False


class RebuildArguments(GuestArguments):
    """start: whether the guest runs afterwards."""

    start: bool = True


class GrowArguments(InstanceArguments):
    """disk: its index. size: new size in MiB."""

    disk: Annotated[int, Field(ge=0, lt=MOST_DISKS)]
    size: Mebibytes


class ShutDownArguments(InstanceArguments):
    timeout_s: Annotated[float, Field(ge=0, le=3600)] = 120.0


class MemoryArguments(InstanceArguments):
    memory: Mebibytes


class MigrateArguments(InstanceArguments):
    target: Name


class FinishArguments(InstanceArguments):
    success: bool


class VolumeArguments(Arguments):
    volume_group: Name
    name: FileName


class NewVolumeArguments(VolumeArguments):
    size: Mebibytes
