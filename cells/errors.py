"""What can go wrong with a cell.

CellError
├── CellUnreachableError     the cell did not answer, or not in time; other cells are not affected
├── UnknownCellError         no cell with that name or uuid
├── InstanceNotFoundError    no such instance, or it is deleted
└── InvalidTransitionError   the instance's state does not allow the operation
"""


class CellError(Exception):
    """Something went wrong with a cell."""


class CellUnreachableError(CellError):
    """The cell `cell` (its name) could not be asked."""

    def __init__(self, cell: str, reason: str) -> None:
        super().__init__(f"cell '{cell}' cannot be reached: {reason}")
        self.cell = cell
        self.reason = reason


class UnknownCellError(CellError):
    """No cell is called `name`; `known` are the names there are."""

    def __init__(self, name: str, known: tuple[str, ...]) -> None:
        super().__init__(f"no cell is called '{name}'; known: {', '.join(known) or 'none'}")
        self.name = name


class InstanceNotFoundError(CellError):
    """No live instance has this uuid."""

    def __init__(self, uuid: str) -> None:
        super().__init__(f"Instance {uuid} could not be found.")
        self.uuid = uuid


class InvalidTransitionError(CellError):
    """The operation is not allowed while the instance is in `vm_state`."""

    def __init__(self, uuid: str, action: str, vm_state: str | None) -> None:
        super().__init__(f"Cannot '{action}' instance {uuid} while it is in vm_state {vm_state}")
        self.uuid = uuid
        self.action = action
        self.vm_state = vm_state
