"""The operations of jobs of a native cell: actions of servers, and operations of Ganeti."""

from fleetlight.manager.operations.actions.vocabulary import VOCABULARY
from fleetlight.manager.operations.jobs.vocabulary import Vocabulary
from fleetlight.manager.operations.opcodes.cluster import CLUSTER
from fleetlight.manager.operations.opcodes.evacuation import EVACUATION
from fleetlight.manager.operations.opcodes.groups import GROUPS
from fleetlight.manager.operations.opcodes.instances.contents import CONTENTS
from fleetlight.manager.operations.opcodes.instances.create import CREATE
from fleetlight.manager.operations.opcodes.instances.expire_reservations import EXPIRE
from fleetlight.manager.operations.opcodes.instances.modify import MODIFY
from fleetlight.manager.operations.opcodes.instances.move import MOVE
from fleetlight.manager.operations.opcodes.instances.place_reservation import PLACE
from fleetlight.manager.operations.opcodes.instances.power import POWER
from fleetlight.manager.operations.opcodes.instances.remove import REMOVE
from fleetlight.manager.operations.opcodes.instances.several import SEVERAL
from fleetlight.manager.operations.opcodes.networks import NETWORKS
from fleetlight.manager.operations.opcodes.nodes import NODES
from fleetlight.manager.operations.opcodes.refresh import REFRESHING
from fleetlight.manager.operations.opcodes.storage import STORAGE
from fleetlight.manager.operations.opcodes.tags import TAGS

OF_CELLS = (*CLUSTER, *GROUPS, *NETWORKS, *NODES, *REFRESHING, *EVACUATION, *STORAGE, *TAGS)
OF_INSTANCES = (*CREATE, *EXPIRE, *REMOVE, *POWER, *MODIFY, *MOVE, *PLACE, *CONTENTS, *SEVERAL)
OPCODES: Vocabulary = dict((*OF_CELLS, *OF_INSTANCES))


ALL_OPERATIONS: Vocabulary = {**VOCABULARY, **OPCODES}
"""By name; operations of Ganeti begin with `OP_`."""
