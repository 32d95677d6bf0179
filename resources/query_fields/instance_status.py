"""Ganeti's status of an instance, from what is wanted and what nodes say (contracts/ganeti-query, 8)."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from fleetlight.resources.fields import Record
from fleetlight.resources.query_fields.cluster_parameters import Parameters, hypervisor_parameters
from fleetlight.resources.query_fields.ganeti import own_value

NODE_OFFLINE, NODE_DOWN, WRONG_NODE = "ERROR_nodeoffline", "ERROR_nodedown", "ERROR_wrongnode"
ERRORS = frozenset({NODE_OFFLINE, NODE_DOWN, WRONG_NODE, "ERROR_up", "ERROR_down"})
"""What is not as it is wanted."""

ADMIN_STATE_NEEDS = ("vm_state", "forthcoming", "ganeti")
"""The fields of a record that its wanted state follows from."""

# In these states the owner wants the guest to be off; in all others that a guest can have, to run.
_WANTED_DOWN = frozenset({"stopped", "shelved", "shelved_offloaded", "soft-delete", "deleted", "suspended"})
_NOT_MADE = frozenset({"building"})
# The other state of a guest is that it runs (contracts/ganeti-node-state-cache, 8).
_SHUT_DOWN = 1
_KVM = "kvm"


OBSERVED_FIELDS = ("uuid", "node", "deleted", "vm_state", "forthcoming", "ganeti")
"""The fields of the record of an instance by which nodes are asked for what is `Seen` of it."""


class Seen(NamedTuple):
    """What the nodes of a cell say of one instance.

    is_offline: its node is marked offline. has_failed: its node did not answer. guest: what its node says of it, None
    without one. elsewhere: what another node says of it, which has it running. may_shut_down: whether it may be shut
    down from inside.
    """

    is_offline: bool = False
    has_failed: bool = False
    guest: Mapping[str, Any] | None = None
    elsewhere: Mapping[str, Any] | None = None
    may_shut_down: bool = False

    @property
    def running(self) -> Mapping[str, Any] | None:
        """What is said of it by the node that has it running."""
        return self.guest if runs(self.guest) else self.elsewhere


def runs(guest: Mapping[str, Any] | None) -> bool:
    """Whether a node that says this of an instance has it running."""
    return guest is not None and guest.get("state") != _SHUT_DOWN


def admin_state(record: Record) -> str:
    """The state that is wanted: `up`, `down` or `offline`."""
    own: str | None = own_value(record, "admin_state")
    if own is not None:
        return own
    return "down" if record["forthcoming"] or record["vm_state"] in _WANTED_DOWN | _NOT_MADE else "up"


def may_shut_down(record: Record, cluster: Parameters) -> bool:
    """Whether the instance may be shut down from inside, without anything being wrong."""
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
