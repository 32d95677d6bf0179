"""What a list of servers must answer, written from the contract in plain Python, without the product's rules.

Facts: contracts/nova-servers, sections 3 to 6 and 8, and docs/reference/compatibility.md where it differs.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import re2

from tests.contract.answering import words

Record = Mapping[str, Any]
Pairs = Sequence[tuple[str, str]]
Test = Callable[[Record], bool]
Times = Mapping[str, int | None]
"""The moment in microseconds that each text of a time in a request means; None for one that means none."""

TEXTS = words(
    "user_id project_id tenant_id launch_index image image_ref vm_state task_state host uuid sort_dir all_tenants"
    " soft_deleted deleted status marker"
)
PATTERNS = words(
    "kernel_id ramdisk_id hostname key_name power_state node flavor reservation_id launched_at terminated_at"
    " availability_zone name display_name description display_description locked_by root_device_name config_drive"
    " access_ip_v4 access_ip_v6 auto_disk_config progress ip ip6 created_at"
)
TAG_PATTERNS = words("tags tags-any not-tags not-tags-any")
FORBIDDEN = words("block_device_mapping services metadata system_metadata info_cache security_groups pci_devices")
SORTED = words(
    "access_ip_v4 access_ip_v6 auto_disk_config availability_zone config_drive created_at display_description"
    " display_name host hostname image_ref instance_type_id kernel_id key_name launch_index launched_at locked_by node"
    " power_state progress project_id ramdisk_id root_device_name task_state terminated_at updated_at user_id uuid"
    " vm_state"
)
IGNORED = words(
    "architecture cell_name cleaned default_ephemeral_device default_swap_device deleted deleted_at disable_terminate"
    " ephemeral_gb ephemeral_key_uuid id key_data launched_on memory_mb os_type reservation_id root_gb"
    " shutdown_terminate user_data vcpus vm_mode"
)
_KNOWN = {*TEXTS, *PATTERNS, *TAG_PATTERNS, "changes-since", "changes-before", "limit", "sort_key", "locked"}
KNOWN_SINCE = {**dict.fromkeys(TAG_PATTERNS, 26), "changes-before": 66, "locked": 73}
PUBLIC_SINCE = {
    **dict.fromkeys(words("reservation_id name status image flavor ip changes-since all_tenants"), 1),
    **dict.fromkeys(words("limit marker sort_key sort_dir"), 1),
    "ip6": 5,
    **dict.fromkeys(TAG_PATTERNS, 26),
    "changes-before": 66,
    "locked": 73,
    **dict.fromkeys(words("availability_zone config_drive key_name created_at launched_at terminated_at"), 83),
    **dict.fromkeys(words("power_state task_state vm_state progress user_id"), 83),
    "hostname": 90,
}
_TRUE = words("1 t true on y yes")
_FALSE = words("0 f false off n no")
_COLUMN_OF = {"name": "display_name"}
_MATCHED = {*PATTERNS, "launch_index"} - {"flavor", "ip", "ip6", "description"}
_TIMES = {"created_at", "launched_at", "terminated_at"}
_RESIZE = words("resize_prep resize_migrating resize_migrated resize_finish")
_REBUILD = words("rebuilding rebuild_block_device_mapping rebuild_spawning")
_ANY_TASK = {
    "ACTIVE": "active",
    "BUILD": "building",
    "SHUTOFF": "stopped",
    "VERIFY_RESIZE": "resized",
    "PAUSED": "paused",
    "SUSPENDED": "suspended",
    "RESCUE": "rescued",
    "ERROR": "error",
    "DELETED": "deleted",
    "SOFT_DELETED": "soft-delete",
    "SHELVED": "shelved",
    "SHELVED_OFFLOADED": "shelved_offloaded",
}
_OF_TASKS = {
    "REBOOT": (["active"], words("rebooting reboot_pending reboot_started")),
    "HARD_REBOOT": (["active"], words("rebooting_hard reboot_pending_hard reboot_started_hard")),
    "PASSWORD": (["active"], ["updating_password"]),
    "RESIZE": (["active", "stopped"], _RESIZE),
    "REBUILD": (["active", "stopped", "error"], _REBUILD),
    "MIGRATING": (["active", "paused"], ["migrating"]),
    "REVERT_RESIZE": (["resized"], ["resize_reverting"]),
}


@dataclass(frozen=True)
class Asker:
    """Who asks."""

    is_admin: bool
    project_id: str
    user_id: str


@dataclass(frozen=True)
class Request:
    """A list of servers: names and values of the query, microversion 2.`minor`, and who asks."""

    pairs: Pairs
    minor: int
    asker: Asker


@dataclass(frozen=True)
class Expected:
    """refused: the statuses that say what is wrong; empty for a list. uuids: all of the list, without a page's limit.

    limit: the largest page; None unless one is asked for.
    """

    refused: frozenset[int] = frozenset()
    uuids: tuple[str, ...] = ()
    limit: int | None = None


class _RefusedError(Exception):
    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


def expected_list(records: Iterable[Record], request: Request, times: Times) -> Expected:
    """The answer to a list of `records`, which are all that there are."""
    asker, minor = request.asker, request.minor
    try:
        kept = _accept(request, times)
        _check_keys(kept, minor)
    except _RefusedError as refused:
        return Expected(frozenset({refused.status}))
    everything = list(records)
    last = dict(kept)
    if _names_no_status(kept):
        # Nobody looks at the rest.
        return Expected(frozenset({400})) if minor >= 38 else Expected(frozenset(), (), None)
    readings: list[Any] = []
    problems = set()
    for read in (lambda: _order(kept, minor, asker), lambda: _tests(kept, minor, asker, times)):
        try:
            readings.append(read())
        except _RefusedError as refused:
            problems.add(refused.status)
    if problems:
        return Expected(frozenset(problems))
    order, tests = readings
    found = sorted((record for record in everything if all(test(record) for test in tests)), key=_by_uuid)
    for key, is_descending in reversed(order):
        found.sort(key=_value_of(key), reverse=is_descending)
    # Nova takes an empty one for none.
    if last.get("marker"):
        known = [record for record in everything if record["uuid"] == last["marker"]]
        if not known or not (asker.is_admin or known[0]["project_id"] == asker.project_id):
            # What nothing can match is found out before the marker is looked for.
            scope = _scope(kept, last, asker)
            seen = [record for record in everything if scope(record)]
            if "flavor" in last and not any(record["flavor_id"] == last["flavor"] for record in seen):
                return Expected(frozenset(), (), None)
            addressed = [name for name in ("ip", "ip6") if name in last]
            living = [record for record in seen if not record["deleted"]]
            if addressed and not any(_is_named(record, name, last[name]) for record in living for name in addressed):
                return Expected(frozenset(), (), None)
            return Expected(frozenset({400}))
        found = [record for record in found if _is_behind(record, known[0], order)]
    limit = int(last["limit"]) if "limit" in last else None
    return Expected(frozenset(), tuple(record["uuid"] for record in found), limit)


def _accept(request: Request, times: Times) -> list[tuple[str, str]]:
    """What counts, as pairs."""
    asker, minor = request.asker, request.minor
    kept, is_forbidden = [], False
    for name, value in request.pairs:
        if name in FORBIDDEN or name.startswith("_"):
            is_forbidden = True
            continue
        if name not in _KNOWN or minor < KNOWN_SINCE.get(name, 1):
            if minor >= 75:
                raise _RefusedError(400)
            continue
        if name in PATTERNS or name in TAG_PATTERNS:
            _pattern(value)
            if not value:
                raise _RefusedError(400)
        if name in {"changes-since", "changes-before"} and times[value] is None:
            raise _RefusedError(400)
        if name == "limit" and not (value.isascii() and value.isdigit()):
            raise _RefusedError(400)
        if asker.is_admin or minor >= PUBLIC_SINCE.get(name, 1000):
            kept.append((name, value))
    if is_forbidden and asker.is_admin:
        raise _RefusedError(400)
    return kept


def _pattern(value: str) -> Any:
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(value, options)
    except re2.error:
        raise _RefusedError(400) from None


def _strict(value: str) -> bool:
    word = value.strip().lower()
    if word not in _TRUE + _FALSE:
        raise _RefusedError(400)
    return word in _TRUE


def _check_keys(kept: Pairs, minor: int) -> None:
    for key in (value for name, value in kept if name == "sort_key"):
        if key not in SORTED + IGNORED + ["locked"] or (minor >= 75 and key in IGNORED):
            raise _RefusedError(400)


def _names_no_status(kept: Pairs) -> bool:
    statuses = {value.upper() for name, value in kept if name == "status"}
    return bool(statuses) and not statuses & {*_ANY_TASK, *_OF_TASKS}


def _order(kept: Pairs, minor: int, asker: Asker) -> list[tuple[str, bool]]:
    keys = [value for name, value in kept if name == "sort_key"]
    directions = [value.strip() for name, value in kept if name == "sort_dir"]
    counts = [key in SORTED or (key == "locked" and minor >= 73) for key in keys]
    given = keys
    # The API of Nova looks at rights, and its database at directions.
    if not asker.is_admin and {"host", "node"} & {*given}:
        raise _RefusedError(403)
    keys = [key for key, does in zip(keys, counts, strict=True) if does]
    directions = [word for place, word in enumerate(directions) if place >= len(given) or counts[place]]
    if given and not keys:
        if directions:
            raise _RefusedError(400)
        return [("created_at", True), ("instance_name", True)]
    if not keys:
        keys = ["created_at"]
    if len(directions) > len(keys) or not {*directions} <= {"asc", "desc"}:
        raise _RefusedError(400)
    directions += [directions[0] if directions else "desc"] * (len(keys) - len(directions))
    return [(key, word == "desc") for key, word in zip(keys, directions, strict=True)]


def _tests(kept: Pairs, minor: int, asker: Asker, times: Times) -> list[Test]:
    """The conditions that a listed record satisfies."""
    last = dict(kept)
    statuses = {value.upper() for name, value in kept if name == "status"}
    vm_states = {_ANY_TASK[status] for status in statuses & {*_ANY_TASK}}
    tasks: set[str] | None = None if vm_states else set()
    for status in statuses & {*_OF_TASKS}:
        vm_states |= {*_OF_TASKS[status][0]}
        if tasks is not None:
            tasks |= {*_OF_TASKS[status][1]}
    is_about_deleted = vm_states == {"deleted"}
    if is_about_deleted and not asker.is_admin:
        raise _RefusedError(403)
    tests: list[Test] = [
        _scope(kept, last, asker),
        lambda record: not record["hidden"],
        _existence(last, is_about_deleted=is_about_deleted),
    ]
    if statuses:
        tests.append(lambda record: record["vm_state"] in vm_states)
        if tasks:
            tests.append(lambda record: record["task_state"] in tasks)
    since, before = times.get(last.get("changes-since", "")), times.get(last.get("changes-before", ""))
    if since is not None and before is not None and before < since:
        raise _RefusedError(400)
    if since is not None:
        tests.append(lambda record: record["updated_at"] is not None and record["updated_at"] >= since)
    if before is not None:
        tests.append(lambda record: record["updated_at"] is not None and record["updated_at"] <= before)
    named = [name for name in ("uuid", "ip", "ip6") if name in last]
    if named:
        tests.append(lambda record: any(_is_named(record, name, last[name]) for name in named))
    for name, value in last.items():
        if name == "task_state" and tasks:
            continue
        if name == "vm_state" and vm_states:
            continue
        test = _test_of(name, value)
        if test is not None:
            tests.append(test)
    return tests


def _scope(kept: Pairs, last: Mapping[str, str], asker: Asker) -> Test:
    value = last.get("all_tenants")
    if value is None or (value.strip() and not _strict(value)):
        return lambda record: record["project_id"] == asker.project_id
    if not asker.is_admin:
        raise _RefusedError(403)
    projects = [value for name, value in kept if name in {"project_id", "tenant_id"}]
    return lambda record: not projects or record["project_id"] == projects[-1]


def _existence(last: Mapping[str, str], *, is_about_deleted: bool) -> Test:
    deleted = last.get("deleted")
    wants_deleted = is_about_deleted or (deleted is not None and deleted.strip().lower() in _TRUE)
    if not wants_deleted and deleted is None and {"changes-since", "changes-before"} & {*last}:
        return lambda _record: True
    soft = last.get("soft_deleted")
    if wants_deleted:
        return lambda record: bool(record["deleted"]) or (soft != "" and record["vm_state"] == "soft-delete")
    return lambda record: not record["deleted"] and bool(soft or record["vm_state"] != "soft-delete")


def _is_named(record: Record, name: str, value: str) -> bool:
    if name == "uuid":
        return bool(record["uuid"] == value)
    return any(value in part["address"] and part["type"] == "fixed" for part in record["ip_addresses"])


def _test_of(name: str, value: str) -> Test | None:
    match name:
        case "user_id" | "host" | "image_ref" | "vm_state" | "task_state":
            return lambda record: record[name] == value
        case "image":
            return lambda record: record["image_ref"] == value
        case "flavor":
            return lambda record: record["flavor_id"] == value
        case "locked":
            wanted = _strict(value)
            return lambda record: record["locked"] == wanted
        case "tags":
            return lambda record: {*value.split(",")} <= {*record["tags"]}
        case "tags-any":
            return lambda record: bool({*value.split(",")} & {*record["tags"]})
        case "not-tags":
            return lambda record: not {*value.split(",")} <= {*record["tags"]}
        case "not-tags-any":
            return lambda record: not {*value.split(",")} & {*record["tags"]}
    if name not in _MATCHED:
        return None
    pattern = _pattern(value)
    column = _COLUMN_OF.get(name, name)
    return lambda record: record[column] is not None and pattern.search(_text(column, record[column])) is not None


def _text(column: str, value: Any) -> str:
    if column in _TIMES:
        # Without the calendar of the product: days since the epoch to a date (Howard Hinnant, chrono-compatible).
        days, rest = divmod(value // 1_000_000, 86_400)
        era, of_era = divmod(days + 719_468, 146_097)
        year = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
        of_year = of_era - (365 * year + year // 4 - year // 100)
        month = (5 * of_year + 2) // 153
        day = of_year - (153 * month + 2) // 5 + 1
        month += 3 if month < 10 else -9
        year += era * 400 + (month <= 2)
        return f"{year:04}-{month:02}-{day:02} {rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}"
    return str(int(value)) if isinstance(value, bool | int) else str(value)


def _value_of(key: str) -> Callable[[Record], tuple[bool, Any]]:
    return lambda record: _comparable(record[key])


def _by_uuid(record: Record) -> str:
    return str(record["uuid"])


def _comparable(value: Any) -> tuple[bool, Any]:
    return value is not None, 0 if value is None else value


def _is_behind(record: Record, position: Record, order: Sequence[tuple[str, bool]]) -> bool:
    for key, is_descending in [*order, ("uuid", False)]:
        here, there = _comparable(record[key]), _comparable(position[key])
        if here != there:
            return (here < there) if is_descending else (here > there)
    return False
