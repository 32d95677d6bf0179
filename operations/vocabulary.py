"""The operations of jobs of a native cell: actions of servers, and operations of Ganeti."""

from fleetlight.operations.actions.vocabulary import VOCABULARY
from fleetlight.operations.jobs.vocabulary import Vocabulary
from fleetlight.operations.opcodes.vocabulary import OPCODES

ALL_OPERATIONS: Vocabulary = {**VOCABULARY, **OPCODES}
"""By name; operations of Ganeti begin with `OP_`."""
