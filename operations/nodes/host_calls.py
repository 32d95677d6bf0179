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
from dataclasses import dataclass, field, replace
from typing import Any

from fleetlight.cells.kinds.native.agent_addresses import AgentAddress
from fleetlight.operations.jobs.errors import NodeCallError
from fleetlight.operations.jobs.nodes import NodeCall

FORGET = "forget"
"""A call for nothing: what is remembered of the node is not to be shown any more."""


@dataclass(frozen=True, slots=True)
class AgentCall:
    """name: as in fleetlight.agents.calls. is_optional: passed over on a host without an agent.

    spares_offline: passed over on a node that is marked offline: an operator has said so that nothing runs there
    (contracts/ganeti-node-state-cache, 7), and what is called for is to get an instance away from it.
    """

    host: str
    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    is_optional: bool = False
    spares_offline: bool = False

    def is_made(self, agents: Mapping[str, AgentAddress]) -> bool:
        """Whether the call is made, or fails since its host has no agent. agents: by their hosts."""
        agent = agents.get(self.host)
        return not self.is_optional if agent is None else not (self.spares_offline and agent.is_offline)


def agent_calls(call: NodeCall) -> Sequence[AgentCall]:
    """In the order in which they are made. Raises NodeCallError for what agents do not do."""
    made = _CALLS.get(call.name)
    if made is None:
        raise NodeCallError(call.host, call.name, "agents of hosts cannot do that")
    return made(call)


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


def _simple(name: str) -> Callable[[NodeCall], Sequence[AgentCall]]:
    return lambda call: [AgentCall(call.host, name, _instance(call))]


def _of_guest(name: str) -> Callable[[NodeCall], Sequence[AgentCall]]:
    return lambda call: [AgentCall(call.host, name, _guest(call))]


def _made(call: NodeCall, host: str, *, starts: bool, is_moved: bool, is_optional: bool = False) -> AgentCall:
    disks = call.parameters["guest"]["disks"]
    arguments = {**_guest(call), "disks": disks, "start": starts, "moved": is_moved}
    return AgentCall(host, "instance_create", arguments, is_optional)


def _create(call: NodeCall) -> Sequence[AgentCall]:
    copies = [
        _made(call, host, starts=False, is_moved=False, is_optional=True)
        for host in call.parameters.get("other_hosts", ())
    ]
    return [*copies, _made(call, call.host, starts=call.parameters.get("start", True), is_moved=False)]


def _set_disks(call: NodeCall) -> Sequence[AgentCall]:
    """What is missing of its disks is there then; what runs goes on to run."""
    return _create(replace(call, parameters={**call.parameters, "start": False}))


def _delete(call: NodeCall) -> Sequence[AgentCall]:
    others = [host for host in call.parameters.get("other_hosts", ()) if host != call.host]
    return [
        AgentCall(call.host, "instance_remove", _instance(call)),
        *(AgentCall(host, "instance_remove", _instance(call), is_optional=True) for host in others),
    ]


def _reboot(call: NodeCall) -> Sequence[AgentCall]:
    # What the host does not have, as of an instance from before it had its agent, is there then.
    return [*_of_guest("instance_start")(call), *_simple("instance_reboot")(call)]


def _rebuild(call: NodeCall) -> Sequence[AgentCall]:
    return [AgentCall(call.host, "instance_rebuild", {**_guest(call), "start": call.parameters["start"]})]


def _shelve(call: NodeCall) -> Sequence[AgentCall]:
    return [*_simple("instance_snapshot")(call), *_simple("instance_shutdown")(call)]


def _prepare(call: NodeCall) -> Sequence[AgentCall]:
    return [_made(call, call.host, starts=False, is_moved=True)]


def _arrive(call: NodeCall) -> Sequence[AgentCall]:
    return _of_guest("instance_start")(call) if call.parameters["start"] else []


def _evacuate(call: NodeCall) -> Sequence[AgentCall]:
    return [_made(call, call.host, starts=call.parameters["start"], is_moved=True)]


def _revert(call: NodeCall) -> Sequence[AgentCall]:
    """Back to a host that has it, and does not run it."""
    leaves = call.parameters["target_host"]
    return [
        AgentCall(leaves, "instance_shutdown", _instance(call)),
        *_arrive(call),
        AgentCall(leaves, "instance_remove", _instance(call)),
    ]


def _migrate(call: NodeCall) -> Sequence[AgentCall]:
    target = call.parameters["target_host"]
    return [
        _made(call, target, starts=False, is_moved=True),
        AgentCall(target, "accept_instance", _guest(call)),
        AgentCall(call.host, "instance_migrate", {**_instance(call), "target": target}),
        AgentCall(target, "instance_finalize_migration_dst", {**_instance(call), "success": True}),
    ]


def _failover(call: NodeCall) -> Sequence[AgentCall]:
    return [
        AgentCall(call.host, "instance_shutdown", _instance(call), spares_offline=True),
        _made(call, call.parameters["target_host"], starts=call.parameters["start"], is_moved=True),
    ]


def _leave(call: NodeCall) -> Sequence[AgentCall]:
    """What was moved away runs elsewhere, and is not here any more."""
    success = {**_instance(call), "success": True}
    finalized = AgentCall(call.host, "instance_finalize_migration_src", success, spares_offline=True)
    last = "instance_shutdown" if call.parameters["keeps_disks"] else "instance_remove"
    return [finalized, AgentCall(call.host, last, _instance(call), spares_offline=True)]


def _undo_move(call: NodeCall) -> Sequence[AgentCall]:
    """Nothing of the target, and then back where it was."""
    target = call.parameters["target_host"]
    removed = "instance_shutdown" if call.parameters["keeps_disks"] else "instance_remove"
    return [AgentCall(target, removed, _instance(call)), *_arrive(call)]


def _undo_migrate(call: NodeCall) -> Sequence[AgentCall]:
    target = call.parameters["target_host"]
    # Of a guest that has arrived the target says so, and then it stays there.
    given_up = AgentCall(target, "instance_finalize_migration_dst", {**_instance(call), "success": False})
    removed = [] if call.parameters["keeps_disks"] else [AgentCall(target, "instance_remove", _instance(call))]
    stays = AgentCall(call.host, "instance_finalize_migration_src", {**_instance(call), "success": False})
    return [given_up, *removed, stays]


def _grow(call: NodeCall) -> Sequence[AgentCall]:
    given = {name: call.parameters[name] for name in ("disk", "size")}
    others = call.parameters.get("other_hosts", ())
    return [
        *(AgentCall(host, "resize_disk", {**_instance(call), **given}, is_optional=True) for host in others),
        AgentCall(call.host, "resize_disk", {**_instance(call), **given}),
    ]


def _set_memory(call: NodeCall) -> Sequence[AgentCall]:
    return [AgentCall(call.host, "instance_balloon_memory", {**_instance(call), "memory": call.parameters["memory"]})]


_CALLS: Mapping[str, Callable[[NodeCall], Sequence[AgentCall]]] = {
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
_OF_SEVERAL = frozenset(
    {"arrive", "evacuate", "failover", "leave", "migrate", "prepare", "revert", "undo_migrate", "undo_move"}
)
