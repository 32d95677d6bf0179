"""Every operation of Ganeti that a native cell carries out, by its name."""

from operations.jobs.vocabulary import Vocabulary
from operations.opcodes.cluster import CLUSTER
from operations.opcodes.groups import GROUPS
from operations.opcodes.instances.power import POWER
from operations.opcodes.networks import NETWORKS
from operations.opcodes.nodes import NODES
from operations.opcodes.storage import STORAGE
from operations.opcodes.tags import TAGS

OPCODES: Vocabulary = dict((*CLUSTER, *GROUPS, *NETWORKS, *NODES, *STORAGE, *TAGS, *POWER))
