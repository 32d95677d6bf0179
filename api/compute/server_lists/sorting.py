"""The order of a list from `sort_key` and `sort_dir` (contracts/nova-servers, section 5)."""

from fleetlight.api.http.errors import BadRequestError, ForbiddenError, ParameterError
from fleetlight.api.http.query_string import QueryString
from fleetlight.query.sort import Direction, SortKey, SortOrder
from fleetlight.resources.instance import INSTANCE_FIELDS

SORTED = frozenset(
    {
        "access_ip_v4",
        "access_ip_v6",
        "auto_disk_config",
        "availability_zone",
        "config_drive",
        "created_at",
        "display_description",
        "display_name",
        "host",
        "hostname",
        "image_ref",
        "instance_type_id",
        "kernel_id",
        "key_name",
        "launch_index",
        "launched_at",
        "locked_by",
        "node",
        "power_state",
        "progress",
        "project_id",
        "ramdisk_id",
        "root_device_name",
        "task_state",
        "terminated_at",
        "updated_at",
        "user_id",
        "uuid",
        "vm_state",
    }
)
# Accepted and without effect before 2.75.
IGNORED = frozenset(
    {
        "architecture",
        "cell_name",
        "cleaned",
        "default_ephemeral_device",
        "default_swap_device",
        "deleted",
        "deleted_at",
        "disable_terminate",
        "ephemeral_gb",
        "ephemeral_key_uuid",
        "id",
        "key_data",
        "launched_on",
        "memory_mb",
        "os_type",
        "reservation_id",
        "root_gb",
        "shutdown_terminate",
        "user_data",
        "vcpus",
        "vm_mode",
    }
)
_LOCKED = "locked"
_LOCKED_SINCE = 73
_IGNORED_UNTIL = 74
_ADMIN_ONLY = frozenset({"host", "node"})
_DEFAULT = SortKey("created_at", Direction.DESC)
# Where all keys are ignored Nova breaks ties by the number of the row, of which the name on the hypervisor is made.
_ALL_IGNORED = (_DEFAULT, SortKey("instance_name", Direction.DESC))


def check_sort_keys(query: QueryString, minor: int) -> None:
    """Raises BadRequestError for a key that the microversion does not know; Nova looks at that before all else."""
    for name in query.all("sort_key"):
        if not (name in SORTED or name == _LOCKED or (name in IGNORED and minor <= _IGNORED_UNTIL)):
            raise ParameterError("sort_key", name, f"Must be one of: {', '.join(sorted(SORTED | {_LOCKED}))}.")


def build_order(query: QueryString, minor: int, *, is_admin: bool) -> SortOrder:
    """The total order that is asked for; raises BadRequestError, ForbiddenError.

    A key without a direction takes the first direction that was given, descending when none was. The direction of a key
    that is ignored is ignored with it, whatever it is.
    """
    check_sort_keys(query, minor)
    names, given = query.all("sort_key"), query.all("sort_dir")
    refused = _ADMIN_ONLY.intersection(names)
    if refused and not is_admin:
        # Before the directions are looked at, as in Nova.
        raise ForbiddenError(f"sorting by {min(refused)}")
    if len(given) > max(len(names), 1):
        raise BadRequestError("Sort direction array too long")
    sorts = SORTED | {_LOCKED} if minor >= _LOCKED_SINCE else SORTED
    if names:
        # A key that is ignored takes the direction at its place with it.
        given = [text for name, text in zip(names, given, strict=False) if name in sorts]
        names = [name for name in names if name in sorts]
    else:
        names = [_DEFAULT.field]
    directions = [_direction(text) for text in given]
    if not names:
        return SortOrder.of(INSTANCE_FIELDS, _ALL_IGNORED)
    missing = directions[0] if directions else _DEFAULT.direction
    directions += [missing] * (len(names) - len(directions))
    return SortOrder.of(INSTANCE_FIELDS, [SortKey(*key) for key in zip(names, directions, strict=True)])


def _direction(value: str) -> Direction:
    try:
        return Direction(value.strip())
    except ValueError:
        raise ParameterError("sort_dir", value, "Must be asc or desc.") from None
