"""A cell of Nova in memory: rows without revisions, and what Nova's notifier would send of them."""

from collections.abc import Collection, Mapping, Sequence
from threading import Lock
from typing import Any
from uuid import uuid4

from fleetlight.bus.bus import Message
from fleetlight.bus.topology import routing_key
from fleetlight.cells.capabilities import CellKind
from fleetlight.cells.errors import CellUnreachableError
from fleetlight.cells.model import Cell, InstanceRow
from fleetlight.notifications.envelope import Notification, encode
from fleetlight.notifications.payloads.instance import InstanceActionPayload, InstanceUpdatePayload
from fleetlight.notifications.payloads.parts import AuditPeriodPayload, FlavorPayload, InstanceStateUpdatePayload
from fleetlight.notifications.versioned import VersionedPayload
from fleetlight.query.page import PageRequest
from fleetlight.resources.fields import from_microseconds
from fleetlight.resources.instance import INSTANCE_FIELDS
from tests.support.fleets.documents import make_record
from tests.support.oracles.filter_oracle import expected_page

NOVA_CELL = Cell("5a1c6f0e-8c8e-4d6f-9a52-0a3a1d2f7c33", "nova", CellKind.NOVA_DB, "sqlite:///nowhere.db", "")
SECOND = 1_000_000
CREATED_AT = 1_790_000_000 * SECOND
_FLAVOR = {
    "flavorid": "1",
    "name": "m1.small",
    "memory_mb": 512,
    "vcpus": 1,
    "root_gb": 1,
    "ephemeral_gb": 0,
    "swap": 0,
    "rxtx_factor": 1.0,
    "vcpu_weight": 0,
    "disabled": False,
    "is_public": True,
    "extra_specs": {},
    "projects": None,
    "description": None,
}
_AS_IN_THE_ROW = (
    *("uuid", "user_id", "project_id", "reservation_id", "display_name", "display_description", "hostname", "host"),
    *("node", "os_type", "architecture", "availability_zone", "image_ref", "key_name", "kernel_id", "ramdisk_id"),
    *("vm_state", "task_state", "progress", "metadata", "locked", "locked_reason"),
)
_TIMES = ("created_at", "launched_at", "terminated_at", "deleted_at", "updated_at")


class MemoryNovaCell:
    """The database of a cell of Nova; its own adapter (fleetlight.cells.model.CellAdapter).

    now: its clock, microseconds. mapped: uuids that its deployment says live here. elsewhere: by uuid, the cells that
    it says others live in.
    """

    def __init__(self, cell: Cell = NOVA_CELL) -> None:
        self.cell = cell
        self.rows: dict[str, dict[str, Any]] = {}
        self.now = CREATED_AT
        self.mapped: set[str] = set()
        self.elsewhere: dict[str, str] = {}
        self.is_away = False
        self.readings: list[int] = []
        self._ticking = Lock()

    def create(self, number: int = 1, **values: Any) -> str:
        record = make_record(number, created_at=self._tick(), updated_at=None, flavor=_FLAVOR, flavor_id="1", **values)
        record["ip_addresses"] = []
        self.rows[record["uuid"]] = record
        return str(record["uuid"])

    def confirm_here(self, uuids: Collection[str]) -> Collection[str]:
        return self.mapped.intersection(uuids)

    def living_elsewhere(self, uuids: Collection[str]) -> Mapping[str, str]:
        return {uuid: self.elsewhere[uuid] for uuid in uuids if uuid in self.elsewhere}

    def save(self, uuid: str, **values: Any) -> None:
        """A change of columns."""
        self.rows[uuid] |= {"updated_at": self._tick(), **values}

    def save_beside(self, uuid: str, **values: Any) -> None:
        """A change that the time of the row does not show (contracts/nova-notifications, section 11)."""
        self._tick()
        self.rows[uuid] |= values

    def destroy(self, uuid: str) -> None:
        self.save_beside(uuid, deleted=True, vm_state="deleted", deleted_at=self.now, terminated_at=self.now)

    def snapshot(self, uuid: str) -> dict[str, Any]:
        """What a process has of an instance in memory at this moment."""
        return dict(self.rows[uuid])

    def notify(
        self, seen: dict[str, Any], event_type: str, at: int | None = None, *, version: str | None = None, **data: Any
    ) -> Message:
        """The message that a process sends of what it has `seen`; `data`: members of the payload that are different."""
        is_update = event_type == "instance.update"
        wrapped = (_update if is_update else _action)(seen).wrap()
        wrapped["nova_object.data"] |= data
        if version is not None:
            wrapped["nova_object.version"] = version
        notification = Notification(
            event_type, wrapped, "nova-compute:node-1", "INFO", from_microseconds(at or self._tick()), str(uuid4())
        )
        return Message(encode(notification), routing_key("INFO"), {})

    def read_page(self, request: PageRequest) -> Sequence[InstanceRow]:
        if self.is_away:
            raise CellUnreachableError(self.cell.name, "it is away")
        self.readings.append(request.limit)
        started = self._tick()
        page = expected_page(self.rows.values(), request, INSTANCE_FIELDS)
        return [InstanceRow(self.cell.uuid, started, dict(record)) for record in page]

    def find(self, uuid: str) -> InstanceRow | None:
        return InstanceRow(self.cell.uuid, self._tick(), dict(self.rows[uuid])) if uuid in self.rows else None

    def close(self) -> None:
        """Nothing to let go of."""

    def _tick(self) -> int:
        with self._ticking:
            self.now += SECOND
            return self.now


def _common(seen: dict[str, Any]) -> dict[str, Any]:
    times = {name: None if seen[name] is None else from_microseconds(seen[name]) for name in _TIMES}
    return {
        **{name: seen[name] for name in _AS_IN_THE_ROW},
        **times,
        "power_state": "running",
        "flavor": FlavorPayload(**seen["flavor"]),
        "ip_addresses": [],
        "block_devices": None,
        "shares": None,
        "auto_disk_config": "MANUAL",
        "request_id": None,
        "action_initiator_user": None,
        "action_initiator_project": None,
    }


def _action(seen: dict[str, Any]) -> VersionedPayload:
    return InstanceActionPayload(**_common(seen), fault=None)


def _update(seen: dict[str, Any]) -> VersionedPayload:
    period = from_microseconds(CREATED_AT)
    return InstanceUpdatePayload(
        **_common(seen),
        tags=seen["tags"],
        old_display_name=None,
        state_update=InstanceStateUpdatePayload(
            old_state=seen["vm_state"], state=seen["vm_state"], old_task_state=None, new_task_state=None
        ),
        audit_period=AuditPeriodPayload(audit_period_beginning=period, audit_period_ending=period),
    )
