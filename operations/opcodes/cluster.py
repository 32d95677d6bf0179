"""Operations of Ganeti on a cell as a whole."""

from operations.jobs.vocabulary import Operation, Task
from operations.opcodes.building import operation
from operations.opcodes.opcode import OpCode


class RedistributeConfiguration(OpCode):
    """Every part of a cell reads its configuration from the database, so every node has it already."""

    OP_ID = "OP_CLUSTER_REDIST_CONF"


def _nothing_to_check(_op: RedistributeConfiguration, _task: Task) -> None:
    """It may always begin."""


CLUSTER: tuple[tuple[str, Operation], ...] = (operation(RedistributeConfiguration, _nothing_to_check),)
