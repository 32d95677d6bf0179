"""Tags of cells, groups, nodes, networks and instances."""

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import Row, Table, select, update

from fleetlight.cells.tables import cluster_parameters, compute_nodes, networks, node_groups
from fleetlight.manager.operations.jobs.errors import PrerequisiteError, Reason
from fleetlight.manager.operations.jobs.model import Lock
from fleetlight.manager.operations.jobs.vocabulary import Operation, Task
from fleetlight.manager.operations.opcodes.building import event_of_update, instance_lock
from fleetlight.manager.operations.opcodes.configuration_changes import change_item, configuring
from fleetlight.manager.operations.opcodes.lookups import known_group, known_network, known_node
from fleetlight.manager.operations.opcodes.opcode import OpCode
from fleetlight.manager.operations.opcodes.parameter_values import wrong

Kind = Literal["cluster", "nodegroup", "node", "network", "instance"]
MAX_TAGS = 4096
_TAG = re.compile(r"[\w.+*/:@-]{1,128}", re.ASCII)
_FIND: Mapping[Kind, tuple[Table, Callable[[Task, str], Row[Any]]]] = {
    "nodegroup": (node_groups, known_group),
    "node": (compute_nodes, known_node),
    "network": (networks, known_network),
}


class _TagsOpCode(OpCode):
    """Base of both operations. name: of the tagged item; None for the cell as a whole."""

    ABOUT = "name"

    kind: Kind
    name: str | None = None
    tags: list[str]
    use_locking: bool = False

    @property
    def instance(self) -> str | None:
        return self.name if self.kind == "instance" else None


class TagsSet(_TagsOpCode):
    OP_ID = "OP_TAGS_SET"


class TagsDel(_TagsOpCode):
    OP_ID = "OP_TAGS_DEL"


@dataclass(frozen=True, slots=True)
class _Change:
    """A planned change. item: None for an instance, or the cell. tags: all new tags; None: no change."""

    kind: Kind
    item: Row[Any] | None
    tags: Collection[str] | None


def check_tags(tags: Collection[str]) -> None:
    """Raises PrerequisiteError for an invalid tag."""
    for tag in tags:
        if not _TAG.fullmatch(tag):
            raise wrong(f"Tag '{tag[:150]}' is empty, too long, or contains invalid characters")


def _plan_set(op: TagsSet, task: Task) -> _Change:
    check_tags(op.tags)
    item, tags = _tagged(op, task)
    wanted = tags.union(op.tags)
    if len(wanted) > MAX_TAGS:
        raise wrong(f"There may be {MAX_TAGS} tags, not {len(wanted)}")
    return _Change(op.kind, item, None if wanted == tags else sorted(wanted))


def _plan_del(op: TagsDel, task: Task) -> _Change:
    item, tags = _tagged(op, task)
    if missing := sorted(set(op.tags) - tags):
        named = ", ".join(f"'{tag}'" for tag in missing)
        raise PrerequisiteError(f"Tag(s) {named} not found", Reason.UNKNOWN)
    wanted = tags.difference(op.tags)
    return _Change(op.kind, item, None if wanted == tags else sorted(wanted))


def _tagged(op: _TagsOpCode, task: Task) -> tuple[Row[Any] | None, set[str]]:
    """Return the tagged item, see `_Change`, and its current tags. Raises PrerequisiteError if there is none."""
    if op.kind == "cluster":
        return None, set(task.connection.scalar(select(cluster_parameters.c.tags).with_for_update()) or ())
    if op.name is None:
        raise wrong(f"A name is needed to change tags of kind '{op.kind}'")
    if op.kind == "instance":
        if task.about is None or task.record["deleted"]:
            raise PrerequisiteError(f"Instance '{op.name}' not known", Reason.UNKNOWN)
        return None, set(task.record["tags"] or ())
    _, find = _FIND[op.kind]
    item = find(task, op.name)
    return item, set(item.tags)


def _carry_out(change: _Change, task: Task) -> None:
    if change.tags is None:
        return
    values = {"tags": list(change.tags)}
    if change.kind == "instance":
        task.instance.change(event_of_update(task.record), values, task.now, request=task.job.request)
    elif change.item is None:
        of = cluster_parameters.c
        changed = update(cluster_parameters).values(**values, serial_no=of.serial_no + 1, updated_at=task.now)
        task.connection.execute(changed)
    else:
        change_item(task, _FIND[change.kind][0], change.item, values)


def _locks(op: _TagsOpCode, instance_uuid: str | None) -> Collection[Lock]:
    if op.kind == "instance":
        return instance_lock(op, instance_uuid)
    return (Lock(op.kind, op.name or "cluster"),)


TAGS: tuple[tuple[str, Operation], ...] = (
    configuring(TagsSet, _plan_set, _carry_out, locks=_locks),
    configuring(TagsDel, _plan_del, _carry_out, locks=_locks),
)
