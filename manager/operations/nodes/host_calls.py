"""The calls of agents that carry out a step's call of a host: one call, or several in a safe order.

Guests are named by the uuids of their instances, since names change, and may be equal. The parameters of a call are:

instance_uuid   of the instance
guest           hypervisor (None: the host's default), memory (MiB), vcpus, disks (sizes in MiB)
start           whether the guest runs afterwards
target_host     the other host of the call
other_hosts     further hosts that may have parts of the instance
keeps_disks     whether a host that a guest leaves keeps a copy of its disks

No call removes from one host what another host has not confirmed to have.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from fleetlight.cells.kinds.native.agent_addresses import AgentAddress
from fleetlight.manager.operations.jobs.errors import NodeCallError
from fleetlight.manager.operations.jobs.nodes import NodeCall

FORGET = "forget"
"""A call that only drops the cached state of the node."""


def agent_calls(call: NodeCall, agents: Mapping[str, AgentAddress]) -> Sequence[NodeCall]:
    """Return the calls of agents for a step's call, in order (names: fleetlight.manager.agents.calls).

    agents: by host. Raises NodeCallError for a call that agents do not support.
    """
    calls = _CALLS.get(call.name)
    if calls is None:
        raise NodeCallError(call.host, call.name, "agents of hosts cannot do that")
    return [each for each in calls(call) if _is_made(each.host, call, agents.get(each.host))]


def _is_made(host: str, call: NodeCall, agent: AgentAddress | None) -> bool:
    """Whether to call a host; a needed host without agent makes the call fail.

    Hosts that only may have parts of the instance need no agent. A node that is marked offline is not called: by that
    an operator says that nothing runs there (contracts/ganeti-node-state-cache, 7), and the call moves an instance
    away from it.
    """
    if agent is None:
        return host == call.host or host not in call.parameters.get("other_hosts", ())
    return not (agent.is_offline and host == call.host and call.name in _AWAY_FROM_HOST)


def changes_several(call: NodeCall) -> bool:
    """Whether a call drops the cached state of all nodes meanwhile (contracts/ganeti-node-state-cache, 5)."""
    return call.name in _OF_SEVERAL


def needs_undo(call: NodeCall) -> bool:
    """Whether a failed call may leave remains, which another call removes."""
    return call.name in _LEAVE_TRACES


def guest_name(instance_uuid: str) -> str:
    """Return the name of an instance's guest on agents."""
    return instance_uuid


def _instance(call: NodeCall) -> dict[str, Any]:
    return {"instance": guest_name(call.parameters["instance_uuid"])}


def _guest(call: NodeCall) -> dict[str, Any]:
    guest = call.parameters["guest"]
    return {**_instance(call), **{name: guest[name] for name in ("hypervisor", "memory", "vcpus")}}


def _simple(name: str) -> Callable[[NodeCall], Sequence[NodeCall]]:
    return lambda call: [NodeCall(call.host, name, _instance(call))]


def _of_guest(name: str) -> Callable[[NodeCall], Sequence[NodeCall]]:
    return lambda call: [NodeCall(call.host, name, _guest(call))]


def _made(call: NodeCall, host: str, *, starts: bool, is_moved: bool) -> NodeCall:
    disks = call.parameters["guest"]["disks"]
    return NodeCall(host, "instance_create", {**_guest(call), "disks": disks, "start": starts, "moved": is_moved})


def _create(call: NodeCall) -> Sequence[NodeCall]:
    others = call.parameters.get("other_hosts", ())
    return [
        *(_made(call, host, starts=False, is_moved=False) for host in others),
        _made(call, call.host, starts=call.parameters.get("start", True), is_moved=False),
    ]


def _set_disks(call: NodeCall) -> Sequence[NodeCall]:
    """Make missing disks; a running guest goes on running."""
    return _create(replace(call, parameters={**call.parameters, "start": False}))


def _delete(call: NodeCall) -> Sequence[NodeCall]:
    others = [host for host in call.parameters.get("other_hosts", ()) if host != call.host]
    return [
        NodeCall(call.host, "instance_remove", _instance(call)),
        *(NodeCall(host, "instance_remove", _instance(call)) for host in others),
    ]


def _reboot(call: NodeCall) -> Sequence[NodeCall]:
    # The start makes a guest that the host lacks, such as one from before the host had its agent.
    return [*_of_guest("instance_start")(call), *_simple("instance_reboot")(call)]


def _rebuild(call: NodeCall) -> Sequence[NodeCall]:
    return [NodeCall(call.host, "instance_rebuild", {**_guest(call), "start": call.parameters["start"]})]


def _shelve(call: NodeCall) -> Sequence[NodeCall]:
    return [*_simple("instance_snapshot")(call), *_simple("instance_shutdown")(call)]


def _prepare(call: NodeCall) -> Sequence[NodeCall]:
    return [_made(call, call.host, starts=False, is_moved=True)]


def _arrive(call: NodeCall) -> Sequence[NodeCall]:
    return _of_guest("instance_start")(call) if call.parameters["start"] else []


def _evacuate(call: NodeCall) -> Sequence[NodeCall]:
    return [_made(call, call.host, starts=call.parameters["start"], is_moved=True)]


def _revert(call: NodeCall) -> Sequence[NodeCall]:
    """Return a guest to a host that has it, and does not run it."""
    leaves = call.parameters["target_host"]
    return [
        NodeCall(leaves, "instance_shutdown", _instance(call)),
        *_arrive(call),
        NodeCall(leaves, "instance_remove", _instance(call)),
    ]


def _migrate(call: NodeCall) -> Sequence[NodeCall]:
    target = call.parameters["target_host"]
    return [
        _made(call, target, starts=False, is_moved=True),
        NodeCall(target, "accept_instance", _guest(call)),
        NodeCall(call.host, "instance_migrate", {**_instance(call), "target": target}),
        NodeCall(target, "instance_finalize_migration_dst", {**_instance(call), "success": True}),
    ]


def _failover(call: NodeCall) -> Sequence[NodeCall]:
    return [
        NodeCall(call.host, "instance_shutdown", _instance(call)),
        _made(call, call.parameters["target_host"], starts=call.parameters["start"], is_moved=True),
    ]


def _leave(call: NodeCall) -> Sequence[NodeCall]:
    """Remove a guest from its old host after it runs elsewhere."""
    success = {**_instance(call), "success": True}
    finalized = NodeCall(call.host, "instance_finalize_migration_src", success)
    last = "instance_shutdown" if call.parameters["keeps_disks"] else "instance_remove"
    return [finalized, NodeCall(call.host, last, _instance(call))]


def _undo_move(call: NodeCall) -> Sequence[NodeCall]:
    """Remove a guest from the target, and then restore it on its old host."""
    target = call.parameters["target_host"]
    removed = "instance_shutdown" if call.parameters["keeps_disks"] else "instance_remove"
    return [NodeCall(target, removed, _instance(call)), *_arrive(call)]


def _undo_migrate(call: NodeCall) -> Sequence[NodeCall]:
    target = call.parameters["target_host"]
    # If the guest has arrived, the target says so, and the guest stays there.
    given_up = NodeCall(target, "instance_finalize_migration_dst", {**_instance(call), "success": False})
    removed = [] if call.parameters["keeps_disks"] else [NodeCall(target, "instance_remove", _instance(call))]
    stays = NodeCall(call.host, "instance_finalize_migration_src", {**_instance(call), "success": False})
    return [given_up, *removed, stays]


def _grow(call: NodeCall) -> Sequence[NodeCall]:
    given = {name: call.parameters[name] for name in ("disk", "size")}
    others = call.parameters.get("other_hosts", ())
    return [
        *(NodeCall(host, "resize_disk", {**_instance(call), **given}) for host in others),
        NodeCall(call.host, "resize_disk", {**_instance(call), **given}),
    ]


def _set_memory(call: NodeCall) -> Sequence[NodeCall]:
    return [NodeCall(call.host, "instance_balloon_memory", {**_instance(call), "memory": call.parameters["memory"]})]


_CALLS: Mapping[str, Callable[[NodeCall], Sequence[NodeCall]]] = {
    "arrive": _arrive,
    "create": _create,
    "delete": _delete,
    "evacuate": _evacuate,
    "failover": _failover,
    FORGET: lambda _call: [],
    "grow_disk": _grow,
    "leave": _leave,
    "migrate": _migrate,
    "pause": _simple("instance_pause"),
    "prepare": _prepare,
    "reboot": _reboot,
    "rebuild": _rebuild,
    "rescue": _of_guest("instance_rescue"),
    "resize": _simple("instance_shutdown"),
    "resume": _of_guest("instance_start"),
    "revert": _revert,
    "set_disks": _set_disks,
    "set_memory": _set_memory,
    "shelve": _shelve,
    "start": _of_guest("instance_start"),
    "stop": _simple("instance_shutdown"),
    "suspend": _simple("instance_suspend"),
    "undo_create": _delete,
    "undo_migrate": _undo_migrate,
    "undo_move": _undo_move,
    "unpause": _simple("instance_unpause"),
    "unrescue": _of_guest("instance_unrescue"),
}
"""By the names of calls."""
_LEAVE_TRACES = frozenset({"arrive", "create", "evacuate", "failover", "migrate", "prepare", "resize"})
_AWAY_FROM_HOST = frozenset({"failover", "leave"})
_OF_SEVERAL = frozenset(
    {"arrive", "evacuate", "failover", "leave", "migrate", "prepare", "revert", "undo_migrate", "undo_move"}
)
