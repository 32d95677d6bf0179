"""The text files of htools, read: sections of lines, lines of columns. Every fault is named with its line and column.

Source: contracts/ganeti-htools, 1. Stricter than htools where that reads what it cannot reckon with (a node without
memory) or would lose on writing (a group whose uuid is there twice). Instances, nodes and groups may share a name, as
there: an instance is on the last node of that name, and a group has the last policy for its name.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from math import isfinite
from typing import Final, TypeVar

from fleetlight.manager.operations.balancing.cluster import (
    DEFAULT_POLICY,
    AllocationPolicy,
    Cluster,
    ClusterInstance,
    ClusterNode,
    DiskTemplate,
    InstanceStatus,
    NodeGroup,
    Policy,
    PolicySize,
)
from fleetlight.manager.operations.balancing.errors import ClusterFileError

_WHOLE = re.compile("-?[0-9]+")
_REAL = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE]-?[0-9]+)?")
# Larger numbers of MiB are mistakes, which htools would silently truncate.
_GREATEST = 2**53


class LineColumns:
    """A line, divided at '|'. titles: what each column is called. defaults: what the last ones are if left out.

    Raises ClusterFileError for too few columns, and for more than there are titles.
    """

    def __init__(self, line: int, text: str, titles: Sequence[str], defaults: Sequence[str] = ()) -> None:
        values = text.split("|")
        least = len(titles) - len(defaults)
        if not least <= len(values) <= len(titles):
            wanted = str(len(titles)) if least == len(titles) else f"{least} to {len(titles)}"
            raise ClusterFileError(line, None, f"has {len(values)} columns instead of {wanted}")
        missing = len(titles) - len(values)
        self.values = [*values, *defaults[len(defaults) - missing :]]
        self._line = line
        self._titles = titles

    def __getitem__(self, index: int) -> str:
        return self.values[index]

    def error(self, index: int, problem: str) -> ClusterFileError:
        return ClusterFileError(self._line, index + 1, f"{self._titles[index]}: {problem}")

    def name(self, index: int) -> str:
        """Return the text of a column. Raises ClusterFileError if it is empty."""
        if not self[index]:
            raise self.error(index, "is empty")
        return self[index]

    def letter(self, index: int, letters: str) -> str:
        """Return the letter in a column. Raises ClusterFileError for any but `letters`."""
        if len(self[index]) != 1 or self[index] not in letters:
            raise self.error(index, f"{self[index]!r} is none of {', '.join(letters)}")
        return self[index]

    def number(self, index: int, *, least: int = -_GREATEST) -> int:
        return self.parsed(index, self[index], least=least)

    def parsed(self, index: int, text: str, *, least: int) -> int:
        """Parse a whole number in a column, or in a part of it. Raises ClusterFileError."""
        if not _WHOLE.fullmatch(text):
            raise self.error(index, f"{text!r} is no whole number")
        if not least <= int(text) <= _GREATEST:
            raise self.error(index, f"{text} is not between {least} and {_GREATEST}")
        return int(text)

    def real(self, index: int) -> float:
        """Parse a number in a column. Raises ClusterFileError for any other text."""
        if not _REAL.fullmatch(self[index]) or not isfinite(float(self[index])):
            raise self.error(index, f"{self[index]!r} is no number, such as 4 or 0.5")
        return float(self[index])

    def positive(self, index: int) -> float:
        value = self.real(index)
        if value <= 0:
            raise self.error(index, f"{self[index]} is not above 0")
        return value


UNKNOWN: Final = "?"
"""The mark of a figure that a node did not report; the node counts as offline."""
_GROUP: Final = ("name", "uuid", "allocation policy", "tags", "networks")
_GROUP_DEFAULTS: Final = ("",)
_NODE: Final = (
    "name",
    "total memory",
    "memory of the node",
    "free memory",
    "total disk",
    "free disk",
    "processors",
    "role",
    "group",
    "spindles",
    "tags",
    "exclusive storage",
    "free spindles",
    "processors of the node",
    "processor speed",
)
_LIVE: Final = slice(1, 7)
_NODE_DEFAULTS: Final = ("1", "", "N", "0", "1", "1.0")
_INSTANCE: Final = (
    "name",
    "memory",
    "disk",
    "processors",
    "status",
    "auto_balance",
    "primary node",
    "secondary node",
    "disk template",
    "tags",
    "spindle use",
    "spindles",
    "forthcoming",
)
_INSTANCE_DEFAULTS: Final = ("1", "-", "N")
_POLICY: Final = ("owner", "standard size", "least and greatest sizes", "disk templates", "vcpu ratio", "spindle ratio")
_SIZE: Final = ("memory", "processors", "disk", "disks", "NICs", "spindle use")
_SECTIONS: Final = ("groups", "nodes", "instances", "tags", "policies")
_WITHOUT_POLICIES: Final = 4

_Choice = TypeVar("_Choice", bound=StrEnum)
_Line = tuple[int, str]


def read_cluster(text: str) -> Cluster:
    """Parse a file of htools. Raises ClusterFileError."""
    groups, nodes, instances, tags, policies = _sections(text)
    by_uuid = _by_uuid(groups)
    read_nodes = [_node(LineColumns(*line, _NODE, _NODE_DEFAULTS), by_uuid) for line in nodes]
    names = {node.name for node in read_nodes}
    read_instances = [_instance(LineColumns(*line, _INSTANCE, _INSTANCE_DEFAULTS), names) for line in instances]
    _require_spindles(read_nodes, read_instances, instances)
    owned = _policies(policies, {group.name for group in by_uuid.values()})
    return Cluster(
        groups=tuple(replace(group, policy=owned.get(group.name, DEFAULT_POLICY)) for group in by_uuid.values()),
        nodes=tuple(read_nodes),
        instances=tuple(read_instances),
        tags=tuple(tag for _, tag in tags),
        policy=owned.get("", DEFAULT_POLICY),
    )


def _sections(text: str) -> Sequence[Sequence[_Line]]:
    """Split a file into the numbered lines of its five sections; one empty line ends a section."""
    if "\r" in text:
        line = text[: text.index("\r")].count("\n") + 1
        raise ClusterFileError(line, None, "ends with a carriage return; lines end with a newline alone")
    sections: list[list[_Line]] = [[]]
    lines = text.removesuffix("\n").split("\n")
    while len(lines) > 1 and not lines[-1] and len(sections) + lines.count("") > len(_SECTIONS):
        lines.pop()
    for number, content in enumerate(lines, 1):
        if content:
            sections[-1].append((number, content))
        else:
            sections.append([])
        if len(sections) > len(_SECTIONS):
            known = ", ".join(_SECTIONS)
            raise ClusterFileError(number, None, f"a sixth section begins; one empty line each ends those of {known}")
    if len(sections) < _WITHOUT_POLICIES:
        said = f"the file ends in the section of {_SECTIONS[len(sections) - 1]}; one empty line ends each section"
        raise ClusterFileError(len(lines), None, said)
    return [*sections, *[list[_Line]()] * (len(_SECTIONS) - len(sections))]


def _by_uuid(lines: Sequence[_Line]) -> Mapping[str, NodeGroup]:
    found: dict[str, NodeGroup] = {}
    for line in lines:
        group = _group(columns := LineColumns(*line, _GROUP, _GROUP_DEFAULTS))
        if group.uuid in found:
            raise columns.error(1, f"{group.uuid!r} is there twice")
        found[group.uuid] = group
    return found


def _group(columns: LineColumns) -> NodeGroup:
    return NodeGroup(
        name=columns.name(0),
        uuid=columns.name(1),
        allocation_policy=_choice(columns, 2, AllocationPolicy),
        tags=_listed(columns[3]),
        networks=_listed(columns[4]),
    )


def _node(columns: LineColumns, groups: Mapping[str, NodeGroup]) -> ClusterNode:
    if columns[8] not in groups:
        raise columns.error(8, f"no group has the uuid {columns[8]!r}")
    role = columns.letter(7, "YNM")
    if UNKNOWN in columns.values[_LIVE]:
        # Like htools, ignore the rest of its figures.
        return ClusterNode(columns.name(0), columns[8], 0, 0, 0, 0, 0, 0, is_offline=True, spindles=0, own_vcpus=0)
    least = 0 if role == "Y" else 1
    return ClusterNode(
        name=columns.name(0),
        group_uuid=columns[8],
        total_memory_mib=columns.number(1, least=least),
        own_memory_mib=columns.number(2),
        free_memory_mib=columns.number(3),
        total_disk_mib=columns.number(4, least=0),
        free_disk_mib=columns.number(5),
        cpus=columns.number(6, least=least),
        is_offline=role == "Y",
        is_master=role == "M",
        spindles=columns.number(9, least=least),
        tags=_listed(columns[10]),
        has_exclusive_storage=columns.letter(11, "YN") == "Y",
        free_spindles=columns.number(12),
        own_vcpus=columns.number(13),
        cpu_speed=columns.positive(14),
    )


def _instance(columns: LineColumns, nodes: Collection[str]) -> ClusterInstance:
    for index, may_be_empty in ((6, False), (7, True)):
        if columns[index] not in nodes and not (may_be_empty and not columns[index]):
            raise columns.error(index, f"there is no node {columns[index]!r}")
    template = _choice(columns, 8, DiskTemplate)
    if template is DiskTemplate.DRBD and columns[7] in ("", columns[6]):
        raise columns.error(7, "an instance with disk template drbd needs a secondary node that is not its primary")
    if template is not DiskTemplate.DRBD and columns[7]:
        raise columns.error(7, f"an instance with disk template {template} has no secondary node")
    return ClusterInstance(
        name=columns.name(0),
        memory_mib=columns.number(1, least=0),
        disk_mib=columns.number(2, least=0),
        vcpus=columns.number(3, least=0),
        status=_choice(columns, 4, InstanceStatus),
        is_auto_balanced=columns.letter(5, "YN") == "Y",
        primary=columns[6],
        secondary=columns[7] or None,
        disk_template=template,
        tags=_listed(columns[9]),
        spindle_use=columns.number(10, least=0),
        disk_spindles=None if columns[11] == "-" else columns.number(11, least=0),
        is_forthcoming=columns.letter(12, "YN") == "Y",
    )


def _require_spindles(
    nodes: Sequence[ClusterNode], instances: Sequence[ClusterInstance], lines: Sequence[_Line]
) -> None:
    """Raise ClusterFileError for an instance without spindles on a node with exclusive storage."""
    exclusive = next((node.name for node in nodes if node.has_exclusive_storage), None)
    for (line, _), instance in zip(lines, instances, strict=True):
        if exclusive is not None and instance.disk_spindles is None:
            problem = f"spindles: '-' is not enough, since node {exclusive!r} has exclusive storage"
            raise ClusterFileError(line, _INSTANCE.index("spindles") + 1, problem)


def _policies(lines: Sequence[_Line], groups: set[str]) -> Mapping[str, Policy]:
    """Parse the policies, by name of the group; the cluster's has an empty name."""
    found: dict[str, Policy] = {}
    for line in lines:
        columns = LineColumns(*line, _POLICY)
        owner = columns[0]
        if owner and owner not in groups:
            raise columns.error(0, f"no group has the name {owner!r}")
        if not owner and owner in found:
            raise columns.error(0, "the cluster has a policy already")
        found[owner] = Policy(
            standard=_size(columns, 1, columns[1]),
            bounds=tuple(_bounds(columns)),
            disk_templates=tuple(_member(columns, 3, name, DiskTemplate) for name in _listed(columns[3])),
            vcpu_ratio=columns.real(4),
            spindle_ratio=columns.positive(5),
        )
    return found


def _bounds(columns: LineColumns) -> Iterator[tuple[PolicySize, PolicySize]]:
    sizes = columns[2].split(";") if columns[2] else []
    if len(sizes) % 2:
        raise columns.error(2, "a least size without a greatest one; sizes come in pairs, divided by ';'")
    for least, greatest in zip(sizes[::2], sizes[1::2], strict=True):
        yield _size(columns, 2, least), _size(columns, 2, greatest)


def _size(columns: LineColumns, index: int, text: str) -> PolicySize:
    parts = text.split(",")
    if len(parts) != len(_SIZE):
        raise columns.error(index, f"a size has {len(_SIZE)} numbers ({', '.join(_SIZE)}), and {text!r} {len(parts)}")
    return PolicySize(*(columns.parsed(index, part, least=0) for part in parts))


def _choice(columns: LineColumns, index: int, choices: type[_Choice]) -> _Choice:
    return _member(columns, index, columns[index], choices)


def _member(columns: LineColumns, index: int, text: str, choices: type[_Choice]) -> _Choice:
    try:
        return choices(text)
    except ValueError:
        raise columns.error(index, f"{text!r} is none of {', '.join(choices)}") from None


def _listed(text: str) -> tuple[str, ...]:
    return tuple(text.split(",")) if text else ()
