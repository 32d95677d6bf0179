"""Conversion between an instance's configuration in Ganeti's terms and its record; pure (docs/reference/ganeti.md).

Memory, processors and the total disk are in the record's flavor, which both faces read and placement counts. Values
that only Ganeti has are stored beside it (fleetlight.resources.query_fields.ganeti).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import uuid4

from fleetlight.manager.operations.opcodes.instance_parameters import MIRRORED, Disk
from fleetlight.resources.fields import Record
from fleetlight.resources.query_fields.cluster_parameters import DEFAULT, Parameters, filled
from fleetlight.resources.query_fields.ganeti import (
    DISK_LISTS,
    DISKS_FORTHCOMING,
    NIC_LISTS,
    is_offline,
    kept_in_part,
    own_value,
)
from fleetlight.resources.query_fields.instance import DRBD_METADATA_MIB
from fleetlight.resources.query_fields.parameters import IN_FLAVOR
from fleetlight.resources.units import MIB_PER_GIB

# Parameters of an interface with defaults in the cluster.
_SET_ON_NIC = ("mode", "link", "vlan")

DiskValues = Mapping[str, Any]
"""A disk: size in MiB, spindles, name, uuid."""
NicValues = Mapping[str, Any]
"""An interface: mac, ip, name, uuid, network, and its own mode, link and vlan, if set."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """A configuration. backend, hypervisor_parameters, os_parameters: set on the instance. template: None: unknown.

    of_flavor: backend parameters that the flavor has, since placement counts them.
    """

    os: str | None = None
    hypervisor: str | None = None
    template: str | None = None
    backend: Parameters = field(default_factory=dict)
    of_flavor: Parameters = field(default_factory=dict)
    hypervisor_parameters: Parameters = field(default_factory=dict)
    os_parameters: Parameters = field(default_factory=dict)
    disks: Sequence[DiskValues] = ()
    nics: Sequence[NicValues] = ()
    secondary: str | None = None
    network_port: int | None = None
    is_offline: bool = False

    @property
    def disk_mib(self) -> int:
        """The size of all disks on each of their nodes."""
        metadata = DRBD_METADATA_MIB if self.template in MIRRORED else 0
        return sum(disk["size"] + metadata for disk in self.disks)

    def filled_backend(self, cluster: Parameters) -> Parameters:
        """Return all backend parameters. cluster: from resources.query_fields.cluster_parameters.filled_cluster."""
        return filled(cluster["beparams"][DEFAULT], {**self.of_flavor, **self.backend})

    def values(self, cluster: Parameters, *, is_forthcoming: bool) -> dict[str, Any]:
        """Return the record's fields for this configuration. is_forthcoming: whether it is a reservation."""
        backend = self.filled_backend(cluster)
        kept: dict[str, Any] = {
            "os": self.os,
            "hypervisor": self.hypervisor,
            "disk_template": self.template,
            "network_port": self.network_port,
            "admin_state": "offline" if self.is_offline else None,
            "snodes": [] if self.secondary is None else [self.secondary],
            "custom_beparams": self.backend,
            "custom_hvparams": self.hypervisor_parameters,
            "custom_osparams": self.os_parameters,
            "custom_nicparams": [{name: nic[name] for name in _SET_ON_NIC if nic.get(name)} for nic in self.nics],
            **{several: [disk.get(one) for disk in self.disks] for one, several in DISK_LISTS.items()},
            **{NIC_LISTS[one]: [nic.get(one) for nic in self.nics] for one in ("ip", "mac", "name", "uuid", "network")},
            DISKS_FORTHCOMING: [is_forthcoming for _ in self.disks],
        }
        return {
            "flavor": self._flavor(backend),
            "ip_addresses": list(self._addresses()),
            "forthcoming": is_forthcoming,
            "ganeti": kept_in_part({name: value for name, value in kept.items() if value is not None}),
        }

    def _flavor(self, backend: Parameters) -> Record:
        """Return a flavor for placement; no catalog has it, hence its names."""
        return {
            "flavorid": "ganeti",
            "name": "ganeti",
            "memory_mb": backend["maxmem"],
            "vcpus": backend["vcpus"],
            "root_gb": -(-self.disk_mib // MIB_PER_GIB),
            "ephemeral_gb": 0,
            "swap": 0,
            "rxtx_factor": 1.0,
            "vcpu_weight": 0,
            "disabled": False,
            "is_public": False,
            "extra_specs": {},
            "projects": None,
            "description": None,
        }

    def _addresses(self) -> Iterator[Record]:
        for nic in self.nics:
            if nic.get("ip"):
                yield {
                    "label": nic.get("link") or nic.get("network") or "ganeti",
                    "address": nic["ip"],
                    "version": 6 if ":" in nic["ip"] else 4,
                    "mac": nic["mac"],
                    "meta": {},
                    "port_uuid": nic["uuid"],
                    "device_name": nic.get("name"),
                    "type": "fixed",
                }


def new_disk(disk: Disk) -> DiskValues:
    """Return the values of a new disk, with a new uuid."""
    return {"size": disk.size, "spindles": disk.spindles, "name": disk.name, "uuid": str(uuid4())}


def configuration_of(record: Record) -> Configuration:
    """Return the configuration of an instance; from the compute API it has only flavor, disks and interfaces."""
    flavor = record["flavor"] or {}
    of_flavor = {name: flavor[column] for name, column in IN_FLAVOR.items() if flavor.get(column) is not None}
    own: Parameters = own_value(record, "custom_beparams") or {}
    made = Configuration(
        # The compute API may have changed the flavor since.
        backend={name: of_flavor.get(name, value) for name, value in own.items()},
        of_flavor=of_flavor,
    )
    if record["ganeti"] is None:
        made = replace(made, backend=of_flavor)
        sizes = [flavor.get("root_gb", 0), flavor.get("ephemeral_gb", 0)]
        disks = [{"size": size * MIB_PER_GIB} for size in sizes if size]
        return replace(made, template="plain" if disks else "diskless", disks=disks, nics=_nics_of(record))
    secondaries: Sequence[str] = own_value(record, "snodes") or ()
    return replace(
        made,
        os=own_value(record, "os"),
        hypervisor=own_value(record, "hypervisor"),
        template=own_value(record, "disk_template"),
        hypervisor_parameters=own_value(record, "custom_hvparams") or {},
        os_parameters=own_value(record, "custom_osparams") or {},
        disks=_of_lists(record, DISK_LISTS),
        nics=[
            {**nic, **is_set}
            for nic, is_set in zip(
                _of_lists(record, {one: NIC_LISTS[one] for one in ("ip", "mac", "name", "uuid", "network")}),
                own_value(record, "custom_nicparams") or (),
                strict=True,
            )
        ],
        secondary=secondaries[0] if secondaries else None,
        network_port=own_value(record, "network_port"),
        is_offline=is_offline(record),
    )


def _of_lists(record: Record, names: Mapping[str, str]) -> list[dict[str, Any]]:
    """Join lists of equal length to objects. names: the fields of lists by the members of objects."""
    columns = [own_value(record, several) or () for several in names.values()]
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


def _nics_of(record: Record) -> list[NicValues]:
    return [
        {"mac": address.get("mac"), "ip": address.get("address"), "uuid": address.get("port_uuid"), "network": None}
        for address in record["ip_addresses"] or ()
    ]
