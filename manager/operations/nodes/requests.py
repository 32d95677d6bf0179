"""Requests for the state of a node, and the parts of them that a cached entry can answer
(contracts/ganeti-node-state-cache, 2 to 4).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fleetlight.manager.agents.wire import (
    CACHE_REQ_BOOTID,
    CACHE_REQ_DISKINFO,
    CACHE_REQ_HV,
    FLAGS,
    NODE_DATA,
    Snapshot,
)
from fleetlight.manager.operations.nodes.errors import RequestError

HypervisorSpec = tuple[str, Mapping[str, Any]]
"""A hypervisor with its parameters."""


@dataclass(frozen=True, slots=True)
class NodeStateRequest:
    """A request for hypervisors, volume groups, and the boot id; None omits a kind.

    An empty tuple requests a kind without members, which any answer has. with_instances: whether to return instances,
    too; nodes always report both, and the cache keeps both.
    """

    hypervisors: tuple[HypervisorSpec, ...] | None = None
    volume_groups: tuple[str, ...] | None = None
    boot_id: bool = False
    with_instances: bool = True

    @classmethod
    def read(cls, flags: Mapping[str, Any]) -> "NodeStateRequest":
        """Parse flags and their arguments. Raises RequestError."""
        unknown = sorted(flags.keys() - set(FLAGS))
        if unknown:
            raise RequestError(f"there is no flag '{unknown[0]}'; there are {', '.join(sorted(FLAGS))}")
        hypervisors, groups = flags.get(CACHE_REQ_HV), flags.get(CACHE_REQ_DISKINFO)
        boot_id = flags.get(CACHE_REQ_BOOTID, False)
        if hypervisors is not None and not _are_specs(hypervisors):
            raise RequestError(f"'{CACHE_REQ_HV}' takes a list of [hypervisor, parameters], and not {hypervisors!r}")
        if groups is not None and not _are_names(groups):
            raise RequestError(f"'{CACHE_REQ_DISKINFO}' takes a list of volume groups, and not {groups!r}")
        if CACHE_REQ_BOOTID in flags and boot_id is not True:
            raise RequestError(f"'{CACHE_REQ_BOOTID}' takes true, and not {boot_id!r}")
        return cls(
            None if hypervisors is None else tuple((name, parameters) for name, parameters in hypervisors),
            None if groups is None else tuple(groups),
            boot_id,
        )

    @property
    def is_empty(self) -> bool:
        return self.hypervisors is None and self.volume_groups is None and not self.boot_id

    def to_json(self) -> dict[str, Any]:
        """Return flags and their arguments for agents."""
        found: dict[str, Any] = {}
        if self.hypervisors is not None:
            found[CACHE_REQ_HV] = [[name, dict(parameters)] for name, parameters in self.hypervisors]
        if self.volume_groups is not None:
            found[CACHE_REQ_DISKINFO] = list(self.volume_groups)
        if self.boot_id:
            found[CACHE_REQ_BOOTID] = True
        return found

    def covers(self, other: "NodeStateRequest") -> bool:
        """Whether an answer to this request answers `other`, too."""
        return (
            _has_all(self._names, other._names)
            and _has_all(self.volume_groups, other.volume_groups)
            and (self.boot_id or not other.boot_id)
        )

    def with_all_of(self, other: "NodeStateRequest") -> "NodeStateRequest":
        """Return the union of both requests; our parameters win for a common hypervisor."""
        hypervisors = None
        if self.hypervisors is not None or other.hypervisors is not None:
            ours = self.hypervisors or ()
            known = {name for name, _ in ours}
            hypervisors = (*ours, *(spec for spec in other.hypervisors or () if spec[0] not in known))
        groups = None
        if self.volume_groups is not None or other.volume_groups is not None:
            groups = tuple(dict.fromkeys([*(self.volume_groups or ()), *(other.volume_groups or ())]))
        return NodeStateRequest(hypervisors, groups, self.boot_id or other.boot_id)

    def part_of(self, snapshot: Snapshot) -> dict[str, Any]:
        """Return the requested part of a snapshot, without what it lacks."""
        found: dict[str, Any] = {}
        for flag, names in ((CACHE_REQ_HV, self._names), (CACHE_REQ_DISKINFO, self.volume_groups)):
            said = snapshot.get(flag)
            if names is not None and isinstance(said, dict):
                found[flag] = {name: said[name] for name in names if name in said}
        if not self.with_instances and CACHE_REQ_HV in found:
            said = found[CACHE_REQ_HV]
            found[CACHE_REQ_HV] = {name: {NODE_DATA: said[name][NODE_DATA]} for name in said if _is_whole(said[name])}
        if self.boot_id and CACHE_REQ_BOOTID in snapshot:
            found[CACHE_REQ_BOOTID] = snapshot[CACHE_REQ_BOOTID]
        return found

    def answered_by(self, snapshot: Snapshot) -> "NodeStateRequest":
        """Return the part of this request that a snapshot answers in full, flag by flag."""
        there = _what_is_there(snapshot)
        return NodeStateRequest(
            self.hypervisors if _has_all(there._names, self._names) else None,
            self.volume_groups if _has_all(there.volume_groups, self.volume_groups) else None,
            self.boot_id and there.boot_id,
        )

    @property
    def _names(self) -> tuple[str, ...] | None:
        return None if self.hypervisors is None else tuple(name for name, _ in self.hypervisors)


def _what_is_there(snapshot: Snapshot) -> NodeStateRequest:
    hypervisors, groups = snapshot.get(CACHE_REQ_HV), snapshot.get(CACHE_REQ_DISKINFO)
    return NodeStateRequest(
        tuple((name, {}) for name, said in hypervisors.items() if _is_whole(said))
        if isinstance(hypervisors, dict)
        else None,
        tuple(groups) if isinstance(groups, dict) else None,
        isinstance(snapshot.get(CACHE_REQ_BOOTID), str),
    )


def _is_whole(said: object) -> bool:
    """Whether a report of a hypervisor is complete."""
    return isinstance(said, dict) and isinstance(said.get(NODE_DATA), dict)


def _has_all(there: Sequence[str] | None, wanted: Sequence[str] | None) -> bool:
    return wanted is None or (there is not None and set(wanted) <= set(there))


def _are_specs(value: object) -> bool:
    return isinstance(value, list | tuple) and all(
        isinstance(each, list | tuple) and len(each) == 2 and isinstance(each[0], str) and isinstance(each[1], Mapping)
        for each in value
    )


def _are_names(value: object) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(each, str) for each in value)
