"""The base of Ganeti's operations: a name, parameters, and a summary for lists of jobs.

A class for each operation is the one definition of its parameters: what may be submitted, what a job keeps, and what
the steps read (contracts/ganeti-rapi, 1: parameters that all have).
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
"""The number in the fleet of another job, and the statuses that the job goes on after; none: those of any end."""


class OtherCellError(Exception):
    """A job may depend on jobs of its own cell only. number: of the one that is not, in the fleet."""

    def __init__(self, number: int) -> None:
        super().__init__(f"depends: there is no job {number} in the cell of this one")
        self.number = number


class OpCode(BaseModel):
    """Subclasses have the parameters of one operation as their fields.

    OP_ID: its name. ABOUT: the field that says in lists what it is about.
    reason: the trail of callers and their reasons, as [source, text, nanoseconds since the epoch].
    """

    # Deferred: most processes and commands use few of them (docs/decisions/0027).
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
        """The operation with these parameters, which are JSON. Raises pydantic.ValidationError."""
        # By way of JSON, in which there is one kind of list.
        return cls.model_validate_json(_encode(parameters))

    @property
    def summary(self) -> str:
        """`INSTANCE_STARTUP(web1)`"""
        name = self.OP_ID.removeprefix(OPCODE)
        about = None if self.ABOUT is None else getattr(self, self.ABOUT)
        return name if about is None else f"{name}({about})"

    @property
    def instance(self) -> str | None:
        """The name of the instance that it is about, or its uuid, of one that is there when it is accepted."""
        return None

    @property
    def makes_instance(self) -> bool:
        """Whether it is about an instance that it makes."""
        return False

    def to_operation_of_new(self) -> NewOperation:
        """As `to_operation`, of an instance that it makes."""
        return self.to_operation(str(uuid4()))

    def to_operation(self, instance_uuid: str | None = None) -> NewOperation:
        """What is queued of it. instance_uuid: the instance that it is about."""
        parameters = self.model_dump(mode="json", exclude_none=True)
        return NewOperation(self.OP_ID, parameters, instance_uuid, summary=self.summary)


def dependencies_of(opcode: OpCode, cell: Cell) -> Mapping[int, Sequence[Status]]:
    """The numbers in its cell of the jobs that it depends on, and what they may end with. Raises OtherCellError."""
    found = {}
    for number, statuses in opcode.depends or ():
        job_id = number_in_cell(cell, number)
        if job_id is None:
            raise OtherCellError(number)
        found[job_id] = statuses or sorted(ENDED)
    return found


class InstanceOpCode(OpCode):
    """An operation on one instance that is there. instance_uuid: has to be that of the instance, if it is given."""

    ABOUT = "instance_name"

    instance_name: str
    instance_uuid: str | None = None

    @property
    def instance(self) -> str | None:
        return self.instance_name
