"""Parameters shared by operations on instances: disks, interfaces, backend parameters (contracts/ganeti-rapi, 5)."""

import re
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from fleetlight.resources.query_fields.instance import MAX_DISKS, MAX_NICS

_UNITS = {
    "": 1,
    "m": 1,
    "mb": 1,
    "mib": 1,
    "g": 1024,
    "gb": 1024,
    "gib": 1024,
    "t": 1024**2,
    "tb": 1024**2,
    "tib": 1024**2,
}
_SIZE = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,15})?)\s*([a-zA-Z]*)")
# Low enough that sums over disks and instances fit into 64 bits.
_MOST_MIB = 2**40


def _mebibytes(value: object) -> object:
    """Convert a text such as `10G` to MiB; returns other values unchanged."""
    if not isinstance(value, str):
        return value
    found = _SIZE.fullmatch(value.strip())
    if found is None or found[2].lower() not in _UNITS:
        raise ValueError(f"'{value}' is no size in MiB, and none with the unit M, G or T")
    return round(float(found[1]) * _UNITS[found[2].lower()])


Mebibytes = Annotated[int, BeforeValidator(_mebibytes), Field(ge=0, le=_MOST_MIB)]
"""A whole number of MiB, or a text with a unit."""
Moment = Annotated[int, Field(ge=0, le=253_402_300_799)]
"""Seconds since the epoch, up to the year 9999."""
Text = Annotated[str, Field(min_length=1, max_length=255)]
Template = Literal["diskless", "file", "sharedfile", "plain", "blockdev", "drbd", "rbd", "ext", "gluster"]
MIRRORED: frozenset[str] = frozenset({"drbd"})
"""Disk templates with a copy on a second node."""
SHARED: frozenset[str] = frozenset({"sharedfile", "rbd", "ext", "gluster", "blockdev"})
"""Disk templates whose disks every node can access."""


class ParameterPart(BaseModel):
    """Part of the parameters of an operation."""

    # Deferred, since most processes use few of these models (docs/decisions/0027).
    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", hide_input_in_errors=True, defer_build=True)


class Disk(ParameterPart):
    """A new disk, or changes of one. size: MiB."""

    size: Mebibytes
    mode: Literal["ro", "rw"] = "rw"
    name: Text | None = None
    vg: Text | None = None
    metavg: Text | None = None
    adopt: Text | None = None
    provider: Text | None = None
    spindles: Annotated[int, Field(ge=1, le=2**31)] | None = None
    access: Text | None = None


class Nic(ParameterPart):
    """A network interface. mac: `auto`, `generate`, or an address. ip: an address, or `pool` for a free one."""

    mac: Text | None = None
    ip: Text | None = None
    mode: Literal["bridged", "routed", "openvswitch", "pool", "ext"] | None = None
    link: Text | None = None
    name: Text | None = None
    vlan: str | None = None
    bridge: Text | None = None
    network: Text | None = None


class BackendParameters(ParameterPart):
    """Backend parameters of an instance. memory: sets maxmem and minmem, and excludes them."""

    minmem: Mebibytes | None = None
    maxmem: Mebibytes | None = None
    memory: Mebibytes | None = None
    vcpus: Annotated[int, Field(ge=1, le=2**16)] | None = None
    auto_balance: bool | None = None
    always_failover: bool | None = None
    spindle_use: Annotated[int, Field(ge=0, le=2**31)] | None = None

    @model_validator(mode="after")
    def _check(self) -> "BackendParameters":
        if self.memory is not None and (self.minmem is not None or self.maxmem is not None):
            raise ValueError("memory stands for minmem and maxmem, so it cannot be given beside them")
        if self.minmem is not None and self.maxmem is not None and self.minmem > self.maxmem:
            raise ValueError(f"minmem ({self.minmem}) is more than maxmem ({self.maxmem})")
        return self

    def values(self) -> dict[str, Any]:
        """Return the given values by the names under which cells store them."""
        is_set = self.model_dump(exclude_none=True)
        memory = is_set.pop("memory", None)
        return is_set if memory is None else {**is_set, "minmem": memory, "maxmem": memory}


Disks = Annotated[list[Disk], Field(max_length=MAX_DISKS)]
Nics = Annotated[list[Nic], Field(max_length=MAX_NICS)]
