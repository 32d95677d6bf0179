"""Text files of htools with clusters of all sorts, drawn at random."""

from dataclasses import dataclass
from random import Random

STATUSES = (
    *("running",) * 6,
    "ADMIN_down",
    "ADMIN_offline",
    "ERROR_up",
    "ERROR_down",
    "USER_down",
    "ERROR_wrongnode",
    "ERROR_nodedown",
)
_DOWN = ("ADMIN_down", "ADMIN_offline", "ERROR_down", "USER_down")
_TEMPLATES = (*("drbd",) * 6, "plain", "sharedfile", "ext", "diskless", "file", "rbd")
_LOCAL = ("drbd", "plain")
_POLICY = "|128,1,1024,1,1,1|128,1,512,1,1,1;4096,8,1048576,16,8,12|drbd,plain,diskless|{vcpu_ratio}|{spindle_ratio}"
_CLUSTER_TAGS = (
    "htools:iextags:service",
    "htools:nlocation:rack",
    "htools:desiredlocation:rack",
    "htools:migration:hypervisor",
    "htools:allowmigration:hypervisor:1::hypervisor:2",
)


@dataclass
class _Node:
    name: str
    group: str
    memory: int
    own_memory: int
    free_memory: int
    disk: int
    free_disk: int
    exclusive: bool
    line: str = ""


def cluster_file(random: Random, *, reserved: float, nodes: int = 7, instances: int = 14) -> str:
    """A file that hbal can read. reserved: which part of the instances are reservations."""
    groups = random.choice((1, 1, 1, 2))
    made = [_node(random, index, groups) for index in range(random.randint(2, nodes))]
    lines = [
        _instance(random, index, made, is_reserved=random.random() < reserved)
        for index in range(random.randint(1, instances))
    ]
    policy = _POLICY.format(vcpu_ratio=random.choice(("4.0", "2.0")), spindle_ratio=random.choice(("32.0", "4.0")))
    sections = (
        [f"group{index}|uuid-{index}|preferred||" for index in range(groups)],
        [_line(random, node, is_first=index == 0) for index, node in enumerate(made)],
        lines,
        [tag for tag in _CLUSTER_TAGS if random.random() < 0.3],
        [policy, *(f"group{index}{policy}" for index in range(groups))],
    )
    return "\n".join("".join(f"{line}\n" for line in section) for section in sections)


def _node(random: Random, index: int, groups: int) -> _Node:
    memory, own = random.choice((8192, 16384, 16384, 32768)), random.choice((512, 1024))
    disk = random.choice((0, 102400, 204800, 409600, 409600))
    exclusive = random.random() < 0.05
    return _Node(f"node{index}", f"uuid-{index % groups}", memory, own, memory - own, disk, disk, exclusive)


def _instance(random: Random, index: int, nodes: list[_Node], *, is_reserved: bool) -> str:
    primary = random.choice(nodes)
    others = [node for node in nodes if node is not primary and (node.group == primary.group or random.random() < 0.05)]
    template = random.choice(_TEMPLATES)
    if template == "drbd" and not others:
        template = "plain"
    secondary = random.choice(others) if template == "drbd" else None
    memory = random.choice((128, 512, 1024, 2048))
    disk = 0 if template == "diskless" else random.choice((1024, 5000, 10240))
    status = "ADMIN_down" if is_reserved else random.choice(STATUSES)
    if not is_reserved:
        primary.free_memory -= 0 if status in _DOWN else memory
        for node in (primary, secondary):
            if node is not None and template in _LOCAL:
                node.free_disk -= disk
    values = (
        f"instance{index}",
        memory,
        disk,
        random.choice((1, 2, 4)),
        status,
        "N" if random.random() < 0.1 else "Y",
        primary.name,
        "" if secondary is None else secondary.name,
        template,
        ",".join(tag for tag in ("service:a", "service:b", "rack:1", "other") if random.random() < 0.2),
        random.choice((1, 1, 2)),
        "1" if any(node.exclusive for node in nodes) else random.choice(("-", "1")),
        "Y" if is_reserved else "N",
    )
    return "|".join(map(str, values))


def _line(random: Random, node: _Node, *, is_first: bool) -> str:
    tags = []
    if random.random() < 0.7:
        tags.append(f"rack:{random.randint(1, 3)}")
    if random.random() < 0.4:
        tags.append(f"hypervisor:{random.randint(1, 2)}")
    missing = random.randint(-300, 900) if random.random() < 0.3 else 0
    values = (
        node.name,
        node.memory,
        node.own_memory,
        node.free_memory - missing,
        node.disk,
        node.free_disk,
        random.choice((4, 8, 16)),
        "Y" if random.random() < 0.12 else "M" if is_first else "N",
        node.group,
        random.choice((1, 1, 2, 4)),
        ",".join(tags),
        "Y" if node.exclusive else "N",
        random.choice((0, 2, 4)),
        random.choice((1, 1, 2)),
        random.choice(("1.0", "1.0", "1.5", "0.5")),
    )
    return "|".join(map(str, values))
