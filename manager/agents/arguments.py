"""Arguments of calls, as pydantic checks them before anything is done."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

MOST_DISKS = 64
Name = Annotated[str, Field(min_length=1, max_length=255)]
# Of what a host has files for.
FileName = Annotated[str, Field(min_length=1, max_length=255, pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.+-]*$")]
# An exbibyte: more than any host has, and no more than is kept in one number.
Mebibytes = Annotated[int, Field(gt=0, le=2**40)]
Processors = Annotated[int, Field(gt=0, le=2**20)]
HypervisorSpec = tuple[Name, dict[str, Any]]
"""A hypervisor with its parameters."""


class Arguments(BaseModel):
    """Of calls without any."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class SnapshotRequest(Arguments):
    hv: list[HypervisorSpec] | None = None
    diskinfo: list[Name] | None = None
    bootid: bool = False


class SnapshotArguments(Arguments):
    request: SnapshotRequest


class NodeInfoArguments(Arguments):
    """storage_units: types, names and parameters of them."""

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
    """hypervisor: None: whichever the host has. memory: MiB."""

    hypervisor: Name | None = None
    memory: Mebibytes
    vcpus: Processors


class NewGuestArguments(GuestArguments):
    """disks: sizes in MiB. start: whether it runs then.

    moved: whether its disks are to have what those on another host have.
    """

    disks: Annotated[list[Mebibytes], Field(max_length=MOST_DISKS)] = Field(default_factory=list)
    start: bool = True
    moved: bool = False


class RebuildArguments(GuestArguments):
    """start: whether it runs then."""

    start: bool = True


class GrowArguments(InstanceArguments):
    """disk: its index. size: MiB, as it is to be."""

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
