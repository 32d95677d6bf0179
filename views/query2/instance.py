"""The values of the fields of Query2 for an instance, in one table (docs/reference/ganeti.md describes them).

A value that the record lacks is not guessed: it has status 3 if such an instance has no such value, and status 2 if the
value is unknown.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from fleetlight.resources.fields import Kind, Record
from fleetlight.resources.instance import INSTANCE_FIELDS
from fleetlight.resources.power_states import CRASHED, PAUSED, RUNNING, SHUT_DOWN, SUSPENDED
from fleetlight.resources.query_fields.ganeti import DERIVED, KEPT_FIELDS, LIVE_FIELDS, kept_cell, own_value
from fleetlight.resources.query_fields.instance import INSTANCE
from fleetlight.resources.query_fields.instance_status import (
    ADMIN_STATE_NEEDS,
    NODE_DOWN,
    Seen,
    admin_state,
    observed_status,
)
from fleetlight.views.query2.instance_devices import disk_values, nic_values
from fleetlight.views.query2.instance_parameters import parameter_values
from fleetlight.views.query2.values import (
    GROUPS,
    NO_DATA,
    OFFLINE,
    UNAVAILABLE,
    Cell,
    Facts,
    Group,
    Make,
    Value,
    constant,
    is_of_kind,
    known,
    made_of,
    normal,
    not_had_of_cell,
    of_list,
    of_record,
)

_PRESENT = frozenset({RUNNING, PAUSED})
_ABSENT = frozenset({SHUT_DOWN, CRASHED, SUSPENDED})

# Fields of which a native cell stores one part, and the flavor has the other.
_MIXED = frozenset({"custom_beparams"})

_OF_STATUS = (*ADMIN_STATE_NEEDS, "power_state")


def _is_running(record: Record) -> bool | None:
    """Whether the hypervisor last reported the guest as running; None without a report."""
    if record["forthcoming"]:
        return False
    if record["power_state"] in _PRESENT:
        return True
    return False if record["power_state"] in _ABSENT else None


def _status(facts: Facts) -> Cell:
    """Return the status by the rules of contracts/ganeti-query, 8, that need no node."""
    state, is_running = admin_state(facts.record), _is_running(facts.record)
    if is_running:
        return normal("running" if state == "up" else "ERROR_up")
    return normal({"up": "ERROR_down", "offline": "ADMIN_offline"}.get(state, "ADMIN_down"))


def _seen_status(record: Record, seen: Seen) -> Cell:
    return normal(observed_status(record, seen))


def _running(facts: Facts) -> Cell:
    return known(_is_running(facts.record))


def _given(size: Value) -> Make:
    """Make the usage of a guest on a node without agent: a simulated host gives it its configured size.

    size: the configured size. Hypervisors of Nova are not asked for usage.
    """

    def make(facts: Facts) -> Cell:
        if not _is_running(facts.record):
            return UNAVAILABLE
        return size.make(facts) if facts.cell.is_configured_here else NO_DATA

    return make


def _seen_running(_record: Record, seen: Seen) -> Cell:
    if seen.running is not None:
        return normal(True)
    return NO_DATA if seen.is_offline or seen.has_failed else normal(False)


def _seen_of_guest(name: str) -> Callable[[Record, Seen], Cell]:
    """Make a number that the guest's node reports."""

    def make(_record: Record, seen: Seen) -> Cell:
        if seen.running is not None:
            found = seen.running.get(name)
            return normal(found) if is_of_kind(found, Kind.NUMBER) else NO_DATA
        if seen.is_offline:
            return OFFLINE
        return NO_DATA if seen.has_failed else UNAVAILABLE

    return make


def _live(
    make: Make,
    make_of_seen: Callable[[Record, Seen], Cell],
    *needs: str,
    while_down: Cell = NO_DATA,
) -> Value:
    """Make a value that is only valid while the node, or else the cell, reports it.

    make_of_seen: for an instance whose node has an agent. while_down: the value if the instance's cell is down.
    A reservation never runs, whatever nodes report.
    """

    def make_unless_down(facts: Facts) -> Cell:
        if facts.record["forthcoming"]:
            return make(facts)
        if facts.is_past:
            return NO_DATA
        if facts.cell_is_down:
            return while_down
        return make(facts) if facts.seen is None else make_of_seen(facts.record, facts.seen)

    return Value(make_unless_down, frozenset({"forthcoming", *needs}), is_live=True)


def _group(pick: Callable[[Group], str]) -> Value:
    def make(facts: Facts) -> Cell:
        node, groups = facts.record["node"], facts.cell.groups
        if groups is None:
            return not_had_of_cell(facts)
        return known(None if node is None or node not in groups else pick(groups[node]))

    return Value(make, frozenset({"node"}), of_cell=frozenset({GROUPS}))


def _groups_of_secondaries(pick: Callable[[Group], str]) -> Value:
    def make(facts: Facts) -> Cell:
        nodes, groups = own_value(facts.record, "snodes") or (), facts.cell.groups
        if not nodes:
            return normal([])
        if groups is None:
            return not_had_of_cell(facts)
        return normal([pick(groups[node]) if node in groups else None for node in nodes])

    return Value(make, frozenset({"ganeti"}), of_cell=frozenset({GROUPS}))


def _configured() -> Iterator[tuple[str, Value]]:
    yield "name", of_record("display_name")
    yield "uuid", of_record("uuid")
    yield "serial_no", Value(lambda facts: known(facts.revision, UNAVAILABLE), is_revision=True)
    yield "tags", of_list("tags")
    yield "ctime", of_record("created_at")
    yield (
        "mtime",
        made_of(lambda record: known(record["updated_at"] or record["created_at"]), "updated_at", "created_at"),
    )
    yield "pnode", of_record("node")
    yield "snodes", constant(normal([]))
    yield "pnode.group", _group(lambda group: group.name)
    yield "pnode.group.uuid", _group(lambda group: group.uuid)
    yield "snodes.group", _groups_of_secondaries(lambda group: group.name)
    yield "snodes.group.uuid", _groups_of_secondaries(lambda group: group.uuid)
    yield "admin_state", made_of(lambda record: normal(admin_state(record)), *ADMIN_STATE_NEEDS)
    yield "admin_state_source", constant(normal("admin"))
    yield "admin_up", made_of(lambda record: normal(admin_state(record) == "up"), *ADMIN_STATE_NEEDS)
    yield "disks_active", made_of(lambda record: normal(admin_state(record) == "up"), *ADMIN_STATE_NEEDS)
    yield "forthcoming", of_record("forthcoming")
    yield "network_port", constant(UNAVAILABLE)


def _of_nodes() -> Iterator[tuple[str, Value]]:
    yield "console", constant(UNAVAILABLE)
    yield "oper_state", _live(_running, _seen_running, "power_state")
    sizes = dict(parameter_values())
    for name, size, said in (("oper_ram", "be/maxmem", "memory"), ("oper_vcpus", "be/vcpus", "vcpus")):
        yield name, _live(_given(sizes[size]), _seen_of_guest(said), "power_state", *sizes[size].needs)
    yield "status", _live(_status, _seen_status, *_OF_STATUS, while_down=normal(NODE_DOWN))


def _own() -> Iterator[tuple[str, Value]]:
    yield "cell", Value(lambda facts: normal(facts.cell.name))
    for name, field in INSTANCE_FIELDS.items():
        if name in INSTANCE:
            yield name, of_list(name) if field.is_list else of_record(name, UNAVAILABLE)


def _as_reported(name: str, value: Value) -> Value:
    """Prefer what a cluster, or the creator of the instance, has set for the field to `value`."""
    is_live, is_mixed = name in LIVE_FIELDS, name in _MIXED

    def make(facts: Facts) -> Cell:
        said = facts.record["ganeti"]
        if (
            said is None
            or (is_live and (facts.cell_is_down or facts.is_past or facts.seen is not None))
            or (is_mixed and not said.get("is_whole", True))
        ):
            return value.make(facts)
        cell = kept_cell(said, name)
        if cell is None:
            return value.make(facts)
        status, found = cell
        return NO_DATA if found is not None and not is_of_kind(found, INSTANCE[name].kind) else (status, found)

    return replace(value, make=make, needs=value.needs | {"ganeti"})


def _all() -> dict[str, Value]:
    values = dict(_own()) | dict((*_configured(), *_of_nodes(), *parameter_values(), *disk_values(), *nic_values()))
    values |= {name: _as_reported(name, values[name]) for name in (*KEPT_FIELDS, *DERIVED)}
    return values | {alias: values[target] for alias, target in INSTANCE.aliases.items()}


INSTANCE_VALUES: Mapping[str, Value] = _all()
"""The value of each field of fleetlight.resources.query_fields.instance, including aliases."""
