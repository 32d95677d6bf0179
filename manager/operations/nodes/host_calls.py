"""The calls of agents behind the call of a host by a step: one call, or several of them in an order that is safe.

Guests are called like the uuids of their instances: names are changed, and two instances may have the same. What a
call is made with is in its parameters:

instance_uuid   of the instance
guest           hypervisor (None: whichever the host has), memory (MiB), vcpus, disks (sizes in MiB)
start           whether the guest is to run then
target_host     the other host that it concerns
other_hosts     more hosts that may have something of the instance
keeps_disks     whether a host that a guest leaves keeps a copy of its disks

None of these calls takes from one host what another one has not confirmed to have.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from fleetlight.cells.kinds.native.agent_addresses import AgentAddress
from fleetlight.manager.operations.jobs.errors import NodeCallError
from fleetlight.manager.operations.jobs.nodes import NodeCall

FORGET = "forget"
"""A call for nothing: what is remembered of the node is not to be shown any more."""


def agent_calls(call: NodeCall, agents: Mapping[str, AgentAddress]) -> Sequence[NodeCall]:
    """The calls of agents that a call of a step is, in their order; their names are in fleetlight.manager.agents.calls.

    agents: by their hosts. Raises NodeCallError for what agents do not do.
    """
    calls = _CALLS.get(call.name)
    if calls is None:
        raise NodeCallError(call.host, call.name, "agents of hosts cannot do that")
    return [each for each in calls(call) if _is_made(each.host, call, agents.get(each.host))]


def _is_made(host: str, call: NodeCall, agent: AgentAddress | None) -> bool:
    """Whether a host is called, if it has an agent, or what is called for fails since it has none.

    A host that may have something of the instance need not have an agent. A node that is marked offline is not asked
    for what it has: an operator has said so that nothing runs there (contracts/ganeti-node-state-cache, 7), and what
    is called for is to get an instance away from it.
    """
    if agent is None:
        return host == call.host or host not in call.parameters.get("other_hosts", ())
    return not (agent.is_offline and host == call.host and call.name in _AWAY_FROM_HOST)


def changes_several(call: NodeCall) -> bool:
    """Whether what is remembered of all nodes is forgotten meanwhile (contracts/ganeti-node-state-cache, 5)."""
    return call.name in _OF_SEVERAL


def needs_undo(call: NodeCall) -> bool:
    """Whether a call that has failed may have left something, which another call undoes."""
    return call.name in _LEAVE_TRACES


def guest_name(instance_uuid: str) -> str:
    """What agents call the guest of an instance."""
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
    """What is missing of its disks is there then; what runs goes on to run."""
    return _create(replace(call, parameters={**call.parameters, "start": False}))


def _delete(call: NodeCall) -> Sequence[NodeCall]:
    others = [host for host in call.parameters.get("other_hosts", ()) if host != call.host]
    return [
        NodeCall(call.host, "instance_remove", _instance(call)),
        *(NodeCall(host, "instance_remove", _instance(call)) for host in others),
    ]


def _reboot(call: NodeCall) -> Sequence[NodeCall]:
    # What the host does not have, as of an instance from before it had its agent, is there then.
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
    """Back to a host that has it, and does not run it."""
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
    """What was moved away runs elsewhere, and is not here any more."""
    success = {**_instance(call), "success": True}
    finalized = NodeCall(call.host, "instance_finalize_migration_src", success)
    last = "instance_shutdown" if call.parameters["keeps_disks"] else "instance_remove"
    return [finalized, NodeCall(call.host, last, _instance(call))]


def _undo_move(call: NodeCall) -> Sequence[NodeCall]:
    """Nothing of the target, and then back where it was."""
    target = call.parameters["target_host"]
    removed = "instance_shutdown" if call.parameters["keeps_disks"] else "instance_remove"
    return [NodeCall(target, removed, _instance(call)), *_arrive(call)]


def _undo_migrate(call: NodeCall) -> Sequence[NodeCall]:
    target = call.parameters["target_host"]
    # Of a guest that has arrived the target says so, and then it stays there.
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
