"""Every operation of Ganeti that a native cell carries out, by its name."""

from operations.jobs.vocabulary import Vocabulary
from operations.opcodes.cluster import CLUSTER
from operations.opcodes.evacuation import EVACUATION
from operations.opcodes.groups import GROUPS
from operations.opcodes.instances.contents import CONTENTS
from operations.opcodes.instances.create import CREATE
from operations.opcodes.instances.expire import EXPIRE
from operations.opcodes.instances.modify import MODIFY
from operations.opcodes.instances.move import MOVE
from operations.opcodes.instances.place import PLACE
from operations.opcodes.instances.power import POWER
from operations.opcodes.instances.remove import REMOVE
from operations.opcodes.instances.several import SEVERAL
from operations.opcodes.networks import NETWORKS
from operations.opcodes.nodes import NODES
from operations.opcodes.refresh import REFRESHING
from operations.opcodes.storage import STORAGE
from operations.opcodes.tags import TAGS

OF_CELLS = (*CLUSTER, *GROUPS, *NETWORKS, *NODES, *REFRESHING, *EVACUATION, *STORAGE, *TAGS)
OF_INSTANCES = (*CREATE, *EXPIRE, *REMOVE, *POWER, *MODIFY, *MOVE, *PLACE, *CONTENTS, *SEVERAL)
OPCODES: Vocabulary = dict((*OF_CELLS, *OF_INSTANCES))
