"""The operations of Ganeti that the job of a move consists of, in their order; pure.

Every operation names the node that it leads to, so one that is done again is refused and undoes nothing. Servers of the
compute API move by an action of that, and have no operations here.
"""

from collections.abc import Iterator, Sequence

from fleetlight.operations.balancing.moves import MoveKind
from fleetlight.operations.balancing.plan import PlannedMove
from fleetlight.operations.opcodes.instances.move import InstanceFailover, InstanceMigrate, InstanceReplaceDisks
from fleetlight.operations.opcodes.instances.place_reservation import InstancePlace
from fleetlight.operations.opcodes.opcode import OpCode


def operations_of(move: PlannedMove, uuid: str, *, can_migrate: bool) -> Sequence[OpCode]:
    """The operations that bring an instance of Ganeti's, or a reservation, to its target.

    can_migrate: whether its node is up; otherwise a guest that runs there is started anew on the other node.
    """
    target = move.target
    if move.is_forthcoming:
        return [
            InstancePlace(
                instance_name=uuid,
                instance_uuid=uuid,
                primary_node=target.primary,
                secondary_node=target.secondary,
            )
        ]
    return list(_operations(move, uuid, is_live=can_migrate and move.moved.uses_memory))


def _operations(move: PlannedMove, uuid: str, *, is_live: bool) -> Iterator[OpCode]:
    source, target = move.source, move.target

    def go_to(node: str | None) -> OpCode:
        if is_live:
            return InstanceMigrate(instance_name=uuid, instance_uuid=uuid, target_node=node, allow_failover=True)
        return InstanceFailover(instance_name=uuid, instance_uuid=uuid, target_node=node)

    def mirror_to(node: str | None) -> OpCode:
        return InstanceReplaceDisks(
            instance_name=uuid, instance_uuid=uuid, mode="replace_new_secondary", remote_node=node
        )

    match move.kind:
        case MoveKind.FAILOVER | MoveKind.FAILOVER_TO:
            yield go_to(target.primary)
        case MoveKind.REPLACE_SECONDARY:
            yield mirror_to(target.secondary)
        case MoveKind.REPLACE_AND_FAILOVER:
            yield mirror_to(target.primary)
            yield go_to(target.primary)
        case MoveKind.FAILOVER_AND_REPLACE:
            yield go_to(target.primary)
            yield mirror_to(target.secondary)
        case MoveKind.REPLACE_PRIMARY:
            yield go_to(source.secondary)
            yield mirror_to(target.primary)
            yield go_to(target.primary)
        case MoveKind.PLACE:
            raise ValueError(f"{move.instance} is no reservation, whose nodes can all be changed at once")
