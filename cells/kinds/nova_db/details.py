"""Reads the details of a page's instances from other tables, by one statement per database (contracts/nova-db, 7).

These tables have many rows for one instance, so the statement is a union instead of a join: each row names its source,
and has its values as text.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from operator import itemgetter
from typing import Any

import msgspec
from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    String,
    Text,
    bindparam,
    cast,
    func,
    literal_column,
    null,
    select,
    union_all,
)
from sqlalchemy.dialects.postgresql import ARRAY

from fleetlight.cells.capabilities import CAPABILITIES, CellKind
from fleetlight.cells.kinds.nova_db import tables
from fleetlight.cells.kinds.nova_db.databases import NovaDialect
from fleetlight.resources.fields import to_microseconds

_CURRENT = """
hw: architecture auto_disk_config boot_menu cdrom_bus cpu_cores cpu_max_cores cpu_max_sockets cpu_max_threads cpu_policy
    cpu_realtime_mask cpu_sockets cpu_thread_policy cpu_threads device_id disk_bus disk_type emulation_architecture
    ephemeral_encryption ephemeral_encryption_format ephemeral_encryption_secret_uuid firmware_stateless firmware_type
    floppy_bus input_bus ipxe_boot locked_memory machine_type maxphysaddr_bits maxphysaddr_mode mem_encryption
    mem_encryption_model mem_page_size numa_cpus numa_mem numa_nodes pci_numa_affinity_policy pmu pointer_model
    qemu_guest_agent redirected_usb_ports rescue_bus rescue_device rng_model scsi_model serial_port_count sound_model
    time_hpet tpm_model tpm_version usb_model video_model video_ram vif_model vif_multiqueue_enabled viommu_model
    virtio_packed_ring vm_mode watchdog_action
img: bdm_v2 bittorrent block_device_mapping cache_in_nova compression_level config_drive hide_hypervisor_id
    hv_requested_version hv_type linked_clone mappings owner_id root_device_name signature signature_certificate_uuid
    signature_hash_method signature_key_type use_agent version
os: admin_user command_line distro require_quiesce secure_boot skip_agent_inject_files_at_boot skip_agent_inject_ssh
    type
traits: required
"""
_LEGACY = """
architecture auto_disk_config bdm_v2 bittorrent block_device_mapping cache_in_nova hypervisor_type
hypervisor_version_requires ipxe_boot mappings owner_id root_device_name vm_mode vmware_disktype vmware_image_version
vmware_linked_clone vmware_ostype xenapi_device_id xenapi_image_compression_level xenapi_skip_agent_inject_files_at_boot
xenapi_skip_agent_inject_ssh xenapi_use_agent
"""


def _names() -> frozenset[str]:
    names: set[str] = set(_LEGACY.split())
    prefix = ""
    for word in _CURRENT.split():
        if word.endswith(":"):
            prefix = word[:-1]
        else:
            names.add(f"{prefix}_{word}")
    return frozenset(names)


IMAGE_PROPERTIES = _names()


# The stored names of image properties that a server shows.
_STORED_PROPERTIES = {f"image_{name}": name for name in IMAGE_PROPERTIES}
_LOCKED_REASON = "locked_reason"
_WANTED_KEYS = (_LOCKED_REASON, *sorted(_STORED_PROPERTIES))
_VALUES = 6
# SQLite and MySQL have numbers, PostgreSQL booleans.
_TRUE = frozenset({"1", "true", "t"})
_METADATA, _SYSTEM, _TAG, _VOLUME, _FAULT, _SPEC, _GROUP = "m", "s", "t", "v", "f", "r", "g"

Plain = dict[str, Any]


@dataclass(slots=True)
class Details:
    """The details of one instance, named like its fields."""

    metadata: Plain = field(default_factory=dict)
    image_properties: Plain = field(default_factory=dict)
    locked_reason: str | None = None
    tags: list[str] = field(default_factory=list)
    block_devices: list[Plain] = field(default_factory=list)
    fault: Plain | None = None
    server_groups: list[str] = field(default_factory=list)
    pinned_availability_zone: str | None = None
    scheduler_hints: Plain | None = None


OF_CELL = frozenset({"metadata", "image_properties", "locked_reason", "tags", "block_devices", "fault"})
OF_API = CAPABILITIES[CellKind.NOVA_DB].fields_of_deployment
"""The details that each database has."""


class _SpecData(msgspec.Struct):
    availability_zone: str | None = None
    scheduler_hints: Any = None


class _Spec(msgspec.Struct):
    data: _SpecData = msgspec.field(name="nova_object.data")


_decode_spec = msgspec.json.Decoder(_Spec).decode


class CellDetails:
    """Reads details of instances from a cell database."""

    def __init__(self, dialect: NovaDialect) -> None:
        without_faults = [_metadata(dialect), _system_metadata(dialect), _tags(dialect), _volumes(dialect)]
        self._dialect = dialect
        self._keys = bound(_WANTED_KEYS, dialect)
        self._plain = union_all(*without_faults)
        self._with_faults = union_all(*without_faults, _faults(dialect))

    def read(
        self,
        connection: Connection,
        details: Mapping[str, Details],
        *,
        deleted: Collection[str],
        failed: Collection[str],
    ) -> None:
        """Fill in `details`, by uuid.

        deleted: instances whose deleted system metadata counts. failed: instances whose last fault is shown.
        """
        statement = self._with_faults if failed else self._plain
        values: Plain = {"uuids": bound(details, self._dialect), "keys": self._keys}
        if failed:
            values["failed"] = bound(failed, self._dialect)
        system: list[tuple[bool, int, str, str, str | None]] = []
        volumes: list[tuple[int, str, Plain]] = []
        for source, uuid, a, b, c, d, e, f in connection.execute(statement, values).all():
            of = details[uuid]
            match source:
                case "m" if a is not None:
                    of.metadata[a] = b
                case "s" if c == "0" or uuid in deleted:
                    system.append((c == "0", int(d), uuid, a, b))
                case "t":
                    of.tags.append(a)
                case "v":
                    device = {
                        "volume_id": a,
                        "device_name": b,
                        "boot_index": None if c is None else int(c),
                        "delete_on_termination": e in _TRUE,
                        "tag": f,
                    }
                    volumes.append((int(d), uuid, block_device(device)))
                case "f":
                    of.fault = {"code": int(a), "message": b, "details": c, "created_at": _microseconds(d)}
        # The last value of a key counts, and rows that are not deleted come last.
        for _, _, uuid, key, value in sorted(system, key=itemgetter(0, 1)):
            _add_system_metadata(details[uuid], key, value)
        for _, uuid, device in sorted(volumes, key=itemgetter(0)):
            details[uuid].block_devices.append(device)
        for each in details.values():
            each.tags.sort()


class ApiDetails:
    """Reads details of instances from the API database."""

    def __init__(self, dialect: NovaDialect) -> None:
        self._dialect = dialect
        self._statement = union_all(_specs(dialect), _groups(dialect))

    def read(self, connection: Connection, details: Mapping[str, Details]) -> None:
        """Fill in `details`, by uuid."""
        values = {"uuids": bound(details, self._dialect)}
        for source, uuid, text in connection.execute(self._statement, values).all():
            of = details[uuid]
            if source == _GROUP:
                of.server_groups.append(text)
                continue
            try:
                spec = _decode_spec(text).data
            except (msgspec.DecodeError, msgspec.ValidationError):
                continue
            of.pinned_availability_zone = spec.availability_zone
            of.scheduler_hints = spec.scheduler_hints if isinstance(spec.scheduler_hints, dict) else None


def image_properties(system_metadata: Mapping[str, str | None]) -> Plain:
    """The image properties that a server shows, from the system metadata that Nova stores at its creation."""
    return {
        _STORED_PROPERTIES[key]: value
        for key, value in system_metadata.items()
        if key in _STORED_PROPERTIES and value is not None
    }


def block_device(device: Mapping[str, Any]) -> Plain:
    """A volume as in a record, from the values of a block device mapping."""
    return {
        "device_name": device.get("device_name"),
        "boot_index": device.get("boot_index"),
        "delete_on_termination": bool(device.get("delete_on_termination")),
        "volume_id": device["volume_id"],
        "tag": device.get("tag"),
    }


def among(stored: ColumnElement[Any], name: str, dialect: NovaDialect) -> ColumnElement[bool]:
    """Whether a column is one of the texts `bound` to `name`, which are one parameter, whatever their number."""
    match dialect:
        case "sqlite":
            listed = func.json_each(bindparam(name, type_=String)).table_valued("value")
            return stored.in_(select(listed.c.value))
        case "postgresql":
            return stored == func.any(bindparam(name, type_=ARRAY(String)))
    return stored.in_(bindparam(name, expanding=True))


def bound(texts: Collection[str], dialect: NovaDialect) -> str | list[str]:
    return msgspec.json.encode(list(texts)).decode() if dialect == "sqlite" else list(texts)


def _metadata(dialect: NovaDialect) -> Select[Any]:
    rows = tables.instance_metadata.c
    wanted = _rows(_METADATA, rows.instance_uuid, rows.key, rows.value)
    return wanted.where(rows.deleted == 0, among(rows.instance_uuid, "uuids", dialect))


def _system_metadata(dialect: NovaDialect) -> Select[Any]:
    rows = tables.instance_system_metadata.c
    wanted = _rows(_SYSTEM, rows.instance_uuid, rows.key, rows.value, rows.deleted, rows.id)
    return wanted.where(among(rows.instance_uuid, "uuids", dialect), among(rows.key, "keys", dialect))


def _tags(dialect: NovaDialect) -> Select[Any]:
    rows = tables.tags.c
    return _rows(_TAG, rows.resource_id, rows.tag).where(among(rows.resource_id, "uuids", dialect))


def _volumes(dialect: NovaDialect) -> Select[Any]:
    rows = tables.block_device_mapping.c
    wanted = _rows(
        _VOLUME,
        rows.instance_uuid,
        rows.volume_id,
        rows.device_name,
        rows.boot_index,
        rows.id,
        rows.delete_on_termination,
        rows.tag,
    )
    of_instances = among(rows.instance_uuid, "uuids", dialect)
    return wanted.where(rows.deleted == 0, rows.volume_id.is_not(None), of_instances)


def _faults(dialect: NovaDialect) -> Select[Any]:
    rows = tables.instance_faults.c
    of_instances = among(rows.instance_uuid, "failed", dialect)
    last = select(func.max(rows.id)).where(rows.deleted == 0, of_instances).group_by(rows.instance_uuid)
    wanted = _rows(_FAULT, rows.instance_uuid, rows.code, rows.message, rows.details, rows.created_at)
    return wanted.where(rows.id.in_(last.subquery().select()))


def _specs(dialect: NovaDialect) -> Select[Any]:
    rows = tables.request_specs.c
    wanted = select(literal_column(f"'{_SPEC}'", String), rows.instance_uuid, rows.spec)
    return wanted.where(among(rows.instance_uuid, "uuids", dialect))


def _groups(dialect: NovaDialect) -> Select[Any]:
    members, groups = tables.instance_group_member.c, tables.instance_groups.c
    wanted = select(literal_column(f"'{_GROUP}'", String), members.instance_uuid, cast(groups.uuid, Text))
    return wanted.where(members.group_id == groups.id, among(members.instance_uuid, "uuids", dialect))


def _rows(source: str, uuid: ColumnElement[Any], *values: ColumnElement[Any]) -> Select[Any]:
    padding = [null()] * (_VALUES - len(values))
    texts = [cast(value, Text) for value in (*values, *padding)]
    return select(literal_column(f"'{source}'", String), uuid, *texts)


def _add_system_metadata(details: Details, key: str, value: str | None) -> None:
    if key == _LOCKED_REASON:
        details.locked_reason = value
    elif key in _STORED_PROPERTIES and value is not None:
        details.image_properties[_STORED_PROPERTIES[key]] = value


def _microseconds(text: str) -> int:
    return to_microseconds(datetime.fromisoformat(text).replace(tzinfo=UTC))
