"""Ganeti's status of an instance, from its wanted state and the reports of nodes (contracts/ganeti-query, 8)."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from fleetlight.resources.fields import Record
from fleetlight.resources.query_fields.cluster_parameters import Parameters, hypervisor_parameters
from fleetlight.resources.query_fields.ganeti import own_value

NODE_OFFLINE, NODE_DOWN, WRONG_NODE = "ERROR_nodeoffline", "ERROR_nodedown", "ERROR_wrongnode"
ERRORS = frozenset({NODE_OFFLINE, NODE_DOWN, WRONG_NODE, "ERROR_up", "ERROR_down"})
"""The statuses that differ from the wanted state."""

ADMIN_STATE_NEEDS = ("vm_state", "forthcoming", "ganeti")
"""The fields of a record that determine the wanted state."""

# In these states the owner wants the guest to be off; in all other states of a guest, to run.
_WANTED_DOWN = frozenset({"stopped", "shelved", "shelved_offloaded", "soft-delete", "deleted", "suspended"})
_NOT_MADE = frozenset({"building"})
# A guest in any other state runs (contracts/ganeti-node-state-cache, 8).
_SHUT_DOWN = 1
_KVM = "kvm"


OBSERVED_FIELDS = ("uuid", "node", "deleted", "vm_state", "forthcoming", "ganeti")
"""The fields of an instance's record that a query to nodes for its `Seen` needs."""


class Seen(NamedTuple):
    """The reports of a cell's nodes about one instance.

    is_offline: its node is marked offline. has_failed: its node did not answer. guest: the report of its node; None if
    it has no guest. elsewhere: the report of another node on which it runs. may_shut_down: whether the guest may shut
    itself down.
    """

    is_offline: bool = False
    has_failed: bool = False
    guest: Mapping[str, Any] | None = None
    elsewhere: Mapping[str, Any] | None = None
    may_shut_down: bool = False

    @property
    def running(self) -> Mapping[str, Any] | None:
        """The report of the node on which it runs."""
        return self.guest if runs(self.guest) else self.elsewhere


def runs(guest: Mapping[str, Any] | None) -> bool:
    """Whether the instance runs on the node with this report."""
    return guest is not None and guest.get("state") != _SHUT_DOWN


def admin_state(record: Record) -> str:
    """The wanted state: `up`, `down` or `offline`."""
    own: str | None = own_value(record, "admin_state")
    if own is not None:
        return own
    return "down" if record["forthcoming"] or record["vm_state"] in _WANTED_DOWN | _NOT_MADE else "up"


def may_shut_down(record: Record, cluster: Parameters) -> bool:
    """Whether the guest may shut itself down without an error."""
    if not cluster["enabled_user_shutdown"]:
        return False
    hypervisor = own_value(record, "hypervisor") or next(iter(cluster["enabled_hypervisors"]), None)
    if hypervisor != _KVM:
        return True
    own = own_value(record, "custom_hvparams") or {}
    return bool(hypervisor_parameters(cluster, _KVM, own_value(record, "os"), own).get("user_shutdown"))


def observed_status(record: Record, seen: Seen) -> str:
    """The status of an instance whose node has an agent."""
    if seen.is_offline:
        return NODE_OFFLINE
    if seen.elsewhere is not None and not runs(seen.guest):
        return WRONG_NODE
    if seen.has_failed:
        return NODE_DOWN
    state = admin_state(record)
    if runs(seen.guest):
        return "running" if state == "up" else "ERROR_up"
    if seen.guest is not None:
        return "ADMIN_down" if state != "up" else "USER_down" if seen.may_shut_down else "ERROR_down"
    if state == "down" and own_value(record, "admin_state_source") == "user" and seen.may_shut_down:
        return "USER_down"
    return {"up": "ERROR_down", "offline": "ADMIN_offline"}.get(state, "ADMIN_down")
