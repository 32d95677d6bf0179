"""The score of a group of nodes, computed like htools 3.0: 0 is perfect, and higher is worse.

The sums are made in the order of htools, node by node and component by component, so that moves with equal scores there
have equal scores here. Source: contracts/ganeti-htools, 2.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from itertools import chain
from math import sqrt
from operator import add
from typing import Final, NamedTuple

from fleetlight.manager.operations.balancing.node_state import NodeState


class Spread(NamedTuple):
    """A component of the score: the standard deviation of a figure of the nodes that are online, with its weight."""

    name: str
    weight: float
    of: Callable[[NodeState], float]


def _part(free: int, total: int) -> float:
    # A node without local disks counts as entirely free.
    return free / total if total else 1.0


def _free_memory(state: NodeState) -> float:
    return state.memory_free / state.limits.node.total_memory_mib


def _free_memory_with_reserved(state: NodeState) -> float:
    return state.memory_free_with_reserved / state.limits.node.total_memory_mib


def _free_disk(state: NodeState) -> float:
    node = state.limits.node
    if node.has_exclusive_storage:
        return _part(state.spindles_free, node.spindles)
    return _part(state.disk_free, node.total_disk_mib)


def _free_disk_with_reserved(state: NodeState) -> float:
    node = state.limits.node
    if node.has_exclusive_storage:
        return _part(state.spindles_free_with_reserved, node.spindles)
    return _part(state.disk_free_with_reserved, node.total_disk_mib)


def _kept_memory(state: NodeState) -> float:
    return state.memory_kept / state.limits.node.total_memory_mib


def _vcpu_ratio(state: NodeState) -> float:
    node = state.limits.node
    return state.cpus_used / node.cpus / node.cpu_speed


def _vcpu_ratio_with_reserved(state: NodeState) -> float:
    node = state.limits.node
    return state.cpus_used_with_reserved / node.cpus / node.cpu_speed


def _primary_load(state: NodeState) -> float:
    # Without figures of instances' load, each counts as 1.
    return float(state.primaries)


def _disk_load(state: NodeState) -> float:
    return float(state.primaries + state.secondaries)


def _spindles(state: NodeState) -> float:
    return state.spindles_used / state.limits.greatest_spindles


def _spindles_with_reserved(state: NodeState) -> float:
    return state.spindles_used_with_reserved / state.limits.greatest_spindles


SPREADS: Final = (
    Spread("free_mem_cv", 0.5, _free_memory),
    Spread("free_disk_cv", 0.5, _free_disk),
    Spread("reserved_mem_cv", 1.0, _kept_memory),
    Spread("vcpu_ratio_cv", 0.5, _vcpu_ratio),
    Spread("cpu_load_cv", 1.0, _primary_load),
    Spread("mem_load_cv", 1.0, _primary_load),
    Spread("disk_load_cv", 1.0, _disk_load),
    Spread("net_load_cv", 1.0, _primary_load),
    Spread("spindles_cv", 0.5, _spindles),
    Spread("free_mem_cv_forth", 0.5, _free_memory_with_reserved),
    Spread("free_disk_cv_forth", 0.5, _free_disk_with_reserved),
    Spread("vcpu_ratio_cv_forth", 0.5, _vcpu_ratio_with_reserved),
    Spread("spindles_cv_forth", 0.5, _spindles_with_reserved),
)
_SPREADS: Final = {spread.name: spread for spread in SPREADS}
KEPT_MEMORY_WEIGHT: Final = 0.25


def score_parts(states: Sequence[NodeState]) -> dict[str, float]:
    """Return each weighted component, in the order of htools; their sum is the score."""
    online = [state for state in states if not state.limits.node.is_offline]
    offline = [state for state in states if state.limits.node.is_offline]
    if not online:
        return {}

    def spread(name: str) -> float:
        return _SPREADS[name].weight * deviation([_SPREADS[name].of(state) for state in online])

    return {
        **{name: spread(name) for name in ("free_mem_cv", "free_disk_cv")},
        "n1_cnt": 1.0 * sum(failing_instances(state) for state in online),
        "reserved_mem_cv": spread("reserved_mem_cv"),
        "offline_all_cnt": 4.0 * sum(state.primaries + state.secondaries for state in offline),
        "offline_pri_cnt": 16.0 * sum(state.primaries for state in offline),
        **{
            name: spread(name)
            for name in ("vcpu_ratio_cv", "cpu_load_cv", "mem_load_cv", "disk_load_cv", "net_load_cv")
        },
        "pri_tags_score": 2.0 * sum(conflicts(state) for state in online),
        **{
            name: spread(name)
            for name in (
                "spindles_cv",
                "free_mem_cv_forth",
                "free_disk_cv_forth",
                "vcpu_ratio_cv_forth",
                "spindles_cv_forth",
            )
        },
        "location_score": 1.0 * sum(state.location_score for state in online),
        "location_exclusion_score": 1.0 * surplus(chain.from_iterable(s.location_pairs.items() for s in online)),
        "reserved_mem_rtotal": KEPT_MEMORY_WEIGHT * reduce(add, (_kept_memory(state) for state in online), 0.0),
    }


def score(states: Sequence[NodeState]) -> float:
    """Return the score of these nodes, given in the order of the cluster; 0 if none is online."""
    return reduce(add, score_parts(states).values(), 0.0)


def least_score(states: Sequence[NodeState]) -> float:
    """Return a lower bound of the score, since memory for the failure of a node must be kept somewhere."""
    memory = [float(state.limits.node.total_memory_mib) for state in states]
    total = reduce(add, memory, 0.0)
    if len(memory) < 2 or total <= max(memory):
        return 0.0
    needed = float(sum(sum(state.peers.values()) for state in states))
    return KEPT_MEMORY_WEIGHT * (needed / (total - max(memory)) - needed / total)


def failing_instances(state: NodeState) -> int:
    """Count the instances of a node that could not all run if another node failed."""
    return state.primaries + state.secondaries if state.fails_redundancy else 0


def conflicts(state: NodeState) -> int:
    """Count the primary instances that share an exclusion tag with another one on the node."""
    return sum(state.exclusions.values()) - len(state.exclusions)


def surplus(counts: Iterable[tuple[tuple[str, str], int]]) -> int:
    """Count the instances that share an exclusion tag with another one at the same location."""
    total = Counter[tuple[str, str]]()
    for pair, count in counts:
        total[pair] += count
    return sum(total.values()) - len(total)


def deviation(values: Sequence[float]) -> float:
    """Return the standard deviation. `statistics.pstdev` would differ from htools, since its sums are exact."""
    mean = reduce(add, values, 0.0) / len(values)
    return sqrt(reduce(add, ((value - mean) * (value - mean) for value in values), 0.0) / len(values))
