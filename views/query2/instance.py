"""What the fields of Query2 are for an instance: one table (docs/reference/ganeti.md says it in words).

What the record of an instance does not tell is no guess: its cell has status 3 where such an instance has no such
value, and 2 where it has one that is not known.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from resources.fields import Record
from resources.instance import INSTANCE_FIELDS
from resources.power_states import CRASHED, PAUSED, RUNNING, SHUT_DOWN, SUSPENDED
from resources.query_fields.ganeti import DERIVED, LIVE_FIELDS, TOLD_FIELDS, own_value, told_cell
from resources.query_fields.instance import INSTANCE
from views.query2.cell_facts import GROUPS, Group
from views.query2.instance_devices import disk_values, nic_values
from views.query2.instance_parameters import parameter_values
from views.query2.values import (
    NO_DATA,
    UNAVAILABLE,
    Cell,
    Facts,
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

# In these states the owner wants the guest to be off; in all others that a guest can have, to run.
_WANTED_DOWN = frozenset({"stopped", "shelved", "shelved_offloaded", "soft-delete", "deleted", "suspended"})
_NOT_MADE = frozenset({"building"})
_PRESENT = frozenset({RUNNING, PAUSED})
_ABSENT = frozenset({SHUT_DOWN, CRASHED, SUSPENDED})

# Of these a native cell keeps one part, and the flavor has the other.
_MIXED = frozenset({"custom_beparams"})

_OF_ADMIN_STATE = ("vm_state", "forthcoming", "ganeti")
_OF_STATUS = (*_OF_ADMIN_STATE, "power_state")


def _admin_state(record: Record) -> str:
    own: str | None = own_value(record, "admin_state")
    if own is not None:
        return own
    return "down" if record["forthcoming"] or record["vm_state"] in _WANTED_DOWN | _NOT_MADE else "up"


def _is_running(record: Record) -> bool | None:
    """Whether the hypervisor has the guest, as it last said; None when it said nothing."""
    if record["forthcoming"]:
        return False
    if record["power_state"] in _PRESENT:
        return True
    return False if record["power_state"] in _ABSENT else None


def _status(record: Record) -> Cell:
    """By contracts/ganeti-query, 8, of the rules that need no node."""
    state, is_running = _admin_state(record), _is_running(record)
    if is_running:
        return normal("running" if state == "up" else "ERROR_up")
    return normal({"up": "ERROR_down", "offline": "ADMIN_offline"}.get(state, "ADMIN_down"))


def _running(record: Record) -> Cell:
    return known(_is_running(record))


def _while_running(record: Record) -> Cell:
    """Nodes are not asked how much of it a guest uses."""
    return UNAVAILABLE if not _is_running(record) else NO_DATA


def _live(make: Callable[[Record], Cell], *needs: str, while_down: Cell = NO_DATA) -> Value:
    """What is true only while the cell says so; while_down: the cell of an item whose cell is down.

    A reservation is known not to run, whatever any node does.
    """

    def make_unless_down(facts: Facts) -> Cell:
        if facts.record["forthcoming"]:
            return make(facts.record)
        if facts.is_past:
            return NO_DATA
        return while_down if facts.cell_is_down else make(facts.record)

    return Value(make_unless_down, frozenset({"forthcoming", *needs}))


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
    yield "admin_state", made_of(lambda record: normal(_admin_state(record)), *_OF_ADMIN_STATE)
    yield "admin_state_source", constant(normal("admin"))
    yield "admin_up", made_of(lambda record: normal(_admin_state(record) == "up"), *_OF_ADMIN_STATE)
    yield "disks_active", made_of(lambda record: normal(_admin_state(record) == "up"), *_OF_ADMIN_STATE)
    yield "forthcoming", of_record("forthcoming")
    yield "network_port", constant(UNAVAILABLE)


def _of_nodes() -> Iterator[tuple[str, Value]]:
    yield "console", constant(UNAVAILABLE)
    yield "oper_state", _live(_running, "power_state")
    yield "oper_ram", _live(_while_running, "power_state")
    yield "oper_vcpus", _live(_while_running, "power_state")
    yield "status", _live(_status, *_OF_STATUS, while_down=normal("ERROR_nodedown"))


def _own() -> Iterator[tuple[str, Value]]:
    yield "cell", Value(lambda facts: normal(facts.cell.name))
    for name, field in INSTANCE_FIELDS.items():
        if name in INSTANCE:
            yield name, of_list(name) if field.is_list else of_record(name, UNAVAILABLE)


def _as_told(name: str, value: Value) -> Value:
    """What is said of the field, by a cluster or by whoever made the instance; else the same value."""
    is_live, is_mixed = name in LIVE_FIELDS, name in _MIXED

    def make(facts: Facts) -> Cell:
        said = facts.record["ganeti"]
        if (
            said is None
            or (is_live and (facts.cell_is_down or facts.is_past))
            or (is_mixed and not said.get("is_whole", True))
        ):
            return value.make(facts)
        cell = told_cell(said, name)
        if cell is None:
            return value.make(facts)
        status, found = cell
        return NO_DATA if found is not None and not is_of_kind(found, INSTANCE[name].kind) else (status, found)

    return replace(value, make=make, needs=value.needs | {"ganeti"})


def _all() -> dict[str, Value]:
    values = dict(_own()) | dict((*_configured(), *_of_nodes(), *parameter_values(), *disk_values(), *nic_values()))
    values |= {name: _as_told(name, values[name]) for name in (*TOLD_FIELDS, *DERIVED)}
    return values | {alias: values[target] for alias, target in INSTANCE.aliases.items()}


INSTANCE_VALUES: Mapping[str, Value] = _all()
"""How each field of resources.query_fields.instance comes about, aliases too."""
