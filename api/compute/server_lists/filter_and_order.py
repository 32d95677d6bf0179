"""From the accepted parameters of a list to a filter tree and an order (contracts/nova-servers, 3.3, 4, 5)."""

from fleetlight.api.caller import Caller
from fleetlight.api.compute.protocol.parameters import PARAMETERS, TRUE_WORDS, parse_time, strict_bool
from fleetlight.api.http.errors import BadRequestError, ForbiddenError, ParameterError
from fleetlight.api.http.query_string import QueryString
from fleetlight.query.filters import EVERYTHING, NOTHING, Eq, Filter, Ge, HasAddress, In, IsNull, Le, Ne, all_of, any_of
from fleetlight.query.sort import Direction, SortKey, SortOrder
from fleetlight.resources.instance import INSTANCE_FIELDS
from fleetlight.resources.server_status import states_of

_INVALID_STATUS_IS_AN_ERROR_SINCE = 38
_SOFT_DELETED = Eq("vm_state", "soft-delete")
_NOT_SOFT_DELETED = any_of(Ne("vm_state", "soft-delete"), IsNull("vm_state"))
_DELETED = Eq("deleted", True)
_NOT_DELETED = Eq("deleted", False)


def build_filter(query: QueryString, minor: int, caller: Caller, *, action: str) -> Filter:
    """Build the filter of a request, restricted to what the caller may see.

    query: the result of `parameters.accept`. action: `index` or `detail`, for the rule that a refusal names.
    NOTHING: every given `status` is unknown, and Nova checks neither the rest of the filter nor the marker then.
    Raises BadRequestError, ForbiddenError, QueryError.
    """
    vm_states, states = _states(query, minor)
    if states == NOTHING:
        return NOTHING
    is_about_deleted = vm_states == {"deleted"}
    if is_about_deleted and not caller.is_admin:
        raise ForbiddenError("listing deleted servers")
    # Like Nova, refuse a malformed value before a value that the caller may not use.
    is_for_all_tenants(query)
    # A reservation is no server; `forthcoming=true` selects reservations only.
    forthcoming = query.last("forthcoming")
    # The last value of a repeated parameter counts, and `status` overrides raw states.
    overruled = {"vm_state", "task_state"} if vm_states else set[str]()
    conditions = (
        Eq("forthcoming", forthcoming is not None and strict_bool("forthcoming", forthcoming)),
        Eq("hidden", False),
        _existence(query, is_about_deleted=is_about_deleted),
        _changes(query),
        states,
        _identity(query),
        *(
            build(value)
            for name, value in dict(query.pairs).items()
            if name not in overruled and (build := PARAMETERS[name].build) is not None
        ),
    )
    return all_of(build_scope(query, caller, action=action), *conditions)


def is_for_all_tenants(query: QueryString) -> bool:
    """Whether the request wants servers of every project. Raises ParameterError for a malformed value."""
    value = query.last("all_tenants")
    return value is not None and (not value or strict_bool("all_tenants", value))


def found_before_the_marker(query: QueryString, caller: Caller, *, action: str) -> list[Filter]:
    """Return the conditions that Nova looks up before the marker; if one finds no server, the list is empty.

    They are the existence of the flavor, and the servers with the addresses. Raises as `build_filter` does.
    """
    scope = build_scope(query, caller, action=action)
    flavor, addressed = query.last("flavor"), _addressed(query)
    found = [] if flavor is None else [all_of(scope, Eq("flavor_id", flavor))]
    return [*found, all_of(scope, _NOT_DELETED, any_of(*addressed))] if addressed else found


def build_scope(query: QueryString, caller: Caller, *, action: str) -> Filter:
    """Build the part of `build_filter` that selects projects, and hides what the caller may not see.

    Raises ForbiddenError.
    """
    if is_for_all_tenants(query):
        if not caller.is_admin:
            raise ForbiddenError(f"os_compute_api:servers:{action}:get_all_tenants")
        projects = [value for name, value in query.pairs if name in {"project_id", "tenant_id"}]
        return Eq("project_id", projects[-1]) if projects else EVERYTHING
    if caller.project_id is None:
        return Eq("user_id", caller.user_id)
    return Eq("project_id", caller.project_id)


def _states(query: QueryString, minor: int) -> tuple[frozenset[str], Filter]:
    """Return the vm_states that `status` selects (none without it), and its filter together with the raw states."""
    statuses = query.all("status")
    if not statuses:
        return frozenset(), EVERYTHING
    vm_states, task_states = states_of(statuses)
    if not vm_states:
        if minor >= _INVALID_STATUS_IS_AN_ERROR_SINCE:
            raise BadRequestError("Invalid status value")
        return frozenset(), NOTHING
    states: Filter = In("vm_state", tuple(sorted(vm_states)))
    if task_states is not None:
        return vm_states, all_of(states, In("task_state", tuple(sorted(task_states))))
    task_state = query.last("task_state")
    return vm_states, states if task_state is None else all_of(states, Eq("task_state", task_state))


def _existence(query: QueryString, *, is_about_deleted: bool) -> Filter:
    """Build the filter that selects live, soft-deleted or deleted rows."""
    deleted = query.last("deleted")
    if is_about_deleted:
        is_deleted = True
    elif deleted is not None:
        is_deleted = deleted.strip().lower() in TRUE_WORDS
    elif "changes-since" in query or "changes-before" in query:
        return EVERYTHING
    else:
        is_deleted = False
    soft_deleted = query.last("soft_deleted")
    if is_deleted:
        return _DELETED if soft_deleted == "" else any_of(_DELETED, _SOFT_DELETED)
    # Any text is true here, even "false".
    return _NOT_DELETED if soft_deleted else all_of(_NOT_DELETED, _NOT_SOFT_DELETED)


def _changes(query: QueryString) -> Filter:
    since, before = (
        None if (value := query.last(name)) is None else parse_time(name, value)
        for name in ("changes-since", "changes-before")
    )
    if since is not None and before is not None and before < since:
        raise BadRequestError("The value of changes-since must be less than or equal to changes-before.")
    return all_of(
        EVERYTHING if since is None else Ge("updated_at", since),
        EVERYTHING if before is None else Le("updated_at", before),
    )


def _identity(query: QueryString) -> Filter:
    """Build the filter of names and addresses. Nova looks addresses up first, and adds the servers that have them."""
    named = [Eq("uuid", value) for value in [query.last("uuid")] if value is not None]
    addressed = _addressed(query)
    return any_of(*named, *addressed) if named or addressed else EVERYTHING


def _addressed(query: QueryString) -> list[Filter]:
    return [HasAddress("ip_addresses", value) for name in ("ip", "ip6") if (value := query.last(name)) is not None]


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
# If all keys are ignored, Nova breaks ties by the row's number, which the name on the hypervisor contains.
_ALL_IGNORED = (_DEFAULT, SortKey("instance_name", Direction.DESC))


def check_sort_keys(query: QueryString, minor: int) -> None:
    """Raise BadRequestError for a key that the microversion does not know; Nova checks that before all else."""
    for name in query.all("sort_key"):
        if not (name in SORTED or name == _LOCKED or (name in IGNORED and minor <= _IGNORED_UNTIL)):
            raise ParameterError("sort_key", name, f"Must be one of: {', '.join(sorted(SORTED | {_LOCKED}))}.")


def build_order(query: QueryString, minor: int, *, is_admin: bool) -> SortOrder:
    """Build the total order of a request. Raises BadRequestError, ForbiddenError.

    A key without a direction takes the first given direction, or else descending. An ignored key's direction is ignored
    with it, even if malformed.
    """
    check_sort_keys(query, minor)
    names, given = query.all("sort_key"), query.all("sort_dir")
    refused = _ADMIN_ONLY.intersection(names)
    if refused and not is_admin:
        # Before the directions, as in Nova.
        raise ForbiddenError(f"sorting by {min(refused)}")
    if len(given) > max(len(names), 1):
        raise BadRequestError("Sort direction array too long")
    sorts = SORTED | {_LOCKED} if minor >= _LOCKED_SINCE else SORTED
    if names:
        # Remove the directions of ignored keys.
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
