"""Records that tell apart everything that the view of an instance can say: a fixed list, the same for ever.

Whoever adds a condition to the rendering adds a record for each side of it.
"""

from collections.abc import Iterator
from typing import Any

from resources.fields import Record
from resources.instance import INSTANCE_FIELDS
from resources.server_status import DEFAULT_STATUS, TASK_STATUS
from tests.support.documents import make_uuid

_TEXT = '\x01\x1f\x7f\u2028é😀\\/\t\r\n"],[1,{"a":1}'
_FLAVOR = {
    "flavorid": "f",
    "name": "small",
    "memory_mb": 2048,
    "vcpus": 2,
    "root_gb": 20,
    "ephemeral_gb": 1,
    "swap": 512,
    "extra_specs": {"a:b": "c"},
}
_FIXED = {"address": "10.0.0.1", "version": 4, "mac": "fa:1", "label": "blue", "type": "fixed"}
_FLOATING = {"address": "203.0.113.9", "version": 4, "mac": "fa:2", "label": "blue", "type": "floating"}
_WITHOUT_TYPE = {"address": "fd00::1", "version": 6, "mac": "fa:3", "label": "green"}
_FAULT = {"code": 500, "created_at": 1_800_000_000_000_000, "message": "no room", "details": "at line 1"}

FULL: Record = {
    **{name: f"the {name}" for name in INSTANCE_FIELDS},
    "uuid": make_uuid(1),
    "vm_state": "active",
    "task_state": "migrating",
    "power_state": 1,
    "progress": 7,
    "created_at": 1_700_000_000_000_001,
    "updated_at": 1_700_000_001_000_001,
    "launched_at": 1_700_000_002_000_001,
    "terminated_at": 1_700_000_003_000_001,
    "deleted_at": 1_700_000_004_000_001,
    "deleted": False,
    "hidden": False,
    "locked": True,
    "launch_index": 3,
    "instance_type_id": 4,
    "auto_disk_config": True,
    "tags": ["a", "b"],
    "metadata": {"role": "web"},
    "flavor": _FLAVOR,
    "image_properties": {"os": "linux"},
    "ip_addresses": [_FIXED],
    "block_devices": [{"volume_id": "v1", "delete_on_termination": True}],
    "security_groups": ["default"],
    "server_groups": ["s"],
    "scheduler_hints": {"group": "g"},
    "trusted_image_certificates": ["c"],
    "keypairs": [],
    "shares": [],
    "fault": _FAULT,
}
_NUMBERS = (0, -1, 2**63 - 1, -(2**63))
_MOMENTS = (0, -1, 1_709_251_199_000_001, 253_402_300_799_999_999)
# Fields of FULL that differ, of one record each.
_CHANGES: tuple[dict[str, Any], ...] = (
    {"deleted": True},
    {"hidden": True},
    {"instance_type_id": 5},
    *({"power_state": number, "launch_index": number, "progress": number} for number in _NUMBERS),
    *({name: moment for name in FULL if name.endswith("_at")} for moment in _MOMENTS),
    {"host": None, "availability_zone": None},
    {"project_id": None, "host": "another"},
    {"locked": False},
    {"auto_disk_config": False},
    {"metadata": {"a": None, "b": [1, None, {"c": True}]}},
    {"ip_addresses": [_FLOATING, _FIXED, _WITHOUT_TYPE, {**_FLOATING, "label": "red"}]},
    {
        "block_devices": [
            {"volume_id": None, "delete_on_termination": True},
            {"volume_id": "v2", "delete_on_termination": False},
            {"volume_id": "v3", "delete_on_termination": None},
            {"volume_id": "v4"},
            {},
        ]
    },
    {"security_groups": ["b", "a", "b"]},
    {"tags": ["b"]},
    {"trusted_image_certificates": ["d", "c"]},
    {"scheduler_hints": {"different_host": ["h"], "number": 1.5e300}},
    {"flavor": dict.fromkeys(("vcpus", "memory_mb", "root_gb", "ephemeral_gb"), 0)},
    {"flavor": {**_FLAVOR, "swap": None, "name": None, "extra_specs": None}},
    {"flavor": {**_FLAVOR, "swap": "", "name": "", "extra_specs": {}}},
    {"image_properties": {"os": None, "min_disk": "1"}},
    *(
        {"vm_state": "error", "task_state": None, "fault": {**_FAULT, **fault}}
        for fault in (
            {},
            {"code": 404, "created_at": None, "details": "at line 2"},
            {"created_at": 0},
            {"code": 0, "details": ""},
            {"message": "", "details": None},
        )
    ),
    {"vm_state": "error", "fault": {name: _FAULT[name] for name in ("code", "created_at", "message")}},
    {"vm_state": "error", "fault": None},
    {"deleted": True, "fault": {**_FAULT, "code": 501}},
)
_EMPTY: dict[type, Any] = {str: "", list: [], dict: {}}


def telling_records() -> Iterator[Record]:
    yield FULL
    yield {**dict.fromkeys(INSTANCE_FIELDS), "uuid": make_uuid(2)}
    yield {name: _TEXT if isinstance(value, str) else value for name, value in FULL.items()} | {"uuid": make_uuid(3)}
    for name in INSTANCE_FIELDS:
        if name != "uuid":
            yield {**FULL, name: None}
            if type(FULL[name]) in _EMPTY:
                yield {**FULL, name: _EMPTY[type(FULL[name])]}
    for vm_state in (*DEFAULT_STATUS, "unheard of", None):
        for task_state in (*TASK_STATUS.get(vm_state or "", ()), "unheard of", None):
            yield {**FULL, "vm_state": vm_state, "task_state": task_state}
    for changes in _CHANGES:
        yield {**FULL, **changes}
