"""Every operation of Ganeti that a native cell carries out, by its name."""

from operations.jobs.vocabulary import Vocabulary
from operations.opcodes.cluster import CLUSTER
from operations.opcodes.instances.power import POWER

OPCODES: Vocabulary = dict((*CLUSTER, *POWER))
