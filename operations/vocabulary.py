"""The operations of jobs of a native cell: actions of servers, and operations of Ganeti."""

from fleetlight.operations.actions.vocabulary import VOCABULARY
from fleetlight.operations.jobs.vocabulary import Vocabulary
from fleetlight.operations.opcodes.cluster import CLUSTER
from fleetlight.operations.opcodes.evacuation import EVACUATION
from fleetlight.operations.opcodes.groups import GROUPS
from fleetlight.operations.opcodes.instances.contents import CONTENTS
from fleetlight.operations.opcodes.instances.create import CREATE
from fleetlight.operations.opcodes.instances.expire_reservations import EXPIRE
from fleetlight.operations.opcodes.instances.modify import MODIFY
from fleetlight.operations.opcodes.instances.move import MOVE
from fleetlight.operations.opcodes.instances.place_reservation import PLACE
from fleetlight.operations.opcodes.instances.power import POWER
from fleetlight.operations.opcodes.instances.remove import REMOVE
from fleetlight.operations.opcodes.instances.several import SEVERAL
from fleetlight.operations.opcodes.networks import NETWORKS
from fleetlight.operations.opcodes.nodes import NODES
from fleetlight.operations.opcodes.refresh import REFRESHING
from fleetlight.operations.opcodes.storage import STORAGE
from fleetlight.operations.opcodes.tags import TAGS

OF_CELLS = (*CLUSTER, *GROUPS, *NETWORKS, *NODES, *REFRESHING, *EVACUATION, *STORAGE, *TAGS)
OF_INSTANCES = (*CREATE, *EXPIRE, *REMOVE, *POWER, *MODIFY, *MOVE, *PLACE, *CONTENTS, *SEVERAL)
OPCODES: Vocabulary = dict((*OF_CELLS, *OF_INSTANCES))


ALL_OPERATIONS: Vocabulary = {**VOCABULARY, **OPCODES}
"""By name; operations of Ganeti begin with `OP_`."""
