"""The base of Ganeti's operations: a name, parameters, and a summary for lists of jobs.

Each operation has a class, the one definition of its parameters: those that callers submit, jobs keep, and steps read
(contracts/ganeti-rapi, 1, has the common parameters).
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, Self
from uuid import uuid4

import msgspec
from pydantic import BaseModel, ConfigDict, Field

from fleetlight.cells.job_numbers import number_in_cell
from fleetlight.cells.job_words import OPCODE
from fleetlight.cells.model import Cell
from fleetlight.manager.operations.jobs.model import ENDED, NewOperation, Status

_encode = msgspec.json.Encoder().encode

Priority = Literal[-10, 0, 10]
"""High, normal, low."""
Dependency = tuple[int, list[Status]]
"""The fleet's number of another job, and the statuses of it that let the job begin; none given: any final status."""


class OtherCellError(Exception):
    """A job depends on a job of another cell. number: the fleet's number of that job."""

    def __init__(self, number: int) -> None:
        super().__init__(f"depends: there is no job {number} in the cell of this one")
        self.number = number


class OpCode(BaseModel):
    """Base of operations; the fields of a subclass are the parameters of its operation.

    OP_ID: name of the operation. ABOUT: field that names its object in lists of jobs.
    reason: the trail of callers and their reasons, as [source, text, nanoseconds since the epoch].
    """

    # Deferred, since most processes use few of these models (docs/decisions/0027).
    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", hide_input_in_errors=True, defer_build=True)
    OP_ID: ClassVar[str]
    ABOUT: ClassVar[str | None] = None

    dry_run: bool = False
    debug_level: Annotated[int, Field(ge=0)] = 0
    priority: Priority = 0
    depends: list[Dependency] | None = None
    comment: str | None = None
    reason: list[tuple[str, str, int]] = Field(default_factory=list)

    @classmethod
    def read(cls, parameters: Mapping[str, Any]) -> Self:
        """Return the operation with these decoded JSON parameters. Raises pydantic.ValidationError."""
        # Parsing JSON accepts lists for tuples, which strict validation of Python values refuses.
        return cls.model_validate_json(_encode(parameters))

    @property
    def summary(self) -> str:
        """The operation in one line, as in `INSTANCE_STARTUP(web1)`."""
        name = self.OP_ID.removeprefix(OPCODE)
        about = None if self.ABOUT is None else getattr(self, self.ABOUT)
        return name if about is None else f"{name}({about})"

    @property
    def instance(self) -> str | None:
        """Name or uuid of the existing instance that the operation is about; None if it is about none."""
        return None

    @property
    def makes_instance(self) -> bool:
        """Whether the operation creates its instance."""
        return False

    def to_operation_of_new(self) -> NewOperation:
        """As `to_operation`, with a uuid for the instance that the operation creates."""
        return self.to_operation(str(uuid4()))

    def to_operation(self, instance_uuid: str | None = None) -> NewOperation:
        """Convert the opcode to the queue's form. instance_uuid: its instance."""
        parameters = self.model_dump(mode="json", exclude_none=True)
        return NewOperation(self.OP_ID, parameters, instance_uuid, summary=self.summary)


def dependencies_of(opcode: OpCode, cell: Cell) -> Mapping[int, Sequence[Status]]:
    """Return the statuses that an opcode waits for, by the cell's number of the job.

    Raises OtherCellError for a job of another cell.
    """
    found = {}
    for number, statuses in opcode.depends or ():
        job_id = number_in_cell(cell, number)
        if job_id is None:
            raise OtherCellError(number)
        found[job_id] = statuses or sorted(ENDED)
    return found


class InstanceOpCode(OpCode):
    """An operation on one existing instance. instance_uuid: if given, must be the uuid of the instance."""

    ABOUT = "instance_name"

    instance_name: str
    instance_uuid: str | None = None

    @property
    def instance(self) -> str | None:
        return self.instance_name
